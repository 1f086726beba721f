use super::chart::{Axis, Chart, Line};
use super::scale::ScaleKind;
use super::*;
use crate::metrics::{Distribution, Distributions, LatencySummary, Measures};
use crate::results::Provenance;
use crate::run::RunResult;

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
        put: LatencySummary::default(),
        hits_untold: false,
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
        interrupted: false,
        skipped: 0,
        verified_bytes: 0,
        whole: measures(0.0, 1.0),
        bins: (0..3)
            .map(|bin| measures(f64::from(bin), f64::from(bin) + 1.0))
            .collect(),
        distributions: Distributions {
            get: Distribution::of(|share| 1.0 + share),
            ..Distributions::default()
        },
        extra: Vec::new(),
        device: None,
        series: Vec::new(),
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

fn chart_of(x: Axis, points: Vec<(f64, f64)>) -> Chart {
    Chart {
        name: "c".into(),
        title: "t".into(),
        x,
        y: Axis::new("y", ScaleKind::Linear),
        lines: vec![Line {
            name: "l".into(),
            style: 0,
            points,
        }],
    }
}

/// A vertical axis whose large values are near the top of the page.
#[test]
fn charts_are_right_side_up_and_begin_at_zero() {
    let x = Axis::new("x", ScaleKind::Free);
    let svg = chart_of(x, vec![(0.0, 0.0), (1.0, 10.0)]).svg(true);
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
    assert!(svg.contains(&format!("M70.0 {}H", heights[0])), "{svg}");
    assert!(
        svg.contains("<text class=\"t\"") && svg.contains(">x</text>") && svg.contains(">y</text>")
    );
}

/// The path of a line with points at the second and the fourth named place.
fn path_over(names: [&str; 4]) -> String {
    let places = names.into_iter().zip([0.0, 1.0, 2.0, 3.0]);
    let x = Axis {
        named_ticks: places.map(|(name, place)| (place, name.into())).collect(),
        ..Axis::new("x", ScaleKind::Free)
    };
    let svg = chart_of(x, vec![(1.0, 2.0), (3.0, 10.0)]).svg(true);
    let line = svg.split_once("class=\"line\"").expect("a line").1;
    let path = line.split_once(" d=\"").expect("a path").1;
    path.split('"').next().expect("its end").to_owned()
}

#[test]
fn places_that_have_an_order_are_joined_and_names_are_not() {
    let sizes = path_over(["1", "16", "64 KiB", "1MiB"]);
    assert_eq!(sizes.matches('L').count(), 1, "{sizes}");
    let engines = path_over(["Log", "Set", "Nemo", "Floe"]);
    assert_eq!(engines.matches('L').count(), 0, "{engines}");
    // The first place has no value, but is shown.
    assert!(sizes.starts_with("M210.0 "), "{sizes}");
}

