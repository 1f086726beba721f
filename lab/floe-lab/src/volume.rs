//! `floe replay TRACE --volume …`: a block trace against caches of volumes.

use std::fmt::Write as _;

use floe_cli::failure::Failure;
use floe_cli::output;
use floe_cli::output::size;
use floe_cli::style::Style;
use floe_core::volume::Accesses;
use floe_eval::trace::TraceOptions;
use floe_eval::volume::{
    VolumeReplayOptions, VolumeReplayResult, VolumeResult, VolumeSample, replay_volumes,
};

use crate::args::ReplayArgs;
use crate::outcome::explain;

/// Rows of the table over time.
const ROWS_OVER_TIME: usize = 12;

pub(crate) fn replay(args: &ReplayArgs, options: TraceOptions, json: bool) -> Result<(), Failure> {
    let result = replay_volumes(&VolumeReplayOptions {
        trace: args.trace.clone(),
        options,
        cases: args.volume.clone(),
        requests_max: args.drive.load.requests,
    })
    .map_err(explain)?;
    match json {
        true => output::print_json(&result),
        false => output::print(&text(&result)),
    }
}

fn text(result: &VolumeReplayResult) -> String {
    let style = Style::stdout();
    let mut text = format!(
        "{}: {} requests of {} volumes in {:.0} s, format {}\n",
        result.trace, result.requests, result.volumes, result.span_s, result.format
    );
    if result.skipped > 0 {
        let _ = writeln!(text, "{} bad records were skipped", result.skipped);
    }
    if let Some(bytes) = result.working_set_bytes {
        let _ = writeln!(text, "distinct bytes {}", size(bytes));
    }
    text.push('\n');
    for (number, cache) in result.caches.iter().enumerate() {
        let _ = writeln!(text, "[{}] {}", number + 1, cache.settings);
    }
    let mut head = format!("\n{:<24}", "");
    for number in 1..=result.caches.len() {
        let _ = write!(head, "{:>14}", format!("[{number}]"));
    }
    let _ = writeln!(text, "{}", style.bold(&head));
    for (name, cell) in ROWS {
        let _ = write!(text, "{name:<24}");
        for cache in &result.caches {
            let _ = write!(text, "{:>14}", cell(cache));
        }
        text.push('\n');
    }
    for (number, cache) in result.caches.iter().enumerate() {
        details(&mut text, &style, number + 1, cache);
    }
    text
}

/// A row of the comparison: its name and the value of a cache.
type Row = (&'static str, fn(&VolumeResult) -> String);

const ROWS: [Row; 21] = [
    ("capacity", |cache| size(cache.capacity_bytes)),
    ("read hits, requests", |cache| hits(cache.statistics.reads)),
    ("read hits, bytes", |cache| {
        byte_hits(cache.statistics.reads)
    }),
    ("write hits, requests", |cache| {
        hits(cache.statistics.writes)
    }),
    ("write hits, bytes", |cache| {
        byte_hits(cache.statistics.writes)
    }),
    ("read from cache", |cache| io(cache, 0)),
    ("written to cache", |cache| io(cache, 1)),
    ("read from backing", |cache| io(cache, 2)),
    ("written to backing", |cache| io(cache, 3)),
    ("blocks promoted", |cache| {
        cache.statistics.turnover.promotions().to_string()
    }),
    ("blocks demoted", |cache| {
        cache.statistics.turnover.demotions().to_string()
    }),
    ("bytes not inserted", |cache| {
        size(cache.statistics.turnover.bypassed_bytes)
    }),
    ("blocks cleaned", |cache| {
        cache.statistics.turnover.cleaned.to_string()
    }),
    ("dirty at the end", |cache| {
        format!("{:.1} %", cache.dirty_share() * 100.0)
    }),
    ("missed request, mean", |cache| {
        size(cache.missed.request_bytes_mean() as u64)
    }),
    ("new block, mean", |cache| {
        size(cache.missed.block_bytes_mean() as u64)
    }),
    ("metadata, mean", |cache| {
        size(cache.metadata_bytes_mean as u64)
    }),
    ("metadata, at the end", |cache| {
        size(cache.memory.metadata())
    }),
    ("history", |cache| size(cache.memory.history)),
    ("metadata per block", |cache| {
        let blocks: u64 = cache.occupancy.blocks.iter().sum();
        let bytes = cache.memory.metadata() as f64 / blocks.max(1) as f64;
        format!("{bytes:.1} B")
    }),
    ("blocks at the end", |cache| {
        cache.occupancy.blocks.iter().sum::<u64>().to_string()
    }),
];

fn hits(accesses: Accesses) -> String {
    format!("{:.2} %", accesses.hit_ratio() * 100.0)
}

fn byte_hits(accesses: Accesses) -> String {
    format!("{:.2} %", accesses.byte_hit_ratio() * 100.0)
}

fn io(cache: &VolumeResult, which: usize) -> String {
    size(cache.io_bytes()[which].1)
}

/// Block sizes of one cache, and its course over time.
fn details(text: &mut String, style: &Style, number: usize, cache: &VolumeResult) {
    let head = format!(
        "\n[{number}] {:<20}{:>14}{:>14}",
        "block size", "in the cache", "promoted"
    );
    let _ = writeln!(text, "{}", style.bold(&head));
    for (bytes, now, entered) in cache.block_sizes() {
        let _ = writeln!(text, "    {:<20}{now:>14}{entered:>14}", bytes.to_string());
    }
    let head = format!(
        "\n[{number}] {:>10}{:>12}{:>10}{:>10}{:>12}{:>12}{:>12}{:>12}{:>9}{:>11}",
        "time, s",
        "requests",
        "reads hit",
        "writes",
        "from cache",
        "to cache",
        "from back.",
        "to backing",
        "dirty",
        "metadata"
    );
    let _ = writeln!(text, "{}", style.bold(&head));
    let step = cache.samples.len().div_ceil(ROWS_OVER_TIME).max(1);
    let mut before = None;
    for sample in cache.samples.chunks(step).filter_map(<[_]>::last) {
        over_time(text, cache, before, sample);
        before = Some(sample);
    }
}

/// One row over time: shares and bytes since the row before.
fn over_time(
    text: &mut String,
    cache: &VolumeResult,
    before: Option<&VolumeSample>,
    sample: &VolumeSample,
) {
    let ratio = |of: fn(&VolumeSample) -> Accesses| {
        let (old, new) = (before.map(of).unwrap_or_default(), of(sample));
        match new.requests - old.requests {
            0 => "-".to_owned(),
            requests => {
                let hits = (new.hits - old.hits) as f64;
                format!("{:.1} %", hits / requests as f64 * 100.0)
            }
        }
    };
    let moved = |of: fn(&VolumeSample) -> u64| size(of(sample) - before.map_or(0, of));
    let _ = writeln!(
        text,
        "    {:>10.0}{:>12}{:>10}{:>10}{:>12}{:>12}{:>12}{:>12}{:>8.1}%{:>11}",
        sample.time_s,
        sample.requests,
        ratio(|sample| sample.reads),
        ratio(|sample| sample.writes),
        moved(|sample| sample.traffic.read_from_cache().bytes),
        moved(|sample| sample.traffic.written_to_cache().bytes),
        moved(|sample| sample.traffic.read_from_backing().bytes),
        moved(|sample| sample.traffic.written_to_backing().bytes),
        sample.dirty_bytes as f64 / cache.capacity_bytes as f64 * 100.0,
        size(sample.metadata_bytes),
    );
}
