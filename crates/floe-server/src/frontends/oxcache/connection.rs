//! One connection: reads requests, and sends responses in their order.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use floe_device::Clock;
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::codec::{self, FrameError, Request};
use super::frontend::{Data, OxCacheFrontend, Reply};
use crate::metrics::RequestMeter;
use crate::net::{Activity, Busy, Shutdown, StallGuard};

type Writer = StallGuard<OwnedWriteHalf>;

/// Serves until the client closes, sends an invalid request or stalls, or until
/// all requests from before a shutdown have responses.
pub(super) async fn serve(
    frontend: Arc<OxCacheFrontend>,
    stream: UnixStream,
    shutdown: Shutdown,
    activity: Arc<Activity>,
) {
    let counters = Arc::clone(&frontend.statistics.connections);
    let (reader, writer) = stream.into_split();
    let stall_timeout =
        std::time::Duration::from_secs(u64::from(frontend.config.stall_timeout_seconds));
    let clock: Clock = frontend.clock.clone();
    let writer = StallGuard::new(writer, clock, stall_timeout).with_activity(Arc::clone(&activity));
    match answer_all(frontend, reader, writer, shutdown.drain, &activity).await {
        Ok(()) => {}
        Err(Broken::Junk(error)) => {
            counters.broken.add(1);
            tracing::warn!(%error, "an OxCache client sent an invalid request; its connection is closed");
        }
        Err(Broken::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
            counters.stalled.add(1);
            tracing::debug!(%error, "an OxCache client stalled; its connection is closed");
        }
        Err(Broken::Io(error)) => {
            counters.broken.add(1);
            tracing::debug!(%error, "an OxCache connection broke off");
        }
        Err(Broken::Read(error)) => {
            counters.broken.add(1);
            tracing::warn!(error, "a response broke off; its connection is closed");
        }
    }
}

/// The reason why a connection ended early.
enum Broken {
    Junk(FrameError),
    Io(io::Error),
    /// The read failed after the frame had begun: only closing the connection signals that.
    Read(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

async fn answer_all(
    frontend: Arc<OxCacheFrontend>,
    reader: OwnedReadHalf,
    mut writer: Writer,
    drain: CancellationToken,
    activity: &Arc<Activity>,
) -> Result<(), Broken> {
    let max_pipeline = frontend.config.max_pipeline as usize;
    let requests = Requests {
        reader,
        buffer: BytesMut::with_capacity(2 * codec::REQUEST_BYTES_MAX),
        drain,
        ended: false,
    };
    let replies = requests
        .into_stream()
        .map(|request| start(&frontend, request, activity.begin()))
        .buffered(max_pipeline);
    let mut replies = std::pin::pin!(replies);
    while let Some(turn) = replies.next().await {
        match turn {
            Turn::Reply(meter, reply, busy) => {
                send(&mut writer, meter, reply).await?;
                drop(busy);
            }
            Turn::Broken(broken) => {
                if let Broken::Junk(error) = &broken {
                    let frame = codec::error_frame(&error.to_string());
                    writer.write_all(&frame).await?;
                }
                return Err(broken);
            }
        }
    }
    writer.shutdown().await?;
    Ok(())
}

/// The next step after the responses to all earlier requests.
enum Turn {
    Reply(RequestMeter, Reply, Busy),
    Broken(Broken),
}

/// Starts a request as a task, which proceeds while earlier responses are sent.
/// Dropping the future stops the task.
fn start(
    frontend: &Arc<OxCacheFrontend>,
    request: Result<Get, Broken>,
    busy: Busy,
) -> impl Future<Output = Turn> + Send + use<> {
    let task = request.map(|get| {
        let reply = Arc::clone(frontend).reply(get.key, get.offset, get.size);
        AbortOnDropHandle::new(tokio::spawn(reply))
    });
    async move {
        match task {
            Err(broken) => Turn::Broken(broken),
            Ok(task) => match task.await {
                Ok((meter, reply)) => Turn::Reply(meter, reply, busy),
                Err(error) => Turn::Broken(Broken::Read(error.to_string())),
            },
        }
    }
}

async fn send(writer: &mut Writer, meter: RequestMeter, reply: Reply) -> Result<(), Broken> {
    let data = match reply {
        Reply::Error(message) => {
            writer.write_all(&codec::error_frame(&message)).await?;
            return Ok(());
        }
        Reply::Data(data) => data,
    };
    let Some(head) = codec::response_head(data.size) else {
        // Unreachable: the configuration allows no size that does not fit.
        let frame = codec::error_frame("the response does not fit a frame");
        writer.write_all(&frame).await?;
        return Ok(());
    };
    send_data(writer, &meter, head, data).await
}

async fn send_data(
    writer: &mut Writer,
    meter: &RequestMeter,
    head: Bytes,
    data: Data,
) -> Result<(), Broken> {
    let Data {
        size,
        pieces,
        mut rest,
        _share: share,
    } = data;
    let mut remaining = size;
    let mut head = Some(head);
    let mut pieces = pieces.into_iter();
    while remaining > 0 {
        let piece = match pieces.next() {
            Some(piece) => piece,
            None => match rest.next().await {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Err(Broken::Read(error.to_string())),
                None => return Err(Broken::Read(format!("{remaining} bytes are missing"))),
            },
        };
        let len = piece.len() as u64;
        remaining = remaining
            .checked_sub(len)
            .ok_or_else(|| Broken::Read("the object is longer than announced".into()))?;
        // The head is sent with the first piece.
        let mut out = head.take().unwrap_or_default().chain(piece);
        writer.write_all_buf(&mut out).await?;
        meter.sent(len);
    }
    drop(share);
    Ok(())
}

/// A request for data.
struct Get {
    key: String,
    offset: u64,
    size: u64,
}

/// The requests of one connection.
struct Requests {
    reader: OwnedReadHalf,
    buffer: BytesMut,
    drain: CancellationToken,
    ended: bool,
}

impl Requests {
    fn into_stream(self) -> impl futures::Stream<Item = Result<Get, Broken>> {
        futures::stream::unfold(self, |mut requests| async move {
            if requests.ended {
                return None;
            }
            let item = requests.next().await?;
            requests.ended = item.is_err();
            Some((item, requests))
        })
    }

    async fn next(&mut self) -> Option<Result<Get, Broken>> {
        loop {
            match codec::decode(&self.buffer) {
                Ok(Some(decoded)) => {
                    self.buffer.advance(decoded.consumed);
                    return match decoded.request {
                        Request::Get { key, offset, size } => Some(Ok(Get { key, offset, size })),
                        Request::Close => None,
                    };
                }
                Ok(None) => {}
                Err(error) => return Some(Err(Broken::Junk(error))),
            }
            self.buffer.reserve(codec::REQUEST_BYTES_MAX);
            let read = tokio::select! {
                biased;
                () = self.drain.cancelled() => return None,
                read = self.reader.read_buf(&mut self.buffer) => read,
            };
            match read {
                Ok(0) if self.buffer.is_empty() => return None,
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Some(Err(Broken::Io(error)));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(Broken::Io(error))),
            }
        }
    }
}
