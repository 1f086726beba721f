//! The cache of volumes as plain LRU and SIEVE, against references and the
//! manifest.
//!
//! By design, a request of the cache hits only if all of its blocks do, and a miss
//! of one block lets the next one evict what the request has just touched. The
//! manifest counts page accesses. So every access is a request of its own here, of
//! one block. A cache of one size and one shard has a single order of replacement.

use std::io::{Write as _, stderr};

use floe_core::volume::{
    ByteRange, Cache, Config, Operation, Plan, Replacement, Request, VolumeId,
};
use floe_core::{ByteSize, Tick};
use floe_eval::trace::{BlockTrace, SECTOR_BYTES, TraceFormat};

use super::shared::traces;
use super::{PAGE_BYTES, Row, TRACES, assert_near, column, open, reference};

/// Sectors count as pages in lists of sectors.
const SECTOR_LISTS: [&str; 3] = [
    "blk_arc/OLTP.lis.zst",
    "blk_arc/P3.lis.zst",
    "blk_arc/P6.lis.zst",
];
/// The blocks of this trace have MiBs: a row accesses one page, its block.
const TECTONIC: &str = "blk_meta_tectonic/block_traces_1.csv.zst";

/// The manifest has two decimals of a percentage.
const ROUNDING: f64 = 0.0051;

/// Volume and page of each access, as the manifest counts them.
type Accesses = Vec<(u32, u64)>;

fn pages(trace: BlockTrace, page_bytes: u64) -> Accesses {
    let mut accesses = Vec::new();
    for request in trace {
        let request = request.expect("a good request");
        let first = request.offset / page_bytes;
        let end = (request.offset + request.length).div_ceil(page_bytes);
        accesses.extend((first..end).map(|page| (request.volume, page)));
    }
    accesses
}

fn rows(mut trace: BlockTrace) -> Accesses {
    let (mut accesses, mut row) = (Vec::new(), 0);
    while let Some(request) = trace.next() {
        if trace.records() != row {
            row = trace.records();
            accesses.push((request.expect("a good row").volume, 0));
        }
    }
    accesses
}

/// Hits of the cache of volumes with room for `pages_max` pages.
fn hits(replacement: Replacement, pages_max: u64, accesses: &[(u32, u64)]) -> u64 {
    let (page, capacity) = (ByteSize(PAGE_BYTES), ByteSize(pages_max * PAGE_BYTES));
    let config = Config {
        block_replacement: replacement,
        ..Config::fixed(capacity, page).expect("4 KiB is a block size")
    };
    let plan = Plan::new(&config).expect("room for a block");
    assert_eq!(plan.capacity_bytes(), pages_max * PAGE_BYTES);
    let (mut cache, mut steps) = (Cache::new(&plan), Vec::new());
    for &(volume, page) in accesses {
        let request = Request {
            volume: VolumeId(volume.try_into().expect("few volumes")),
            operation: Operation::Read,
            range: ByteRange::at(page * PAGE_BYTES, PAGE_BYTES),
        };
        steps.clear();
        let outcome = cache.request(&request, Tick::ZERO, &mut steps);
        assert_eq!(outcome.bytes, PAGE_BYTES, "the cache can address the page");
    }
    cache.statistics().reads.hits
}

/// Checks one order against its reference. Returns the hits in percent with 1 and
/// 10 % of the distinct pages.
fn checked(
    name: &str,
    replacement: Replacement,
    reference: fn(usize, &[usize]) -> u64,
    accesses: &[(u32, u64)],
    unique: u64,
) -> [f64; 2] {
    let numbered = reference::numbered(accesses);
    [100, 10].map(|share| {
        let pages = (unique / share).max(1);
        let found = hits(replacement, pages, accesses);
        let expected = reference(pages as usize, &numbered);
        assert_eq!(found, expected, "{name}: {replacement}, {pages} pages");
        100.0 * found as f64 / accesses.len() as f64
    })
}

/// LRU and SIEVE over blocks of 4 KiB, with 1 and 10 % of the distinct ones, on
/// every shared block trace.
#[test]
fn the_cache_of_volumes_equals_the_manifest_and_references() {
    let Some(folder) = traces() else { return };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("the manifest");
    let check = |name: &str, accesses: &[(u32, u64)], tolerance: f64| {
        let row = Row::find(&manifest, name);
        let unique = row.numbers(column::UNIQUE)[0] as u64;
        let of = |replacement, reference| checked(name, replacement, reference, accesses, unique);
        let lru = std::thread::scope(|scope| {
            scope.spawn(|| of(Replacement::Sieve, reference::sieve_hits));
            of(Replacement::Lru, reference::lru_hits)
        });
        for (percent, expected) in lru.into_iter().zip(row.numbers(column::LRU_HIT_PERCENT)) {
            assert_near(name, "LRU's hit ratio", percent, expected, tolerance);
        }
    };
    let present = |name: &str| {
        let is_present = folder.join(name).is_file();
        if !is_present {
            let _ = writeln!(stderr(), "skipped: no {name}");
        }
        is_present
    };
    let of_requests = TRACES.map(|(name, format)| (name, format, PAGE_BYTES));
    let of_sectors = SECTOR_LISTS.map(|name| (name, TraceFormat::Arc, SECTOR_BYTES));
    for (name, format, page_bytes) in of_requests.into_iter().chain(of_sectors) {
        if present(name) {
            let accesses = pages(open(&folder, name, format), page_bytes);
            check(name, &accesses, ROUNDING);
        }
    }
    if present(TECTONIC) {
        let accesses = rows(open(&folder, TECTONIC, TraceFormat::MetaTectonic));
        // The manifest counts the header instead of a row: one hit of 999 differs.
        check(TECTONIC, &accesses, ROUNDING + 100.0 / 999.0);
    }
}
