//! Connections with several requests in flight, whose responses arrive in
//! order.
//!
//! Each has two tasks: one writes requests in batches, the other reads
//! responses. Values stream through both, so that memory does not grow with
//! their size.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use floe::origin::ObjectKey;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::address::RemoteAddress;
use super::ask::Ask;
use crate::error::EvalError;
use crate::run::response::{Check, Failure, Response};

/// Bytes gathered before a write.
const WRITE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 64 << 10;
/// Requests per batch.
const BATCH_REQUESTS: usize = 256;
/// Longest line of a response.
const LINE_BYTES_MAX: usize = 4096;
/// Wait before another attempt after a rejected connection.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why a connection ended.
pub(super) type Broken = io::Error;

/// The encoding of requests and responses.
pub(super) trait Wire: Clone + Send + Sync + 'static {
    /// Writes the request for `name`.
    ///
    /// # Errors
    /// [`Failure`] if the request cannot be encoded. Nothing was written then.
    fn encode(
        &self,
        output: &mut Output,
        name: &ObjectKey,
        ask: &Ask,
    ) -> impl Future<Output = Result<Result<(), Failure>, Broken>> + Send;

    /// Reads the response to a request.
    fn decode(
        &self,
        input: &mut Input,
        name: &ObjectKey,
        ask: Ask,
    ) -> impl Future<Output = Result<Result<Response, Failure>, Broken>> + Send;

    /// Sends the greeting of each connection. A rejection's text is an error.
    fn greet(
        &self,
        output: &mut Output,
        input: &mut Input,
    ) -> impl Future<Output = Result<(), Broken>> + Send;
}

/// The sending side of a connection.
pub(super) struct Output {
    to: Box<dyn AsyncWrite + Send + Unpin>,
    gathered: Vec<u8>,
}

impl Output {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
    }

    /// As [`put`](Self::put), for long data.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.put(bytes);
        if self.gathered.len() < WRITE_BYTES {
            return Ok(());
        }
        self.flush().await
    }

    pub(super) async fn flush(&mut self) -> Result<(), Broken> {
        let sent = self.to.write_all(&self.gathered).await;
        self.gathered.clear();
        sent
    }
}

/// The receiving side of a connection.
pub(super) struct Input(BufReader<Box<dyn AsyncRead + Send + Unpin>>);

impl Input {
    /// The next line, without its terminator.
    pub(super) async fn line(&mut self) -> Result<String, Broken> {
        let mut line = Vec::new();
        let limited = &mut (&mut self.0).take(LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut line).await?;
        match line.strip_suffix(b"\n") {
            Some(line) => {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                Ok(String::from_utf8_lossy(line).into_owned())
            }
            None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            None => Err(junk("a response line has no end")),
        }
    }

    pub(super) async fn exact<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Passes the next `length` bytes through `check`. Reads all of them, even
    /// if the first are wrong.
    pub(super) async fn value(
        &mut self,
        mut length: u64,
        check: &mut Check,
    ) -> Result<Result<(), Failure>, Broken> {
        let mut checked = Ok(());
        while length > 0 {
            let there = self.0.fill_buf().await?;
            if there.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = usize::try_from(length).map_or(there.len(), |left| left.min(there.len()));
            if checked.is_ok() {
                checked = check.piece(&there[..taken]);
            }
            self.0.consume(taken);
            length -= taken as u64;
        }
        Ok(checked)
    }
}

