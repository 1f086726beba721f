//! The task that writes pinned values again before they are evicted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};

use floe_core::chunk::Eviction;
use floe_core::layout::{Generation, ZoneLife};
use futures::StreamExt as _;
use futures::stream;
use tokio::task::coop::consume_budget;
use tokio_util::sync::CancellationToken;

use super::table::{Pinned, zones_ahead};
use crate::abort::OnAbort;
use crate::chunk::{StoredValue, Whereabouts};
use crate::error::CacheError;
use crate::object::inner::Inner;
use crate::object::record::MetadataRecord;
use crate::object::stats::add;
use crate::object::version::{Version, metadata_key, name_hash, parse_key};
use crate::origin::ObjectKey;
use crate::value::PutOutcome;

/// Values of a zone that are written again at once, and records that are read at once.
const AT_ONCE: usize = 8;

/// Keeps what is pinned until there is nothing, the cache stops, or it is gone.
pub(super) async fn run(inner: Weak<Inner>, stopping: CancellationToken) {
    // After a panic the next pin starts another task.
    let unkept = OnAbort::new(|| {
        if let Some(inner) = inner.upgrade() {
            inner.pins.is_kept.store(false, SeqCst);
        }
    });
    let _ = stopping.run_until_cancelled(keep(&inner)).await;
    unkept.done();
}

async fn keep(inner: &Weak<Inner>) {
    let mut progress = Progress::default();
    while let Some(inner) = inner.upgrade() {
        if inner.pins.has_ended() {
            return;
        }
        match inner.keep_next(&mut progress).await {
            Ok(()) => {}
            Err(CacheError::Closed | CacheError::Poisoned) => return,
            Err(error) => tracing::warn!(%error, "a pinned value was not written again"),
        }
        let wait = inner.clock.sleep(inner.store.age_interval());
        // Not held meanwhile.
        drop(inner);
        wait.await;
    }
}

/// The state of the task between its looks.
#[derive(Default)]
struct Progress {
    /// The changes of the pins, and the zone that was to be opened next, at the last look.
    seen_at: Option<(u64, Generation)>,
    /// The zones that were looked at, in which nothing is left to do.
    seen: HashSet<ZoneLife>,
    /// Zones with pinned values that stay while they are young.
    stayed: HashSet<ZoneLife>,
    /// Values that were written, and whose zone is not yet known.
    written: Vec<Kept>,
    /// Records whose objects were being written.
    not_yet: Vec<Kept>,
}

/// A pinned value that a read could use.
struct Kept {
    value: StoredValue,
    pin: Arc<Pinned>,
    /// Set for a record of metadata.
    record_of: Option<ObjectKey>,
}

/// The result of writing a value again.
enum Written {
    /// It is in the write buffer, and its bytes are reserved.
    Yes(Kept),
    /// It is left to eviction.
    No,
    /// Its object is being written: it is tried again.
    NotYet(Kept),
}

impl Progress {
    fn note(&mut self, written: Written) {
        match written {
            Written::Yes(kept) => self.written.push(kept),
            Written::NotYet(kept) => self.not_yet.push(kept),
            Written::No => {}
        }
    }
}

impl Inner {
    /// Looks at the zones that are evicted next.
    async fn keep_next(&self, progress: &mut Progress) -> Result<(), CacheError> {
        self.settle(&mut progress.written);
        let now = (
            self.pins.changes.load(SeqCst),
            self.store.engine().next_generation(),
        );
        let before = progress.seen_at.replace(now);
        if before.is_none_or(|(changes, _)| changes != now.0) {
            progress.seen.clear();
            progress.stayed.clear();
            progress.not_yet.clear();
        }
        for kept in std::mem::take(&mut progress.not_yet) {
            progress.note(self.write_again(kept).await?);
        }
        if before != Some(now) {
            let is_there = |life: &ZoneLife| self.store.engine().is_in_life(*life);
            progress.seen.retain(is_there);
            progress.stayed.retain(is_there);
        } else if self.store.plan().eviction == Eviction::Fifo {
            // No zone was opened, so that none was filled or evicted. Elsewhere reads change the
            // order all the time.
            return Ok(());
        }
        for life in self
            .store
            .engine()
            .next_evicted(zones_ahead(self.store.plan()))
        {
            let stays = self.may_stay(life);
            if stays && progress.stayed.contains(&life) {
                self.store.engine().touch_zone(life.zone);
            } else if progress.seen.insert(life) {
                self.keep_of(life, stays, progress).await?;
            }
        }
        Ok(())
    }

    /// Counts values where they are now. Their zones are recent, although they may have been
    /// open for long.
    fn settle(&self, written: &mut Vec<Kept>) {
        written.retain(|kept| {
            let at = match self.store.engine().find(&kept.value) {
                Whereabouts::Buffer => return true,
                Whereabouts::Zone(life) => {
                    self.store.engine().touch_zone(life.zone);
                    Some(life)
                }
                Whereabouts::Nowhere => None,
            };
            kept.pin.account.lock().settle(kept.value.bytes, at);
            false
        });
    }

