use std::time::Duration;

use super::*;
use crate::metrics::Histogram;

fn samples() -> Samples {
    let mut samples = Samples::default();
    samples.counter("floe_reads", "Reads", &[("result", "hit")], 3);
    samples.counter("floe_reads", "Reads", &[("result", "miss")], 1);
    samples.gauge("floe_open", "Open", &[], 2.5);
    let histogram = Histogram::default();
    histogram.record(Duration::from_micros(150));
    histogram.record(Duration::from_secs(3600));
    samples.histogram(
        "floe_wait_seconds",
        "Waits",
        &[("kind", "a\"b")],
        histogram.snapshot(),
    );
    samples
}

#[test]
fn prometheus_reads_the_text() {
    let text = samples().into_text().unwrap();
    for line in [
        "# TYPE floe_reads counter",
        "floe_reads_total{result=\"hit\"} 3",
        "floe_reads_total{result=\"miss\"} 1",
        "# TYPE floe_open gauge",
        "floe_open 2.5",
        "floe_wait_seconds_count{kind=\"a\\\"b\"} 2",
        "floe_wait_seconds_bucket{le=\"0.0001\",kind=\"a\\\"b\"} 0",
        "floe_wait_seconds_bucket{le=\"0.0002\",kind=\"a\\\"b\"} 1",
        "floe_wait_seconds_bucket{le=\"60.0\",kind=\"a\\\"b\"} 1",
        "floe_wait_seconds_bucket{le=\"+Inf\",kind=\"a\\\"b\"} 2",
        "# EOF",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("# TYPE floe_reads counter").count(), 1);
}

#[test]
fn json_has_the_same_samples() {
    let json = samples().to_json();
    assert_eq!(json["floe_reads_total"][0]["value"], 3);
    assert_eq!(json["floe_reads_total"][1]["labels"]["result"], "miss");
    assert_eq!(json["floe_wait_seconds"][0]["count"], 2);
}
