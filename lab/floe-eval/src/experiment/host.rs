//! Converts an experiment's case to a run of one of the papers' hosts, and its
//! result to figures. The hosts are models of other caches on the simulated
//! SSD; see [`crate::hosts`].

use floe::latency::{LatencyPreset, LatencyRule};
use floe_core::ByteSize;
use floe_core::ssd::{SsdConfig, Statistics};
use floe_device::config::DeviceKind;
use indicatif::{ProgressBar, ProgressStyle};

use super::cache::TargetKind;
use super::schema::BenchCase;
use crate::error::EvalError;
use crate::hosts::{
    EvictionPolicy, HostBehaviour, HostConfig, HostResult, Remote, StartState, overlaid,
};
use crate::metrics::{Measures, counted_figures, media_figures};
use crate::run::{ExtraFigure, Pacing, Progress, RunResult};

/// Below this, a chunk is one of the papers' small ones.
const SMALL_CHUNK: ByteSize = ByteSize::mib(16);

/// The host's configuration of a case; `None` if the target is not a host.
pub(super) fn config(name: &str, driven: &BenchCase) -> Result<Option<HostConfig>, EvalError> {
    let cache = &driven.cache;
    let behaviour = match cache.target {
        // With the few zones of small chunks, the host evicts one at a time.
        TargetKind::Zncache if cache.chunk.size < SMALL_CHUNK => HostBehaviour {
            evict_at: 1,
            evict_to: 2,
            ..HostBehaviour::zncache()
        },
        TargetKind::Zncache => HostBehaviour::zncache(),
        TargetKind::Oxcache => HostBehaviour::oxcache(),
        TargetKind::Store | TargetKind::Object | TargetKind::Remote(_) => return Ok(None),
    };
    let (Some(distribution), Some(ratio), Some(requests)) =
        (&driven.workload, driven.ratio, driven.requests)
    else {
        return fail(
            "target",
            "a host of a paper needs workload, ratio and requests",
        );
    };
    let mut host = adjusted(&behaviour, &cache.host.behaviour)?;
    match driven.pacing {
        Pacing::Closed { clients } => {
            host.threads = u32::try_from(clients).unwrap_or(u32::MAX);
        }
        _ => return fail("pacing", "a host of a paper is driven in a closed loop"),
    }
    let is_model =
        cache.device.kind == DeviceKind::File && cache.device.all_paths().next().is_none();
    if !(1e-3..=1e6).contains(&driven.bin_s) {
        return fail("bin-s", "must lie between 0.001 and 1000000 seconds");
    }
    Ok(Some(HostConfig {
        name: name.to_owned(),
        host,
        device: cache.host.device.clone(),
        start: cache.host.start,
        state: cache.host.state.clone(),
        drive: (!is_model).then(|| cache.device.clone()),
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

fn adjusted(behaviour: &HostBehaviour, changes: &toml::Table) -> Result<HostBehaviour, EvalError> {
    overlaid(behaviour, changes).map_err(|error| EvalError::Option {
        option: "behaviour",
        reason: error.to_string(),
    })
}

/// The mean latency. The model adds the jitter.
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

/// The result of a host's run, with the device's figures.
pub(super) fn figures(config: &HostConfig, found: HostResult) -> Result<RunResult, EvalError> {
    let device = config.device.config()?;
    let mut run = found.run;
    // The host writes the chunks that it stores and, with CLRU, those that it
    // moves.
    let stored = run.whole.miss.count as f64;
    let moves = config.host.policy == EvictionPolicy::Clru && stored > 0.0;
    run.write_amplification = moves.then(|| 1.0 + found.moved_chunks as f64 / stored);
    let counted = &found.device;
    run.extra = media_figures(&Statistics::default(), counted, found.elapsed_s);
    let (hits, misses) = (run.whole.hit.count, run.whole.miss.count);
    run.extra
        .extend(counted_figures(hits, misses, &found.commands));
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
    let changes = changes(&run, capacity);
    run.extra.extend(changes);
    let worst = worst_and_last(&run);
    run.extra.extend(worst);
    Ok(run)
}

/// Relative changes of throughput, and of mean and p99 get latency, after the
/// device has been written once. Only for runs that write that much.
fn changes(run: &RunResult, capacity: f64) -> Vec<ExtraFigure> {
    let over = |of: fn(&Measures) -> f64| after_over_before(run, capacity, of);
    let found = [
        (
            "throughput_drop",
            over(|bin| bin.get_bytes_per_s).map(|over| 1.0 - over),
        ),
        (
            "latency_rise",
            over(|bin| bin.get.mean_ms).map(|over| over - 1.0),
        ),
        (
            "tail_rise",
            over(|bin| bin.get.p99_ms).map(|over| over - 1.0),
        ),
    ];
    let figures = found.into_iter().filter_map(|(metric, value)| {
        Some(ExtraFigure {
            metric: metric.into(),
            unit: "ratio".into(),
            value: value?,
        })
    });
    figures.collect()
}

/// The mean of a measure over the bins after 1.25 capacities were written, divided by
/// that over the bins before 1.0.
fn after_over_before(run: &RunResult, capacity: f64, of: fn(&Measures) -> f64) -> Option<f64> {
    let (mut written, mut before, mut after) = (0.0, Mean::default(), Mean::default());
    for bin in &run.bins {
        let bytes = bin.write_bytes_per_s * bin.length_s;
        let (from, to) = (written / capacity, (written + bytes) / capacity);
        written += bytes;
        // The transition lies between these bins. At the beginning the cache is
        // empty.
        if from > 0.2 && to < 1.0 {
            before.add(of(bin), bin.length_s);
        } else if from > 1.25 {
            after.add(of(bin), bin.length_s);
        }
    }
    Some(after.value()? / before.value()?)
}

/// The worst bin and the last third, each divided by the mean: they show
/// whether a device recovers within a run.
fn worst_and_last(run: &RunResult) -> Vec<ExtraFigure> {
    let mean = run.whole.get_bytes_per_s;
    if run.bins.len() < 6 || mean <= 0.0 {
        return Vec::new();
    }
    let mut last = Mean::default();
    for bin in &run.bins[run.bins.len() * 2 / 3..] {
        last.add(bin.get_bytes_per_s, bin.length_s);
    }
    // The last bin is incomplete.
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

/// A progress bar over the requests of a case that runs alone.
pub(super) fn bar(progress: Progress, config: &HostConfig) -> ProgressBar {
    if progress == Progress::Off {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only on a terminal.
    let bar = ProgressBar::new(config.requests());
    let template = "{prefix} {bar:24} {human_pos}/{human_len} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_prefix(config.name.clone())
}

/// Description of a host's device.
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
    let drive = match config.drive {
        Some(_) => ", and a drive",
        None => "",
    };
    format!(
        "simulated {}{dies}{size}, {start}, {} zones{drive}",
        config.device.preset, config.zones
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::DeviceChoice;

    const HOST: &str = r#"
        ratio = 2.0
        requests = 40
        bin-s = 60.0
        workload = { kind = "uniform" }
        pacing = { mode = "closed", clients = 8 }
        [cache]
        target = "zncache"
        chunk = { size = "64KiB" }
        origin-latency = { rule = "measured", preset = "64KiB" }
        host = { zones = 40, device = { preset = "sn540", mapping-unit = "64KiB" } }
    "#;

    fn of(text: &str) -> Result<Option<HostConfig>, EvalError> {
        config("case", &toml::from_str(text).expect("a case"))
    }

    #[test]
    fn a_case_has_all_settings_of_the_host() {
        let found = of(HOST).expect("good").expect("a host");
        assert_eq!((found.host.threads, found.requests()), (8, 40));
        assert_eq!((found.host.evict_at, found.host.evict_to), (1, 2));
        assert_eq!(found.remote.latency_us, 40_632);
        let changed = HOST.replace(
            "host = { zones",
            "host = { behaviour = { waiters = \"fifo\", evict-to = 3 }, zones",
        );
        let found = of(&changed).expect("good").expect("a host");
        assert_eq!(found.host.waiters, crate::hosts::Waiters::Fifo);
        assert_eq!(found.host.evict_to, 3);
        let store = HOST.replace("zncache", "store");
        assert_eq!(of(&store).expect("good"), None);
    }

    #[test]
    fn keys_of_the_flash_replace_the_presets() {
        let flash = "flash = { superblocks = 930, nand = { erase-ns = 1 }, interface = { victim = \"greedy\" } }, preset";
        let found = of(&HOST.replace("preset = \"sn540\"", &format!("{flash} = \"sn540\"")));
        let changed = found.expect("good").expect("a host").device;
        let mut expected = DeviceChoice::preset("sn540").config().expect("a device");
        let shown = expected.capacity_bytes();
        let flash = expected.flash_mut().expect("flash");
        flash.superblocks = 930;
        flash.nand.erase_ns = 1;
        if let floe_core::ssd::Interface::Conventional(ftl) = &mut flash.interface {
            ftl.victim = floe_core::ssd::Victim::Greedy;
            ftl.mapping_unit = ByteSize::kib(64);
        }
        assert_eq!(changed.config().expect("a device"), expected);
        assert_eq!(expected.capacity_bytes(), shown);
        let mut wrong = DeviceChoice::preset("sn540");
        wrong.flash = toml::from_str("superblox = 930").expect("toml");
        let error = wrong.config().expect_err("no such key").to_string();
        assert!(error.contains("superblox"), "{error}");
    }

    #[test]
    fn invalid_settings_of_a_host_are_rejected() {
        for (from, to, message) in [
            ("ratio = 2.0", "items = 9", "ratio"),
            ("bin-s = 60.0", "bin-s = 0.0", "0.001"),
            (
                "\"closed\", clients = 8",
                "\"open\", rate = 8.0",
                "closed loop",
            ),
            ("zones = 40", "behaviour = { spins = true }", "spins"),
            (
                "\"measured\", preset = \"64KiB\"",
                "\"normal\", mean_ms = 1.0, sd_ms = 1.0",
                "constant",
            ),
        ] {
            assert!(HOST.contains(from), "{from}");
            let error = of(&HOST.replace(from, to)).expect_err(to);
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        let bin = |number: u32, rate: f64| crate::metrics::Measures {
            start_s: f64::from(number),
            length_s: 1.0,
            get_bytes_per_s: rate,
            write_bytes_per_s: 10.0,
            get: crate::metrics::LatencySummary {
                mean_ms: 1e3 / rate,
                p99_ms: 2e3 / rate,
                ..Default::default()
            },
            ..Default::default()
        };
        let bins = (0..30).map(|n| bin(n, if n < 10 { 100.0 } else { 70.0 }));
        let mut run: RunResult = serde_json::from_value(serde_json::json!({
            "name": "", "started_unix_s": 0.0, "is_virtual": true, "requests": 0, "failed": 0,
            "first_failure": null, "skipped": 0, "verified_bytes": 0,
            "whole": bin(0, 80.0), "bins": [], "rss_bytes_max": null,
            "cpu_us_per_request": null, "write_amplification": null
        }))
        .expect("a run");
        assert!(changes(&run, 100.0).is_empty());
        run.bins = bins.collect();
        let found = changes(&run, 100.0);
        let [drop, mean, tail] = [&found[0], &found[1], &found[2]].map(|found| found.value);
        assert!((drop - 0.3).abs() < 1e-9, "{drop}");
        let rise = 1.0 / 0.7 - 1.0;
        assert!(
            (mean - rise).abs() < 1e-9 && (tail - rise).abs() < 1e-9,
            "{mean} {tail}"
        );
        assert!(
            changes(&run, 1e6).is_empty(),
            "the run writes less than that"
        );
        let worst = worst_and_last(&run);
        assert_eq!((worst[0].value, worst[1].value), (0.875, 0.875));
    }
}