    /// Keeps what is pinned in a zone: it is written again, or the zone `stays`.
    async fn keep_of(
        &self,
        life: ZoneLife,
        stays: bool,
        progress: &mut Progress,
    ) -> Result<(), CacheError> {
        let values = match self.store.engine().values_in(life).await {
            Ok(values) => values,
            Err(error) => {
                tracing::warn!(%error, zone = %life.zone, "a zone could not be searched for pinned values");
                return Ok(());
            }
        };
        let kept = self.kept_of(values).await;
        // The pinned bytes of this zone are counted again; other zones may be gone.
        for pin in self.pins.table.read().iter() {
            let is_there = |zone: ZoneLife| zone != life && self.store.engine().is_in_life(zone);
            pin.account.lock().retain(is_there);
        }
        if stays {
            for kept in kept.iter().filter(|kept| self.reserve(kept)) {
                kept.pin.account.lock().settle(kept.value.bytes, Some(life));
                self.store.engine().touch_zone(life.zone);
                // When it is no longer young it is looked at again.
                progress.seen.remove(&life);
                progress.stayed.insert(life);
            }
            return Ok(());
        }
        let mut writes = stream::iter(kept)
            .map(|kept| self.write_again(kept))
            .buffer_unordered(AT_ONCE);
        let mut result = Ok(());
        while let Some(outcome) = writes.next().await {
            match outcome {
                Ok(written) => progress.note(written),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// True for a zone that was filled not long ago: it has its turn because it is not read, and
    /// stays as if it were. So nothing is written again more often than half of the flash is
    /// written over.
    fn may_stay(&self, life: ZoneLife) -> bool {
        let plan = self.store.plan();
        let age = self
            .store
            .engine()
            .next_generation()
            .0
            .saturating_sub(life.generation.0);
        plan.eviction != Eviction::Fifo && (age as usize) < plan.data_zones().count() / 2
    }

    /// Reserves room for a value under the caps.
    fn reserve(&self, kept: &Kept) -> bool {
        let (pin, bytes) = (&kept.pin, kept.value.bytes);
        let limit = self.pins.limit_bytes;
        let has_room = pin.kept_bytes() + bytes <= pin.cap_bytes(limit)
            && self.pins.kept_bytes() + bytes <= limit;
        if has_room {
            pin.account.lock().reserve(bytes);
        }
        has_room
    }

    /// Those of `values` that are pinned, and that a read could use.
    async fn kept_of(&self, values: Vec<StoredValue>) -> Vec<Kept> {
        let mut pinned = Vec::new();
        for value in values {
            consume_budget().await;
            let Some((bucket, key, version)) = parse_key(&value.key) else {
                continue;
            };
            if let Some(pin) = self.pins.of(bucket, key) {
                let object = ObjectKey::new(bucket, key);
                pinned.push((value, pin, object, version));
            }
        }
        let objects: BTreeSet<ObjectKey> = pinned
            .iter()
            .map(|(.., object, _)| object.clone())
            .collect();
        let versions: HashMap<ObjectKey, Version> = stream::iter(objects)
            .map(async |object| {
                consume_budget().await;
                let version = self.current_version(&object).await?;
                Some((object, version))
            })
            .buffer_unordered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let kept = pinned
            .into_iter()
            .filter_map(|(value, pin, object, version)| {
                let current = *versions.get(&object)?;
                let is_used = version.is_none_or(|version| version == current);
                is_used.then(|| Kept {
                    value,
                    pin,
                    record_of: version.is_none().then_some(object),
                })
            });
        kept.collect()
    }

    /// The version of an object that a read would look for without the origin.
    async fn current_version(&self, key: &ObjectKey) -> Option<Version> {
        let moment = self.moment(key);
        if let Some(cache_only) = self.cache_only(key.bucket()) {
            let row = cache_only.buckets.find(key).ok()?;
            return Some(self.cache_only_version(key, moment, row).version);
        }
        let bytes = self.store.engine().peek(&metadata_key(key)).await?;
        let record = MetadataRecord::decode(&bytes).ok()?;
        if record.purge != moment.purge {
            return None;
        }
        Some(self.version(key, moment, record.object?).version)
    }

    async fn write_again(&self, kept: Kept) -> Result<Written, CacheError> {
        let bytes = kept.value.bytes;
        if !self.reserve(&kept) {
            add(&self.stats.pinned_bytes_left, bytes);
            return Ok(Written::No);
        }
        let written = self.try_write_again(&kept).await;
        if let Ok(Some(PutOutcome::Stored)) = written {
            add(&self.stats.pinned_bytes_written, bytes);
            return Ok(Written::Yes(kept));
        }
        kept.pin.account.lock().settle(bytes, None);
        if let Ok(None) = written {
            return Ok(Written::NotYet(kept));
        }
        add(&self.stats.pinned_bytes_left, bytes);
        written.map(|_| Written::No)
    }

    /// `None` for a record whose object is being written.
    async fn try_write_again(&self, kept: &Kept) -> Result<Option<PutOutcome>, CacheError> {
        let value = &kept.value;
        // Before the stripe is held: those who have the room may wait for the stripe.
        let room = self.store.engine().room_for(value).await?;
        let Some(object) = &kept.record_of else {
            // All values of a chunk's key are the same, so that nothing can come in between.
            return self
                .store
                .engine()
                .write_again(value, room, true)
                .await
                .map(Some);
        };
        // No other record can be published and none deleted meanwhile.
        let Some(renewal) = self.epochs.renew(name_hash(object)) else {
            return Ok(None);
        };
        // Not relaxed: the next record may be, and must not bring this one back.
        let written = self.store.engine().write_again(value, room, false).await;
        drop(renewal);
        written.map(Some)
    }
}
