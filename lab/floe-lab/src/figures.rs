//! Results as tables for a terminal.

use std::fmt::Write as _;

use floe_cli::output::size;
use floe_cli::style::Style;
use floe_eval::metrics::LatencySummary;
use floe_eval::replay::ReplayResult;
use floe_eval::run::RunResult;

/// A run: latencies, throughput, hit ratio, cost.
pub(crate) fn run(run: &RunResult) -> String {
    let style = Style::stdout();
    let whole = &run.whole;
    let mut text = format!(
        "{}: {} requests in {:.1} s ({:.0}/s), ",
        run.name, run.requests, whole.length_s, whole.requests_per_s,
    );
    let _ = match whole.hits_untold {
        true => writeln!(text, "hits and misses are not told apart"),
        false => writeln!(
            text,
            "hit ratio {:.2} %, of bytes {:.2} %",
            whole.hit_ratio * 100.0,
            whole.byte_hit_ratio * 100.0,
        ),
    };
    if run.interrupted {
        let line = "interrupted: these are the figures until then";
        let _ = writeln!(text, "{}", style.red(line));
    }
    if run.failed > 0 {
        let first = run.first_failure.as_deref().unwrap_or("unknown");
        let line = format!("{} requests failed; the first: {first}", run.failed);
        let _ = writeln!(text, "{}", style.red(&line));
    }
    if run.skipped > 0 {
        let _ = writeln!(
            text,
            "{} bad records of the trace were skipped",
            run.skipped
        );
    }
    if run.verified_bytes > 0 {
        let _ = writeln!(
            text,
            "{} compared with the origin's, all right",
            size(run.verified_bytes)
        );
    }
    let head = format!(
        "\n{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}",
        "latency, ms", "mean", "p50", "p99", "p99.9", "p99.99", "max", "count"
    );
    let _ = writeln!(text, "{}", style.bold(&head));
    for (name, summary) in [
        ("get", &whole.get),
        ("hit", &whole.hit),
        ("miss", &whole.miss),
        ("put", &whole.put),
        ("disk read", &whole.disk_read),
        ("disk write", &whole.disk_write),
    ] {
        latency(&mut text, name, summary);
    }
    let rate = |bytes: f64| format!("{}/s", size(bytes.max(0.0) as u64));
    let _ = write!(text, "\nthroughput: get {}", rate(whole.get_bytes_per_s));
    let _ = match whole.disk_read.count + whole.disk_write.count == 0 {
        true => writeln!(text),
        false => writeln!(
            text,
            ", disk read {}, disk write {}",
            rate(whole.read_bytes_per_s),
            rate(whole.write_bytes_per_s)
        ),
    };
    let mut costs = Vec::new();
    if let Some(cpu) = whole.cpu_percent {
        costs.push(format!("CPU {cpu:.0} %"));
    }
    if let Some(us) = run.cpu_us_per_request {
        costs.push(format!("{us:.1} µs of CPU a request"));
    }
    if let Some(rss) = run.rss_bytes_max {
        costs.push(format!("memory {}", size(rss)));
    }
    if let Some(amplification) = run.write_amplification {
        costs.push(format!("write amplification {amplification:.3}"));
    }
    if !costs.is_empty() {
        let _ = writeln!(text, "cost: {}", costs.join(", "));
    }
    if let Some(device) = &run.device {
        let _ = writeln!(text, "device: {device}\n{}", device_work(run));
    }
    text
}

/// The device's zones and writes, by Floe's count and by its own.
fn device_work(run: &RunResult) -> String {
    let figures = [
        (
            "writes in flight in a zone at most",
            "device_zone_writes_in_flight_max",
        ),
        ("open zones at most", "device_open_zones_max"),
        ("by its report", "device_reported_open_zones_max"),
        ("active zones at most", "device_active_zones_max"),
        ("by its report", "device_reported_active_zones_max"),
        ("zone errors", "device_zone_errors"),
        ("written by Floe", "device_written"),
        ("by hosts", "device_host_written"),
        ("to its medium", "device_media_written"),
    ];
    let found = figures.iter().filter_map(|(name, metric)| {
        let figure = run.extra.iter().find(|figure| figure.metric == *metric)?;
        let value = match figure.unit.as_str() {
            "B" => size(figure.value as u64),
            _ => figure.value.to_string(),
        };
        Some(format!("{name} {value}"))
    });
    found.collect::<Vec<_>>().join(", ")
}

fn latency(text: &mut String, name: &str, summary: &LatencySummary) {
    if summary.count == 0 {
        return;
    }
    let _ = write!(text, "{name:<12}");
    for ms in summary.columns_ms() {
        let _ = write!(text, "{ms:>10.3}");
    }
    let _ = writeln!(text, "{:>12}", summary.count);
}

/// A replay: a row per policy and size.
pub(crate) fn replay(replay: &ReplayResult) -> String {
    let style = Style::stdout();
    let mut text = format!(
        "{}: {} requests, format {}, unit {}\n",
        replay.trace, replay.requests, replay.format, replay.unit
    );
    if replay.skipped > 0 {
        let _ = writeln!(text, "{} bad records were skipped", replay.skipped);
    }
    let head = format!(
        "\n{:<8}{:>16}{:>14}{:>14}{:>12}{:>12}",
        "policy", "size", "gets", "misses", "miss %", "bytes %"
    );
    let _ = writeln!(text, "{}", style.bold(&head));
    for counts in &replay.counts {
        let _ = writeln!(
            text,
            "{:<8}{:>16}{:>14}{:>14}{:>12.3}{:>12.3}",
            counts.policy.name(),
            replay.size_label(counts.cache_bytes),
            counts.gets,
            counts.misses,
            counts.miss_ratio() * 100.0,
            counts.byte_miss_ratio() * 100.0,
        );
    }
    text
}
