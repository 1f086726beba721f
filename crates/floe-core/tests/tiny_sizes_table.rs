//! The table of sizes in `docs/tiny-results.md` is what the sizing chooses and the plan costs.

use floe_core::ByteSize;
use floe_core::tiny::nemo::{NemoConfig, NemoPlan, Sizing};
use floe_core::tiny::{Flash, PAGE_BYTES};

/// Flash in TB, cores, and memory for the engine in GiB.
const MACHINES: [(f64, u32, u64); 8] = [
    (0.1, 4, 2),
    (0.1, 4, 4),
    (1.0, 16, 8),
    (1.0, 16, 16),
    (2.0, 16, 32),
    (8.0, 32, 64),
    (8.0, 32, 128),
    (30.0, 64, 256),
];

fn row((terabytes, cores, memory): (f64, u32, u64)) -> String {
    let available = ByteSize((terabytes * 1e12) as u64);
    let sizing = Sizing {
        config: NemoConfig::default(),
        cores,
        given_instances: None,
        memory: ByteSize::gib(memory),
        drives: 1,
    };
    let zone = sizing.zone_size(available);
    let all = Flash {
        // Two zones are the metadata's.
        zones: (available.bytes() / zone.bytes()) as u32 - 2,
        zone_pages: (zone.bytes() / PAGE_BYTES as u64) as u32,
        in_place: true,
    };
    let instances = sizing.instances(&all);
    let flash = Flash {
        zones: all.zones / instances,
        ..all
    };
    let config = sizing.fitted(&flash, instances);
    let costs = NemoPlan::new(&config, &flash).expect("a plan").costs();
    let gib = |bytes: u64| f64::from(instances) * bytes as f64 / f64::from(1 << 30);
    let of_all = gib(costs.memory_bytes());
    format!(
        "| {terabytes} TB | {cores} | {memory} GiB | {instances} × {} of {} | {of_all:.1} GiB | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |",
        flash.zones,
        zone,
        gib(costs.buffer_bytes),
        gib(costs.filter_bytes),
        of_all / terabytes,
        costs.reads_per_hit,
        costs.reads_per_miss,
    )
}

#[test]
fn the_table_of_sizes_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tiny-results.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let rows: Vec<_> = MACHINES.into_iter().map(row).collect();
    let table = rows.join("\n");
    assert!(page.contains(&table), "docs/tiny-results.md needs\n{table}");
}
