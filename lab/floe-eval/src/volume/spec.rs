//! A cache of volumes as an experiment describes it.

use std::path::Path;

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
    /// More settings; they stand over those of `cache`.
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

/// The figures of the first cache of a replay.
pub fn volume_figures(result: &VolumeReplayResult) -> Vec<Figure> {
    let Some(cache) = result.caches.first() else {
        return Vec::new();
    };
    let (reads, writes) = (cache.statistics.reads, cache.statistics.writes);
    let [cache_read, cache_written, backing_read, backing_written] =
        cache.io_bytes().map(|(_, bytes)| bytes as f64);
    let turnover = &cache.statistics.turnover;
    let figures = [
        ("requests", "count", result.requests as f64),
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
    figures
        .map(|(metric, unit, value)| Figure::new(metric, unit, value))
        .to_vec()
}
