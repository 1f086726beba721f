//! Block traces as whole requests, against MANIFEST.md of the public traces.

mod core;
mod reference;
#[path = "../shared/mod.rs"]
mod shared;

use std::collections::HashSet;
use std::path::Path;

use floe_core::policy::object::{Access, ObjectPolicy, ObjectPolicyKind};
use floe_eval::convert::{ConvertOptions, Target, Unit, convert};
use floe_eval::mrc::{Exact, FixedRate, FixedSize, StackDistances, measure};
use floe_eval::replay::policy::CacheUnit;
use floe_eval::stat::{StatOptions, stat};
use floe_eval::trace::{BlockOp, BlockTrace, SECTOR_BYTES, Trace, TraceFormat, TraceOptions};
use shared::traces;

const PAGE_BYTES: u64 = 4096;

/// The traces of requests with lengths. Formats whose content does not tell
/// their unit of time are given, the others recognised.
const TRACES: [(&str, TraceFormat); 12] = [
    (
        "blk_cloudphysics/cloudPhysicsIO.vscsi.zst",
        TraceFormat::VscsiV1,
    ),
    (
        "blk_tencent_cbs/cloud_storage-sample.zst",
        TraceFormat::TencentCbs,
    ),
    ("blk_tpcc/tpcc-small.trace.zst", TraceFormat::MqSim),
    ("blk_msr_prxy0_reads/PRXY_0_read.zst", TraceFormat::DiskSim),
    (
        "blk_umass_financial1/Financial1-snippet.spc.zst",
        TraceFormat::Spc,
    ),
    (
        "blk_fiu_cheetah/cheetah.cs.fiu.edu-110108-113008.1_sample_10000_lines.zst",
        TraceFormat::Fiu,
    ),
    (
        "blk_blkparse_ycsb/blkparseout_ext4.txt.zst",
        TraceFormat::BlkparseDispatched,
    ),
    (
        "blk_blkparse_ycsb/blkparseout_btrfs.txt.zst",
        TraceFormat::BlkparseDispatched,
    ),
    (
        "blk_blkparse_ssd259/ssd259_sample.txt.zst",
        TraceFormat::BlkparseDispatched,
    ),
    (
        "blk_disksim/ssd-postmark-aligned2.trace.zst",
        TraceFormat::DiskSim,
    ),
    ("blk_disksim/pcmark.zst", TraceFormat::DiskSim),
    ("blk_hp_ajw/ajw.1week.srt.zst", TraceFormat::HpSrt),
];

/// The numbers of one row of the manifest.
struct Row(Vec<String>);

impl Row {
    fn find(manifest: &str, name: &str) -> Self {
        let start = format!("|{name}|");
        let row = manifest.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("the manifest has no row of {name}"));
        Row(row
            .split('|')
            .skip(1)
            .map(|cell| cell.replace(',', ""))
            .collect())
    }

    /// The numbers of a cell, in order.
    fn numbers(&self, column: usize) -> Vec<f64> {
        self.0[column]
            .split(|c: char| !(c.is_ascii_digit() || c == '.'))
            .filter_map(|number| number.parse().ok())
            .collect()
    }
}

/// Columns of the manifest, from 0.
mod column {
    pub(super) const REQUESTS: usize = 1;
    pub(super) const UNIQUE: usize = 2;
    pub(super) const READ_WRITE_PERCENT: usize = 3;
    pub(super) const MEAN_BYTES: usize = 4;
    pub(super) const SIZES: usize = 5;
    pub(super) const WORKING_SET_MIB: usize = 6;
    pub(super) const ZIPF: usize = 7;
    pub(super) const REUSE_PERCENT: usize = 8;
    pub(super) const LRU_HIT_PERCENT: usize = 9;
    pub(super) const SPAN_S: usize = 10;
}

