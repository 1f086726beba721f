//! What an admission policy decided, counted.

use std::ops::AddAssign;

use serde::Serialize;

/// Values and bytes, admitted and rejected, since the policy began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdmissionStatistics {
    /// Values to be written.
    pub admitted: u64,
    /// Their bytes.
    pub admitted_bytes: u64,
    /// Values not to be written.
    pub rejected: u64,
    /// Their bytes.
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

    /// Values that the policy was asked about.
    pub fn offered(&self) -> u64 {
        self.admitted + self.rejected
    }

    /// Their bytes.
    pub fn offered_bytes(&self) -> u64 {
        self.admitted_bytes.saturating_add(self.rejected_bytes)
    }
}

impl AddAssign for AdmissionStatistics {
    /// Sums over the policies of several shards.
    fn add_assign(&mut self, other: AdmissionStatistics) {
        self.admitted += other.admitted;
        self.admitted_bytes = self.admitted_bytes.saturating_add(other.admitted_bytes);
        self.rejected += other.rejected;
        self.rejected_bytes = self.rejected_bytes.saturating_add(other.rejected_bytes);
    }
}
