//! OxCache's Unix-socket protocol, so that its clients can be pointed here.
//!
//! Requests may be pipelined: several are in progress at once, answers come
//! in the order of the requests. An answer holds exactly the bytes asked for
//! or is an error; bytes that are no request end the connection.

pub mod codec;
mod config;
mod connection;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use floe::limit::Limit;
use floe::object::{ByteRange, ObjectBody, ObjectCache, ObjectKey, Outcome};
use floe_device::Clock;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::net::{self, Activity, Shutdown, UnixSocket};

use crate::metrics::{FaceStatistics, RequestMeter};
pub use config::OxCacheConfig;

/// The unit in which read-ahead is accounted for.
const READ_AHEAD_UNIT_BYTES: u64 = 4096;

/// Most bytes of one answer that are read before its turn has come.
const READ_AHEAD_BYTES_MAX: u64 = 1 << 20;

/// OxCache's face, ready to serve.
#[derive(Clone)]
pub(crate) struct OxCacheFace {
    inner: Arc<Inner>,
}

struct Inner {
    cache: ObjectCache,
    clock: Clock,
    config: OxCacheConfig,
    bucket: Arc<str>,
    /// In units of [`READ_AHEAD_UNIT_BYTES`], over all connections.
    connections: Arc<Limit>,
    read_ahead: Arc<Semaphore>,
    statistics: Arc<FaceStatistics>,
}

/// An answer whose turn to be sent may not have come.
enum Reply {
    /// Why there is no data.
    Error(String),
    Data(Data),
}

struct Data {
    size: u64,
    /// What was read ahead, in order.
    pieces: Vec<bytes::Bytes>,
    rest: ObjectBody,
    /// The read-ahead's share of memory.
    _share: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for OxCacheFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OxCacheFace").finish_non_exhaustive()
    }
}

impl OxCacheFace {
    pub(crate) fn new(
        config: &OxCacheConfig,
        cache: ObjectCache,
        clock: Clock,
        statistics: Arc<FaceStatistics>,
    ) -> Self {
        let units = config.read_ahead.bytes() / READ_AHEAD_UNIT_BYTES;
        let units = usize::try_from(units).unwrap_or(usize::MAX);
        OxCacheFace {
            inner: Arc::new(Inner {
                cache,
                clock,
                bucket: config.bucket.as_str().into(),
                config: config.clone(),
                connections: Limit::new(config.max_connections as usize),
                read_ahead: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
                statistics,
            }),
        }
    }

    /// Takes the limit of connections; answers with the settings taken.
    pub(crate) fn reload(&self, config: &OxCacheConfig) -> Vec<&'static str> {
        let inner = &self.inner;
        inner.connections.set(config.max_connections as usize);
        vec!["oxcache.max_connections"]
    }

    /// Serves until the shutdown, then removes the socket.
    pub(crate) async fn serve(self, socket: UnixSocket, shutdown: Shutdown) {
        let inner = Arc::clone(&self.inner);
        let connections = shutdown.clone();
        net::accept(
            socket,
            Arc::clone(&inner.connections),
            inner.clock.clone(),
            shutdown,
            Arc::clone(&inner.statistics.connections),
            move |stream, activity| {
                self.clone()
                    .connection(stream, connections.clone(), activity)
            },
        )
        .await;
    }

    fn connection(
        self,
        stream: UnixStream,
        shutdown: Shutdown,
        activity: Arc<Activity>,
    ) -> impl Future<Output = ()> + Send + 'static {
        connection::serve(self, stream, shutdown, activity)
    }

    /// Looks a request up, and reads ahead as far as there is memory for it.
    async fn reply(self, key: String, offset: u64, size: u64) -> (RequestMeter, Reply) {
        let inner = &self.inner;
        let mut meter = RequestMeter::begin(
            Arc::clone(&inner.statistics.requests),
            inner.clock.clone(),
            &http::Method::GET,
        );
        let (status, result, reply) = match self.data(key, offset, size).await {
            Ok((data, outcome)) => (
                http::StatusCode::OK,
                Some(outcome.name()),
                Reply::Data(data),
            ),
            Err(error) => (error.status, None, Reply::Error(error.message)),
        };
        meter.answered(status, result);
        (meter, reply)
    }

    async fn data(&self, key: String, offset: u64, size: u64) -> Result<(Data, Outcome), Refusal> {
        let inner = &self.inner;
        let most = inner.config.max_read_size.bytes();
        if size == 0 {
            return Err(Refusal::client("the size asked for is 0"));
        }
        if size > most {
            return Err(Refusal::client(format!(
                "{size} bytes were asked for; this cache answers with at most {most} at once"
            )));
        }
        let Some(end) = offset.checked_add(size) else {
            return Err(Refusal::client(format!(
                "offset {offset} + size {size} exceeds 64 bits"
            )));
        };
        let range = ByteRange::Inclusive {
            first: offset,
            last: end - 1,
        };
        let key = ObjectKey::new(Arc::clone(&inner.bucket), key);
        let read = inner.cache.get(&key, Some(range)).await?;
        if read.range != (offset..end) {
            return Err(Refusal::client(format!(
                "{key} has {} bytes; {offset}..{end} is not within it",
                read.meta.size
            )));
        }
        let mut data = Data {
            size,
            pieces: Vec::new(),
            rest: read.body,
            _share: None,
        };
        inner.read_ahead(&mut data).await?;
        Ok((data, read.outcome))
    }
}

impl Inner {
    /// An error up to here can still be told to the client. Where there is no
    /// memory left the answer is read when its turn comes.
    async fn read_ahead(&self, data: &mut Data) -> Result<(), Refusal> {
        use futures::StreamExt as _;

        let wanted = data.size.min(READ_AHEAD_BYTES_MAX);
        // At most 256 units.
        let units = wanted.div_ceil(READ_AHEAD_UNIT_BYTES) as u32;
        let Ok(share) = Arc::clone(&self.read_ahead).try_acquire_many_owned(units) else {
            return Ok(());
        };
        let mut got_bytes = 0;
        while got_bytes < wanted {
            match data.rest.next().await {
                Some(piece) => {
                    let piece = piece?;
                    got_bytes += piece.len() as u64;
                    data.pieces.push(piece);
                }
                None => {
                    return Err(Refusal {
                        status: http::StatusCode::SERVICE_UNAVAILABLE,
                        message: "the object ended too early".into(),
                    });
                }
            }
        }
        data._share = Some(share);
        Ok(())
    }
}

/// Why a request gets no data.
struct Refusal {
    status: http::StatusCode,
    message: String,
}

impl Refusal {
    fn client(message: impl Into<String>) -> Self {
        Refusal {
            status: http::StatusCode::BAD_REQUEST,
            message: message.into(),
        }
    }
}

impl From<floe::object::ObjectError> for Refusal {
    fn from(error: floe::object::ObjectError) -> Self {
        use floe::object::ObjectError;
        use floe::origin::OriginError;
        let status = match &error {
            ObjectError::Origin(OriginError::NotFound(_) | OriginError::NoSuchBucket(_)) => {
                http::StatusCode::NOT_FOUND
            }
            ObjectError::Origin(error) if !error.is_outage() => http::StatusCode::BAD_REQUEST,
            ObjectError::RangeNotSatisfiable { .. } => http::StatusCode::RANGE_NOT_SATISFIABLE,
            _ => http::StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal {
            status,
            message: error.to_string(),
        }
    }
}
