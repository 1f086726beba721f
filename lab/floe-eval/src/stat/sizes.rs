//! The distribution of request sizes.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::ratio::ratio;

/// Sizes and how often each occurs: percentiles are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    counts: BTreeMap<u64, u64>,
}

/// The requests of up to so many bytes, and more than the bin before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SizeBin {
    /// The largest size, a power of two (0 for requests of no bytes).
    pub bytes_max: u64,
    /// Requests of these sizes.
    pub count: u64,
}

impl Sizes {
    pub(crate) fn add(&mut self, bytes: u64) {
        *self.counts.entry(bytes).or_default() += 1;
    }

    /// How many sizes there are.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        let products = self.counts.iter();
        products.fold(0, |sum, (bytes, count)| {
            bytes.saturating_mul(*count).saturating_add(sum)
        })
    }

    /// The mean size; zero without any.
    pub fn mean(&self) -> f64 {
        ratio(self.bytes(), self.count())
    }

    /// The size that a share (0 to 1) of the requests does not exceed; zero
    /// without any.
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = (self.count().saturating_sub(1) as f64 * share) as u64;
        let mut seen = 0;
        for (bytes, count) in &self.counts {
            seen += count;
            if seen > rank {
                return *bytes;
            }
        }
        0
    }

    /// The share that does not exceed `bytes`; zero without any.
    pub fn share_up_to(&self, bytes: u64) -> f64 {
        let small = self.counts.range(..=bytes);
        ratio(small.map(|(_, count)| count).sum(), self.count())
    }

    /// The sizes, each with the share of the requests that do not exceed it. Sizes that
    /// raise the share by less than a thousandth are left out, except for the largest.
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        const STEP_MIN: f64 = 1e-3;
        let count = self.count();
        let (mut seen, mut shown) = (0, 0.0);
        let all = self.counts.iter().map(|(bytes, requests)| {
            seen += requests;
            (*bytes, seen, ratio(seen, count))
        });
        let kept = all.filter(|(_, seen, share)| {
            let is_kept = share - shown >= STEP_MIN || *seen == count;
            shown = if is_kept { *share } else { shown };
            is_kept
        });
        kept.map(|(bytes, _, share)| (bytes, share)).collect()
    }

    /// The requests by powers of two; bins without any between others are there.
    pub fn bins(&self) -> Vec<SizeBin> {
        let mut bins: Vec<SizeBin> = Vec::new();
        for (&bytes, &count) in &self.counts {
            let bytes_max = match bytes {
                0 => 0,
                bytes => bytes.checked_next_power_of_two().unwrap_or(u64::MAX),
            };
            while let Some(last) = bins.last()
                && last.bytes_max < bytes_max
                && last.bytes_max > 0
            {
                let bytes_max = last.bytes_max.saturating_mul(2);
                bins.push(SizeBin {
                    bytes_max,
                    count: 0,
                });
            }
            match bins.last_mut() {
                Some(last) if last.bytes_max == bytes_max => last.count += count,
                _ => bins.push(SizeBin { bytes_max, count }),
            }
        }
        bins
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const PERCENTILES: [(&str, f64); 5] = [
            ("p10_bytes", 0.1),
            ("p50_bytes", 0.5),
            ("p90_bytes", 0.9),
            ("p99_bytes", 0.99),
            ("max_bytes", 1.0),
        ];
        let mut sizes = serializer.serialize_struct("Sizes", 4 + PERCENTILES.len())?;
        sizes.serialize_field("count", &self.count())?;
        sizes.serialize_field("bytes", &self.bytes())?;
        sizes.serialize_field("mean_bytes", &self.mean())?;
        for (name, share) in PERCENTILES {
            sizes.serialize_field(name, &self.percentile(share))?;
        }
        sizes.serialize_field("bins", &self.bins())?;
        sizes.end()
    }
}
