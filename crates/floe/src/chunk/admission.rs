//! Which values are written to flash: one admission policy for all shards.
//!
//! A value that is not written replaces what its key had all the same: the
//! older one is as durably dead as if the newer were stored. In memory it
//! stays as long as any.

use std::sync::Arc;

use bytes::Bytes;
use floe_core::Tick;
use floe_core::hash::KeyHash;
use floe_core::layout::SMALL_MAX_BYTES;
use floe_core::policy::admission::{
    Admission as Policy, AdmissionConfig, AdmissionConfigError, AdmissionKind, AdmissionStatistics,
};
use parking_lot::Mutex;

use super::Engine;
use crate::error::CacheError;
use crate::value::{PutOptions, PutOutcome};

/// Asked once before a value is written.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    /// `None` lets everything in, and is not worth a lock.
    policy: Option<Mutex<Policy>>,
}

impl AdmissionControl {
    pub(crate) fn new(config: &AdmissionConfig, seed: u64) -> Result<Self, AdmissionConfigError> {
        let policy = Policy::new(config, seed)?;
        Ok(AdmissionControl {
            policy: (config.kind() != AdmissionKind::All).then(|| Mutex::new(policy)),
        })
    }

    /// Tells the policy of a hit. Hits do not wait for each other: one that
    /// finds the policy busy goes unnoticed.
    fn note_hit(&self, hash: KeyHash, now: impl FnOnce() -> Tick) {
        if let Some(mut policy) = self.policy.as_ref().and_then(Mutex::try_lock) {
            policy.note_hit(hash, now());
        }
    }

    fn statistics(&self) -> AdmissionStatistics {
        self.policy
            .as_ref()
            .map_or_else(Default::default, |policy| policy.lock().statistics())
    }
}

impl Engine {
    /// Whether a value of `len` bytes is to be written to flash. Ask once for
    /// each write, and [decline](Self::decline) it after a no.
    pub(crate) fn admits(&self, key: &[u8], len: u64) -> bool {
        let Some(policy) = &self.admission_control.policy else {
            return true;
        };
        let (hash, bytes) = (self.hash(key), self.flash_bytes(key, len));
        policy.lock().admit(hash, bytes, self.clock.now())
    }

    /// What a value takes on flash, without what is shared with others.
    fn flash_bytes(&self, key: &[u8], len: u64) -> u64 {
        if len <= SMALL_MAX_BYTES as u64 || self.slots().is_some() {
            self.plan.geometry.round_up(len.max(1))
        } else {
            self.plan.large_footprint(key.len(), len)
        }
    }

    pub(super) fn note_hit(&self, hash: KeyHash) {
        self.admission_control.note_hit(hash, || self.clock.now());
    }

    pub(super) fn admission_statistics(&self) -> AdmissionStatistics {
        self.admission_control.statistics()
    }

    /// Accepts a whole value: on its way to flash, or into memory only.
    pub(crate) async fn offer(
        self: &Arc<Self>,
        key: &[u8],
        value: Bytes,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        if self.admits(key, value.len() as u64) {
            self.put(key, value, options).await
        } else {
            self.decline(key, Some(value), options).await
        }
    }

    /// Replaces what `key` had by a value that is not written to flash. It is
    /// served from memory, if it is at hand and not too long for that.
    pub(crate) async fn decline(
        &self,
        key: &[u8],
        value: Option<Bytes>,
        options: PutOptions,
    ) -> Result<PutOutcome, CacheError> {
        let hash = self.hash(key);
        let expiry_unix_s = self.expiry(options);
        let deaths = {
            let mut shard = self.shard_of(hash).lock();
            let replaced_up_to = self.next_sequence();
            let (_, deaths) = self.invalidate(&mut shard, hash, replaced_up_to);
            if let Some(value) = value
                && value.len() as u64 <= self.ram.value_bytes_max
            {
                shard.ram_insert(hash, key, value, expiry_unix_s);
            }
            deaths
        };
        self.settle_as(deaths, options.relaxed).await?;
        Ok(PutOutcome::RamOnly)
    }
}
