//! Keys to values: the RAM tier over the chunk engine on flash.
//!
//! **Panics.** A caller that panics drops its [`ValueWriter`]: the value is not
//! stored, and the older value stays. A panic in a background task poisons the
//! store: writes fail with [`CacheError::Poisoned`], and reads go on.
//!
//! Must not depend on objects, origins, versions or protocols.

pub(crate) mod epoch;
pub(crate) mod marks;
pub(crate) mod pairing;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use floe_core::ByteSize;
use floe_core::chunk::{ChunkConfig, ConfigError, Plan};
use floe_core::layout::SMALL_MAX_BYTES;
use floe_core::policy::admission::AdmissionConfig;
use floe_device::{Clock, CounterSnapshot, SendableMemory, SharedDevice};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::coop::consume_budget;

use crate::chunk::{
    AdmissionControl, Engine, EngineStats, LargeReader, LargeWriter, Lookup, OpenOptions,
    RamLookup, RamPlan, Tombstones, ZoneStats,
};
pub use crate::chunk::{ChunkCounts, OpenError, RecoveryReport};
use crate::error::CacheError;
use crate::membership::Membership;
use crate::metadata_log::{Batch, WriteBatch};
use crate::store::epoch::WriteEpochs;
use crate::store::marks::Marks;
use crate::value::{
    InRam, NewValue, PutOptions, PutOutcome, ReadFault, Tier, Value, check_given, check_whole, clip,
};

/// How long the store's own records wait after they could not be written.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The settings of the RAM tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RamConfig {
    /// Most bytes of keys, values and their overhead in the RAM tier; 0 turns it off.
    pub size: ByteSize,
    /// Bytes of the longest value in the RAM tier.
    pub max_value_size: ByteSize,
}

impl Default for RamConfig {
    fn default() -> Self {
        RamConfig {
            size: ByteSize::mib(256),
            max_value_size: ByteSize::mib(1),
        }
    }
}

/// The settings of a store, except for its device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The chunk engine.
    pub chunk: ChunkConfig,
    /// The admission policy: values that it declines stay in the RAM tier only.
    pub admission: AdmissionConfig,
    /// The RAM tier.
    pub ram: RamConfig,
    /// Format the device whatever it holds. Otherwise only a blank device is formatted.
    pub format: bool,
    /// Makes identity and key hash of a newly formatted cache deterministic,
    /// for simulations. Leave it `None` in production: with a known hash,
    /// clients can choose keys that collide.
    pub seed: Option<u64>,
}

/// Reads a range of a stored value piece by piece.
#[derive(Debug)]
pub struct ValueReader {
    value_len: u64,
    tier: Tier,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Whole(Option<Bytes>),
    Pieces(Box<LargeReader>),
}

impl ValueReader {
    /// Reads `range`, clipped to the value's length, of a value in memory.
    pub(crate) fn whole(value: Value, range: &Range<u64>) -> Self {
        let value_len = value.bytes.len() as u64;
        let range = clip(range, value_len);
        let part = value.bytes.slice(range.start as usize..range.end as usize);
        ValueReader {
            value_len,
            tier: value.tier,
            source: Source::Whole(Some(part)),
        }
    }

    /// Bytes of the whole value, not of the range.
    pub fn value_len(&self) -> u64 {
        self.value_len
    }

    /// True if the range is in memory, and not read piece by piece.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.source, Source::Whole(_))
    }

    /// The tier that holds the value.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The next piece of the range, or `None` at its end.
    ///
    /// # Errors
    /// [`ReadFault`] if flash fails or returns wrong bytes, or the value was
    /// evicted during the read. Pieces before the error are valid.
    pub async fn next(&mut self) -> Option<Result<Bytes, ReadFault>> {
        match &mut self.source {
            Source::Whole(bytes) => bytes.take().filter(|b| !b.is_empty()).map(Ok),
            Source::Pieces(reader) => reader.next().await,
        }
    }
}

/// Writes a value piece by piece. Dropping it without
/// [`finish`](ValueWriter::finish) discards the pieces.
#[derive(Debug)]
pub struct ValueWriter(Sink);

