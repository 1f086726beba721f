//! A bench of volumes as an experiment describes it.

use std::num::NonZeroU64;

use floe::volume::{LockGranularity, Reserve, VolumeCacheConfig, VolumeConfig};
use floe_core::ByteSize;
use serde::Deserialize;

use super::devices::DeviceSpec;
use crate::error::EvalError;
use crate::run::Pacing;
use crate::shared::TraceCase;
use crate::volume::case::VolumeCase;
use crate::workload::Distribution;

/// Drives a cache of volumes, the code that serves, over devices that are modelled or
/// exist. The requests are those of `workload` on one volume, or those of `trace`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VolumeBench {
    /// The settings that all cases have, as `floe replay --volume` reads them.
    #[serde(default)]
    pub cache: String,
    /// More settings, which override those of `cache`.
    #[serde(default)]
    pub settings: String,
    /// Still more settings, which override those of `settings`.
    #[serde(default)]
    pub adjusted: String,
    /// The cache device.
    #[serde(default)]
    pub cache_device: DeviceSpec,
    /// The backing device of each volume.
    #[serde(default)]
    pub backing_device: DeviceSpec,
    /// Bytes of the volume of a `workload`.
    pub volume_size: Option<ByteSize>,
    /// The addresses of drawn requests, in units of `request-size`.
    pub workload: Option<Distribution>,
    /// Bytes of a drawn request.
    #[serde(default = "default_request_size")]
    pub request_size: ByteSize,
    /// Share of the drawn requests that are reads.
    #[serde(default = "default_reads")]
    pub reads: f64,
    /// The requests of a trace, widened to blocks of 4 KiB.
    pub trace: Option<TraceCase>,
    /// Closed or open loop.
    pub pacing: Pacing,
    /// Drawn requests between two flushes; by default there are none.
    pub flush_every: Option<NonZeroU64>,
    /// Requests that are measured, or those of a trace that are used, warm-up included.
    pub requests: Option<u64>,
    /// Drawn requests before the measurement.
    #[serde(default)]
    pub warm_up_requests: u64,
    /// Share of a trace's requests before the measurement.
    #[serde(default)]
    pub warm_up_share: f64,
    /// Bytes at the start of the volume that are read in order, or written if all
    /// requests are writes, before the warm-up.
    #[serde(default)]
    pub prefill: ByteSize,
    /// Threads in real time; by default one per core.
    pub workers: Option<usize>,
    /// The part of the blocks that one lock covers.
    #[serde(default)]
    pub locks: LockGranularity,
}

fn default_request_size() -> ByteSize {
    ByteSize::kib(4)
}

fn default_reads() -> f64 {
    1.0
}

impl VolumeBench {
    /// The settings of the cache.
    pub(super) fn case(&self) -> Result<VolumeCase, EvalError> {
        let settings = [&*self.cache, &self.settings, &self.adjusted].join(",");
        settings.parse().map_err(|reason| EvalError::Option {
            option: "volume-bench.cache",
            reason,
        })
    }

    /// The devices, for provenance.
    pub fn describe(&self) -> String {
        format!("{} over {}", self.cache_device, self.backing_device)
    }
}

/// The settings of the driver.
pub(super) fn driver_settings(
    case: &VolumeCase,
    locks: LockGranularity,
) -> (VolumeCacheConfig, VolumeConfig) {
    let core = &case.config;
    let cache = VolumeCacheConfig {
        sizes: core.sizes,
        promotion: core.promotion.clone(),
        cleaning: core.cleaning.clone(),
        sequential: core.sequential,
        read_miss: core.read_miss,
        write_miss: core.write_miss,
        level: core.level,
        block_replacement: core.block_replacement,
        group_replacement: core.group_replacement,
        when_dirty: core.when_dirty,
        shards: core.shards,
        locks,
        ..VolumeCacheConfig::default()
    };
    let volume = VolumeConfig {
        mode: core.mode,
        read_only: false,
        // Benches may lose their data.
        allow_data_loss: true,
        reserve: Reserve::Off,
        take_from: None,
    };
    (cache, volume)
}
