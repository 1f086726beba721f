//! The output of `floe trace`.

use std::fmt::Write as _;
use std::path::Path;

use floe_cli::output::size;
use floe_cli::style::Style;
use floe_eval::convert::Converted;
use floe_eval::mrc::MissRatioCurve;
use floe_eval::stat::{Operations, Sizes, TraceStat};

/// Bars of histograms at their longest.
const BAR_CHARS: f64 = 30.0;

/// A trace described.
pub(crate) fn stat(found: &TraceStat) -> String {
    let mut text = format!(
        "{}: {} requests, format {}, {}\n",
        found.trace,
        found.operations.total(),
        found.format,
        found.unit()
    );
    if found.skipped > 0 {
        let _ = writeln!(text, "{} bad records were skipped", found.skipped);
    }
    text.push('\n');
    for (name, value) in facts(found) {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    for (name, sizes) in [("reads", &found.read_sizes), ("writes", &found.write_sizes)] {
        histogram(&mut text, name, sizes);
    }
    text
}

fn facts(found: &TraceStat) -> Vec<(&'static str, String)> {
    let mut facts = vec![("operations", operations(&found.operations))];
    if let Some(volumes) = found.volumes {
        facts.push(("volumes", volumes.to_string()));
    }
    facts.push((
        "time",
        match found.time {
            None => "none in this trace".to_owned(),
            Some(time) => format!(
                "{:.3} s, {} steps backwards",
                time.span_s, time.backward_steps
            ),
        },
    ));
    facts.extend(request_sizes(&found.read_sizes, &found.write_sizes));
    let accesses = &found.accesses;
    facts.push((
        "working set",
        format!(
            "{}: {} {} in {} accesses ({} read, {} written)",
            size(accesses.working_set_bytes),
            accesses.unique,
            match found.block_bytes {
                Some(_) => "blocks",
                None => "objects",
            },
            accesses.total,
            accesses.unique_read,
            accesses.unique_written
        ),
    ));
    let reuse = percent(accesses.reuse_share);
    facts.push((
        "reuse",
        format!("{reuse} of accesses: the hits of an infinite cache"),
    ));
    facts.push((
        "skew",
        format!(
            "{} of accesses to the most popular 1 %, {} to 10 %{}",
            percent(found.skew.top_1_percent_share),
            percent(found.skew.top_10_percent_share),
            match found.skew.zipf {
                None => String::new(),
                Some(zipf) => format!("; Zipf {:.2} (r2 {:.2})", zipf.exponent, zipf.r_squared),
            }
        ),
    ));
    if let Some(sequential) = found.sequential {
        facts.push((
            "sequential",
            format!(
                "{} of requests, {} of bytes",
                percent(sequential.request_share),
                percent(sequential.byte_share)
            ),
        ));
    }
    facts
}

/// Requests by operation.
pub(crate) fn operations(operations: &Operations) -> String {
    format!(
        "{} reads ({} of reads and writes), {} writes, {} writes of zeroes, {} trims, {} flushes",
        operations.reads,
        percent(operations.read_share()),
        operations.writes,
        operations.write_zeroes,
        operations.trims,
        operations.flushes
    )
}

/// Rows of the sizes of reads and writes, as far as there are any.
pub(crate) fn request_sizes<'a>(
    reads: &'a Sizes,
    writes: &'a Sizes,
) -> impl Iterator<Item = (&'static str, String)> + use<'a> {
    [("read bytes", reads), ("write bytes", writes)]
        .into_iter()
        .filter(|(_, sizes)| sizes.count() > 0)
        .map(|(name, sizes)| (name, percentiles(sizes)))
}

fn percentiles(sizes: &Sizes) -> String {
    let at = |share| size(sizes.percentile(share));
    format!(
        "{}, mean {}, p10 {}, p50 {}, p90 {}, p99 {}, most {}",
        size(sizes.bytes()),
        size(sizes.mean().round() as u64),
        at(0.1),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    )
}

fn histogram(text: &mut String, name: &str, sizes: &Sizes) {
    if sizes.count() == 0 {
        return;
    }
    let head = format!(
        "\n{:<14}{:>12}{:>9}",
        format!("{name} of up to"),
        "requests",
        "share"
    );
    let _ = writeln!(text, "{}", Style::stdout().bold(&head));
    for bin in sizes.bins() {
        let share = bin.count as f64 / sizes.count() as f64;
        let bar = "#".repeat((share * BAR_CHARS).round() as usize);
        let line = format!(
            "{:<14}{:>12}{:>9}  {bar}",
            size(bin.bytes_max),
            bin.count,
            percent(share)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A conversion.
pub(crate) fn converted(done: &Converted, into: &Path) -> String {
    let mut text = format!(
        "{} requests of {} became {} records of {} in {}\n",
        done.requests,
        done.from,
        done.records,
        done.into,
        into.display()
    );
    if done.skipped > 0 {
        let _ = writeln!(text, "{} bad records were skipped", done.skipped);
    }
    if !done.lost.is_empty() {
        let _ = writeln!(text, "lost:");
    }
    for lost in &done.lost {
        let _ = writeln!(text, "  {lost}");
    }
    text
}

/// A miss-ratio curve.
pub(crate) fn curve(found: &MissRatioCurve) -> String {
    let mut text = format!(
        "{}: {} accesses of {} {}, format {}, {}\n",
        found.trace, found.accesses, found.unique, found.unit, found.format, found.sample
    );
    if found.skipped > 0 {
        let _ = writeln!(text, "{} bad records were skipped", found.skipped);
    }
    let exact = if found.error.is_some() { "exact %" } else { "" };
    let head = format!("\n{:>14}{:>16}{:>10}{exact:>10}", "size", "count", "miss %");
    let _ = writeln!(text, "{}", Style::stdout().bold(head.trim_end()));
    for point in &found.points {
        let bytes = point.bytes.map_or("-".to_owned(), size);
        let _ = write!(
            text,
            "{bytes:>14}{:>16}{:>10.3}",
            point.count,
            point.miss_ratio * 100.0
        );
        if let Some(exact) = point.exact_miss_ratio {
            let _ = write!(text, "{:>10.3}", exact * 100.0);
        }
        text.push('\n');
    }
    if let Some(error) = found.error {
        let _ = writeln!(
            text,
            "\nmean absolute error {:.3} points, largest {:.3}",
            error.mean * 100.0,
            error.max * 100.0
        );
    }
    text
}
