//! Tiny objects on a device: the driver of `floe_core::tiny`.
//!
//! | file | content |
//! |---|---|
//! | `config.rs`, `plan.rs` | settings, and the validated plan |
//! | `engine.rs` | the five engines as one type |
//! | `instance.rs`, `insert.rs` | one engine: searches and writes |
//! | `tasks.rs` | runs the tasks that an engine issues |
//! | `ram.rs` | the RAM tier |
//! | `medium.rs` | pages: addresses, checksums, labels |
//! | `batch.rs` | batches of writes, whose fences share a group |
//! | `journal.rs`, `order.rs` | fences: superseded copies that a crash must not bring back |
//! | `fences.rs` | the fences in force |
//! | `sizes.rs` | the sizes, and what they cost |
//! | `open.rs`, `opening.rs` | opening: format or recovery, and its outcome |
//! | `survey.rs` | estimates the share of live copies after a restart |
//!
//! **No lock is held across an await, except that closes take turns; every pool and queue is
//! bounded.**
//!
//! **A panic in an engine's task poisons that instance**: what its memory knows may
//! be inconsistent, so gets, puts, deletes and flushes of its keys fail with
//! [`CacheError::Poisoned`]. A panic in the journal's work fails every put and
//! delete that needs a fence; gets go on.

mod config;
mod engine;
mod fences;
mod insert;
mod instance;
mod journal;
mod lock;
mod medium;
mod open;
mod opening;
mod order;
mod plan;
mod ram;
mod sizes;
mod survey;
mod tasks;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::tiny::{KEY_BYTES_MAX, TinyNote, record_of};
use floe_core::policy::admission::AdmissionStatistics;
use floe_core::tiny::{
    Durability, Engine as _, Expiry, LiveObjects, Memory, OBJECT_BYTES_MAX, Object, Statistics,
};
use floe_device::{Clock, CounterSnapshot, SharedDevice};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;

use crate::error::CacheError;
use crate::metadata_log::{Batch, WriteBatch};
use crate::value::{InRam, PutOptions, Value};
use insert::{Begun, Write};
use instance::Instance;
use journal::Journal;
use tasks::Note;

pub use config::{LookBeforeFence, TinyConfig, TinyDurability};
pub use floe_core::layout::tiny::TinyEngine;
pub use floe_core::tiny::nemo::{Costs, NemoConfig};
pub use floe_core::tiny::{
    FairyWrenConfig, KangarooConfig, LogConfig, SetConfig, SetPolicy, SetStorage,
};
pub use opening::{OpenTinyError, TinyRecovery};
pub use sizes::TinySizes;

/// Counts and gauges of a tiny store at one moment.
#[derive(Clone, Debug, Default)]
pub struct TinyStats {
    /// The sum over the engines.
    pub engine: Statistics,
    /// Memory of the engines and of the tables of zones and pages.
    pub memory: Memory,
    /// Keys that a get finds in memory or on flash. For Nemo an estimate: exact
    /// up to 2,048 keys, then within 10 % of the largest number so far. Soon
    /// after a restart, and for the other engines, it includes some superseded
    /// copies.
    pub live: LiveObjects,
    /// The admission policy's counts.
    pub admission: AdmissionStatistics,
    /// Bytes in the RAM tier.
    pub ram_bytes: u64,
    /// Gets served from the RAM tier.
    pub ram_hits: u64,
    /// Searches that found an expired object. It counts each time until it is
    /// replaced or evicted.
    pub expired: u64,
    /// Fences that overwrites and deletes sent to the journal.
    pub fences: u64,
    /// Overwrites and deletes that an existing fence covered.
    pub fences_spared: u64,
    /// Writes that waited for set-groups to be flushed, because the number of
    /// fences in force was at its limit.
    pub fences_delays: u64,
    /// Writes that first looked their key up on flash, because many fences were
    /// in force or the settings say so.
    pub fences_lookups: u64,
    /// Memory of the fences in force and their tables.
    pub fences_bytes: u64,
    /// Zones out of use because the drive has made them read-only or offline, as far as
    /// that is known.
    pub zones_unwritable: u64,
    /// The device, since it was opened.
    pub device: CounterSnapshot,
}

