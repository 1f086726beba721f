//! Plain reads of objects over HTTP/1.1 without the machinery that other requests need: no body,
//! no query, and no signature or one in the headers. A connection begins here. At the first
//! request of another kind `net::serve_http` takes it, with the bytes that were read of it.
//!
//! Responses are those of `read`, header for header.

mod request;
mod response;
mod signature;

use std::io::{self, Cursor, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use floe::object::ObjectBody;
use floe_device::sendable::SENDABLE_MIN_BYTES;
use floe_device::{Clock, SendableMemory};
use futures::{FutureExt, StreamExt};
use http::{Method, StatusCode};
use s3s::S3Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use self::request::{Admission, Parsed, Plain, parse};
use super::access_log::{AccessLog, Asked, Record};
use super::answer::{Answered, Answers, Unread};
use super::auth::Keys;
use super::condition;
use super::config::S3Config;
use super::slowed::Slowed;
use super::target::Domains;
use crate::frontend::Host;
use crate::metrics::{ConnectionCounters, FrontendStatistics, RequestCounters, RequestMeter};
use crate::net::{Activity, HttpLimits, SendKept, StallGuard, send_kept};

/// Room for a head before the first read.
const BUFFER_BYTES: usize = 4 << 10;

/// The part of a frontend that serves plain reads.
pub(super) struct PlainReads {
    answers: Answers,
    admission: Admission,
    /// Memory that holds large values of the RAM tier, if this frontend sends from it.
    memory: Option<Arc<SendableMemory>>,
    clock: Clock,
    requests: Arc<RequestCounters>,
    connections: Arc<ConnectionCounters>,
    slowed: Arc<Slowed>,
}

impl PlainReads {
    pub(super) fn new(
        config: &S3Config,
        keys: &Keys,
        host: &Host,
        statistics: &FrontendStatistics,
        access_log: &Arc<AccessLog>,
        slowed: &Arc<Slowed>,
    ) -> Self {
        PlainReads {
            answers: Answers::new(&host.objects),
            admission: Admission {
                domains: Domains::new(&config.domains),
                keys: keys.clone(),
                anonymous: config.anonymous.is_served(),
                access_log: Arc::clone(access_log),
            },
            // Encryption copies all it sends.
            memory: match config.tls_certificate.as_os_str().is_empty() {
                true => host.objects.sendable(),
                false => None,
            },
            clock: host.clock.clone(),
            requests: Arc::clone(&statistics.requests),
            connections: Arc::clone(&statistics.connections),
            slowed: Arc::clone(slowed),
        }
    }
}

/// The measurement of a request, and its line in the access log.
struct Watch {
    meter: RequestMeter,
    record: Option<Record>,
}

impl Watch {
    fn answered(&mut self, status: StatusCode, id: &str, outcome: Option<&'static str>) {
        self.meter.answered(status, outcome);
        if let Some(record) = &mut self.record {
            record.answered(status, id, outcome.map(Into::into));
        }
    }

    fn sent(&mut self, bytes: u64) {
        self.meter.sent(bytes);
        if let Some(record) = &mut self.record {
            record.sent(bytes);
        }
    }

    fn failed(&mut self, code: &str) {
        if let Some(record) = &mut self.record {
            record.failed(code);
        }
    }

    /// Ends it without a trace: the other way watches the request.
    fn cancel(self) {
        self.meter.cancel();
        if let Some(record) = self.record {
            record.cancel();
        }
    }
}

/// The next event of a connection.
enum Next {
    Read(Plain),
    /// A request of another kind, or none at all.
    Other,
    /// The connection has ended.
    End,
}

/// A connection with a request that is no plain read.
pub(super) struct Rest<T> {
    pub(super) stream: T,
    /// The cache has been asked for the object of its first request: the origin answers.
    pub(super) was_read: bool,
}

impl PlainReads {
    /// Serves plain reads until the connection ends (`None`) or sends another request.
    pub(super) async fn serve<T>(
        &self,
        stream: T,
        client: SocketAddr,
        limits: &HttpLimits,
        drain: &CancellationToken,
        activity: &Arc<Activity>,
        next_id: &(dyn Fn() -> String + Sync),
    ) -> Option<Rest<impl AsyncRead + AsyncWrite + Unpin + Send + 'static + use<T>>>
    where
        T: AsyncRead + SendKept + Unpin + Send + 'static,
    {
        let mut stream = StallGuard::new(stream, self.clock.clone(), limits.stall_timeout)
            .with_activity(Arc::clone(activity));
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        let mut head = BytesMut::new();
        let mut drained = pin!(drain.cancelled());
        let rest = |buffer, stream: StallGuard<T>, was_read| {
            let stream = rewound(buffer, stream.into_inner());
            Some(Rest { stream, was_read })
        };
        loop {
            let next = self.next(&mut stream, &mut buffer, limits, drained.as_mut());
            let read = match next.await {
                Next::Read(read) => read,
                Next::Other => return rest(buffer, stream, false),
                Next::End => return None,
            };
            let busy = activity.begin();
            let mut watch = self.watch(&read, client);
            let most = limits.max_header_bytes as usize;
            let answer = {
                let answer = async {
                    if let Some(error) = self.slowed.refusal(activity) {
                        return Err(Unread::Refused(error));
                    }
                    let is_head = read.method == Method::HEAD;
                    let answer = self.answers.answer(is_head, &read.key, &read.terms);
                    answer.await
                };
                let mut answer = pin!(Record::answering(watch.record.as_ref(), answer));
                match answer.as_mut().now_or_never() {
                    Some(answer) => answer,
                    None => tokio::select! {
                        biased;
                        answer = answer => answer,
                        () = left(&mut stream, &mut buffer, most) => {
                            self.connections.broken.add(1);
                            return None;
                        }
                    },
                }
            };
            let answer = match answer {
                Ok(response) => Ok(response),
                Err(Unread::Refused(error)) => Err(error),
                Err(Unread::OfOrigin { was_read }) => {
                    watch.cancel();
                    return rest(buffer, stream, was_read);
                }
            };
            let is_last = !read.keeps_alive || drain.is_cancelled();
            head.clear();
            let sent = self
                .send(
                    &mut stream,
                    &read,
                    answer,
                    &mut head,
                    (&next_id(), is_last),
                    &mut watch,
                )
                .await;
            drop((watch, busy));
            if let Err(error) = sent {
                tracing::debug!(%error, "a connection broke off");
                self.connections.broken.add(1);
                return None;
            }
            if is_last {
                // Fails if the client has left.
                let _ = stream.shutdown().await;
                return None;
            }
            buffer.advance(read.length);
        }
    }

    fn watch(&self, read: &Plain, client: SocketAddr) -> Watch {
        let counters = Arc::clone(&self.requests);
        let record = read.details.as_ref().and_then(|details| {
            let asked = Asked {
                method: read.method.as_str(),
                bucket: Some(read.key.bucket()),
                key: Some(read.key.key()),
                query: Some(details.query),
                user_agent: details.user_agent.as_deref(),
                access_key: details.access_key.as_deref(),
            };
            Record::begin(&self.admission.access_log, &self.clock, client, &asked)
        });
        Watch {
            meter: RequestMeter::begin(counters, self.clock.clone(), &read.method),
            record,
        }
    }

    /// Waits for a complete head, for as long as a connection may be idle.
    async fn next<T: AsyncRead + Unpin>(
        &self,
        stream: &mut StallGuard<T>,
        buffer: &mut BytesMut,
        limits: &HttpLimits,
        mut drained: Pin<&mut WaitForCancellationFuture<'_>>,
    ) -> Next {
        let most = limits.max_header_bytes as usize;
        let mut late = None;
        // The bytes that certainly contain no end of a head.
        let mut searched = 0;
        loop {
            if searched == 0 || has_end(&buffer[searched..]) || buffer.len() >= most {
                match parse(buffer, &self.admission) {
                    Parsed::Plain(read) if read.length <= most => return Next::Read(read),
                    Parsed::Incomplete if buffer.len() < most => {}
                    _ => return Next::Other,
                }
                // Lines without anything may precede a request.
                let blank = buffer
                    .iter()
                    .take_while(|byte| matches!(byte, b'\r' | b'\n'));
                let blank = blank.count();
                buffer.advance(blank);
            }
            searched = buffer.len().saturating_sub(3);
            let received = match stream.read_buf(buffer).now_or_never() {
                Some(received) => received,
                None => {
                    let late = late.get_or_insert_with(|| self.clock.sleep(limits.idle_timeout));
                    tokio::select! {
                        biased;
                        received = stream.read_buf(buffer) => received,
                        () = drained.as_mut() => return Next::End,
                        () = late => Ok(0),
                    }
                }
            };
            if !matches!(received, Ok(1..)) {
                self.connections.broken.add(u64::from(!buffer.is_empty()));
                return Next::End;
            }
        }
    }

    async fn send<T: SendKept + Unpin>(
        &self,
        stream: &mut T,
        read: &Plain,
        answer: Result<Answered, S3Error>,
        out: &mut BytesMut,
        (id, is_last): (&str, bool),
        watch: &mut Watch,
    ) -> io::Result<()> {
        match answer {
            Ok((head, body)) => {
                tracing::debug!(request = %id, status = head.status.as_u16(), "responded");
                watch.answered(head.status, id, head.outcome);
                response::write(&head, out, id, is_last);
                match body {
                    Some(body) => {
                        self.send_body(stream, out, body, head.length, watch)
                            .await?
                    }
                    None => stream.write_all(out).await?,
                }
            }
            Err(error) => {
                let is_head = read.method == Method::HEAD;
                let code = error.code().as_str().to_owned();
                let resource = format!("/{}/{}", read.key.bucket(), read.key.key());
                let names = (&*resource, id);
                let condition = condition::sole(&read.terms);
                let (status, body) =
                    response::write_error(out, error, condition, names, (is_last, is_head)).await?;
                tracing::debug!(request = %id, status = status.as_u16(), "responded");
                watch.answered(status, id, None);
                watch.failed(&code);
                watch.sent(body.len() as u64);
                write_both(stream, out, &body).await?;
            }
        }
        stream.flush().await
    }

    /// Sends a head and exactly `length` bytes.
    async fn send_body<T: SendKept + Unpin>(
        &self,
        stream: &mut T,
        mut head: &[u8],
        mut body: ObjectBody,
        length: u64,
        watch: &mut Watch,
    ) -> io::Result<()> {
        let mut remaining = length;
        loop {
            let piece = match body.next().await {
                Some(piece) => piece.map_err(io::Error::other)?,
                None => Bytes::new(),
            };
            let left = remaining.checked_sub(piece.len() as u64);
            remaining = left.ok_or_else(|| io::Error::other("the response is too long"))?;
            let is_end = piece.is_empty();
            let head = std::mem::take(&mut head);
            match &self.memory {
                Some(memory)
                    if piece.len() >= SENDABLE_MIN_BYTES
                        && stream.sends_kept()
                        && memory.has(&piece) =>
                {
                    send_kept(stream, head, memory, &piece).await?;
                }
                _ => write_both(stream, head, &piece).await?,
            }
            watch.sent(piece.len() as u64);
            match (remaining, is_end) {
                (0, _) => return Ok(()),
                (_, true) => return Err(io::Error::other("the response ended early")),
                (_, false) => {}
            }
        }
    }
}

/// True if a line ends where the next one has nothing in it.
fn has_end(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

/// Waits until the client has left. What it sends meanwhile is kept, up to `most` bytes.
async fn left<T: AsyncRead + Unpin>(stream: &mut T, buffer: &mut BytesMut, most: usize) {
    while buffer.len() < most {
        if !matches!(stream.read_buf(buffer).await, Ok(1..)) {
            return;
        }
    }
    std::future::pending().await
}

/// A connection of which `read` has been read already.
fn rewound<T>(read: BytesMut, stream: T) -> impl AsyncRead + AsyncWrite + Unpin + use<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (rest, writer) = tokio::io::split(stream);
    tokio::io::join(AsyncReadExt::chain(Cursor::new(read), rest), writer)
}

/// Writes two pieces in one call where the stream takes them.
async fn write_both<T: AsyncWrite + Unpin>(
    stream: &mut T,
    mut head: &[u8],
    mut body: &[u8],
) -> io::Result<()> {
    while !head.is_empty() {
        let written = stream
            .write_vectored(&[IoSlice::new(head), IoSlice::new(body)])
            .await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = written.min(head.len());
        head = &head[of_head..];
        body = &body[written - of_head..];
    }
    stream.write_all(body).await
}
