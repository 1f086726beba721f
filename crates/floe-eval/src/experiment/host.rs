//! From an experiment's case to a run of one of the papers' hosts, and from its
//! result to figures. The hosts are models of others' caches over the simulated
//! SSD; see [`crate::hosts`].

use floe::origin::emulated::{LatencyPreset, LatencyRule};
use floe_core::ByteSize;
use floe_core::ssd::{SsdConfig, Statistics};
use serde::{Deserialize, Serialize};

use super::cache::TargetKind;
use super::schema::BenchCase;
use crate::error::EvalError;
use crate::hosts::{DeviceChoice, HostBehaviour, HostConfig, HostResult, Remote, StartState};
use crate::metrics::media_figures;
use crate::run::{ExtraFigure, Pacing, RunResult};

/// What the papers' hosts need beside what every cache needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct HostSpec {
    /// The simulated device.
    pub device: DeviceChoice,
    /// How it is when the run begins.
    pub start: StartState,
    /// How many zones the cache has.
    pub zones: u32,
    /// What a zone is counted as when there are `ratio` keys per chunk.
    pub zone_unit: ByteSize,
    /// How far a fetch may be from its mean latency, as a share.
    pub jitter: f64,
    /// Settings of the host that differ from the paper's.
    pub behaviour: toml::Table,
}

/// Below this, a chunk is one of the papers' small ones.
const SMALL_CHUNK: ByteSize = ByteSize::mib(16);

impl Default for HostSpec {
    fn default() -> Self {
        HostSpec {
            device: DeviceChoice::preset("zn540"),
            start: StartState::default(),
            zones: HostConfig::ZONES_512M,
            zone_unit: ByteSize::gib(1),
            jitter: 0.02,
            behaviour: toml::Table::new(),
        }
    }
}

/// The host's configuration of a case; `None` where the target is no host.
pub(super) fn config(name: &str, driven: &BenchCase) -> Result<Option<HostConfig>, EvalError> {
    let cache = &driven.cache;
    let behaviour = match cache.target {
        // With so few zones as it has for small chunks it evicts one by one.
        TargetKind::Zncache if cache.chunk.size < SMALL_CHUNK => HostBehaviour {
            evict_at: 1,
            evict_to: 2,
            ..HostBehaviour::zncache()
        },
        TargetKind::Zncache => HostBehaviour::zncache(),
        TargetKind::Oxcache => HostBehaviour::oxcache(),
        TargetKind::Store | TargetKind::Object => return Ok(None),
    };
    let (Some(distribution), Some(ratio), Some(requests)) =
        (&driven.workload, driven.ratio, driven.requests)
    else {
        return fail(
            "target",
            "a host of a paper needs workload, ratio and requests",
        );
    };
    let mut host = adjusted(behaviour, &cache.host.behaviour)?;
    match driven.pacing {
        Pacing::Closed { clients } => {
            host.threads = u32::try_from(clients).unwrap_or(u32::MAX);
        }
        _ => return fail("pacing", "a host of a paper is driven in a closed loop"),
    }
    Ok(Some(HostConfig {
        name: name.to_owned(),
        host,
        device: cache.host.device.clone(),
        start: cache.host.start,
        chunk: cache.chunk.size,
        zones: cache.host.zones,
        ratio,
        zone_unit: cache.host.zone_unit,
        distribution: distribution.clone(),
        remote: Remote {
            latency_us: latency_us(&cache.origin_latency)?,
            jitter: cache.host.jitter,
        },
        io: ByteSize(requests.saturating_mul(cache.chunk.size.bytes())),
        bin_s: driven.bin_s,
    }))
}

fn fail<T>(option: &'static str, reason: &str) -> Result<T, EvalError> {
    Err(EvalError::Option {
        option,
        reason: reason.to_owned(),
    })
}

fn adjusted(behaviour: HostBehaviour, changes: &toml::Table) -> Result<HostBehaviour, EvalError> {
    if changes.is_empty() {
        return Ok(behaviour);
    }
    let refused = |error: &dyn std::fmt::Display| EvalError::Option {
        option: "behaviour",
        reason: error.to_string(),
    };
    let mut table = toml::Table::try_from(behaviour).map_err(|error| refused(&error))?;
    table.extend(changes.iter().map(|(k, v)| (k.clone(), v.clone())));
    table
        .try_into()
        .map_err(|error: toml::de::Error| refused(&error))
}

