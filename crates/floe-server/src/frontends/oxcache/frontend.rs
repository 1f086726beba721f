//! The state of the frontend, and its responses.

use std::sync::Arc;

use floe::limit::Limit;
use floe::object::{ByteRange, ObjectBody, ObjectCache, ObjectKey, Outcome};
use floe_device::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::OxCacheConfig;
use crate::frontend::Host;
use crate::metrics::{FrontendStatistics, RequestMeter};

/// Bytes of one unit of read-ahead.
const READ_AHEAD_UNIT_BYTES: u64 = 4096;

/// Most bytes of a response that are read before earlier responses were sent.
const READ_AHEAD_BYTES_MAX: u64 = 1 << 20;

/// OxCache's frontend.
pub(crate) struct OxCacheFrontend {
    cache: ObjectCache,
    pub(super) clock: Clock,
    pub(super) config: OxCacheConfig,
    bucket: Arc<str>,
    pub(super) connections: Arc<Limit>,
    /// In units of [`READ_AHEAD_UNIT_BYTES`], over all connections.
    read_ahead: Arc<Semaphore>,
    pub(super) statistics: FrontendStatistics,
}

/// A response that may have to wait for earlier ones.
pub(super) enum Reply {
    /// The error message.
    Error(String),
    Data(Data),
}

pub(super) struct Data {
    pub(super) size: u64,
    /// The bytes read ahead, in order.
    pub(super) pieces: Vec<bytes::Bytes>,
    pub(super) rest: ObjectBody,
    /// The share of the read-ahead's memory.
    pub(super) _share: Option<OwnedSemaphorePermit>,
}

impl OxCacheFrontend {
    pub(super) fn new(config: &OxCacheConfig, host: &Host) -> Self {
        let units = config.read_ahead.bytes() / READ_AHEAD_UNIT_BYTES;
        let units = usize::try_from(units).unwrap_or(usize::MAX);
        OxCacheFrontend {
            cache: host.objects.clone(),
            clock: host.clock.clone(),
            bucket: config.bucket.as_str().into(),
            config: config.clone(),
            connections: Limit::new(config.max_connections as usize),
            read_ahead: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            statistics: FrontendStatistics::default(),
        }
    }

    /// Executes a request, and reads ahead if there is memory.
    pub(super) async fn reply(
        self: Arc<Self>,
        key: String,
        offset: u64,
        size: u64,
    ) -> (RequestMeter, Reply) {
        let mut meter = RequestMeter::begin(
            Arc::clone(&self.statistics.requests),
            self.clock.clone(),
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

    async fn data(
        &self,
        key: String,
        offset: u64,
        size: u64,
    ) -> Result<(Data, Outcome), Rejection> {
        let most = self.config.max_read_size.bytes();
        if size == 0 {
            return Err(Rejection::client("the size asked for is 0"));
        }
        if size > most {
            return Err(Rejection::client(format!(
                "the request is for {size} bytes; this cache serves at most {most} per request"
            )));
        }
        let Some(end) = offset.checked_add(size) else {
            return Err(Rejection::client(format!(
                "offset {offset} + size {size} exceeds 64 bits"
            )));
        };
        let range = ByteRange::Inclusive {
            first: offset,
            last: end - 1,
        };
        let key = ObjectKey::new(Arc::clone(&self.bucket), key);
        let read = self.cache.get(&key, Some(range)).await?;
        if read.range != (offset..end) {
            return Err(Rejection::client(format!(
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
        self.read_ahead(&mut data).await?;
        Ok((data, read.outcome))
    }

    /// Up to here an error can still become a response. Without memory, the
    /// data is read when the response is due.
    async fn read_ahead(&self, data: &mut Data) -> Result<(), Rejection> {
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
                    return Err(Rejection {
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

/// The reason why a request gets no data.
struct Rejection {
    status: http::StatusCode,
    message: String,
}

impl Rejection {
    fn client(message: impl Into<String>) -> Self {
        Rejection {
            status: http::StatusCode::BAD_REQUEST,
            message: message.into(),
        }
    }
}

impl From<floe::object::ObjectError> for Rejection {
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
        Rejection {
            status,
            message: error.to_string(),
        }
    }
}
