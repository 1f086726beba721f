//! Computes figures and series from the counts of a run.

use floe_core::tiny::{Cause, Memory, OBJECT_HEADER_BYTES, PAGE_BYTES};

use super::driver::Outcome;
use super::series::{Snapshot, Stretch};
use crate::metrics::{Distribution, Distributions, LatencySummary, Measures, media_figures};
use crate::run::{ExtraFigure, ExtraSeries, RunResult};

/// The size of the device over which buffers are amortized: 2 TB with zones of
/// the ZN540 (Nemo, §5.5 and Table 6).
const LARGE_DEVICE_ZONES: f64 = 2e12 / (1077.0 * 1024.0 * 1024.0);

/// The result of a run. `extra` has additional figures of the engine.
pub(super) fn result(name: &str, outcome: &Outcome, extra: Vec<ExtraFigure>) -> RunResult {
    let stretch = outcome.end.since(&outcome.begin);
    let elapsed_s = match outcome.is_timed {
        true => outcome.end.now.since(outcome.begin.now).as_secs_f64(),
        false => 0.0,
    };
    let mut figures = Figures(Vec::new());
    figures.writes(&stretch);
    figures.requests(&stretch);
    figures.reads(&stretch);
    figures.memory(outcome);
    figures.migrations(&stretch);
    figures.sets(&outcome.sets);
    figures.add("left_out", "count", outcome.left_out as f64);
    figures.0.extend(extra);
    if let (Some(before), Some(after)) = (&outcome.begin.device, &outcome.end.device) {
        figures.0.extend(media_figures(before, after, elapsed_s));
    }
    let (whole, distributions) = whole(outcome, &stretch, elapsed_s);
    RunResult {
        name: name.to_owned(),
        started_unix_s: 0.0,
        is_virtual: true,
        requests: stretch.counts.operations,
        failed: 0,
        first_failure: None,
        interrupted: false,
        skipped: outcome.skipped,
        verified_bytes: 0,
        whole,
        distributions,
        bins: bins(outcome),
        rss_bytes_max: None,
        cpu_us_per_request: None,
        write_amplification: Some(total_write_amplification(&stretch)),
        extra: figures.0,
        device: None,
        series: series(outcome),
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

/// As [`ratio`], but NaN if `whole` is zero: such a bin has no point.
fn share(part: f64, whole: f64) -> f64 {
    part / whole
}

/// Bytes that the drive programmed per byte written to it; 1 without a drive,
/// as for zones that are written once and reset.
fn device_write_amplification(stretch: &Stretch) -> f64 {
    let of_device = |device: &floe_core::ssd::Statistics| {
        let programmed = device.programmed;
        let host = programmed.host_bytes as f64;
        (host > 0.0).then(|| programmed.total_bytes() as f64 / host)
    };
    stretch.device.as_ref().and_then(of_device).unwrap_or(1.0)
}

fn total_write_amplification(stretch: &Stretch) -> f64 {
    stretch.engine.write_amplification() * device_write_amplification(stretch)
}

struct Figures(Vec<ExtraFigure>);

impl Figures {
    fn add(&mut self, metric: &str, unit: &str, value: f64) {
        self.0.push(ExtraFigure {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value,
        });
    }

    /// Write amplification by cause, and the sizes of writes.
    fn writes(&mut self, stretch: &Stretch) {
        let engine = &stretch.engine;
        self.add("alwa", "ratio", engine.write_amplification());
        for cause in Cause::ALL {
            let written = engine.written_for(cause) as f64;
            let name = format!("alwa_{}", cause.name());
            self.add(&name, "ratio", ratio(written, engine.bytes_in as f64));
        }
        self.add("dlwa", "ratio", device_write_amplification(stretch));
        self.add("fill_rate", "ratio", engine.fill_rate());
        let fresh = engine
            .bytes_filled
            .saturating_sub(engine.bytes_written_back) as f64;
        let pages = engine.object_pages_written as f64 * PAGE_BYTES as f64;
        self.add("fill_rate_new", "ratio", ratio(fresh, pages));
        let commands = &stretch.commands;
        let bytes = commands.pages_written as f64 * PAGE_BYTES as f64;
        self.add(
            "write_command_bytes",
            "B",
            ratio(bytes, commands.writes as f64),
        );
        let operations = stretch.counts.operations as f64;
        self.add("flash_written_per_operation", "B", ratio(bytes, operations));
        let objects = engine.objects_in as f64;
        self.add("object_bytes", "B", ratio(engine.bytes_in as f64, objects));
        let dropped = engine.dropped_early as f64;
        self.add("dropped_early_share", "ratio", ratio(dropped, objects));
        if dropped > 0.0 {
            self.add("new_per_dropped", "ratio", objects / dropped);
        }
    }

    fn requests(&mut self, stretch: &Stretch) {
        let counts = &stretch.counts;
        let gets = counts.gets as f64;
        self.add("miss_ratio", "ratio", ratio(counts.misses as f64, gets));
        self.add(
            "ram_hit_ratio",
            "ratio",
            ratio(counts.ram_hits as f64, gets),
        );
        let lookups = (counts.gets - counts.ram_hits) as f64;
        self.add(
            "engine_miss_ratio",
            "ratio",
            ratio(counts.misses as f64, lookups),
        );
        self.add("sets", "count", counts.sets as f64);
        self.add("deletes", "count", counts.deletes as f64);
    }

    fn reads(&mut self, stretch: &Stretch) {
        let engine = &stretch.engine;
        let lookups = (stretch.counts.gets - stretch.counts.ram_hits) as f64;
        let pages = (engine.pages_searched + engine.index_pages_searched) as f64;
        self.add("flash_reads_per_lookup", "ratio", ratio(pages, lookups));
        let counts = &stretch.counts;
        if counts.flash_hits > 0 {
            let per_hit = ratio(counts.flash_hit_pages as f64, counts.flash_hits as f64);
            self.add("flash_reads_per_hit", "ratio", per_hit);
            let per_miss = ratio(counts.miss_pages as f64, counts.misses as f64);
            self.add("flash_reads_per_miss", "ratio", per_miss);
        }
        let searches = engine.searches as f64;
        self.add("flash_reads_per_search", "ratio", ratio(pages, searches));
        let objects = engine.pages_searched as f64;
        self.add("object_pages_per_search", "ratio", ratio(objects, searches));
        let index = engine.index_pages_searched as f64;
        self.add(
            "index_pages_per_index_search",
            "ratio",
            ratio(index, engine.index_searches as f64),
        );
        let from_flash = engine.index_searches as f64;
        self.add("index_search_share", "ratio", ratio(from_flash, lookups));
        let gets = stretch.counts.gets as f64;
        self.add("index_searches_per_get", "ratio", ratio(from_flash, gets));
        self.add(
            "false_positives_per_search",
            "ratio",
            ratio(engine.false_positives as f64, searches),
        );
        let all = stretch.commands.pages_read as f64 * PAGE_BYTES as f64;
        let out = stretch.counts.bytes_out as f64;
        self.add("read_amplification", "ratio", ratio(all, out));
    }

    /// Mean bits of RAM per object on flash: as measured, and with buffers,
    /// whose size depends on the zone size, amortized over a large device. One
    /// set-group of buffer is the memory of a RAM cache (Nemo, §5.5) and does
    /// not count there.
    fn memory(&mut self, outcome: &Outcome) {
        // Summed over all snapshots, so that ratios are averages.
        let (mut memory, mut moments) = (Memory::default(), 0);
        for moment in outcome.measured() {
            memory.add(&moment.memory);
            moments += 1;
        }
        let mut bits = |name: &str, bytes: u64| {
            let bits = memory.bits_per_object(bytes);
            self.add(&format!("bits_{name}"), "bits", bits);
            bits
        };
        let index = bits("index", memory.index_bytes);
        let hotness = bits("hotness", memory.hotness_bytes);
        let other = bits("other", memory.other_bytes);
        let index_buffer = bits("index_buffer", memory.index_buffer_bytes);
        bits(
            "all_filters",
            memory.index_bytes + memory.index_buffer_bytes,
        );
        let buffer = bits("buffer", memory.buffer_bytes);
        let payload = bits("payload", memory.payload_bytes);
        self.add(
            "bits_total",
            "bits",
            index + hotness + other + index_buffer + buffer + payload,
        );
        let zone_bytes = u64::from(outcome.flash.zone_pages) * PAGE_BYTES as u64;
        let buffers = memory.buffer_bytes + memory.payload_bytes;
        let beyond = buffers.saturating_sub(zone_bytes * moments);
        let beyond = memory.bits_per_object(beyond) + index_buffer;
        let share = f64::from(outcome.flash.zones) / LARGE_DEVICE_ZONES;
        let amortised = index + hotness + other + beyond * share.min(1.0);
        self.add("bits_per_object", "bits", amortised);
        // If the working set does not fill the flash, count as many objects of
        // this size as its pages hold, like the papers.
        let mean = stored_object_bytes(outcome);
        let room = f64::from(outcome.flash.zones) * zone_bytes as f64;
        let objects = ratio(memory.objects_on_flash as f64, moments as f64);
        let full = amortised * ratio(objects * mean, room);
        self.add("bits_per_object_of_full_flash", "bits", full);
        self.add("objects_on_flash", "count", objects);
        if let Some(live) = outcome.live_objects {
            let held = 8.0 * ratio(memory.total_bytes() as f64, moments as f64);
            self.add("live_objects", "count", live as f64);
            let per_live = ratio(held, live as f64);
            self.add("memory_bits_per_live_object", "bits", per_live);
            // Buffers of set-groups are part of the RAM cache in front, which
            // exists anyway (Nemo, §5.5).
            let metadata = index + hotness + other + index_buffer * share.min(1.0);
            let paper = metadata * ratio(objects, live as f64);
            self.add("memory_bits_paper", "bits", paper);
        }
    }

    /// Objects that move from a log into sets: the measured counterpart of
    /// Nemo's Eq. 6 to 8.
    fn migrations(&mut self, stretch: &Stretch) {
        let engine = &stretch.engine;
        let (passive, active) = (
            engine.rewrites_passive as f64,
            engine.rewrites_active as f64,
        );
        if passive + active == 0.0 {
            return;
        }
        let (new_passive, new_active) = (
            engine.bytes_migrated_passive as f64,
            engine.bytes_migrated_active as f64,
        );
        let page = PAGE_BYTES as f64;
        self.add("l2swa_passive", "ratio", ratio(passive * page, new_passive));
        self.add("l2swa_active", "ratio", ratio(active * page, new_active));
        let l2swa = ratio((passive + active) * page, new_passive + new_active);
        self.add("l2swa", "ratio", l2swa);
        // The rest was replaced, deleted or evicted in the log.
        let alive = ratio(new_passive + new_active, engine.bytes_in as f64);
        self.add("log_alive_share", "ratio", alive);
        let moved = engine.written_for(Cause::Gc) as f64;
        let written = engine.written_for(Cause::Set) as f64;
        self.add(
            "set_zones_valid_share",
            "ratio",
            ratio(moved, moved + written),
        );
        self.add("passive_share", "ratio", ratio(passive, passive + active));
    }

    /// Distribution of accesses over sets.
    fn sets(&mut self, sets: &[u64]) {
        let sorted = sorted(sets);
        if sorted.is_empty() {
            return;
        }
        for percent in [1, 10, 20, 30, 50] {
            let name = format!("set_accesses_top_{percent}");
            self.add(&name, "ratio", top_share(&sorted, percent as f64 / 100.0));
        }
    }
}

/// Mean bytes of an object on flash.
fn stored_object_bytes(outcome: &Outcome) -> f64 {
    let engine = &outcome.end.engine;
    ratio(engine.bytes_in as f64, engine.objects_in as f64) + OBJECT_HEADER_BYTES as f64
}

/// The counts in descending order.
fn sorted(sets: &[u64]) -> Vec<u64> {
    let mut sorted = sets.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted
}

fn top_share(sorted: &[u64], share: f64) -> f64 {
    let count = (share * sorted.len() as f64).round() as usize;
    let top: u64 = sorted[..count.min(sorted.len())].iter().sum();
    ratio(top as f64, sorted.iter().sum::<u64>() as f64)
}

/// The series of other targets that a tiny run has, too.
fn whole(outcome: &Outcome, stretch: &Stretch, elapsed_s: f64) -> (Measures, Distributions) {
    let counts = &stretch.counts;
    let hits = (counts.gets - counts.misses) as f64;
    let mut whole = Measures {
        hit_ratio: ratio(hits, counts.gets as f64),
        ..Measures::default()
    };
    let Some(latencies) = outcome.bins.measured().filter(|_| outcome.is_timed) else {
        return (whole, Distributions::default());
    };
    rates(&mut whole, stretch, elapsed_s);
    whole.get = LatencySummary::of(&latencies.search);
    whole.disk_read = LatencySummary::of(&latencies.read);
    whole.disk_write = LatencySummary::of(&latencies.write);
    let distributions = Distributions {
        get: Distribution::of_histogram(&latencies.search),
        disk_read: Distribution::of_histogram(&latencies.read),
        disk_write: Distribution::of_histogram(&latencies.write),
        ..Distributions::default()
    };
    (whole, distributions)
}

fn rates(measures: &mut Measures, stretch: &Stretch, elapsed_s: f64) {
    let page = PAGE_BYTES as f64;
    measures.length_s = elapsed_s;
    measures.get_bytes_per_s = ratio(stretch.counts.bytes_out as f64, elapsed_s);
    measures.read_bytes_per_s = ratio(stretch.commands.pages_read as f64 * page, elapsed_s);
    measures.write_bytes_per_s = ratio(stretch.commands.pages_written as f64 * page, elapsed_s);
    measures.requests_per_s = ratio(stretch.counts.operations as f64, elapsed_s);
}

/// Bins over time, if the run is timed.
fn bins(outcome: &Outcome) -> Vec<Measures> {
    if !outcome.is_timed {
        return Vec::new();
    }
    let stretches = outcome.bins.stretches();
    stretches
        .filter(|(_, begin, end)| end.now > begin.now)
        .map(|(bin, begin, end)| {
            let stretch = end.since(begin);
            let latencies = &outcome.bins.latencies[bin];
            let counts = &stretch.counts;
            let mut measures = Measures {
                start_s: begin.now.since(floe_core::Tick::ZERO).as_secs_f64(),
                get: LatencySummary::of(&latencies.search),
                disk_read: LatencySummary::of(&latencies.read),
                disk_write: LatencySummary::of(&latencies.write),
                hit_ratio: ratio((counts.gets - counts.misses) as f64, counts.gets as f64),
                ..Measures::default()
            };
            let length = end.now.since(begin.now).as_secs_f64();
            rates(&mut measures, &stretch, length);
            measures
        })
        .collect()
}

/// Computes a value of a bin from its end and its counts.
type Value = fn(&Snapshot, &Stretch) -> f64;

/// The series over operations: name, title, unit, value.
const OVER_OPERATIONS: [(&str, &str, &str, Value); 9] = [
    (
        "write_amplification_trend",
        "Write amplification",
        "",
        |_, bin| total_write_amplification(bin),
    ),
    (
        "write_amplification_so_far",
        "Write amplification since the beginning",
        "",
        |end, _| end.engine.write_amplification(),
    ),
    (
        "flash_writes",
        "Bytes written per operation",
        "B",
        |_, bin| {
            let bytes = bin.commands.pages_written as f64 * PAGE_BYTES as f64;
            ratio(bytes, bin.counts.operations as f64)
        },
    ),
    ("miss_ratio_trend", "Miss ratio", "%", |_, bin| {
        share(bin.counts.misses as f64, bin.counts.gets as f64)
    }),
    (
        "fill_rate_trend",
        "Fill rate of pages written",
        "%",
        |_, bin| match bin.engine.object_pages_written {
            0 => f64::NAN,
            _ => bin.engine.fill_rate(),
        },
    ),
    (
        "flash_reads_trend",
        "Flash reads per lookup",
        "",
        |_, bin| {
            let pages = bin.engine.pages_searched + bin.engine.index_pages_searched;
            let lookups = bin.counts.gets - bin.counts.ram_hits;
            share(pages as f64, lookups as f64)
        },
    ),
    (
        "index_search_trend",
        "Lookups that read filters from flash",
        "%",
        |_, bin| {
            let lookups = bin.counts.gets - bin.counts.ram_hits;
            share(bin.engine.index_searches as f64, lookups as f64)
        },
    ),
    (
        "passive_share_trend",
        "Share of set rewrites that are passive",
        "%",
        |_, bin| {
            let all = bin.engine.rewrites_passive + bin.engine.rewrites_active;
            share(bin.engine.rewrites_passive as f64, all as f64)
        },
    ),
    ("bits_trend", "Index memory per object", "bits", |end, _| {
        let memory = &end.memory;
        memory.bits_per_object(memory.index_bytes + memory.hotness_bytes + memory.other_bytes)
    }),
];

/// Series that panels may use besides the nine common ones.
pub(crate) fn series_names() -> impl Iterator<Item = &'static str> {
    let over = OVER_OPERATIONS.iter().map(|(name, ..)| *name);
    over.chain(["p50_trend", "p99_trend", "p9999_trend", "set_accesses"])
}

fn series(outcome: &Outcome) -> Vec<ExtraSeries> {
    let of = |(name, title, unit, value): &(&str, &str, &str, Value)| {
        let points = outcome.bins.stretches().filter_map(|(_, begin, end)| {
            let stretch = end.since(begin);
            let value = value(end, &stretch);
            (stretch.counts.operations > 0 && value.is_finite())
                .then(|| (end.counts.operations as f64 / 1e6, value))
        });
        over_operations(name, title, unit, points.collect())
    };
    let mut series: Vec<ExtraSeries> = OVER_OPERATIONS.iter().map(of).collect();
    series.extend(latency_series(outcome));
    let sorted = sorted(&outcome.sets);
    if !sorted.is_empty() {
        let shares = (0..=100).map(|percent| f64::from(percent) / 100.0);
        series.push(ExtraSeries {
            name: "set_accesses".into(),
            title: "Accesses of the most accessed sets".into(),
            unit: "%".into(),
            x_label: "Share of the sets".into(),
            points: shares
                .map(|share| (share, top_share(&sorted, share)))
                .collect(),
        });
    }
    series.retain(|series| series.points.iter().any(|(_, value)| *value != 0.0));
    series
}

fn latency_series(outcome: &Outcome) -> Vec<ExtraSeries> {
    if !outcome.is_timed {
        return Vec::new();
    }
    [
        ("p50_trend", "Median read latency", 0.5),
        ("p99_trend", "99th percentile of read latency", 0.99),
        ("p9999_trend", "99.99th percentile of read latency", 0.9999),
    ]
    .into_iter()
    .map(|(name, title, share)| {
        let points = outcome.bins.stretches().filter_map(|(bin, _, end)| {
            let search = &outcome.bins.latencies[bin].search;
            let at = || search.value_at_quantile(share) as f64 / 1e3;
            (!search.is_empty()).then(|| (end.counts.operations as f64 / 1e6, at()))
        });
        over_operations(name, title, "µs", points.collect())
    })
    .collect()
}

fn over_operations(name: &str, title: &str, unit: &str, points: Vec<(f64, f64)>) -> ExtraSeries {
    ExtraSeries {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        x_label: "Operations (millions)".into(),
        points,
    }
}
