//! An emulated origin: deterministic bytes, configured latencies and faults.

mod config;
mod content;
mod size;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use floe_core::Tick;
use floe_device::Clock;
use futures::StreamExt;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use config::{EmulatedConfig, SizeRule};
pub use content::{Content, WrongBytes, verify};

use super::backend::Backend;
use super::config_error::OriginConfigError;
use super::error::OriginError;
use super::types::{
    GetRequest, ObjectKey, ObjectMeta, OriginBody, OriginRead, PutRequest, PutResponse,
};
use crate::latency::LatencyModel;
use size::Sizes;

/// Shards of the table of changed objects.
const OVERRIDE_SHARDS: usize = 64;

/// The modification time of every object's generation 0.
const FIRST_WRITE_UNIX_SECONDS: u64 = 1_700_000_000;

/// An emulated origin. A write sets an object's size and begins a new
/// generation of its content; the written bytes are discarded.
pub struct EmulatedOrigin {
    config: EmulatedConfig,
    sizes: Sizes,
    latency: LatencyModel,
    clock: Clock,
    requests: AtomicU64,
    overrides: [Mutex<HashMap<ObjectKey, Override>>; OVERRIDE_SHARDS],
}

/// The changes of an object since the origin was created.
#[derive(Clone, Copy, Debug)]
struct Override {
    generation: u64,
    size: Option<u64>,
}

/// The random outcome of one request.
struct Fate {
    latency: Option<Duration>,
    fails: bool,
    changes: bool,
    /// The fraction of the body that is sent before it breaks off.
    cut: Option<f64>,
    /// Time for the whole body, if it was measured.
    body: Option<Duration>,
}

impl EmulatedOrigin {
    /// Creates an emulated origin.
    ///
    /// # Errors
    /// A setting is invalid, or the table of sizes or the file of latencies cannot be read.
    pub fn new(config: EmulatedConfig, clock: Clock) -> Result<Self, OriginConfigError> {
        config.validate()?;
        Ok(EmulatedOrigin {
            sizes: Sizes::new(&config.size, config.seed)?,
            latency: LatencyModel::new(&config.latency)?,
            config,
            clock,
            requests: AtomicU64::new(0),
            overrides: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        })
    }

    /// Changes an object past the cache: it begins a new generation of its content.
    ///
    /// # Errors
    /// Too many objects were changed already.
    pub fn change(&self, key: &ObjectKey) -> Result<(), OriginError> {
        let size = self.current(key).and_then(|(_, size)| size);
        self.write(key, size)
    }

    /// The present content and size of an object, if it exists.
    pub fn content(&self, key: &ObjectKey) -> Option<(Content, u64)> {
        let (generation, size) = self.current(key)?;
        Some((Content::new(self.config.seed, key, generation), size?))
    }

    fn current(&self, key: &ObjectKey) -> Option<(u64, Option<u64>)> {
        match self.shard(key).lock().get(key) {
            Some(written) => Some((written.generation, written.size)),
            None => self.sizes.of(key).map(|size| (0, Some(size))),
        }
    }

    fn write(&self, key: &ObjectKey, size: Option<u64>) -> Result<(), OriginError> {
        let mut shard = self.shard(key).lock();
        let full = shard.len() >= self.config.max_overrides.div_ceil(OVERRIDE_SHARDS);
        if full && !shard.contains_key(key) {
            return Err(OriginError::Rejected {
                status: 507,
                message: "too many emulated objects were written; raise emulated.max_overrides"
                    .into(),
            });
        }
        let generation = shard.get(key).map_or(0, |written| written.generation) + 1;
        shard.insert(key.clone(), Override { generation, size });
        Ok(())
    }

    fn shard(&self, key: &ObjectKey) -> &Mutex<HashMap<ObjectKey, Override>> {
        &self.overrides[(size::hash(self.config.seed, key) % OVERRIDE_SHARDS as u64) as usize]
    }