/// Keys to values of up to about four thousand bytes each, with write
/// amplification near 1 and a few bits of memory per object. Cheap to clone.
///
/// A get returns the newest acknowledged value or a miss. Requires a tokio
/// runtime with its timer.
///
/// Of the five engines ([`TinyConfig::engine`]) only Nemo recovers its objects.
/// The others, like those of their papers, keep their index in memory only:
/// they start empty, with a new cache id that makes old pages unreadable.
#[derive(Clone)]
pub struct Tiny {
    handle: Arc<Handle>,
}

struct Handle {
    engine: TinyEngine,
    writes: Writes,
    instances: Arc<[Arc<Instance>]>,
    journal: Journal,
    seed: HashSeed,
    formatted_at: u64,
    clock: Clock,
    device: SharedDevice,
    recovery: TinyRecovery,
    sizes: Option<TinySizes>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    journal_task: Mutex<Option<JoinHandle<()>>>,
    /// Held while the store is closed.
    closing: tokio::sync::Mutex<()>,
}

/// The reason why a superseded copy on flash cannot come back after a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// Each write has a fence if it needs one.
    Fenced,
    /// Nothing comes back: the journal says that writes had no fences.
    Unfenced,
    /// Nothing comes back: the engine's index is in memory only.
    Volatile,
}

impl Writes {
    fn of(plan: &plan::TinyPlan) -> Self {
        match (plan.engine.durability(), plan.durability) {
            (Durability::Volatile, _) => Writes::Volatile,
            (Durability::Persistent { .. }, TinyDurability::None) => Writes::Unfenced,
            (Durability::Persistent { .. }, _) => Writes::Fenced,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        for instance in &*self.instances {
            instance.stop();
        }
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        if let Some(task) = self.journal_task.lock().take() {
            task.abort();
        }
    }
}

impl fmt::Debug for Tiny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tiny")
            .field("device", &self.handle.device)
            .field("instances", &self.handle.instances.len())
            .finish_non_exhaustive()
    }
}

impl Tiny {
    /// Opens the cache on `device`: recovers it, or formats a blank device.
    ///
    /// # Errors
    /// [`OpenTinyError`] names the setting that cannot work, or describes the device's content.
    pub async fn open(
        device: SharedDevice,
        clock: Clock,
        config: &TinyConfig,
    ) -> Result<Tiny, OpenTinyError> {
        let (plan, opened) = open::open(Arc::clone(&device), &clock, config).await?;
        let instances = opened.instances;
        let (journal, journal_task) = opened.journal;
        let handle = Arc::new(Handle {
            engine: plan.engine.kind(),
            writes: Writes::of(&plan),
            instances,
            journal,
            seed: opened.superblock.seed,
            formatted_at: opened.superblock.formatted_at,
            clock,
            device,
            recovery: opened.recovery,
            sizes: plan.sizes,
            tasks: Mutex::default(),
            journal_task: Mutex::new(Some(journal_task)),
            closing: tokio::sync::Mutex::default(),
        });
        handle.start();
        Ok(Tiny { handle })
    }

