//! The connections of a client: sending requests, receiving replies, connecting again.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_device::{Clock, Counters};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    BufWriter,
};
use tokio::sync::Notify;

use super::config::NbdConfig;
use super::error::{Fault, Junk, ServerError};
use super::handshake::{Export, greet};
use super::state::{LinkId, Next, State};
use super::transport::{NbdConnect, Stream, Tls};
use super::wire::{CHUNK_MAGIC, DONE, SIMPLE_MAGIC, chunk, flags};

/// Bytes that are read from a connection at once.
const INPUT_BYTES: usize = 256 << 10;

/// Small requests that are sent together.
const OUTPUT_BYTES: usize = 64 << 10;

/// Most bytes of an error's chunk.
const ERROR_BYTES_MAX: u32 = 64 << 10;

/// Time between the first attempts to connect; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A server to connect to.
pub(super) struct Target {
    pub(super) connect: Box<NbdConnect>,
    pub(super) tls: Option<Tls>,
    pub(super) export: String,
    /// For messages.
    pub(super) name: String,
}

/// A client of one export.
pub(super) struct Client {
    pub(super) target: Target,
    config: NbdConfig,
    clock: Clock,
    /// The export, as the first connection found it.
    pub(super) export: Export,
    /// Bytes of the export, which only [`Client::refresh_size`] changes.
    size_bytes: AtomicU64,
    pub(super) counters: Arc<Counters>,
    state: Mutex<State>,
    /// Tells connections of new requests, and of room for them.
    changed: Notify,
    /// Tells the session that it must end.
    resized: Notify,
}

impl Client {
    /// Connects for the first time.
    pub(super) async fn open(
        target: Target,
        config: &NbdConfig,
        clock: Clock,
    ) -> Result<(Arc<Self>, Stream), Fault> {
        let (stream, export) = connect(&target, config, &clock).await?;
        let counters = Arc::new(Counters::default());
        let client = Client {
            state: Mutex::new(State::new(export, Arc::clone(&counters))),
            target,
            config: config.clone(),
            clock,
            export,
            size_bytes: AtomicU64::new(export.size_bytes),
            counters,
            changed: Notify::new(),
            resized: Notify::new(),
        };
        Ok((Arc::new(client), stream))
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(SeqCst)
    }

    /// Asks the server for the size of the export, on a connection of its own. If it has
    /// changed, no request is sent on older connections, whose size the server may keep.
    pub(super) async fn refresh_size(&self) -> Result<u64, Fault> {
        let (_, export) = connect(&self.target, &self.config, &self.clock).await?;
        self.check(&export)?;
        let size = export.size_bytes;
        if self.size_bytes.swap(size, SeqCst) != size {
            self.state().cut();
            self.resized.notify_one();
        }
        Ok(size)
    }

    /// Checks that `export` is the one that was opened, of any size.
    fn check(&self, export: &Export) -> Result<(), Fault> {
        let same = Export {
            size_bytes: export.size_bytes,
            ..self.export
        };
        match *export == same {
            true => Ok(()),
            false => Err(Fault::Unusable(format!(
                "it was {:?}, and it is {export:?}",
                self.export
            ))),
        }
    }

