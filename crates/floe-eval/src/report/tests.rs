use super::chart::{Axis, Chart, Line, ScaleKind};
use super::*;
use crate::metrics::{LatencySummary, Measures};

fn measures(start_s: f64, ms: f64) -> Measures {
    let latency = LatencySummary {
        count: 10,
        mean_ms: ms,
        p50_ms: ms,
        p99_ms: ms * 2.0,
        p999_ms: ms * 3.0,
        p9999_ms: ms * 4.0,
        max_ms: ms * 5.0,
    };
    Measures {
        start_s,
        length_s: 1.0,
        get: latency,
        hit: latency,
        miss: latency,
        disk_read: latency,
        disk_write: latency,
        get_bytes_per_s: 3e8,
        read_bytes_per_s: 2e8,
        write_bytes_per_s: 1e8,
        requests_per_s: 1e4,
        hit_ratio: 0.5,
        byte_hit_ratio: 0.5,
        cpu_percent: Some(50.0),
        rss_bytes: Some(1 << 28),
    }
}

fn run(name: &str) -> RunResult {
    RunResult {
        name: name.into(),
        started_unix_s: 0.0,
        is_virtual: false,
        requests: 10,
        failed: 0,
        first_failure: None,
        skipped: 0,
        verified_bytes: 0,
        whole: measures(0.0, 1.0),
        bins: (0..3)
            .map(|bin| measures(f64::from(bin), f64::from(bin) + 1.0))
            .collect(),
        rss_bytes_max: Some(1 << 28),
        cpu_us_per_request: Some(12.0),
        write_amplification: Some(1.03),
    }
}

fn data() -> ReportData {
    ReportData::new(
        "golden",
        "A <title> & more",
        "key = 1",
        Provenance::here(None, "key = 1", 1, "memory"),
        vec![run("one \"quoted\""), run("two")],
        Vec::new(),
    )
}

/// A vertical axis whose large values are near the top of the page.
#[test]
fn charts_are_right_side_up_and_begin_at_zero() {
    let chart = Chart {
        name: "c".into(),
        title: "t".into(),
        x: Axis::new("x", ScaleKind::Free),
        y: Axis::new("y", ScaleKind::Linear),
        lines: vec![Line {
            name: "l".into(),
            style: 0,
            points: vec![(0.0, 0.0), (1.0, 10.0)],
        }],
    };
    let svg = chart.svg(true);
    let heights: Vec<f64> = svg
        .split("cy=\"")
        .skip(1)
        .map(|rest| {
            rest.split('"')
                .next()
                .expect("a value")
                .parse()
                .expect("a number")
        })
        .collect();
    assert_eq!(heights.len(), 2);
    assert!(heights[0] > heights[1], "10 is above 0: {heights:?}");
    // The point at zero lies on the axis, where the label 0 is.
    assert!(svg.contains(&format!("M70 {}H", heights[0])), "{svg}");
    assert!(
        svg.contains("<text class=\"t\"") && svg.contains(">x</text>") && svg.contains(">y</text>")
    );
}

#[test]
fn the_page_has_the_nine_plots_tables_and_provenance() {
    let page = data().html();
    for part in [
        "Get latency",
        "Hit latency",
        "Miss latency",
        "Disk read latency",
        "Disk write latency",
        "Get throughput",
        "Disk read throughput",
        "Disk write throughput",
        "Hit ratio",
        "<th>p50</th><th>p99</th><th>p99.9</th><th>p99.99</th>",
        "<th>CPU</th>",
        "<th>RSS, greatest</th>",
        "<th>WA</th>",
        "Seed",
        "Configuration digest",
        "(MiB/s)",
        "(ms)",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Nine series and the percentiles.
    assert_eq!(page.matches("role=\"img\"").count(), 10);
    assert!(page.contains("A &lt;title&gt; &amp; more") && !page.contains("<title>A <title>"));
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let page = data().html();
    let without_namespaces = page.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!without_namespaces.contains(outside), "{outside}");
    }
}

#[test]
fn a_folder_that_holds_no_results_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = report(folder.path()).expect_err("nothing there");
    assert!(error.to_string().contains("data.json"));
    std::fs::write(folder.path().join("data.json"), "{}").expect("written");
    let error = report(folder.path()).expect_err("no results");
    assert!(
        error.to_string().contains("run the experiment again"),
        "{error}"
    );
}