    /// True if a key and value of these sizes can be stored.
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        fits(key_bytes, value_bytes)
    }

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`], [`CacheError::Closed`]. A value that flash
    /// cannot return is a miss.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, CacheError> {
        consume_budget().await;
        let handle = &*self.handle;
        let (hash, instance) = handle.locate(key)?;
        let now = handle.now_seconds();
        let hit = instance.get(hash, key, now).await;
        Ok(hit.map(|hit| Value {
            bytes: hit.value,
            tier: hit.tier,
        }))
    }

    /// Reads the value of `key` if it is in memory, synchronously.
    ///
    /// # Errors
    /// As [`get`](Tiny::get).
    pub fn get_ram(&self, key: &[u8]) -> Result<InRam, CacheError> {
        let handle = &*self.handle;
        let (hash, instance) = handle.locate(key)?;
        Ok(match instance.get_ram(hash, key, handle.now_seconds()) {
            Some(Some(hit)) => InRam::Hit(Value {
                bytes: hit.value,
                tier: hit.tier,
            }),
            Some(None) => InRam::Miss,
            None => InRam::OnFlash {
                len: OBJECT_BYTES_MAX as u64,
            },
        })
    }

    /// Stores `value` in place of an older one. Returns when reads find it,
    /// before it is on flash, and older copies are durably invalid. Waits while
    /// memory has no room.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`], [`CacheError::ValueTooLarge`],
    /// [`CacheError::NotDurable`], [`CacheError::Closed`].
    pub async fn put(
        &self,
        key: &[u8],
        value: &[u8],
        options: PutOptions,
    ) -> Result<(), CacheError> {
        consume_budget().await;
        let handle = &*self.handle;
        let (hash, instance) = handle.locate(key)?;
        let now_seconds = handle.now_seconds();
        let write = Write::Undecided(object(hash, key, &[value], options, now_seconds)?);
        handle.insert(instance, write, now_seconds).await
    }

    /// Does what a put of the concatenation of `value` can do without waiting; `None` if that is
    /// nothing.
    pub(crate) fn begin_put(
        &self,
        key: &[u8],
        options: PutOptions,
        value: &[&[u8]],
    ) -> Result<Option<TinyWrite>, CacheError> {
        self.begin_write(key, |hash, now| object(hash, key, value, options, now))
    }

    /// As [`begin_put`](Tiny::begin_put), of a [delete](Tiny::delete).
    pub(crate) fn begin_delete(&self, key: &[u8]) -> Result<Option<TinyWrite>, CacheError> {
        self.begin_write(key, |hash, _| Ok(Object::tombstone(hash)))
    }

    fn begin_write(
        &self,
        key: &[u8],
        object: impl FnOnce(KeyHash, u32) -> Result<Object, CacheError>,
    ) -> Result<Option<TinyWrite>, CacheError> {
        let handle = &*self.handle;
        let (hash, instance) = handle.locate(key)?;
        let has_note = handle.writes != Writes::Unfenced || handle.journal.is_unfenced();
        if !has_note || instance.is_short.load(Relaxed) {
            return Ok(None);
        }
        let now_seconds = handle.now_seconds();
        let object = object(hash, now_seconds)?;
        let begun = instance.begin_insert(object, now_seconds, handle.journal_of_fences())?;
        Ok(begun.map(|begun| TinyWrite {
            instance: instance.number,
            now_seconds,
            begun,
        }))
    }

    /// Removes `key`. After it returns, no crash brings the value back.
    ///
    /// # Errors
    /// As [`put`](Tiny::put).
    pub async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        consume_budget().await;
        let handle = &*self.handle;
        let (hash, instance) = handle.locate(key)?;
        let write = Write::Undecided(Object::tombstone(hash));
        let now_seconds = handle.now_seconds();
        handle.insert(instance, write, now_seconds).await
    }

    /// Begins a [batch](WriteBatch) of writes.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(None, self.begin_batch())
    }

    /// A batch of fences, if writes make any.
    pub(crate) fn begin_batch(&self) -> Option<Batch> {
        match self.handle.writes {
            Writes::Fenced => Some(self.handle.journal.batch()),
            Writes::Unfenced | Writes::Volatile => None,
        }
    }

    /// True if no engine writes, evicts or waits to do so. Objects may be in memory all the
    /// same; [`flush`](Tiny::flush) writes them.
    pub fn is_idle(&self) -> bool {
        self.handle.instances.iter().all(|one| one.is_idle())
    }

    /// Writes the objects in memory to flash and waits until they are durable.
    /// This writes set-groups that are not full, which costs write
    /// amplification. Volatile engines have nothing to wait for.
    ///
    /// # Errors
    /// [`CacheError::Closed`].
    pub async fn flush(&self) -> Result<(), CacheError> {
        for instance in &*self.handle.instances {
            if instance.stopping.load(SeqCst) || !instance.drain().await {
                return Err(instance.refusal());
            }
        }
        self.settle().await;
        Ok(())
    }

    /// Drops ended fences from the journal. Fences stay in force beyond their
    /// need, so without this the next opening would discard recently
    /// overwritten keys that are on flash.
    async fn settle(&self) {
        if self.handle.writes == Writes::Volatile {
            return;
        }
        for instance in &*self.handle.instances {
            instance.settle(&self.handle.journal);
        }
        if let Err(error) = self.handle.journal.settle().await {
            tracing::warn!(%error, "the next opening will discard recently overwritten objects, or all that were written without fences");
        }
    }

    /// Flushes and stops. Later calls on other clones fail with [`CacheError::Closed`].
    ///
    /// # Errors
    /// As [`flush`](Tiny::flush).
    pub async fn close(&self) -> Result<(), CacheError> {
        let _turn = self.handle.closing.lock().await;
        if self.handle.journal_task.lock().is_none() {
            return Err(CacheError::Closed);
        }
        for instance in &*self.handle.instances {
            instance.refuse_writes();
        }
        let flushed = self.flush().await;
        for instance in &*self.handle.instances {
            instance.stop();
        }
        let tasks: Vec<_> = self.handle.tasks.lock().drain(..).collect();
        for task in tasks {
            // The panic of a task was reported already.
            let _ = task.await;
        }
        let mut instances = self.handle.instances.iter();
        if flushed.is_ok() && instances.all(|instance| instance.is_drained()) {
            self.handle.journal.end_unfenced();
        } else if self.handle.writes == Writes::Unfenced {
            tracing::warn!(
                "not all objects are on flash, and there are no fences: if any were put, the next opening starts empty"
            );
        }
        self.settle().await;
        // The device must be unused afterwards. A caller that waits for the
        // journal gets the error that it is closed.
        let journal_task = self.handle.journal_task.lock().take();
        if let Some(task) = journal_task {
            task.abort();
            let _ = task.await;
        }
        flushed
    }

    /// A number that identifies the cache: its hash seed, which the superblock keeps.
    pub fn identity(&self) -> u64 {
        self.handle.seed.0
    }

    /// The engine.
    pub fn engine(&self) -> TinyEngine {
        self.handle.engine
    }

    /// The result of recovery.
    pub fn recovery(&self) -> &TinyRecovery {
        &self.handle.recovery
    }

    /// The sizes and their costs; `None` for the baselines.
    pub fn sizes(&self) -> Option<&TinySizes> {
        self.handle.sizes.as_ref()
    }

    /// The device.
    pub fn device(&self) -> &SharedDevice {
        &self.handle.device
    }

    /// Counts and gauges.
    pub fn stats(&self) -> TinyStats {
        let mut stats = TinyStats {
            device: self.handle.device.counters().snapshot(),
            fences_bytes: self.handle.journal.memory_bytes(),
            ..TinyStats::default()
        };
        let now = self.handle.now_seconds();
        for instance in &*self.handle.instances {
            let state = instance.state.lock();
            stats
                .live
                .add(state.engine.live_objects(&state.stripe, now));
            stats.engine.add(&state.engine.statistics(&state.stripe));
            stats.memory.add(&state.engine.memory(&state.stripe));
            stats.expired += state.expired;
            stats.fences += state.fences.sent;
            stats.fences_spared += state.fences.spared;
            stats.fences_delays += state.fences.delays;
            stats.fences_lookups += state.fences.lookups;
            stats.fences_bytes += state.fences.memory_bytes();
            stats.zones_unwritable += u64::from(instance.medium.unwritable.load(SeqCst));
            drop(state);
            let ram = instance.ram.lock();
            stats.ram_bytes += ram.bytes();
            stats.ram_hits += ram.hits();
            stats.memory.other_bytes += ram.table_bytes() + instance.medium.memory_bytes();
            stats.admission += ram.admission();
        }
        stats
    }
}

