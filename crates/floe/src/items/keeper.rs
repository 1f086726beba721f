//! Reads the era records at opening. Writes them on a change and before they grow old.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex, Semaphore};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::access::Accesses;
use super::era::{Era, EraRecord, RECORD_KEYS, Versions};
use super::inner::{Inner, ItemError, Records, TURNS};
use crate::cache::Cache;
use crate::error::CacheError;
use crate::store::{RETRY_PAUSE, Store};
use crate::tiny::Tiny;
use crate::value::{PutOptions, PutOutcome};

/// The name by which the items of a store are claimed. No name of an origin has a NUL.
const CLAIM: &str = "\0items";

/// Opens the items of a store.
pub(super) async fn open(cache: Cache, max_value: u64) -> Result<Arc<Inner>, ItemError> {
    let store = cache.store().clone();
    let claim = store.claim(CLAIM).ok_or(ItemError::AlreadyOpen)?;
    let now = store.clock().unix_seconds();
    let found = newest(&store).await?;
    let entropy = store.clock().now().0;
    // A formatted store starts at the clock; other stores may hold items with
    // versions ahead of it.
    let is_new = cache.recovery().is_new();
    // Under another ring this node may have held other nodes' keys.
    let tiny = cache.tiny().map_or(0, Tiny::identity) ^ store.membership().identity();
    let other = found.filter(|record| record.tiny != tiny);
    let found = found.filter(|record| record.tiny == tiny);
    let record = found.unwrap_or_else(|| EraRecord {
        // A flush that was ordered is carried out.
        flush_unix_s: other.map_or(0, |record| record.flush_unix_s),
        ..EraRecord::first(now, entropy, is_new, tiny)
    });
    if found.is_none() {
        tracing::debug!("the store has no valid record of items");
    }
    let membership = store.membership();
    let is_alone = membership.identity() == 0 && membership.is_confirmed();
    let apart = match is_alone {
        true => 0,
        false => xxh3_64_with_seed(&entropy.to_le_bytes(), now ^ membership.identity()),
    };
    let versions = Versions::new(record.version_limit, record.version_limit, apart);
    let inner = Arc::new(Inner {
        era: Era::new(record.era, record.flush_unix_s),
        version_first: record.version_first,
        versions,
        max_value,
        turns: (0..TURNS).map(|_| Semaphore::new(1)).collect(),
        accesses: Accesses::new(),
        records: Records {
            written: Mutex::new(record),
            written_at_bytes: AtomicU64::new(0),
            in_use: AtomicBool::new(false),
            are_others: AtomicBool::new(other.is_some()),
        },
        cache,
        _claim: claim,
    });
    // Other nodes of a ring may take keys without a request to this one, so records of another
    // ring are replaced now. Otherwise the first write of an item does that: if opening did, a
    // full cache would lose a zone to them. Until then the version limit is used up, so no
    // version can be issued.
    if other.is_some() && inner.membership().identity() != 0 {
        inner.write_records().await?;
    }
    tokio::spawn(keep(Arc::downgrade(&inner)));
    Ok(inner)
}

/// The valid record: of the two, the readable one with the higher serial.
async fn newest(store: &Store) -> Result<Option<EraRecord>, CacheError> {
    let mut newest: Option<EraRecord> = None;
    for key in RECORD_KEYS {
        let Some(value) = store.get(key).await? else {
            continue;
        };
        let record = EraRecord::decode(&value.bytes);
        if record.is_some_and(|record| newest.is_none_or(|n| record.serial > n.serial)) {
            newest = record;
        }
    }
    Ok(newest)
}