/// The mean; the model spreads it itself.
fn latency_us(rule: &LatencyRule) -> Result<u64, EvalError> {
    let ms = match rule {
        LatencyRule::None => 0.0,
        LatencyRule::Constant { ms } => *ms,
        // Appendix A of both papers.
        LatencyRule::Measured { preset, .. } => match preset {
            LatencyPreset::Kib64 => 40.632,
            LatencyPreset::Mib256 => 3209.583,
            LatencyPreset::Mib512 => 5413.781,
            LatencyPreset::Gib1 => 11524.248,
        },
        _ => {
            return fail(
                "origin-latency",
                "a host of a paper needs rule none, constant or measured",
            );
        }
    };
    Ok((ms * 1e3).round() as u64)
}

/// What a host's run found, with the device's part of it.
pub(super) fn figures(config: &HostConfig, found: HostResult) -> Result<RunResult, EvalError> {
    let device = config.device.config()?;
    let mut run = found.run;
    // The host itself writes what it stores and nothing else.
    run.write_amplification = None;
    let counted = &found.device;
    run.extra = media_figures(&Statistics::default(), counted, found.elapsed_s);
    let mut add = |metric: &str, unit: &str, value: Option<f64>| {
        run.extra.extend(value.map(|value| ExtraFigure {
            metric: metric.into(),
            unit: unit.into(),
            value,
        }));
    };
    let collection = &counted.collection;
    add("gc_superblocks", "count", Some(collection.victims as f64));
    let onset = collection.first_at_host_bytes;
    let capacity = device.capacity_bytes() as f64;
    add(
        "gc_onset",
        "ratio",
        onset.map(|bytes| bytes as f64 / capacity),
    );
    add("zone_wait_max", "s", Some(found.zone_wait_max_s));
    let drop = throughput_drop(&run, capacity);
    run.extra.extend(drop.map(|value| ExtraFigure {
        metric: "throughput_drop".into(),
        unit: "ratio".into(),
        value,
    }));
    let worst = worst_and_last(&run);
    run.extra.extend(worst);
    Ok(run)
}

/// How much slower a run is when the device has been written once over than
/// before, as a share; `None` for runs that do not write so much.
fn throughput_drop(run: &RunResult, capacity: f64) -> Option<f64> {
    let (mut written, mut before, mut after) = (0.0, Mean::default(), Mean::default());
    for bin in &run.bins {
        let bytes = bin.write_bytes_per_s * bin.length_s;
        let (from, to) = (written / capacity, (written + bytes) / capacity);
        written += bytes;
        // What lies between is the transition; at first the cache is empty.
        if from > 0.2 && to < 1.0 {
            before.add(bin.get_bytes_per_s, bin.length_s);
        } else if from > 1.25 {
            after.add(bin.get_bytes_per_s, bin.length_s);
        }
    }
    Some(1.0 - after.value()? / before.value()?)
}

/// The worst bin and the last third, each over the mean: whether a device
/// recovers within a run.
fn worst_and_last(run: &RunResult) -> Vec<ExtraFigure> {
    let mean = run.whole.get_bytes_per_s;
    if run.bins.len() < 6 || mean <= 0.0 {
        return Vec::new();
    }
    let mut last = Mean::default();
    for bin in &run.bins[run.bins.len() * 2 / 3..] {
        last.add(bin.get_bytes_per_s, bin.length_s);
    }
    // The last bin is a part of one.
    let whole = &run.bins[..run.bins.len() - 1];
    let worst = whole.iter().map(|bin| bin.get_bytes_per_s);
    let figure = |metric: &str, value: f64| ExtraFigure {
        metric: metric.into(),
        unit: "ratio".into(),
        value: value / mean,
    };
    let mut figures = vec![figure(
        "worst_bin_over_mean",
        worst.fold(f64::INFINITY, f64::min),
    )];
    figures.extend(
        last.value()
            .map(|last| figure("last_third_over_mean", last)),
    );
    figures
}

/// A mean over time.
#[derive(Default)]
struct Mean {
    sum: f64,
    length_s: f64,
}

impl Mean {
    fn add(&mut self, value: f64, length_s: f64) {
        self.sum += value * length_s;
        self.length_s += length_s;
    }

    fn value(&self) -> Option<f64> {
        (self.length_s > 0.0).then(|| self.sum / self.length_s)
    }
}

/// What a host ran on, in words.
pub(super) fn device(config: &HostConfig) -> String {
    let dies = config.device.dies;
    let dies = dies.map_or_else(String::new, |dies| format!(" on {dies} dies"));
    let full = SsdConfig::preset(&config.device.preset);
    let full = full.and_then(|full| full.flash().map(|flash| flash.superblocks));
    let size = match config.device.superblocks {
        Some(superblocks) if Some(superblocks) != full => format!(", {superblocks} superblocks"),
        _ => String::new(),
    };
    let start = match config.start {
        StartState::Preconditioned => "preconditioned",
        StartState::Trimmed => "trimmed",
    };
    format!(
        "simulated {}{dies}{size}, {start}, {} zones",
        config.device.preset, config.zones
    )
}
