//! A cache of volumes in an experiment.

use std::path::Path;

use floe_core::volume::Accesses;
use serde::Deserialize;

use super::replay::VolumeReplayOptions;
use super::result::VolumeReplayResult;
use crate::error::EvalError;
use crate::results::Figure;
use crate::shared::TraceCase;
use crate::trace::TraceOptions;

/// Replays a block trace against one cache of volumes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VolumeSpec {
    /// The trace.
    pub trace: TraceCase,
    /// The settings that all cases have, as `floe replay --volume` reads them.
    #[serde(default)]
    pub cache: String,
    /// More settings, which override those of `cache`.
    #[serde(default)]
    pub settings: String,
    /// Requests to replay; all if absent.
    pub requests: Option<u64>,
}

impl VolumeSpec {
    /// The replay, for an experiment file at `experiment`.
    ///
    /// # Errors
    /// When the trace is not found, or a setting cannot be read.
    pub fn options(&self, experiment: &Path) -> Result<VolumeReplayOptions, EvalError> {
        let settings = format!("{},{}", self.cache, self.settings);
        let case = settings.parse().map_err(|reason| EvalError::Option {
            option: "volume.cache",
            reason,
        })?;
        Ok(VolumeReplayOptions {
            trace: self.trace.find(experiment)?,
            options: TraceOptions {
                format: self.trace.format()?,
                skip_bad: self.trace.skip_bad,
            },
            cases: vec![case],
            requests_max: self.requests,
        })
    }
}

/// The capacity that AdaCache's §II-B computes metadata for.
const PAPER_CAPACITY_BYTES: u64 = 368 << 40;

/// The figures of the trace of a replay, and of the first cache.
pub fn volume_figures(result: &VolumeReplayResult) -> Vec<Figure> {
    let Some(cache) = result.caches.first() else {
        return Vec::new();
    };
    let (reads, writes) = (cache.statistics.reads, cache.statistics.writes);
    let [cache_read, cache_written, backing_read, backing_written] =
        cache.io_bytes().map(|(_, bytes)| bytes as f64);
    let turnover = &cache.statistics.turnover;
    let mean = |of: Accesses| of.bytes as f64 / of.requests.max(1) as f64;
    let up_to = |kib: u64| result.sizes.share_up_to(kib << 10);
    let figures = [
        ("requests", "count", result.requests as f64),
        ("reads", "count", reads.requests as f64),
        ("writes", "count", writes.requests as f64),
        ("read_traffic", "B", reads.bytes as f64),
        ("write_traffic", "B", writes.bytes as f64),
        ("read_size_mean", "B", mean(reads)),
        ("write_size_mean", "B", mean(writes)),
        ("requests_up_to_4KiB", "ratio", up_to(4)),
        ("requests_up_to_32KiB", "ratio", up_to(32)),
        ("requests_up_to_64KiB", "ratio", up_to(64)),
        ("requests_up_to_256KiB", "ratio", up_to(256)),
        ("capacity", "B", cache.capacity_bytes as f64),
        ("read_hit_ratio", "ratio", reads.hit_ratio()),
        ("read_byte_hit_ratio", "ratio", reads.byte_hit_ratio()),
        ("write_hit_ratio", "ratio", writes.hit_ratio()),
        ("write_byte_hit_ratio", "ratio", writes.byte_hit_ratio()),
        ("hit_ratio", "ratio", cache.accesses().hit_ratio()),
        ("cache_read", "B", cache_read),
        ("cache_written", "B", cache_written),
        ("backing_read", "B", backing_read),
        ("backing_written", "B", backing_written),
        ("cache_io", "B", cache_read + cache_written),
        ("backing_io", "B", backing_read + backing_written),
        ("metadata_mean", "B", cache.metadata_bytes_mean),
        ("metadata_end", "B", cache.memory.metadata() as f64),
        ("metadata_per_block", "B", cache.metadata_bytes_per_block()),
        (
            "metadata_of_368TiB",
            "B",
            cache.metadata_bytes_at(PAPER_CAPACITY_BYTES),
        ),
        ("occupancy", "ratio", cache.occupancy_share()),
        ("history_end", "B", cache.memory.history as f64),
        (
            "missed_request_mean",
            "B",
            cache.missed.request_bytes_mean(),
        ),
        ("new_block_mean", "B", cache.missed.block_bytes_mean()),
        ("promotions", "count", turnover.promotions() as f64),
        ("demotions", "count", turnover.demotions() as f64),
        ("cleanings", "count", turnover.cleaned as f64),
        ("dirty_share", "ratio", cache.dirty_share()),
    ];
    let working_set = result.working_set_bytes;
    let working_set = working_set.map(|bytes| ("working_set", "B", bytes as f64));
    let figures = figures.into_iter().chain(working_set);
    figures
        .map(|(metric, unit, value)| Figure::new(metric, unit, value))
        .collect()
}