/// Writes due records until the last item cache is dropped or the store is closed.
async fn keep(inner: Weak<Inner>) {
    loop {
        let wait = match inner.upgrade() {
            Some(inner) => {
                let store = inner.cache.store();
                store.clock().sleep(store.age_interval())
            }
            None => return,
        };
        wait.await;
        let Some(inner) = inner.upgrade() else { return };
        if !inner.records_are_due().await {
            continue;
        }
        match inner.write_records().await {
            Ok(()) => {}
            Err(ItemError::Cache(CacheError::Closed | CacheError::Poisoned)) => return,
            Err(error) => {
                tracing::warn!(%error, "the record of items' versions was not written; retrying");
                let pause = inner.cache.store().clock().sleep(RETRY_PAUSE);
                drop(inner);
                pause.await;
            }
        }
    }
}

impl Inner {
    /// A new version; at the limit, first makes a higher one durable.
    pub(super) async fn version(&self) -> Result<u64, ItemError> {
        loop {
            if let Some(version) = self.versions.issue(self.now_unix_s()) {
                return Ok(version);
            }
            self.write_records().await?;
        }
    }

    /// See [`ItemCache::flush_all`](super::ItemCache::flush_all).
    pub(super) async fn flush_all(&self, at_unix_s: Option<u32>) -> Result<(), ItemError> {
        let at = at_unix_s.filter(|&at| u64::from(at) > self.now_unix_s());
        self.change_era(|era, _| match at {
            Some(at) => (era, at),
            None => (era.wrapping_add(1), 0),
        })
        .await
    }

    /// See [`ItemCache::begin_era`](super::ItemCache::begin_era).
    pub(super) async fn begin_era(&self) -> Result<(), ItemError> {
        let next = |era: u32, flush| (era.wrapping_add(1), flush);
        self.change_era(next).await
    }

    /// Replaces the era and the second of the delayed flush.
    async fn change_era(&self, next: impl FnOnce(u32, u32) -> (u32, u32)) -> Result<(), ItemError> {
        let mut written = self.records.written.lock().await;
        let era = self.era.current(|| self.now_unix_s());
        let (_, flush) = self.era.get();
        let (era, flush) = next(era, flush);
        self.write(&mut written, era, flush).await?;
        // The era changes only when its record is durable: a restart must know
        // the era of every acknowledged item.
        self.era.set(era, flush);
        Ok(())
    }

    async fn records_are_due(&self) -> bool {
        let now = self.now_unix_s();
        let era = self.era.current(|| now);
        let (_, flush) = self.era.get();
        let written = self.records.written.lock().await;
        let is_old = self
            .cache
            .store()
            .is_old(self.records.written_at_bytes.load(Relaxed));
        (written.era, written.flush_unix_s) != (era, flush)
            || (self.records.in_use.load(Relaxed) && self.versions.is_low())
            || is_old
    }

    /// Writes the current era and a higher version limit.
    pub(super) async fn write_records(&self) -> Result<(), ItemError> {
        let mut written = self.records.written.lock().await;
        let era = self.era.current(|| self.now_unix_s());
        let (_, flush) = self.era.get();
        self.write(&mut written, era, flush).await
    }

    /// Writes both records, one after the other, so that one of them is always intact.
    async fn write(
        &self,
        written: &mut EraRecord,
        era: u32,
        flush_unix_s: u32,
    ) -> Result<(), ItemError> {
        let mut record = EraRecord {
            era,
            flush_unix_s,
            version_limit: self.versions.wanted_limit(self.now_unix_s()),
            ..*written
        };
        for _ in RECORD_KEYS {
            record.serial += 1;
            // Serials alternate between the keys, so this replaces the older record.
            let key = RECORD_KEYS[(record.serial % 2) as usize];
            let options = PutOptions::default();
            if self
                .cache
                .store()
                .put_unasked(key, record.encode(), options)
                .await?
                == PutOutcome::Dropped
            {
                return Err(ItemError::NoRoom);
            }
            self.cache.store().flush().await?;
            *written = record;
        }
        self.versions.promise(record.version_limit);
        self.records.in_use.store(true, Relaxed);
        self.records.are_others.store(false, Relaxed);
        let bytes = self.cache.store().written_bytes();
        self.records.written_at_bytes.store(bytes, Relaxed);
        Ok(())
    }
}