    /// Starts a request with `start`.
    pub(super) fn start(&self, start: impl FnOnce(&mut State, floe_core::Tick)) {
        start(&mut self.state(), self.clock.now());
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Serves requests, on one session after another, until it is dropped.
    pub(super) async fn run(self: Arc<Self>, first: Stream) {
        let mut next = Some(first);
        let mut pause = PAUSE_MIN;
        loop {
            let begun = self.clock.now();
            let fault = match self.links(next.take()).await {
                Ok(links) => self.serve(links).await,
                Err(fault) => fault,
            };
            let now = self.clock.now();
            let why: Arc<str> = format!("the NBD server of {}: {fault}", self.target.name).into();
            {
                let mut state = self.state();
                state.cut();
                if let Some(limit) = now.0.checked_sub(nanos(self.config.retry_seconds)) {
                    state.expire(floe_core::Tick(limit), &why);
                }
            }
            if now.since(begun) > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            tracing::warn!(export = %self.target.name, error = %fault, "the connection to the NBD server is lost, and is made again");
            self.clock.sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// The connections of a session.
    async fn links(&self, first: Option<Stream>) -> Result<Vec<Stream>, Fault> {
        let mut links: Vec<Stream> = first.into_iter().collect();
        let wanted = match self.export.has(flags::CAN_MULTI_CONN) {
            true => self.config.connections.max(1) as usize,
            false => 1,
        };
        while links.len() < wanted {
            let (stream, export) = connect(&self.target, &self.config, &self.clock).await?;
            self.check(&export)?;
            if export.size_bytes < self.size_bytes() {
                let (was, is) = (self.size_bytes(), export.size_bytes);
                return Err(Fault::Unusable(format!(
                    "it had {was} bytes, and after a connection was lost it has {is}"
                )));
            }
            links.push(stream);
        }
        Ok(links)
    }

    /// Serves requests on these connections until one of them fails.
    async fn serve(&self, links: Vec<Stream>) -> Fault {
        self.state().open(self.clock.now(), self.config.fence());
        let mut parts: FuturesUnordered<BoxFuture<'_, Result<(), Fault>>> = FuturesUnordered::new();
        for (link, stream) in links.into_iter().enumerate() {
            let (input, output) = tokio::io::split(stream);
            parts.push(Box::pin(self.send(link, output)));
            parts.push(Box::pin(self.receive(link, input)));
        }
        parts.push(Box::pin(self.watch()));
        parts.push(Box::pin(async {
            self.resized.notified().await;
            Err(Fault::Resized)
        }));
        loop {
            if let Some(Err(fault)) = parts.next().await {
                return fault;
            }
        }
    }

    /// Fails once a request has no answer for too long.
    async fn watch(&self) -> Result<(), Fault> {
        let limit = self.config.timeout();
        loop {
            self.clock.sleep(limit / 8).await;
            let oldest = self.state().oldest();
            if oldest.is_some_and(|oldest| self.clock.now().since(oldest) > limit) {
                return Err(Fault::Stalled(limit));
            }
        }
    }

    async fn send(&self, link: LinkId, output: impl AsyncWrite + Unpin) -> Result<(), Fault> {
        let mut output = BufWriter::with_capacity(OUTPUT_BYTES, output);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let next = self.state().next(link, self.clock.now());
            match next {
                Next::Send { head, payload } => {
                    output.write_all(&head).await?;
                    if let Some(payload) = payload {
                        output.write_all(&payload).await?;
                    }
                }
                Next::Wait(until) => {
                    output.flush().await?;
                    match until {
                        None => changed.await,
                        Some(until) => tokio::select! {
                            () = changed => {}
                            () = self.clock.sleep_until(until) => {}
                        },
                    }
                }
            }
        }
    }

    async fn receive(&self, link: LinkId, input: impl AsyncRead + Unpin) -> Result<(), Fault> {
        let mut replies = Replies {
            client: self,
            link,
            input: BufReader::with_capacity(INPUT_BYTES, input),
        };
        loop {
            match replies.input.read_u32().await? {
                SIMPLE_MAGIC => replies.simple().await?,
                CHUNK_MAGIC if self.export.is_structured => replies.chunk().await?,
                _ => return Err(Junk("bytes that are no reply").into()),
            }
        }
    }
}

/// The replies that arrive on one connection.
struct Replies<'a, R> {
    client: &'a Client,
    link: LinkId,
    input: BufReader<R>,
}

impl<R: AsyncRead + Unpin> Replies<'_, R> {
    async fn simple(&mut self) -> Result<(), Fault> {
        let number = self.input.read_u32().await?;
        let cookie = self.input.read_u64().await?;
        let range = self.client.state().range_of(self.link, cookie)?;
        if number != 0 {
            self.fails(cookie, number, String::new())?;
        } else if let Some(range) = range {
            if self.client.export.is_structured {
                return Err(Junk("a simple reply to a read, though structured were agreed").into());
            }
            self.data(cookie, range).await?;
        }
        self.end(cookie)
    }