#[test]
fn untimed_runs_show_no_latencies_or_throughput() {
    let mut untimed = run("modelled");
    untimed.whole.requests_per_s = 0.0;
    untimed.whole.get_bytes_per_s = 0.0;
    let table = tables::costs(&[untimed.clone(), run("timed")]).html();
    assert!(
        table.contains("<td>–</td>") && !table.contains(">0 B/s<"),
        "{table}"
    );
    let table = tables::costs(&[untimed]).html();
    assert!(
        !table.contains("requests/s") && table.contains("hit ratio"),
        "{table}"
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
    // Nine series, the percentiles, a distribution, two box plots.
    assert_eq!(page.matches("role=\"img\"").count(), 13);
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
fn errors_name_a_folder_without_results() {
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

fn table() -> table::Table {
    let mut table = table::Table::new("t", "50 % of a_b", &["case", "value|x"]);
    table.rows.push(vec!["a, \"b\"".into(), "1 µs".into()]);
    table
}

#[test]
fn tables_are_written_as_csv_markdown_and_latex() {
    assert_eq!(table().csv(), "case,value|x\r\n\"a, \"\"b\"\"\",1 µs\r\n");
    assert_eq!(
        table().markdown(),
        "### 50 % of a_b\n\n| case | value\\|x |\n|---|---:|\n| a, \"b\" | 1 µs |\n"
    );
    let latex = table().latex();
    for part in [
        "{50 \\% of a\\_b}",
        "\\begin{tabular}{lr}",
        "a, \"b\" & 1 \\textmu{}s \\\\",
    ] {
        assert!(latex.contains(part), "{part} in {latex}");
    }
}

#[test]
fn exported_files_are_self_contained() {
    let folder = tempfile::tempdir().expect("a folder");
    match export(&data(), folder.path()) {
        Ok(()) => {
            let png = std::fs::read(folder.path().join("get-latency.png")).expect("a picture");
            let pixels = resvg::tiny_skia::Pixmap::decode_png(&png).expect("a picture");
            assert_eq!(pixels.width(), 1040);
            // The first line's colour, the second's, and text.
            for (red, green, blue) in [(0x1f, 0x6f, 0xd6), (0xd9, 0x63, 0x1e), (0x1c, 0x24, 0x30)] {
                let is_it = |p: &&resvg::tiny_skia::PremultipliedColorU8| {
                    (p.red(), p.green(), p.blue()) == (red, green, blue)
                };
                let seen = pixels.pixels().iter().filter(is_it).count();
                assert!(seen > 20, "{seen} pixels of {red:x}{green:x}{blue:x}");
            }
        }
        // Without fonts the export is an error that says so, after all other files.
        Err(error) => assert!(error.to_string().contains("font"), "{error}"),
    }
    for name in [
        "get-latency.svg",
        "box-get-latency.svg",
        "cdf-get-latency.svg",
    ] {
        let svg = std::fs::read_to_string(folder.path().join(name)).expect("a figure");
        assert!(
            !svg.contains("var(") && !svg.contains("@media") && !svg.contains("--"),
            "{svg}"
        );
    }
    for name in [
        "results.csv",
        "get-latency.md",
        "get-latency.csv",
        "get-latency.tex",
        "provenance.md",
    ] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
    let rows = std::fs::read_to_string(folder.path().join("results.csv")).expect("rows");
    let columns = |line: &str| line.split(',').count();
    let mut lines = rows.lines();
    assert_eq!(columns(lines.next().unwrap_or_default()), 17);
    assert_eq!(rows.lines().count(), data().rows.len() + 1);
}

#[test]
fn two_sets_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    data().write(&before).expect("written");
    let mut faster = data();
    faster.runs[0].whole.get_bytes_per_s *= 1.5;
    faster.runs[1].name = "three".into();
    let faster = ReportData::new("other", "t", "", faster.provenance, faster.runs, Vec::new());
    faster.write(&after).expect("written");

    let comparison = Comparison::read(&before, &after).expect("both are there");
    let is_rate = |pair: &&Pair| pair.metric == "get_throughput";
    let pair = comparison.pairs.iter().find(is_rate).expect("a rate");
    assert_eq!((pair.ratio, pair.difference), (Some(1.5), 1.5e8));
    assert!(comparison.pairs.iter().all(|pair| pair.case != "two"));
    assert!(comparison.text().contains("1.5"));
    let page = comparison
        .write(&folder.path().join("out"))
        .expect("written");
    let page = std::fs::read_to_string(page).expect("a page");
    for part in [
        "Cases that only the first has",
        "two",
        "three",
        "What changed most",
        "role=\"img\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let lines = std::fs::read_to_string(folder.path().join("out/comparison.jsonl")).expect("rows");
    assert_eq!(lines.lines().count(), comparison.pairs.len());

    let mut other = data();
    other.rows.iter_mut().for_each(|row| row.case.push('x'));
    other.write(&after).expect("written");
    let error = Comparison::read(&before, &after).expect_err("nothing in common");
    assert!(error.to_string().contains("no case and metric"), "{error}");
}

#[test]
fn counts_are_the_same_within_a_share_or_one_operation() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = |name: &str, hits: f64| {
        let mut data = data();
        let row = &mut data.rows[0];
        (row.metric, row.unit, row.measured) = ("hits".into(), "count".into(), hits);
        let folder = folder.path().join(name);
        data.write(&folder).expect("written");
        folder
    };
    for (first, second, share, differing) in [
        (1000.0, 1000.0, 0.0, 0),
        (1000.0, 1001.0, 0.0, 1),
        (1000.0, 1010.0, 0.01, 0),
        (1012.0, 1000.0, 0.01, 1),
        (10.0, 11.0, 0.01, 0),
    ] {
        let both = Comparison::read(&results("first", first), &results("second", second));
        let found = both.expect("both are there").counts_that_differ(share);
        assert_eq!(found.expect("counts").len(), differing, "{first} {second}");
    }
}

#[test]
fn distributions_have_quantiles_and_are_drawn_as_boxes() {
    let values: Vec<f64> = (1..=1000).map(f64::from).collect();
    let distribution = Distribution::of_values(&values);
    assert_eq!(distribution.at(0.0), Some(1.0));
    assert_eq!(distribution.at(0.25), Some(250.0));
    assert_eq!(distribution.at(0.99), Some(990.0));
    assert_eq!(distribution.at(1.0), Some(1000.0));
    assert!(distribution.points().is_sorted_by(|a, b| a.1 <= b.1));
    assert!(Distribution::of_values(&[f64::NAN]).is_empty());
    let mut data = data();
    data.panels.push(Panel {
        kind: crate::experiment::PanelKind::Box,
        series: "get_latency".into(),
        group: "a group".into(),
        lines: vec![PanelLine {
            run: 1,
            name: "a very long name of a case that has to be cut".into(),
        }],
    });
    let figures = figures::all(&data);
    let names: Vec<&str> = figures.iter().map(|figure| figure.name()).collect();
    assert!(names.contains(&"box-get-latency-a-group"), "{names:?}");
    let boxes = figures
        .iter()
        .find(|f| f.name() == "box-get-latency-a-group")
        .expect("there");
    assert!(boxes.svg(true).contains("…") && boxes.svg(true).contains("p99: "));
    // With panels, the charts of all cases are folded. No fold is empty.
    let page = data.html();
    assert!(page.contains("Charts of all cases"), "{page}");
    assert!(!page.contains("Over operations"), "{page}");
}

#[test]
fn a_table_for_a_terminal_is_aligned_and_counts_omitted_rows() {
    let mut table = table::Table::new("t", "A title", &["case", "measured", "verdict"]);
    for (case, measured, verdict) in [
        ("a", "1.5 µs", "holds"),
        ("long", "−12 µs", ""),
        ("c", "–", "x"),
    ] {
        let row = [case, measured, verdict].map(str::to_owned);
        table.rows.push(row.to_vec());
    }
    assert_eq!(
        table.plain(2),
        "A title\n  case  measured  verdict\n  a       1.5 µs  holds\n  long    −12 µs\n  and 1 more, in the report\n"
    );
}
