//! The distribution of request sizes in a report.

use super::*;
use crate::report::read_data;

/// Requests of 4, 4, 8 and 64 KiB, two of them writes, in Alibaba's format.
const TRACE: &str = "0,R,0,4096,1\n0,W,0,4096,2\n0,R,0,8192,3\n0,W,0,65536,4\n";

const EXPERIMENT: &str = r#"
name = "sizes"
title = "Sizes of requests"

[volume]
trace = { path = "sizes.csv", format = "alibaba" }
cache = "capacity=10%"

[[vary]]
key = "volume.settings"
label = "cache"
names = ["small", "large"]
values = ["sizes=4KiB", "sizes=32KiB"]

[[curves]]
title = "Figure 3"
x = "request_size"
y-label = "Share of the requests"
only = { cache = ["small"] }
"#;

#[test]
fn a_curve_has_the_share_of_the_requests_up_to_each_size() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("sizes.csv"), TRACE).expect("write");
    let path = folder.path().join("sizes.toml");
    std::fs::write(&path, EXPERIMENT).expect("write");
    let results = run(&options(&path, folder.path())).expect("it runs");
    let data = read_data(&results).expect("data");
    let [curve] = &data.curves[..] else {
        panic!("one curve: {:?}", data.curves);
    };
    let [line] = &curve.lines[..] else {
        panic!("one case is selected: {:?}", curve.lines);
    };
    assert_eq!(
        line.points,
        [
            (4096.0, 0.0),
            (4096.0, 0.5),
            (8192.0, 0.5),
            (8192.0, 0.75),
            (65536.0, 0.75),
            (65536.0, 1.0),
        ]
    );
    let ticks: Vec<&str> = curve.x_ticks.iter().map(|(_, name)| &**name).collect();
    assert_eq!(ticks, ["4KiB", "32KiB", "256KiB"]);
    let svg = std::fs::read_to_string(results.join("figures/curve-1.svg")).expect("a figure");
    assert!(svg.contains("Figure 3") && svg.contains("32KiB"), "{svg}");
}

#[test]
fn sizes_without_a_block_trace_or_beside_metrics_are_rejected() {
    let said = rejected(&EXPERIMENT.replace(
        "x = \"request_size\"",
        "x = \"request_size\"\ny = [\"hit_ratio\"]",
    ));
    assert!(said.contains("has no `y`"), "{said}");
    assert_rejected(
        "x = \"origin ms\"\ny = [\"miss_latency_p50\"]",
        "x = \"request_size\"",
        "is of [volume]",
    );
    assert_rejected("y = [\"miss_latency_p50\"]\n", "", "shows no metric");
}
