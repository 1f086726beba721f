//! Miss-ratio curves of LRU: the miss ratio of every cache size from one pass
//! over a trace, exactly or from a sample of its keys.

mod exact;
mod fenwick;
mod histogram;
mod run;
mod shards;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::replay::policy::{CacheUnit, for_each_access};
use crate::trace::{Op, Trace, TraceError};

pub use exact::Exact;
pub use run::{CurveError, MissRatioCurve, MrcOptions, Point, Sample, run};
pub use shards::{FixedRate, FixedSize};

/// A curve being measured: accesses in, their stack distances out.
pub trait StackDistances {
    /// Notes an access of a block or object.
    fn access(&mut self, key: u64);

    /// The curve of the accesses so far.
    fn curve(&self) -> Curve;
}

/// The miss ratio of LRU at any number of blocks or objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Accesses.
    pub accesses: u64,
    /// Distinct blocks or objects: exact, or an estimate from the sample.
    pub unique: u64,
    /// Sizes at which the miss ratio falls, ascending, with the ratio from
    /// there on. Below the first every access misses.
    pub steps: Vec<(u64, f64)>,
}

impl Curve {
    /// The miss ratio of a cache of so many blocks or objects.
    pub fn miss_ratio(&self, size: u64) -> f64 {
        let place = self.steps.partition_point(|(from, _)| *from <= size);
        match place.checked_sub(1) {
            Some(place) => self.steps[place].1,
            None => 1.0,
        }
    }

    /// The smallest size whose miss ratio is at most `miss_ratio`; `None` where no
    /// size has.
    pub fn size_for(&self, miss_ratio: f64) -> Option<u64> {
        let place = self.steps.partition_point(|(_, ratio)| *ratio > miss_ratio);
        self.steps.get(place).map(|(size, _)| *size)
    }

    /// The mean absolute difference to another curve, in miss ratio, at `points`
    /// sizes that are equally far apart up to the other's distinct blocks.
    pub fn mean_absolute_error(&self, exact: &Curve, points: u64) -> f64 {
        self.errors(exact, points).sum::<f64>() / points.max(1) as f64
    }

    /// The largest absolute difference at those sizes.
    pub fn max_absolute_error(&self, exact: &Curve, points: u64) -> f64 {
        self.errors(exact, points).fold(0.0, f64::max)
    }

    fn errors(&self, exact: &Curve, points: u64) -> impl Iterator<Item = f64> {
        sizes(exact.unique, points)
            .map(|size| (self.miss_ratio(size) - exact.miss_ratio(size)).abs())
    }
}

/// So many sizes, equally far apart up to `unique`.
fn sizes(unique: u64, points: u64) -> impl Iterator<Item = u64> {
    (1..=points).map(move |point| {
        let size = u128::from(unique) * u128::from(point);
        // At most `unique`, which fits.
        size.div_ceil(u128::from(points)) as u64
    })
}

/// Feeds the reads and writes of `trace`, cut into `unit`s, to every measure.
///
/// # Errors
/// The trace's first error.
pub fn measure(
    trace: &mut Trace,
    unit: CacheUnit,
    measures: &mut [&mut dyn StackDistances],
) -> Result<(), TraceError> {
    for request in trace.by_ref() {
        let request = request?;
        if request.op == Op::Delete {
            continue;
        }
        for_each_access(&request, unit, |key, _| {
            for measure in measures.iter_mut() {
                measure.access(key);
            }
        });
    }
    Ok(())
}