impl Handle {
    fn start(self: &Arc<Self>) {
        let mut tasks = self.tasks.lock();
        for instance in &*self.instances {
            let number = instance.number;
            let (clock, formatted_at) = (self.clock.clone(), self.formatted_at);
            let now_seconds = move || seconds_since(&clock, formatted_at);
            let weak = Arc::downgrade(self);
            let note = async move |note| {
                let Some(handle) = weak.upgrade() else {
                    return false;
                };
                let instance = number;
                let note = match note {
                    Note::Gone(below) => TinyNote::Gone { instance, below },
                    Note::Written(below) => TinyNote::Written { instance, below },
                    Note::Sealing { page, sequence } => TinyNote::Sealing {
                        instance,
                        page: page.0,
                        sequence,
                    },
                };
                handle.journal.commit(note).await.is_ok()
            };
            let survey = Arc::clone(instance).survey(now_seconds.clone());
            tasks.push(tokio::spawn(survey));
            let clock = self.clock.clone();
            tasks.push(tokio::spawn(Arc::clone(instance).run(
                clock,
                now_seconds,
                note,
            )));
        }
    }

    fn now_seconds(&self) -> u32 {
        seconds_since(&self.clock, self.formatted_at)
    }

    fn locate(&self, key: &[u8]) -> Result<(KeyHash, &Instance), CacheError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(CacheError::KeyTooLong {
                len: key.len(),
                limit: KEY_BYTES_MAX,
            });
        }
        let hash = KeyHash::of(self.seed, key);
        let at = open::instance_of(hash, self.instances.len() as u32);
        let instance = &*self.instances[at as usize];
        if instance.stopping.load(SeqCst) {
            return Err(instance.refusal());
        }
        Ok((hash, instance))
    }

    /// The journal, if writes have fences.
    fn journal_of_fences(&self) -> Option<&Journal> {
        (self.writes == Writes::Fenced).then_some(&self.journal)
    }

    async fn insert(
        &self,
        instance: &Instance,
        write: Write,
        now_seconds: u32,
    ) -> Result<(), CacheError> {
        if self.writes == Writes::Unfenced {
            self.journal.begin_unfenced().await?;
        }
        let journal = self.journal_of_fences();
        let wait = instance.insert(write, now_seconds, journal).await?;
        self.journal.wait(wait).await
    }
}

