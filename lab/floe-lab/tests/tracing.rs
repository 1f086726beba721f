//! `floe trace`.

mod common;

use std::fs;
use std::path::Path;

use common::run;

const TRACE: &str = "fio version 3 iolog\n\
    10 a read 0 8192\n20 a read 8192 4096\n30 b write 0 4096\n\
    40 a read 0 4096\n50 a sync 0 0\n60 b trim 0 4096\n";

fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let out = run(folder, arguments).expect(0, &[]).out;
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn trace_stat_prints_figures_and_writes_a_report() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.iolog"), TRACE).unwrap();
    let stat = ["trace", "stat", "a.iolog"];
    let expected = [
        "6 requests, format iolog, blocks of 4KiB",
        "3 reads (75.0 % of reads and writes)",
        "1 trims, 1 flushes",
        "16KiB: 4 blocks in 5 accesses",
    ];
    run(folder.path(), &stat).expect(0, &expected);
    let with_page = [&stat[..], &["--out", "page"]].concat();
    run(folder.path(), &with_page).expect(0, &["report: page/report.html"]);
    let page = fs::read_to_string(folder.path().join("page/report.html")).unwrap();
    assert!(page.contains("Sizes of requests") && page.contains("Popularity"));
    let found = json(folder.path(), &[&stat[..], &["--json"]].concat());
    assert_eq!(found["accesses"]["unique"], 4);
    assert_eq!(found["read_sizes"]["max_bytes"], 8192);
}

#[test]
fn conversions_keep_requests_and_report_losses() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.iolog"), TRACE).unwrap();
    let there = ["trace", "convert", "a.iolog", "a.oracleGeneral.zst"];
    let expected = [
        "6 requests of iolog became 5 records of oracle-general",
        "lost:",
        "of 1 requests: writes, which are read as reads",
    ];
    run(folder.path(), &there).expect(0, &expected);
    let back = [
        "trace",
        "convert",
        "a.oracleGeneral.zst",
        "b.csv",
        "--to",
        "alibaba",
    ];
    run(folder.path(), &back).expect(0, &["became 5 records of alibaba"]);
    let lines = fs::read_to_string(folder.path().join("b.csv")).unwrap();
    assert!(
        lines.starts_with("0,R,0,4096,0\n0,R,4096,4096,0\n"),
        "{lines}"
    );
    let again = ["trace", "convert", "b.csv", "b.csv"];
    run(folder.path(), &again).expect(2, &["this is the trace itself", "name another file"]);
}

#[test]
fn trace_mrc_prints_a_miss_ratio_curve() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.iolog"), TRACE).unwrap();
    let mrc = ["trace", "mrc", "a.iolog", "--compare", "--points", "4"];
    run(folder.path(), &mrc).expect(
        0,
        &[
            "5 accesses of 4 blocks of 4KiB",
            "mean absolute error 0.000",
        ],
    );
    let stand_in = ["trace", "mrc", "standin:vd740,requests=100"];
    run(folder.path(), &stand_in).expect(0, &["format synthetic stand-in"]);
    let found = json(
        folder.path(),
        &["--json", "trace", "mrc", "a.iolog", "--exact"],
    );
    let last = found["points"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["count"], &last["miss_ratio"]),
        (&4.into(), &0.8.into())
    );
    let both = ["trace", "mrc", "a.iolog", "--exact", "--rate", "0.1"];
    run(folder.path(), &both).expect(2, &["cannot be used with"]);
}

#[test]
fn an_error_asks_for_the_unit_that_the_content_does_not_determine() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.trace"), "938513000 4 8 16 0\n").unwrap();
    let stat = ["trace", "stat", "a.trace"];
    run(folder.path(), &stat).expect(2, &["disksim", "mqsim", "--format"]);
    run(folder.path(), &[&stat[..], &["--format", "mqsim"]].concat()).expect(0, &["1 requests"]);
}