/// An error for an invalid response.
pub(super) fn junk(what: impl Into<String>) -> Broken {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A request that was sent, and the receiver of its response.
struct Sent {
    name: ObjectKey,
    ask: Ask,
    reply: oneshot::Sender<Result<Response, Failure>>,
}

/// An open connection.
#[derive(Clone)]
struct Lane {
    requests: mpsc::UnboundedSender<Sent>,
    /// The reason of its end.
    end: Arc<Mutex<Option<String>>>,
}

/// The connections to a server. A broken one is replaced on demand.
pub(super) struct Pool<W> {
    wire: W,
    address: RemoteAddress,
    timeout: Duration,
    lanes: Vec<tokio::sync::Mutex<Option<Lane>>>,
}

impl<W: Wire> Pool<W> {
    /// Opens one connection as a test. Others are opened on demand.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) async fn open(
        wire: W,
        address: &RemoteAddress,
        connections: usize,
        timeout: Duration,
    ) -> Result<Self, EvalError> {
        let mut lanes: Vec<tokio::sync::Mutex<Option<Lane>>> = Vec::new();
        lanes.resize_with(connections.max(1), Default::default);
        let pool = Pool {
            wire,
            address: address.clone(),
            timeout,
            lanes,
        };
        let lane = pool.connect().await.map_err(|error| EvalError::Server {
            server: address.to_string(),
            reason: cure(&error),
        })?;
        *pool.lanes[0].lock().await = Some(lane);
        Ok(pool)
    }

    async fn connect(&self) -> Result<Lane, Broken> {
        tokio::time::timeout(self.timeout, self.connect_now())
            .await
            .map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
    }

    async fn connect_now(&self) -> Result<Lane, Broken> {
        let (from, to) = halves(&self.address).await?;
        let mut output = Output {
            to,
            gathered: Vec::new(),
        };
        let mut input = Input(BufReader::with_capacity(READ_BYTES, from));
        self.wire.greet(&mut output, &mut input).await?;
        let (requests, mut asked) = mpsc::unbounded_channel();
        let (expect, mut expected) = mpsc::unbounded_channel();
        let end = Arc::new(Mutex::new(None));
        let lane = Lane {
            requests,
            end: Arc::clone(&end),
        };
        let (wire, to_read) = (self.wire.clone(), self.wire.clone());
        tokio::spawn(async move {
            // Both end together, because responses arrive in order.
            let ended = tokio::select! {
                ended = write_requests(&wire, output, &mut asked, expect) => ended,
                ended = read_responses(&to_read, input, &mut expected) => ended,
            };
            // Set before the end of the channels wakes the waiters.
            if let Err(error) = ended {
                *end.lock() = Some(error.to_string());
            }
        });
        Ok(lane)
    }

    /// Sends a request and waits for the response.
    pub(super) async fn ask(
        &self,
        client: usize,
        name: ObjectKey,
        ask: Ask,
    ) -> Result<Response, Failure> {
        let place = &self.lanes[client % self.lanes.len()];
        let lane = self.lane(place).await?;
        let (reply, response) = oneshot::channel();
        let broken = || {
            let why = lane.end.lock().clone();
            let why = why.unwrap_or_else(|| "it was closed".into());
            Failure::Failed(format!("a connection to {} ended: {why}", self.address))
        };
        lane.requests
            .send(Sent { name, ask, reply })
            .map_err(|_closed| broken())?;
        match tokio::time::timeout(self.timeout, response).await {
            Ok(Ok(response)) => response,
            Ok(Err(_ended)) => Err(broken()),
            Err(_elapsed) => {
                // Later responses would be taken for this one.
                let mut place = place.lock().await;
                if place
                    .as_ref()
                    .is_some_and(|now| now.requests.same_channel(&lane.requests))
                {
                    *place = None;
                }
                Err(Failure::Failed(format!(
                    "no response within {:?}",
                    self.timeout
                )))
            }
        }
    }

    async fn lane(&self, place: &tokio::sync::Mutex<Option<Lane>>) -> Result<Lane, Failure> {
        let mut place = place.lock().await;
        if let Some(lane) = place.as_ref().filter(|lane| !lane.requests.is_closed()) {
            return Ok(lane.clone());
        }
        match self.connect().await {
            Ok(lane) => Ok(place.insert(lane).clone()),
            Err(error) => {
                tokio::time::sleep(RECONNECT_PAUSE).await;
                Err(Failure::Failed(format!(
                    "cannot connect to {}: {}",
                    self.address,
                    cure(&error)
                )))
            }
        }
    }
}

/// The cause of a connection error, and the cure.
fn cure(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            format!("nothing listens there ({error}); start the server, or correct the address")
        }
        io::ErrorKind::PermissionDenied => error.to_string(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            format!("the server closed the connection ({error}); is this its protocol?")
        }
        _ => error.to_string(),
    }
}

type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

async fn halves(address: &RemoteAddress) -> Result<Halves, Broken> {
    let unix = |stream: UnixStream| -> Halves {
        let (from, to) = stream.into_split();
        (Box::new(from), Box::new(to))
    };
    match address {
        RemoteAddress::Unix(path) => Ok(unix(UnixStream::connect(path).await?)),
        RemoteAddress::Memcached(place) if place.contains('/') => {
            Ok(unix(UnixStream::connect(place).await?))
        }
        RemoteAddress::Memcached(place) => {
            let stream = TcpStream::connect(place).await?;
            stream.set_nodelay(true)?;
            let (from, to) = stream.into_split();
            Ok((Box::new(from), Box::new(to)))
        }
        RemoteAddress::S3 { .. } => Err(junk("S3 has a client of its own")),
    }
}

/// A written request that waits for its response.
type Expected = Sent;

async fn write_requests(
    wire: &impl Wire,
    mut output: Output,
    asked: &mut mpsc::UnboundedReceiver<Sent>,
    expect: mpsc::UnboundedSender<Expected>,
) -> Result<(), Broken> {
    let mut batch = Vec::new();
    while asked.recv_many(&mut batch, BATCH_REQUESTS).await > 0 {
        for sent in batch.drain(..) {
            match wire.encode(&mut output, &sent.name, &sent.ask).await? {
                // The reader does not end before this task.
                Ok(()) => _ = expect.send(sent),
                // The client may have given up.
                Err(failure) => _ = sent.reply.send(Err(failure)),
            }
        }
        output.flush().await?;
    }
    // No further requests will be sent; those sent still get responses.
    drop(expect);
    std::future::pending().await
}

async fn read_responses(
    wire: &impl Wire,
    mut input: Input,
    expected: &mut mpsc::UnboundedReceiver<Expected>,
) -> Result<(), Broken> {
    while let Some(Sent { name, ask, reply }) = expected.recv().await {
        let response = wire.decode(&mut input, &name, ask).await;
        let (response, ended) = match response {
            Ok(response) => (response, Ok(())),
            Err(error) => (Err(Failure::Failed(cure(&error))), Err(error)),
        };
        // The client may have given up.
        let _ = reply.send(response);
        ended?;
    }
    Ok(())
}
