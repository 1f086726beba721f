use std::collections::HashSet;
use std::io::Write as _;

use floe_core::ByteSize;
use floe_core::volume::{Replacement, VolumeId};
use proptest::prelude::*;

use super::*;
use crate::trace::{BlockOp, BlockRequest, TraceFormat, TraceOptions};

const KIB: u64 = 1 << 10;
const SECOND_NS: u64 = 1_000_000_000;

fn request(second: u64, op: BlockOp, offset: u64, length: u64) -> BlockRequest {
    BlockRequest {
        time_ns: Some(second * SECOND_NS),
        volume: 0,
        op,
        offset,
        length,
    }
}

fn simulation(text: &str) -> Simulation {
    let case: VolumeCase = text.parse().expect(text);
    Simulation::new(text, &case.plan(0).expect(text))
}

/// Serves requests of volume 0.
fn serve(text: &str, requests: impl IntoIterator<Item = BlockRequest>) -> VolumeResult {
    let mut simulation = simulation(text);
    for request in requests {
        simulation.serve(&request, VolumeId(0));
    }
    simulation.finish()
}

#[test]
fn settings_are_read_from_one_line() {
    let case: VolumeCase = "sizes=4KiB+64KiB, capacity=2.5%,mode=write-around,promotion=nhit-4,\
        cleaning=acp,cut-off=always,fill=sector,level=group,replacement=sieve,shards=4"
        .parse()
        .expect("all settings are right");
    assert_eq!(case.capacity, Capacity::WorkingSet(0.025));
    let plan = case.plan(1 << 30).expect("it works");
    let sizes: Vec<_> = plan.config().sizes.iter().collect();
    assert_eq!(sizes, [ByteSize::kib(4), ByteSize::kib(64)]);
    assert_eq!(plan.config().promotion, "nhit-4".parse().expect("a policy"));
    assert!(plan.capacity_bytes() <= (1 << 30) / 40);
    let both: VolumeCase = "replacement=clock/lru".parse().expect("two orders");
    assert_eq!(both.config.block_replacement, Replacement::Clock);
    assert_eq!(both.config.group_replacement, Replacement::Lru);
    let paper: VolumeCase = "sizes=32KiB,preset=adacache".parse().expect("a preset");
    assert_eq!(paper.config.block_replacement, Replacement::Lru);
    assert_eq!(paper.config.sizes.count(), 1);
    let bytes: VolumeCase = "capacity=1GiB".parse().expect("a size");
    assert_eq!(bytes.capacity, Capacity::Bytes(ByteSize::gib(1)));
}

#[test]
fn caches_of_all_block_sizes_have_equal_room() {
    let capacity = |text: &str, working_set: u64| {
        let case: VolumeCase = text.parse().expect(text);
        case.plan(working_set).expect(text).capacity_bytes()
    };
    for sizes in [
        "4KiB",
        "32KiB",
        "64KiB",
        "128KiB",
        "256KiB",
        "32KiB..256KiB",
    ] {
        let text = format!("sizes={sizes},capacity=10%");
        assert_eq!(capacity(&text, 29_300 * KIB), 2816 * KIB, "{sizes}");
    }
    // A share that is smaller than the unit.
    assert_eq!(capacity("sizes=4KiB,capacity=10%", 130 * KIB), 12 * KIB);
}

