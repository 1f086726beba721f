//! Counters of an admission policy's decisions.

use std::ops::AddAssign;

use serde::Serialize;

/// Admitted and rejected values and bytes, since the policy began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdmissionStatistics {
    /// Admitted values.
    pub admitted: u64,
    /// Bytes of admitted values.
    pub admitted_bytes: u64,
    /// Rejected values.
    pub rejected: u64,
    /// Bytes of rejected values.
    pub rejected_bytes: u64,
}

impl AdmissionStatistics {
    pub(super) fn count(&mut self, bytes: u64, admitted: bool) {
        let (values, sum_bytes) = match admitted {
            true => (&mut self.admitted, &mut self.admitted_bytes),
            false => (&mut self.rejected, &mut self.rejected_bytes),
        };
        *values += 1;
        *sum_bytes = sum_bytes.saturating_add(bytes);
    }

    /// All values offered.
    pub fn offered(&self) -> u64 {
        self.admitted + self.rejected
    }

    /// Bytes of all values offered.
    pub fn offered_bytes(&self) -> u64 {
        self.admitted_bytes.saturating_add(self.rejected_bytes)
    }
}

impl AddAssign for AdmissionStatistics {
    /// Sums the counters of several shards.
    fn add_assign(&mut self, other: AdmissionStatistics) {
        self.admitted += other.admitted;
        self.admitted_bytes = self.admitted_bytes.saturating_add(other.admitted_bytes);
        self.rejected += other.rejected;
        self.rejected_bytes = self.rejected_bytes.saturating_add(other.rejected_bytes);
    }
}