fn options(name: &str, format: TraceFormat) -> TraceOptions {
    TraceOptions {
        // Not recognised, and recognised as another kind of event.
        format: (name.contains("tpcc") || name.contains("ssd259")).then_some(format),
        skip_bad: false,
    }
}

fn open(folder: &Path, name: &str, format: TraceFormat) -> BlockTrace {
    let trace = BlockTrace::open(&folder.join(name), options(name, format))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(trace.format(), format, "{name}");
    trace
}

#[derive(Default)]
struct Found {
    requests: u64,
    reads: u64,
    sizes: Vec<u64>,
    times_ns: Vec<u64>,
    accesses: Vec<(u32, u64)>,
    read_pages: HashSet<(u32, u64)>,
    written_pages: HashSet<(u32, u64)>,
}

impl Found {
    fn read(trace: BlockTrace) -> Self {
        let mut found = Found::default();
        for request in trace {
            let request = request.expect("a good request");
            found.requests += 1;
            found.sizes.push(request.length);
            found.times_ns.extend(request.time_ns);
            let first = request.offset / PAGE_BYTES;
            let end = (request.offset + request.length).div_ceil(PAGE_BYTES);
            let pages = (first..end).map(|page| (request.volume, page));
            found.accesses.extend(pages.clone());
            match request.op {
                BlockOp::Read => {
                    found.reads += 1;
                    found.read_pages.extend(pages);
                }
                BlockOp::Write => found.written_pages.extend(pages),
                other => panic!("no shared trace has {other:?}"),
            }
        }
        found.sizes.sort_unstable();
        found
    }

    fn unique(&self) -> usize {
        self.read_pages.union(&self.written_pages).count()
    }

    fn percentile(&self, share: f64) -> f64 {
        self.sizes[((self.sizes.len() - 1) as f64 * share) as usize] as f64
    }
}

fn assert_near(name: &str, what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{name}: {what} is {found}, and {expected} in the manifest"
    );
}

/// Requests, pages and bytes, and the hit ratios of LRU at 4 KiB, agree with the
/// manifest. SIEVE agrees with a reference.
#[test]
fn traces_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("the manifest");
    for (name, format) in TRACES {
        let row = Row::find(&manifest, name);
        let found = Found::read(open(&folder, name, format));
        check_requests(name, &found, &row);
        check_pages(name, &found, &row);
        check_policies(name, &found, &row);
    }
}

fn check_requests(name: &str, found: &Found, row: &Row) {
    let requests = row.numbers(column::REQUESTS);
    assert_eq!(found.requests as f64, requests[0], "{name}: requests");
    let read_percent = 100.0 * found.reads as f64 / found.requests as f64;
    let expected = row.numbers(column::READ_WRITE_PERCENT)[0];
    assert_near(name, "the read share", read_percent, expected, 0.51);
    let bytes: u64 = found.sizes.iter().sum();
    let mean = bytes as f64 / found.requests as f64;
    assert_near(
        name,
        "the mean size",
        mean,
        row.numbers(column::MEAN_BYTES)[0],
        0.51,
    );
    let sizes = row.numbers(column::SIZES);
    for (share, expected) in [0.1, 0.5, 0.9, 0.99, 1.0].into_iter().zip(sizes) {
        assert_eq!(found.percentile(share), expected, "{name}: size at {share}");
    }
    let first = found.times_ns.iter().min().expect("times");
    let last = found.times_ns.iter().max().expect("times");
    let span_s = (last - first) as f64 / 1e9;
    assert_near(
        name,
        "the span",
        span_s,
        row.numbers(column::SPAN_S)[0],
        0.051,
    );
}