    /// Draws the outcome of a request for `bytes` bytes from the seed and the
    /// request's number. So no lock serialises requests, and the same order
    /// gives the same outcomes.
    fn fate(&self, bytes: u64) -> Fate {
        let number = self.requests.fetch_add(1, Relaxed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(
            self.config.seed ^ number.wrapping_mul(0xa076_1d64_78bd_642f),
        );
        Fate {
            latency: self.latency.draw(&mut random, bytes),
            fails: random.random::<f64>() < self.config.error_rate,
            changes: random.random::<f64>() < self.config.change_rate,
            cut: (random.random::<f64>() < self.config.short_body_rate).then(|| random.random()),
            body: self.latency.draw_body(&mut random, bytes),
        }
    }

    async fn meet(&self, fate: &Fate, waits: bool, key: &ObjectKey) -> Result<(), OriginError> {
        if let Some(latency) = fate.latency.filter(|_| waits) {
            self.clock.sleep(latency).await;
        }
        if fate.fails {
            return Err(OriginError::Server {
                status: 503,
                message: "emulated failure".into(),
            });
        }
        if fate.changes && self.current(key).is_some_and(|(_, size)| size.is_some()) {
            self.change(key)?;
        }
        Ok(())
    }

    fn meta(
        &self,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<(u64, ObjectMeta), OriginError> {
        let not_found = || OriginError::NotFound(key.to_string());
        let (generation, size) = self.current(key).ok_or_else(not_found)?;
        let meta = ObjectMeta {
            size: size.ok_or_else(not_found)?,
            etag: self.config.validators.then(|| {
                format!(
                    "\"{:016x}-{generation}\"",
                    size::hash(self.config.seed, key)
                )
            }),
            last_modified: self.config.validators.then(|| last_modified(generation)),
            ..ObjectMeta::default()
        };
        check_conditions(&meta, request)?;
        Ok((generation, meta))
    }

    /// Bytes that a request would read now.
    fn asked_bytes(&self, key: &ObjectKey, range: Option<&Range<u64>>) -> u64 {
        let size = self.current(key).and_then(|(_, size)| size).unwrap_or(0);
        range.map_or(size, |range| {
            range.end.min(size).saturating_sub(range.start)
        })
    }

    fn body(
        &self,
        content: Content,
        range: Range<u64>,
        sent_to: u64,
        takes: Option<Duration>,
    ) -> OriginBody {
        let length = (range.end - range.start) as f64;
        let measured = takes.map(|takes| (length / takes.as_secs_f64()) as u64);
        let rate = self.config.bandwidth_per_stream.map(|rate| rate.bytes());
        let pieces = Pieces {
            content,
            at: range.start,
            end: sent_to,
            piece: self.config.piece_size.bytes(),
            pace: rate.or(measured).map(|rate| Pace {
                bytes_per_second: rate.max(1),
                begun: self.clock.now(),
                begun_at: range.start,
                clock: self.clock.clone(),
            }),
        };
        Box::pin(futures::stream::unfold(pieces, |mut pieces| async {
            let bytes = pieces.next().await?;
            Some((Ok(bytes), pieces))
        }))
    }
}

#[async_trait]
impl Backend for EmulatedOrigin {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        let fate = self.fate(self.asked_bytes(key, request.range.as_ref()));
        self.meet(&fate, true, key).await?;
        let (generation, meta) = self.meta(key, &request)?;
        let range = clip(request.range, meta.size)?;
        let sent_to = match fate.cut {
            None => range.end,
            Some(share) => range.start + ((range.end - range.start) as f64 * share) as u64,
        };
        let content = Content::new(self.config.seed, key, generation);
        Ok(OriginRead {
            body: self.body(content, range.clone(), sent_to, fate.body),
            meta,
            range,
            from_cache: None,
        })
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        let fate = self.fate(0);
        self.meet(&fate, self.config.head_latency, key).await?;
        self.meta(key, &request).map(|(_, meta)| meta)
    }

    async fn put(
        &self,
        key: &ObjectKey,
        mut request: PutRequest,
    ) -> Result<PutResponse, OriginError> {
        let fate = self.fate(request.length.unwrap_or(0));
        let mut received = 0;
        while let Some(piece) = request.body.next().await {
            received += piece
                .map_err(|error| OriginError::BadUpload(error.to_string()))?
                .len() as u64;
        }
        if let Some(length) = request.length.filter(|&length| length != received) {
            return Err(OriginError::BadUpload(format!(
                "{length} bytes were announced and {received} came"
            )));
        }
        self.meet(&fate, true, key).await?;
        self.write(key, Some(received))?;
        let etag = self.meta(key, &GetRequest::default())?.1.etag;
        Ok(PutResponse { etag })
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        let fate = self.fate(0);
        self.meet(&fate, true, key).await?;
        match self.current(key) {
            Some((_, Some(_))) => self.write(key, None),
            _ => Ok(()),
        }
    }

    async fn head_bucket(&self, _bucket: &str) -> Result<(), OriginError> {
        Ok(())
    }
}

/// The remaining bytes of a body.
struct Pieces {
    content: Content,
    at: u64,
    end: u64,
    piece: u64,
    pace: Option<Pace>,
}

struct Pace {
    bytes_per_second: u64,
    begun: Tick,
    begun_at: u64,
    clock: Clock,
}

impl Pieces {
    async fn next(&mut self) -> Option<Bytes> {
        let len = self.piece.min(self.end - self.at);
        if len == 0 {
            return None;
        }
        if let Some(pace) = &self.pace {
            pace.wait_until_sent(self.at + len).await;
        }
        // `piece_size` is at most 16 MiB, so this fits.
        let mut bytes = BytesMut::zeroed(len as usize);
        self.content.fill(self.at, &mut bytes);
        self.at += len;
        Some(bytes.freeze())
    }
}

impl Pace {
    /// Waits until a stream of this rate would have sent all bytes before `offset`.
    async fn wait_until_sent(&self, offset: u64) {
        let bytes = u128::from(offset - self.begun_at);
        let due = bytes * 1_000_000_000 / u128::from(self.bytes_per_second);
        let passed = u128::from(self.clock.now().0.saturating_sub(self.begun.0));
        if due > passed {
            let wait = u64::try_from(due - passed).unwrap_or(u64::MAX);
            self.clock.sleep(Duration::from_nanos(wait)).await;
        }
    }
}

fn last_modified(generation: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(FIRST_WRITE_UNIX_SECONDS.saturating_add(generation))
}

/// Clips `range` to an object of `size` bytes.
pub(crate) fn clip(range: Option<Range<u64>>, size: u64) -> Result<Range<u64>, OriginError> {
    match range {
        None => Ok(0..size),
        Some(range) if range.start < size && range.start < range.end => {
            Ok(range.start..range.end.min(size))
        }
        Some(_) => Err(OriginError::RangeNotSatisfiable { size: Some(size) }),
    }
}

/// Evaluates a request's conditions on the metadata.
pub(crate) fn check_conditions(meta: &ObjectMeta, request: &GetRequest) -> Result<(), OriginError> {
    if request.if_match.is_some() && request.if_match != meta.etag {
        return Err(OriginError::PreconditionFailed);
    }
    if request.if_none_match.is_some() {
        if request.if_none_match == meta.etag {
            return Err(OriginError::NotModified);
        }
    } else if let (Some(since), Some(written)) = (request.if_modified_since, meta.last_modified)
        && written <= since
    {
        return Err(OriginError::NotModified);
    }
    Ok(())
}
