//! The admission policy of the engine: one for all shards.
//!
//! A declined value invalidates its key's older one as durably as a stored
//! value would. The RAM tier keeps it like any other.
//!
//! A panic in a policy poisons only the policy's statistics.

use floe_core::Tick;
use floe_core::hash::KeyHash;
use floe_core::policy::PolicyConfigError;
use floe_core::policy::admission::{
    Admission as Policy, AdmissionConfig, AdmissionKind, AdmissionStatistics,
};
use parking_lot::Mutex;

/// The admission policy, which is asked once per write.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    /// `None` admits every value without a lock.
    policy: Option<Mutex<Policy>>,
}

impl AdmissionControl {
    pub(crate) fn new(config: &AdmissionConfig, seed: u64) -> Result<Self, PolicyConfigError> {
        let policy = Policy::new(config, seed)?;
        Ok(AdmissionControl {
            policy: (config.kind() != AdmissionKind::All).then(|| Mutex::new(policy)),
        })
    }

    /// True if the policy admits a value of `flash_bytes` on flash. Called once per write.
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

    /// Records a hit. Hits do not wait for each other: while the policy is
    /// locked, a hit is not recorded.
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