#[derive(Debug)]
enum Sink {
    Small {
        engine: Arc<Engine>,
        key: Box<[u8]>,
        len: u64,
        buf: BytesMut,
        options: PutOptions,
        /// The admission policy decides.
        is_asked: bool,
    },
    Large(Box<LargeWriter>),
    /// A large value that the admission policy declined.
    Declined {
        engine: Arc<Engine>,
        key: Box<[u8]>,
        len: u64,
        given: u64,
        options: PutOptions,
    },
}

impl ValueWriter {
    /// Adds the next bytes. Waits while the write buffers are full.
    ///
    /// # Errors
    /// [`CacheError::WrongLength`] for more bytes than announced;
    /// [`CacheError::Closed`]. [`finish`](ValueWriter::finish) reports device
    /// failures.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), CacheError> {
        match &mut self.0 {
            Sink::Small { len, buf, .. } => {
                check_given(*len, (buf.len() + bytes.len()) as u64)?;
                buf.extend_from_slice(&bytes);
                Ok(())
            }
            Sink::Large(writer) => writer.write(bytes).await,
            Sink::Declined { len, given, .. } => {
                *given = check_given(*len, *given + bytes.len() as u64)?;
                Ok(())
            }
        }
    }

    /// Makes the value visible.
    ///
    /// # Errors
    /// [`CacheError::WrongLength`] if bytes are missing;
    /// [`CacheError::NotDurable`] if the replaced value could not be
    /// invalidated durably; [`CacheError::Closed`].
    pub async fn finish(self) -> Result<PutOutcome, CacheError> {
        match self.0 {
            Sink::Small {
                engine,
                key,
                len,
                buf,
                options,
                is_asked,
            } => {
                check_whole(len, buf.len() as u64)?;
                match is_asked {
                    true => engine.offer(&key, buf.freeze(), options).await,
                    false => engine.put(&key, buf.freeze(), options).await,
                }
            }
            Sink::Large(writer) => writer.finish().await,
            Sink::Declined {
                engine,
                key,
                len,
                given,
                options,
            } => {
                check_whole(len, given)?;
                engine.decline(&key, None, options).await
            }
        }
    }
}

/// Counts and gauges of a store at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// The chunk engine and the RAM tier.
    pub engine: EngineStats,
    /// The device, since it was opened.
    pub device: CounterSnapshot,
}

impl StoreStats {
    /// Application-level write amplification: bytes written to the device per
    /// byte of keys and values accepted. `None` until the store has accepted a
    /// byte.
    pub fn alwa(&self) -> Option<f64> {
        let accepted = self.engine.counts.put_bytes;
        (accepted > 0).then(|| self.device.written_bytes() as f64 / accepted as f64)
    }
}

/// Keys to values: the newest acknowledged value or a miss. Cheap to clone.
///
/// Requires a tokio runtime. Dropping the last clone ends the background tasks;
/// [`close`](Store::close) first, so that all accepted values reach flash.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Stops the engine's tasks when the last clone is dropped.
struct Handle {
    engine: Arc<Engine>,
    recovery: RecoveryReport,
    /// Shared by all object caches over this store: each must see the others' writes.
    epochs: OnceLock<WriteEpochs>,
    /// Shared likewise.
    marks: OnceLock<Arc<Marks>>,
    membership: Membership,
    /// The names that are claimed now.
    claims: Mutex<BTreeSet<Box<str>>>,
}

/// Exclusive permission to use the keys of one name in a store, until it is
/// dropped; see [`Store::claim`].
pub struct Claim {
    store: Arc<Handle>,
    name: Box<str>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.name).finish()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.store.claims.lock().remove(&self.name);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.engine.stop_tasks();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.engine.fmt(f)
    }
}

/// The removal of a value, by a delete or a put, that a crash may undo until it is settled.
#[derive(Debug)]
#[must_use]
pub(crate) struct Removal(Tombstones);

impl Removal {
    /// True if there is nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.is_empty()
    }
}