fn check_pages(name: &str, found: &Found, row: &Row) {
    assert_eq!(
        found.accesses.len() as f64,
        row.numbers(column::REQUESTS)[1],
        "{name}: accesses"
    );
    assert_eq!(
        found.unique() as f64,
        row.numbers(column::UNIQUE)[0],
        "{name}: pages"
    );
    let mib = |pages: usize| (pages as u64 * PAGE_BYTES) as f64 / (1 << 20) as f64;
    let pages = [
        found.unique(),
        found.read_pages.len(),
        found.written_pages.len(),
    ];
    for (pages, expected) in pages.into_iter().zip(row.numbers(column::WORKING_SET_MIB)) {
        assert_near(name, "the working set", mib(pages), expected, 0.051);
    }
}

#[test]
fn statistics_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("the manifest");
    for (name, format) in TRACES {
        let row = Row::find(&manifest, name);
        let found = stat(&StatOptions {
            trace: folder.join(name),
            options: options(name, format),
            block_bytes: PAGE_BYTES,
        })
        .expect("described");
        assert_eq!(found.accesses.unique as f64, row.numbers(column::UNIQUE)[0]);
        let reuse = 100.0 * found.accesses.reuse_share;
        let expected = row.numbers(column::REUSE_PERCENT)[0];
        assert_near(name, "the reuse", reuse, expected, 0.051);
        if let (Some(zipf), Some(expected)) = (found.skew.zipf, row.numbers(column::ZIPF).first()) {
            assert_near(name, "Zipf's exponent", zipf.exponent, *expected, 0.021);
        }
    }
}

/// The file that libCacheSim's authors made of the same requests. It gives an
/// object one size, where requests of one first sector have several.
#[test]
fn whole_requests_are_converted_as_libcachesim_does() {
    let Some(folder) = traces() else { return };
    let folder = folder.join("blk_cloudphysics");
    let scratch = tempfile::tempdir().expect("a folder");
    let into = scratch.path().join("a.bin");
    convert(&ConvertOptions {
        from: folder.join("cloudPhysicsIO.vscsi.zst"),
        options: TraceOptions::default(),
        into: into.clone(),
        target: Target::OracleGeneral,
        unit: Unit::Requests,
    })
    .expect("converts");
    let theirs = std::fs::read(folder.join("cloudPhysicsIO.oracleGeneral.bin.zst")).expect("read");
    let theirs = zstd::decode_all(&theirs[..]).expect("zstd");
    let ours = std::fs::read(into).expect("read");
    assert_eq!(ours.len(), theirs.len());
    for (number, (ours, theirs)) in ours.chunks(24).zip(theirs.chunks(24)).enumerate() {
        assert_eq!(ours[..12], theirs[..12], "time and object of {number}");
        assert_eq!(ours[16..], theirs[16..], "next access of {number}");
    }
}

#[test]
fn miss_ratio_curves_agree_with_the_manifest_and_samples_come_close() {
    let Some(folder) = traces() else { return };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("the manifest");
    for name in [
        "blk_cloudphysics/cloudPhysicsIO.vscsi.zst",
        "blk_msr_prxy0_reads/PRXY_0_read.zst",
        "blk_hp_ajw/ajw.1week.srt.zst",
    ] {
        let mut trace = Trace::open(&folder.join(name), TraceOptions::default()).expect("opens");
        let (mut exact, mut rate, mut size) =
            (Exact::default(), FixedRate::new(0.1), FixedSize::new(2048));
        measure(
            &mut trace,
            CacheUnit::Chunk(PAGE_BYTES),
            &mut [&mut exact, &mut rate, &mut size],
        )
        .expect("a good trace");
        let exact = exact.curve();
        let expected = Row::find(&manifest, name).numbers(column::LRU_HIT_PERCENT);
        for (share, expected) in [100, 10].into_iter().zip(expected) {
            let percent = 100.0 * (1.0 - exact.miss_ratio(exact.unique / share));
            assert_near(name, "LRU's hit ratio", percent, expected, 0.0051);
        }
        for (sample, curve) in [("rate", rate.curve()), ("size", size.curve())] {
            let error = curve.mean_absolute_error(&exact, 100);
            assert!(
                error < 0.03,
                "{name}: a sample of fixed {sample} is off by {error}"
            );
        }
    }
}

