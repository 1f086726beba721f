//! Examples of the AdaCache paper.

use super::model::Model;
use crate::volume::{ByteRange, Cache, Config, Operation, Plan, Request, Step, VolumeId};
use crate::{ByteSize, Tick};

fn kib(start: u64, end: u64) -> ByteRange {
    ByteRange {
        start: start << 10,
        end: end << 10,
    }
}

fn adacache(mib: u64) -> Plan {
    Plan::new(&Config::adacache(ByteSize::mib(mib))).unwrap()
}

/// Blocks that a request brings in.
fn mapped(cache: &mut Cache, operation: Operation, range: ByteRange) -> Vec<ByteRange> {
    let mut steps = Vec::new();
    let volume = VolumeId(0);
    let request = Request {
        volume,
        operation,
        range,
    };
    cache.request(&request, Tick::ZERO, &mut steps);
    let mapped = steps.iter().filter_map(|step| match step {
        Step::Map(piece) => Some(piece.extent.range),
        _ => None,
    });
    mapped.collect()
}

/// Figure 5: a request at 48 KiB of 184 KiB, of which 128 to 256 KiB are cached.
#[test]
fn a_request_that_is_cached_in_part_gets_two_blocks() {
    let mut cache = Cache::new(&adacache(4));
    assert_eq!(
        mapped(&mut cache, Operation::Read, kib(128, 256)),
        [kib(128, 256)]
    );
    let request = ByteRange::at(48 << 10, 184 << 10);
    assert_eq!(
        mapped(&mut cache, Operation::Read, request),
        [kib(32, 64), kib(64, 128)]
    );
    let traffic = cache.statistics().traffic;
    assert_eq!(traffic.backing_reads.bytes, (128 + 96) << 10);
    assert_eq!(traffic.backing_reads.operations, 2);
    assert_eq!(traffic.cache_hits.bytes, (232 - 128) << 10);
}

/// The printed algorithms take 64 KiB for 32 KiB that end aligned, and smaller
/// blocks after each one.
#[test]
fn the_printed_algorithms_are_mended() {
    let mut cache = Cache::new(&adacache(4));
    for (read, blocks) in [
        (kib(0, 32), &[kib(0, 32)][..]),
        (kib(512, 1024), &[kib(512, 768), kib(768, 1024)]),
        // A hit that reaches past the end of the request ends the search.
        (kib(520, 521), &[]),
    ] {
        assert_eq!(mapped(&mut cache, Operation::Read, read), blocks);
    }
}

/// Four groups of 256 KiB. The tail block has the wanted size: it is replaced in
/// its place. Then it has another: the tail group goes.
#[test]
fn a_full_cache_replaces_a_block_of_the_size_or_a_group() {
    let mut model = Model::new(&adacache(1), 1, 16 << 20);
    // Group 0: eight blocks of 32 KiB; groups 1 to 3: one block each.
    for block in 0..8 {
        model.request(0, Operation::Read, kib(1024 * block, 1024 * block + 32));
    }
    for block in 8..11 {
        model.request(0, Operation::Read, kib(1024 * block, 1024 * block + 256));
    }
    let turnover = |model: &Model| {
        let turnover = model.cache.statistics().turnover;
        (turnover.replaced, turnover.groups_evicted, turnover.evicted)
    };
    assert_eq!(turnover(&model), (0, 0, 0));
    model.request(0, Operation::Read, kib(12288, 12288 + 32));
    assert_eq!(turnover(&model), (1, 0, 0));
    let missed = model.request(0, Operation::Read, kib(0, 32));
    assert_eq!(missed.hit_bytes, 0, "the oldest block was replaced");
    // The replacements made the group recent, so the oldest group is group 1;
    // the tail block has 32 KiB.
    model.request(0, Operation::Read, kib(13312, 13312 + 256));
    assert_eq!(turnover(&model), (2, 1, 1));
    let missed = model.request(0, Operation::Read, kib(8192, 8192 + 32));
    assert_eq!(missed.hit_bytes, 0, "the tail group was evicted");
    model.finish();
}