impl Store {
    /// As [`open`](Store::open), but keeps the notes of the tiny engine.
    pub(crate) async fn open_paired(
        device: SharedDevice,
        clock: Clock,
        config: &StoreConfig,
    ) -> Result<Store, OpenError> {
        let plan = Plan::new(&config.chunk, device.geometry())?;
        let ram = RamPlan {
            bytes: config.ram.size.bytes(),
            value_bytes_max: config.ram.max_value_size.bytes(),
        };
        let options = OpenOptions {
            format: config.format,
            seed: config.seed,
        };
        let admission_control = admission_control(config)?;
        let membership = Membership::new(clock.clone());
        let (engine, recovery) =
            Engine::open(device, clock, plan, ram, admission_control, options).await?;
        Ok(Store {
            handle: Arc::new(Handle {
                engine,
                recovery,
                epochs: OnceLock::new(),
                marks: OnceLock::new(),
                membership,
                claims: Mutex::default(),
            }),
        })
    }

    /// Resizes the RAM tier; a smaller one evicts its least used values.
    /// Returns `false`, without effect, if there is no RAM tier or `size` is
    /// too small for one: that requires reopening the store.
    pub fn resize_ram(&self, size: ByteSize) -> bool {
        self.engine().resize_ram(size.bytes())
    }