/// The manifest counts rows, of which some stand for several requests.
#[test]
fn tectonic_rows_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("the manifest");
    let name = "blk_meta_tectonic/block_traces_1.csv.zst";
    let row = Row::find(&manifest, name);
    let mut trace = open(&folder, name, TraceFormat::MetaTectonic);
    let requests = trace.by_ref().map(|request| request.expect("a good row"));
    assert_eq!(requests.count(), 1023);
    // The header is a record, too.
    assert_eq!(
        (trace.records() - 1) as f64,
        row.numbers(column::REQUESTS)[0]
    );
    // The manifest has one more: it counts the header's `block_id`.
    let unique = row.numbers(column::UNIQUE)[0] - 1.0;
    assert_eq!(trace.volumes().len() as f64, unique);
}

#[test]
fn sector_lists_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.md")).expect("the manifest");
    for name in ["blk_arc/OLTP.lis.zst", "blk_arc/P3.lis.zst"] {
        let row = Row::find(&manifest, name);
        let bytes: u64 = open(&folder, name, TraceFormat::Arc)
            .map(|request| request.expect("a good request").length)
            .sum();
        let sectors = (bytes / SECTOR_BYTES) as f64;
        assert_eq!(sectors, row.numbers(column::REQUESTS)[0], "{name}");
    }
}

/// The same requests as vscsi, CSV and a list of blocks.
#[test]
fn formats_of_one_trace_agree_with_each_other() {
    let Some(folder) = traces() else { return };
    let folder = folder.join("blk_cloudphysics");
    let vscsi = open(&folder, "cloudPhysicsIO.vscsi.zst", TraceFormat::VscsiV1);
    let csv = open(&folder, "cloudPhysicsIO.csv.zst", TraceFormat::CloudPhysics);
    let options = TraceOptions {
        format: Some(TraceFormat::Lbn),
        skip_bad: false,
    };
    let list = BlockTrace::open(&folder.join("cloudPhysicsIO.txt.zst"), options).expect("opens");
    let mut requests = 0;
    for ((first, second), third) in vscsi.zip(csv).zip(list) {
        let (first, second) = (first.expect("good"), second.expect("good"));
        let same = |request: &floe_eval::trace::BlockRequest| {
            let second = request.time_ns.map(|time| time / 1_000_000_000);
            (request.op, request.offset, request.length, second)
        };
        assert_eq!(same(&first), same(&second));
        assert_eq!(first.offset, third.expect("good").offset);
        requests += 1;
    }
    assert_eq!(requests, 113_872);
}

/// Hits of a policy that keeps `pages_max` pages, each of one byte.
fn hits(kind: ObjectPolicyKind, pages_max: u64, accesses: &[(u32, u64)]) -> u64 {
    let mut policy = ObjectPolicy::new(kind, pages_max);
    let hit = |&(volume, page): &(u32, u64)| {
        policy.access(u64::from(volume) << 48 | page, 1) == Access::Hit
    };
    accesses.iter().map(hit).map(u64::from).sum()
}

fn check_policies(name: &str, found: &Found, row: &Row) {
    let unique = found.unique() as u64;
    let expected = row.numbers(column::LRU_HIT_PERCENT);
    let numbered = reference::numbered(&found.accesses);
    for (share, expected) in [100, 10].into_iter().zip(expected) {
        let pages = (unique / share).max(1);
        let lru = hits(ObjectPolicyKind::Lru, pages, &found.accesses);
        let percent = 100.0 * lru as f64 / found.accesses.len() as f64;
        assert_near(name, "LRU's hit ratio", percent, expected, 0.0051);
        let sieve = hits(ObjectPolicyKind::Sieve, pages, &found.accesses);
        let reference = reference::sieve_hits(pages as usize, &numbered);
        assert_eq!(sieve, reference, "{name}");
    }
}