    async fn chunk(&mut self) -> Result<(), Fault> {
        let flags = self.input.read_u16().await?;
        let kind = self.input.read_u16().await?;
        let cookie = self.input.read_u64().await?;
        let len = self.input.read_u32().await?;
        self.client.state().range_of(self.link, cookie)?;
        match kind {
            chunk::NONE if len == 0 && flags & DONE != 0 => {}
            chunk::OFFSET_DATA if len > 8 => {
                let at = self.input.read_u64().await?;
                let end = at.saturating_add(u64::from(len) - 8);
                self.data(cookie, at..end).await?;
            }
            chunk::OFFSET_HOLE if len == 12 => {
                let at = self.input.read_u64().await?;
                let len = self.input.read_u32().await?;
                let end = at.saturating_add(len.into());
                let mut state = self.client.state();
                state.arrives(self.link, cookie, at..end)?;
                state.fill(self.link, cookie, at, len as usize, |buf| buf.fill(0))?;
            }
            kind if kind >> 15 == 1 && (6..=ERROR_BYTES_MAX).contains(&len) => {
                self.error(cookie, len as usize).await?;
            }
            _ => return Err(Junk("a chunk of an unknown type or a wrong length").into()),
        }
        match flags & DONE {
            0 => Ok(()),
            _ => self.end(cookie),
        }
    }

    /// Reads an error, whose chunk has `len` bytes.
    async fn error(&mut self, cookie: u64, len: usize) -> Result<(), Fault> {
        let number = self.input.read_u32().await?;
        let mut rest = vec![0; len - 4];
        self.input.read_exact(&mut rest).await?;
        let (head, text) = rest.split_at(2);
        let text = text.get(..usize::from(u16::from_be_bytes([head[0], head[1]])));
        let text = text.ok_or(Junk("an error's text is longer than its chunk"))?;
        if number == 0 {
            return Err(Junk("an error without a number").into());
        }
        self.fails(cookie, number, String::from_utf8_lossy(text).into_owned())
    }

    /// Reads the bytes of `range` into the buffer of their read.
    async fn data(&mut self, cookie: u64, range: Range<u64>) -> Result<(), Fault> {
        self.client
            .state()
            .arrives(self.link, cookie, range.clone())?;
        let mut at = range.start;
        while at < range.end {
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                return Err(Fault::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            let len = bytes.len().min((range.end - at) as usize);
            let fill = |buf: &mut [u8]| buf.copy_from_slice(&bytes[..len]);
            self.client.state().fill(self.link, cookie, at, len, fill)?;
            self.input.consume(len);
            at += len as u64;
        }
        Ok(())
    }

    fn fails(&self, cookie: u64, number: u32, reason: String) -> Result<(), Fault> {
        let error = ServerError { number, reason };
        Ok(self.client.state().fails(self.link, cookie, error)?)
    }

    fn end(&self, cookie: u64) -> Result<(), Fault> {
        let client = self.client;
        let has_waiting = {
            let mut state = client.state();
            let fence = client.config.fence();
            state.end(self.link, cookie, (client.clock.now(), fence))?;
            state.has_waiting()
        };
        if has_waiting {
            client.changed.notify_waiters();
        }
        Ok(())
    }
}

/// Connects, and agrees on the export.
async fn connect(
    target: &Target,
    config: &NbdConfig,
    clock: &Clock,
) -> Result<(Stream, Export), Fault> {
    let opening = async {
        let stream = (target.connect)().await?;
        greet(stream, &target.export, target.tls.as_ref()).await
    };
    tokio::select! {
        opened = opening => opened,
        () = clock.sleep(config.timeout()) => Err(Fault::Stalled(config.timeout())),
    }
}

fn nanos(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(u64::MAX, |time| time.as_nanos() as u64)
}
