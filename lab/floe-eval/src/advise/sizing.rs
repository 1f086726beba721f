//! The size of the cache, from the miss-ratio curve.

use floe_core::ByteSize;
use serde::Serialize;

use super::facts::{BLOCK_BYTES, Measured};
use super::options::{AdviseOptions, bad_option};
use crate::error::EvalError;
use crate::mrc::Curve;
use crate::volume::UNIT_BYTES;

/// Sizes of the table, as percentages of the working set.
const LADDER: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];

/// One size of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizePoint {
    /// Bytes of the cache.
    pub bytes: u64,
    /// The same as a share of the working set.
    pub working_set_share: f64,
    /// The share of accesses to 4 KiB blocks that hit in LRU.
    pub hit_ratio: f64,
    /// The hit ratio of the second sample, if the curve is of a sample.
    pub second_hit_ratio: Option<f64>,
    /// True where the curve bends: below, more room gains most.
    pub is_knee: bool,
    /// True for the advised size.
    pub is_advised: bool,
}

/// The choice of a size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// Sizes with their hit ratios, ascending.
    pub points: Vec<SizePoint>,
    /// The largest size that can be advised.
    pub limit_bytes: u64,
    /// The hit ratio of that size: the best reachable one.
    pub best_hit_ratio: f64,
    /// The advised size; `None` if no cache is worth its room.
    pub capacity_bytes: Option<u64>,
    /// True if the size was given instead of chosen.
    pub is_given: bool,
    /// The largest difference between two samples at the sizes above; zero if the
    /// curve is exact.
    pub sample_difference: f64,
}

/// Chooses the smallest size whose hit ratio is at most `within` below the best
/// reachable one.
pub(super) fn choose(measured: &Measured, options: &AdviseOptions) -> Result<Sizing, EvalError> {
    let working_set = measured.facts.working_set_bytes;
    let [curve, second] = &measured.curves;
    let limit = limit(working_set, options.cache_max)?;
    let best = hit_ratio(curve, limit);
    let chosen = match options.capacity {
        Some(given) => Some(given_size(given, limit)?),
        None => smallest(curve, best - options.within, limit),
    };
    let knee = knee(curve, limit);
    let ladder = LADDER.map(|percent| whole_units(working_set / 100 * percent));
    let mut sizes: Vec<u64> = ladder.into_iter().chain(knee).chain(chosen).collect();
    sizes.push(limit);
    sizes.retain(|size| *size <= limit);
    sizes.sort_unstable();
    sizes.dedup();
    let is_exact = measured.facts.is_exact;
    let points: Vec<SizePoint> = sizes
        .into_iter()
        .map(|bytes| SizePoint {
            bytes,
            working_set_share: bytes as f64 / working_set as f64,
            hit_ratio: hit_ratio(curve, bytes),
            second_hit_ratio: (!is_exact).then(|| hit_ratio(second, bytes)),
            is_knee: Some(bytes) == knee,
            is_advised: Some(bytes) == chosen,
        })
        .collect();
    let differences = points.iter().filter_map(|point| {
        let second = point.second_hit_ratio?;
        Some((point.hit_ratio - second).abs())
    });
    Ok(Sizing {
        sample_difference: differences.fold(0.0, f64::max),
        points,
        limit_bytes: limit,
        best_hit_ratio: best,
        capacity_bytes: chosen,
        is_given: options.capacity.is_some(),
    })
}

/// The largest size: the working set, or `cache_max` if that is less.
fn limit(working_set: u64, cache_max: Option<ByteSize>) -> Result<u64, EvalError> {
    if working_set < UNIT_BYTES {
        return Err(bad_option(
            "trace",
            format!(
                "its working set of {} is smaller than one block of {}, so there is nothing to choose",
                ByteSize(working_set),
                ByteSize(UNIT_BYTES)
            ),
        ));
    }
    let whole = whole_units(working_set);
    let Some(most) = cache_max else {
        return Ok(whole);
    };
    if most.bytes() < UNIT_BYTES {
        let least = ByteSize(UNIT_BYTES);
        return Err(bad_option("max-cache", format!("give at least {least}")));
    }
    Ok(whole.min(most.bytes() / UNIT_BYTES * UNIT_BYTES))
}

fn given_size(given: ByteSize, limit: u64) -> Result<u64, EvalError> {
    let bytes = given.bytes() / UNIT_BYTES * UNIT_BYTES;
    if bytes == 0 || bytes > limit {
        return Err(bad_option(
            "capacity",
            format!(
                "{given} is not between {} and {}: a trace tells nothing of caches beyond its working set",
                ByteSize(UNIT_BYTES),
                ByteSize(limit)
            ),
        ));
    }
    Ok(bytes)
}

/// The smallest size of at least this hit ratio; `None` if even no cache has it.
fn smallest(curve: &Curve, hit_ratio: f64, limit: u64) -> Option<u64> {
    if hit_ratio <= 0.0 {
        return None;
    }
    let blocks = curve.size_for(1.0 - hit_ratio)?;
    Some(whole_units(blocks.saturating_mul(BLOCK_BYTES)).min(limit))
}

/// The size up to `limit` that lies farthest above the line from no cache to
/// `limit`; `None` where the curve nowhere does.
fn knee(curve: &Curve, limit: u64) -> Option<u64> {
    let best = hit_ratio(curve, limit);
    let sizes = curve.steps.iter().map(|(blocks, miss_ratio)| {
        let bytes = blocks.saturating_mul(BLOCK_BYTES);
        (
            bytes,
            (1.0 - miss_ratio) / best - bytes as f64 / limit as f64,
        )
    });
    let above = sizes.filter(|(bytes, above)| *bytes <= limit && *above > 0.0);
    let (bytes, _) = above.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(whole_units(bytes).min(limit))
}

fn hit_ratio(curve: &Curve, bytes: u64) -> f64 {
    1.0 - curve.miss_ratio(bytes / BLOCK_BYTES)
}

/// `bytes` rounded up to units, at least one.
fn whole_units(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(UNIT_BYTES)
}
