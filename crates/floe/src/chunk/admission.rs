//! The choice of values that are written to flash: one policy for all shards.
//!
//! A value that is not written replaces its key's older one all the same: that is
//! as durably dead as if the newer were stored. In memory it stays as long as any.
//!
//! A panic in a policy poisons nothing but its statistics.

use floe_core::Tick;
use floe_core::hash::KeyHash;
use floe_core::policy::PolicyConfigError;
use floe_core::policy::admission::{
    Admission as Policy, AdmissionConfig, AdmissionKind, AdmissionStatistics,
};
use parking_lot::Mutex;

/// Asked once before a value is written.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    /// `None` lets everything in, and is not worth a lock.
    policy: Option<Mutex<Policy>>,
}

impl AdmissionControl {
    pub(crate) fn new(config: &AdmissionConfig, seed: u64) -> Result<Self, PolicyConfigError> {
        let policy = Policy::new(config, seed)?;
        Ok(AdmissionControl {
            policy: (config.kind() != AdmissionKind::All).then(|| Mutex::new(policy)),
        })
    }

    /// Whether a value is to be written that takes `flash_bytes` on flash. Asked
    /// once for each write.
    pub(crate) fn admits(
        &self,
        hash: impl FnOnce() -> KeyHash,
        flash_bytes: impl FnOnce() -> u64,
        now: impl FnOnce() -> Tick,
    ) -> bool {
        let Some(policy) = &self.policy else {
            return true;
        };
        policy.lock().admit(hash(), flash_bytes(), now())
    }

    /// Notes a hit. Hits do not wait for each other: one that finds the policy
    /// busy goes unnoticed.
    pub(crate) fn note_hit(&self, hash: KeyHash, now: impl FnOnce() -> Tick) {
        if let Some(mut policy) = self.policy.as_ref().and_then(Mutex::try_lock) {
            policy.note_hit(hash, now());
        }
    }

    pub(crate) fn statistics(&self) -> AdmissionStatistics {
        self.policy
            .as_ref()
            .map_or_else(Default::default, |policy| policy.lock().statistics())
    }
}