    /// The engine, for what only the layers of this crate need.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Reads the whole value of `key`.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`], [`CacheError::Closed`]. A value that flash
    /// cannot return is a miss.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, CacheError> {
        consume_budget().await;
        Ok(self
            .engine()
            .get(key)
            .await?
            .map(|(bytes, tier)| Value { bytes, tier }))
    }

    /// Reads the whole value of `key` if it is in the RAM tier or the write
    /// buffer, synchronously. A frontend can serve most requests this way, and
    /// start a task only for the rest.
    ///
    /// Hits and misses count, and a hit updates the eviction policy, as in
    /// [`get`](Store::get). [`InRam::OnFlash`] counts nothing: the `get` that
    /// follows does, and may miss.
    ///
    /// # Errors
    /// As [`get`](Store::get).
    pub fn get_ram(&self, key: &[u8]) -> Result<InRam, CacheError> {
        let found = self.find_in_ram(key)?;
        if found == InRam::Miss {
            self.count_miss();
        }
        Ok(found)
    }

    /// As [`get_ram`](Store::get_ram), but leaves it to the caller to
    /// [count](Store::count_miss) a miss.
    pub(crate) fn find_in_ram(&self, key: &[u8]) -> Result<InRam, CacheError> {
        Ok(match self.engine().lookup_ram(key)? {
            RamLookup::Found(bytes, tier) => InRam::Hit(Value { bytes, tier }),
            RamLookup::OnFlash { len } => InRam::OnFlash { len },
            RamLookup::Absent => InRam::Miss,
        })
    }

    pub(crate) fn count_miss(&self) {
        self.engine().count_miss();
    }

    /// Memory from which sockets send values in the RAM tier without a copy. From the first call
    /// on, a [`read`](Store::read) of a value there with some length moves it to this memory.
    /// `None` if there is no RAM tier, or no such memory.
    pub fn sendable(&self) -> Option<Arc<SendableMemory>> {
        self.engine().sendable().cloned()
    }

    /// Streams the bytes `range` of the value of `key`, clipped to its length.
    ///
    /// # Errors
    /// As [`get`](Store::get).
    pub async fn read(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<ValueReader>, CacheError> {
        consume_budget().await;
        let (bytes, tier) = match self.engine().lookup(key)? {
            Lookup::Absent => return Ok(None),
            Lookup::Memory(bytes, Tier::Ram) => {
                (self.engine().make_sendable(key, bytes), Tier::Ram)
            }
            Lookup::Memory(bytes, tier) => (bytes, tier),
            Lookup::Flash(value) if value.entry.len as usize > SMALL_MAX_BYTES => {
                let value_len = u64::from(value.entry.len);
                let range = clip(&range, value_len);
                let reader = self.engine().read_large(key, value, range).await;
                return Ok(reader.map(|reader| ValueReader {
                    value_len,
                    tier: Tier::Flash,
                    source: Source::Pieces(Box::new(reader.promoting())),
                }));
            }
            Lookup::Flash(value) => match self.engine().read_whole(key, value).await {
                Some(bytes) => (bytes, Tier::Flash),
                None => return Ok(None),
            },
        };
        Ok(Some(ValueReader::whole(Value { bytes, tier }, &range)))
    }

    /// True if the index has `key`; reads no flash.
    ///
    /// # Errors
    /// As [`get`](Store::get).
    pub fn contains(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.engine().contains(key)
    }

    /// Stores `value` in place of an older one. Returns when reads find it,
    /// perhaps still in the write buffer, and the older value is durably
    /// invalid. Waits while the write buffer is full.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`], [`CacheError::ValueTooLarge`],
    /// [`CacheError::NotDurable`], [`CacheError::Closed`].
    pub async fn put(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        consume_budget().await;
        self.engine().check_entry(key, value.len() as u64)?;
        self.engine().offer(key, value, options).await
    }

    /// As [`put`](Store::put) without asking the admission policy, for the cache's own records.
    pub(crate) async fn put_unasked(
        &self,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        self.engine().check_entry(key, value.len() as u64)?;
        self.engine().put(key, value, options).await
    }

    /// Starts writing a value of `len` bytes piece by piece. It reserves no
    /// flash before the first bytes are written.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`], [`CacheError::ValueTooLarge`], [`CacheError::Closed`].
    pub async fn writer(
        &self,
        key: &[u8],
        len: u64,
        options: PutOptions,
    ) -> Result<ValueWriter, CacheError> {
        let engine = self.engine();
        engine.check_entry(key, len)?;
        if len <= SMALL_MAX_BYTES as u64 || engine.admits(key, len) {
            return Ok(self.start_writing(key, len, options, true));
        }
        Ok(ValueWriter(Sink::Declined {
            engine: Arc::clone(engine),
            key: key.into(),
            len,
            given: 0,
            options,
        }))
    }

    /// As [`writer`](Store::writer) without asking the admission policy.
    pub(crate) fn writer_unasked(
        &self,
        key: &[u8],
        len: u64,
        options: PutOptions,
    ) -> Result<ValueWriter, CacheError> {
        self.engine().check_entry(key, len)?;
        Ok(self.start_writing(key, len, options, false))
    }

    fn start_writing(
        &self,
        key: &[u8],
        len: u64,
        options: PutOptions,
        is_asked: bool,
    ) -> ValueWriter {
        let engine = self.engine();
        ValueWriter(match len <= SMALL_MAX_BYTES as u64 {
            true => Sink::Small {
                engine: Arc::clone(engine),
                key: key.into(),
                len,
                buf: BytesMut::with_capacity(len as usize),
                options,
                is_asked,
            },
            false => Sink::Large(Box::new(engine.write_large(key, len, options))),
        })
    }

    /// Removes `key`, and returns whether the index had it. After it returns,
    /// no crash brings the value back.
    ///
    /// # Errors
    /// [`CacheError::NotDurable`] if the removal could not be made durable;
    /// [`CacheError::KeyTooLong`], [`CacheError::Closed`].
    pub async fn remove(&self, key: &[u8]) -> Result<bool, CacheError> {
        consume_budget().await;
        self.engine().remove(key).await
    }

    /// Removes `key`, which no crash brings back once the removal is [settled](Store::settle).
    pub(crate) fn begin_remove(&self, key: &[u8]) -> Result<Removal, CacheError> {
        let (_, tombstones) = self.engine().begin_remove(key)?;
        Ok(Removal(tombstones))
    }

    /// Does what a [put](Store::put) can do without waiting. Returns the removal of what it
    /// replaces; `None` if nothing was done.
    pub(crate) fn begin_put(&self, put: &NewValue<'_>) -> Result<Option<Removal>, CacheError> {
        self.engine().check_entry(put.key, put.len() as u64)?;
        let begun = self.engine().begin_offer(put)?;
        Ok(begun.map(Removal))
    }

    /// Waits until no crash brings back what was removed.
    pub(crate) async fn settle(&self, removal: Removal) -> Result<(), CacheError> {
        self.engine().settle(removal.0).await
    }

    /// As [`remove`](Store::remove), without the result.
    ///
    /// # Errors
    /// As [`remove`](Store::remove).
    pub async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        self.remove(key).await.map(drop)
    }

    /// Begins a [batch](WriteBatch) of writes.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.begin_batch(), None)
    }

    /// A batch of tombstones, if a log keeps them.
    pub(crate) fn begin_batch(&self) -> Option<Batch> {
        self.engine().batch()
    }

    /// Waits until all values accepted so far are durable on flash.
    ///
    /// # Errors
    /// [`CacheError::NotDurable`] if the device failed.
    pub async fn flush(&self) -> Result<(), CacheError> {
        self.engine().flush().await
    }

    /// Flushes, writes summaries of open zones for a fast restart, and stops.
    /// Later calls on other clones fail with [`CacheError::Closed`].
    ///
    /// # Errors
    /// As [`flush`](Store::flush).
    pub async fn close(&self) -> Result<(), CacheError> {
        self.engine().close().await
    }

    /// The result of recovery.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.handle.recovery
    }

    /// Bytes of the longest value: the capacity of a log's zone or of a slot.
    pub fn value_bytes_max(&self) -> u64 {
        self.engine().plan().value_bytes_max
    }

    /// Bytes of all zones: no more values fit at once.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.device().geometry().total_capacity()
    }

    /// The validated configuration.
    pub fn plan(&self) -> &Plan {
        self.engine().plan()
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        self.engine().clock()
    }

    /// The device.
    pub fn device(&self) -> &SharedDevice {
        self.engine().device()
    }

    /// Counts and gauges.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            engine: self.engine().stats(),
            device: self.engine().device().counters().snapshot(),
        }
    }

    pub(crate) fn epochs(&self) -> WriteEpochs {
        self.handle.epochs.get_or_init(WriteEpochs::new).clone()
    }

    pub(crate) fn marks(&self) -> Arc<Marks> {
        let marks = self
            .handle
            .marks
            .get_or_init(|| Arc::new(Marks::new(self.engine())));
        Arc::clone(marks)
    }

    /// The place of this store among those of other nodes that share its keys. Items and
    /// objects keep to it; keys and values of the store itself do not.
    pub fn membership(&self) -> &Membership {
        &self.handle.membership
    }

    /// Claims the keys of `name`, such as those of one origin, so that two users do
    /// not take each other's values for their own. `None` while another claim of
    /// the name lives. The store itself checks no key.
    pub fn claim(&self, name: &str) -> Option<Claim> {
        let is_free = self.handle.claims.lock().insert(name.into());
        is_free.then(|| Claim {
            store: Arc::clone(&self.handle),
            name: name.into(),
        })
    }

    /// Bytes written to the device since it was opened.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.device().counters().snapshot().written_bytes()
    }

    /// True if a record must be rewritten: a sixteenth of the device was
    /// written since, so its zone is still far from eviction.
    pub(crate) fn is_old(&self, written_at_bytes: u64) -> bool {
        self.written_bytes().saturating_sub(written_at_bytes) > self.data_bytes() / 16
    }

    /// How often to ask [`is_old`](Store::is_old): more often for a device that is soon
    /// overwritten.
    pub(crate) fn age_interval(&self) -> Duration {
        /// More than a drive writes.
        const BYTES_PER_MS: u64 = 8 << 20;
        const MIN: Duration = Duration::from_millis(20);
        const MAX: Duration = Duration::from_secs(1);
        Duration::from_millis(self.data_bytes() / 16 / BYTES_PER_MS).clamp(MIN, MAX)
    }

    /// The state of every data zone.
    pub fn zone_stats(&self) -> Vec<ZoneStats> {
        self.engine().zone_stats()
    }
}

/// Creates the admission policy.
fn admission_control(config: &StoreConfig) -> Result<AdmissionControl, ConfigError> {
    let seed = config.seed.unwrap_or_else(rand::random);
    AdmissionControl::new(&config.admission, seed).map_err(|error| ConfigError {
        setting: error.setting,
        value: error.value,
        reason: error.limit,
        cure: format!("the nearest value that works is {}", error.nearest),
    })
}
