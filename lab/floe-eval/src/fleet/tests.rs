//! A small fleet.

use floe_device::virtual_time;

use super::{FleetCase, drive_fleet};
use crate::results::Figure;

const SMALL: &str = r#"
    nodes = 4
    asked = 2
    objects-per-node = 200
    object-size = "4KiB"
    clients-per-node = 2
    warm-up-per-node = 1500
    requests-per-node = 1500
    device = { kind = "sim", size = "8MiB", zone_size = "512KiB" }
    chunk = { size = "64KiB", write_buffer = "1MiB" }
    workload = { kind = "zipf", skew = 0.8 }
    origin-latency = { rule = "constant", ms = 20.0 }
"#;

fn run(more: &str, seed: u64) -> Vec<Figure> {
    let spec: FleetCase = toml::from_str(&format!("{SMALL}{more}")).expect("a fleet");
    virtual_time::run(seed, |clock| async move {
        drive_fleet(&spec, seed, clock).await.expect("a run")
    })
}

fn of(figures: &[Figure], metric: &str) -> f64 {
    let figure = figures.iter().find(|figure| figure.metric == metric);
    figure
        .unwrap_or_else(|| panic!("no {metric} in {figures:?}"))
        .value
}

#[test]
fn a_node_that_joins_warms_from_its_peers() {
    let alone = run("", 1);
    let figures = run("", 1);
    assert_eq!(figures, alone, "the same seed gives the same figures");
    let alone = {
        let text = SMALL.replace("asked = 2", "asked = 0");
        let spec: FleetCase = toml::from_str(&text).expect("a fleet");
        virtual_time::run(1, |clock| async move {
            drive_fleet(&spec, 1, clock).await.expect("a run")
        })
    };
    assert!(of(&figures, "hit_ratio") > 0.9);
    let moved = of(&figures, "join_moved");
    assert!((0.1..0.5).contains(&moved), "{moved}");
    let (with, without) = (
        of(&figures, "warm_origin_reads"),
        of(&alone, "warm_origin_reads"),
    );
    assert!(with <= 0.1 * without, "{with} of {without}");
    // Each of the dead node's objects misses once.
    let misses = of(&figures, "lost_misses_per_object");
    assert!((0.9..=1.0).contains(&misses), "{misses}");
}

#[test]
fn a_bad_network_costs_time_and_no_wrong_byte() {
    let figures = run("network = { loss = 0.2, cut = 0.3, timeout-ms = 10 }", 2);
    assert!(of(&figures, "hit_ratio") > 0.9);
    assert!(of(&figures, "warm_origin_reads") > 0.0);
}

#[test]
fn wrong_settings_are_named() {
    let spec: FleetCase = toml::from_str(&SMALL.replace("nodes = 4", "nodes = 1")).expect("toml");
    let error = virtual_time::run(1, |clock| async move {
        drive_fleet(&spec, 1, clock).await.expect_err("one node")
    });
    assert!(error.to_string().contains("fleet.nodes"), "{error}");
}