#[test]
fn errors_of_invalid_settings_name_the_valid_ones() {
    for (text, part) in [
        ("size=4KiB", "sizes=32KiB..256KiB"),
        ("sizes", "has no value"),
        ("sizes=3KiB", "the nearest is 4KiB"),
        ("capacity=0%", "between 0% and 100%"),
        ("promotion=nhit-1", "nhit-N (N from 2 to 1000)"),
        ("mode=write", "write-through"),
        ("preset=paper", "neither floe nor adacache"),
    ] {
        let error = text.parse::<VolumeCase>().expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn the_working_set_equals_a_set_of_blocks(
        requests in prop::collection::vec((0_u64..4 << 20, 0_u64..1 << 20, 0_u32..2), 0..60),
    ) {
        let (mut working_set, mut blocks) = (WorkingSet::default(), HashSet::new());
        for (offset, length, volume) in requests {
            let op = [BlockOp::Read, BlockOp::Trim][(offset % 5 == 0) as usize];
            working_set.add(&BlockRequest { volume, ..request(0, op, offset, length) });
            if op == BlockOp::Read && length > 0 {
                blocks.extend((offset / 4096..=(offset + length - 1) / 4096).map(|b| (volume, b)));
            }
        }
        prop_assert_eq!(working_set.bytes(), blocks.len() as u64 * 4096);
    }
}

#[test]
fn a_large_request_is_served_whole() {
    let twice = [0, 1].map(|second| request(second, BlockOp::Read, 4096, 1024 * KIB));
    let result = serve("sizes=4KiB,capacity=4MiB", twice);
    let reads = result.statistics.reads;
    assert_eq!((reads.requests, reads.hits), (2, 1));
    assert_eq!(reads.hit_bytes, 1024 * KIB);
    assert_eq!(result.block_sizes(), [(ByteSize::kib(4), 256, 256)]);
    assert_eq!(
        result.io_bytes().map(|(_, bytes)| bytes),
        [1024 * KIB, 1024 * KIB, 1024 * KIB, 0]
    );
}

#[test]
fn a_request_within_a_sector_is_widened() {
    let result = serve(
        "sizes=4KiB,fill=sector,capacity=4MiB",
        [request(0, BlockOp::Read, 700, 5)],
    );
    assert_eq!(result.statistics.reads.bytes, 512);
}

#[test]
fn the_time_of_the_trace_drives_cleaning() {
    let write = request(5, BlockOp::Write, 0, 64 * KIB);
    for (cleaning, second, dirty_bytes) in [
        ("none", 10_000, 64 * KIB),
        ("alru", 100, 64 * KIB),
        ("alru", 300, 0),
        ("lazy", 10, 0),
        ("acp", 7, 0),
    ] {
        let text = format!("sizes=32KiB,capacity=4MiB,cleaning={cleaning}");
        let later = request(second, BlockOp::Read, 1 << 30, 512);
        let result = serve(&text, [write, later]);
        assert_eq!(
            result.occupancy.dirty_bytes, dirty_bytes,
            "{cleaning} {second}"
        );
        assert_eq!(
            result.io_bytes()[3].1,
            64 * KIB - dirty_bytes,
            "{cleaning} {second}"
        );
    }
}

#[test]
fn a_gap_of_forty_years_takes_no_time() {
    for cleaning in ["lazy", "alru", "acp"] {
        let text = format!("sizes=4KiB,capacity=4MiB,cleaning={cleaning}");
        let gap = [0, 1_266_874_889].map(|second| request(second, BlockOp::Write, 0, 4096));
        assert_eq!(
            serve(&text, gap).statistics.turnover.cleaned,
            1,
            "{cleaning}"
        );
    }
}

#[test]
fn a_trace_whose_time_runs_backwards_stands_still() {
    let requests = [9, 3, 7].map(|second| request(second, BlockOp::Write, second << 20, 4096));
    let result = serve("sizes=4KiB,capacity=4MiB,cleaning=acp", requests);
    assert_eq!(result.samples.last().map(|sample| sample.time_s), Some(0.0));
}

#[test]
fn samples_stay_few_and_in_order() {
    let requests = (0..200_000).map(|at| request(at / 100, BlockOp::Read, at % 5000 * 4096, 4096));
    let result = serve("sizes=4KiB,capacity=1MiB", requests);
    assert!((100..=257).contains(&result.samples.len()));
    assert!(result.samples.is_sorted_by_key(|sample| sample.requests));
    let last = result.samples.last().expect("samples");
    assert_eq!(last.requests, 200_000);
    assert_eq!(last.reads, result.statistics.reads);
}

/// A file of MSR Cambridge's format: `count` random writes and reads of 4 KiB.
fn msr_trace(count: u64) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new()
        .suffix(".csv")
        .tempfile()
        .expect("a file");
    for at in 0..count {
        let block = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        let op = ["Read", "Write"][(at % 2) as usize];
        let (time, offset) = (128_166_391_024_154_329 + at * 10_000, block * 65_536);
        writeln!(file, "{time},host,0,{op},{offset},4096,100").expect("it can be written");
    }
    file
}

/// Small scattered requests: large blocks move much more, adaptive ones as little as
/// small ones.
#[test]
fn one_pass_compares_several_caches() {
    let file = msr_trace(20_000);
    let cases = ["sizes=32KiB..256KiB", "sizes=32KiB", "sizes=256KiB"];
    let result = replay_volumes(&VolumeReplayOptions {
        trace: file.path().to_owned(),
        options: TraceOptions {
            format: Some(TraceFormat::Msr),
            skip_bad: false,
        },
        cases: cases.map(|text| text.parse().expect(text)).to_vec(),
        requests_max: Some(15_000),
    })
    .expect("the trace is right");
    assert_eq!((result.requests, result.volumes), (15_000, 1));
    assert!(result.span_s > 14.0 && result.span_s < 16.0);
    let moved: Vec<u64> = result
        .caches
        .iter()
        .map(|cache| cache.io_bytes().iter().map(|(_, bytes)| bytes).sum())
        .collect();
    assert!(moved[0] as f64 <= moved[1] as f64 * 1.05, "{moved:?}");
    assert!((moved[0] as f64) < moved[2] as f64 * 0.4, "{moved:?}");
    serde_json::to_string(&result).expect("it has a JSON form");
}