/// The object of a key and the concatenation of `value`.
fn object(
    hash: KeyHash,
    key: &[u8],
    value: &[&[u8]],
    options: PutOptions,
    now_seconds: u32,
) -> Result<Object, CacheError> {
    let len: usize = value.iter().map(|part| part.len()).sum();
    if !fits(key.len(), len) {
        return Err(CacheError::ValueTooLarge {
            len: len as u64,
            limit: (OBJECT_BYTES_MAX - key.len()) as u64,
        });
    }
    let expires = options.ttl.map_or(Expiry::NEVER, |ttl| {
        let seconds = u32::try_from(ttl.as_secs().max(1)).unwrap_or(u32::MAX);
        Expiry(now_seconds.saturating_add(seconds).max(1))
    });
    Ok(Object {
        bytes: (key.len() + len) as u32,
        expires,
        record: record_of(key, value),
        ..Object::sized(hash, 0)
    })
}

fn fits(key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes <= KEY_BYTES_MAX && key_bytes + value_bytes <= OBJECT_BYTES_MAX
}

/// A put that was begun.
#[derive(Debug)]
pub(crate) struct TinyWrite {
    instance: u32,
    now_seconds: u32,
    begun: Begun,
}

impl TinyWrite {
    /// True if there is nothing to wait for.
    pub(crate) fn is_done(&self, tiny: &Tiny) -> bool {
        match &self.begun {
            Begun::Inserted(wait) => tiny.handle.journal.is_over(wait),
            Begun::Waiting(_) => false,
        }
    }

    /// Waits until the write may be acknowledged.
    pub(crate) async fn finish(self, tiny: &Tiny) -> Result<(), CacheError> {
        let handle = &*tiny.handle;
        let instance = &handle.instances[self.instance as usize];
        match self.begun {
            Begun::Inserted(wait) => handle.journal.wait(wait).await,
            Begun::Waiting(write) => handle.insert(instance, write, self.now_seconds).await,
        }
    }
}

/// Seconds since the cache was formatted, at least 1, because 0 means never.
fn seconds_since(clock: &Clock, formatted_at: u64) -> u32 {
    let seconds = clock.unix_seconds().saturating_sub(formatted_at);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}
