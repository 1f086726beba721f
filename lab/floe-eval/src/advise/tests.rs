use std::fmt::Write as _;

use floe_core::ByteSize;
use floe_core::volume::{Accesses, Io};
use tempfile::TempDir;

use super::choose::Rule;
use super::drive::Drive;
use super::*;
use crate::trace::{TraceFormat, TraceOptions};

const MIB: u64 = 1 << 20;

/// A trace in MSR Cambridge's format in a folder of its own, a request a second.
struct Folder {
    folder: TempDir,
    options: AdviseOptions,
}

impl Folder {
    fn new(requests: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        Folder::at_seconds((0..).zip(requests))
    }

    fn at_seconds(requests: impl Iterator<Item = (u64, (&'static str, u64))>) -> Self {
        let mut lines = String::new();
        for (second, (op, block)) in requests {
            let time = 128_166_391_024_154_329 + second * 10_000_000;
            let _ = writeln!(lines, "{time},host,0,{op},{},4096,100", block * 4096);
        }
        Folder::of("disk.csv", TraceFormat::Msr, &lines)
    }

    fn of(name: &str, format: TraceFormat, content: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("it can be written");
        let mut options = AdviseOptions::new(path);
        options.options = TraceOptions {
            format: Some(format),
            skip_bad: false,
        };
        Folder { folder, options }
    }

    fn advise(&self) -> Advice {
        advise(&self.options).expect("the trace allows advice")
    }

    fn error(&self) -> String {
        advise(&self.options).expect_err("no advice").to_string()
    }
}

/// Nine requests in ten go to 256 blocks in turn, 256 KiB apart, the tenth to a
/// block of its own.
fn hot_set(of_hot: &'static str, of_cold: &'static str) -> Folder {
    Folder::new(hot_requests(20_000, of_hot, of_cold))
}

fn hot_requests(
    count: u64,
    of_hot: &'static str,
    of_cold: &'static str,
) -> impl Iterator<Item = (&'static str, u64)> {
    (0..count).map(move |at| match at % 10 {
        9 => (of_cold, (1000 + at) * 64),
        _ => (of_hot, (at - at / 10) % 256 * 64),
    })
}

fn best(advice: &Advice) -> &Candidate {
    assert_eq!(advice.verdict, Verdict::Cache);
    &advice.candidates[0]
}

#[test]
fn a_loop_needs_room_for_all_of_it() {
    let mut folder = Folder::new((0..9000).map(|at| ("Read", at % 3000)));
    let advice = folder.advise();
    let sizing = &advice.sizing;
    assert_eq!(sizing.capacity_bytes, Some(sizing.limit_bytes));
    assert!(
        (sizing.best_hit_ratio - 2.0 / 3.0).abs() < 0.03,
        "{sizing:?}"
    );
    folder.options.cache_max = Some(ByteSize::mib(6));
    let half = folder.advise();
    assert_eq!(
        (half.verdict, half.sizing.limit_bytes),
        (Verdict::NoReuse, 6 * MIB)
    );
}

#[test]
fn a_scan_needs_no_cache() {
    let mut folder = Folder::new((0..3000).map(|at| ("Read", at)));
    let advice = folder.advise();
    assert_eq!(
        (advice.verdict, advice.sizing.capacity_bytes),
        (Verdict::NoReuse, None)
    );
    assert!(advice.candidates.is_empty() && advice.confirm.is_none());
    folder.options.capacity = Some(ByteSize::mib(4));
    let given = folder.advise();
    assert_eq!(given.verdict, Verdict::NoSaving);
    assert!(given.candidates[0].backing_share >= 1.0);
}

#[test]
fn a_small_hot_set_needs_a_small_cache_of_small_blocks() {
    let advice = hot_set("Read", "Read").advise();
    // The hot blocks, a MiB, and what else is read while they are read once.
    assert_eq!(advice.sizing.capacity_bytes, Some(MIB + MIB / 4));
    let best = best(&advice);
    assert!(best.settings.sizes.starts_with("4KiB"), "{best:?}");
    assert_eq!(
        (best.settings.mode, advice.write_back_saves),
        ("write-through", None)
    );
    let cold = advice.facts.cold_miss_share;
    assert!((cold - (2000.0 + 256.0) / 20_000.0).abs() < 1e-9, "{cold}");
    assert!(advice.sizing.points.is_sorted_by_key(|point| point.bytes));
    assert!(advice.sizing.points.iter().any(|point| point.is_knee));
    let confirm = advice.confirm.as_deref().unwrap_or_default();
    assert!(
        confirm.contains(&format!("disk.csv --format msr --volume {}", best.volume)),
        "{confirm}"
    );
    serde_json::to_string(&advice).expect("it has a JSON form");
}

#[test]
fn blocks_that_are_read_once_stay_out() {
    let advice = Folder::new(hot_requests(60_000, "Read", "Read")).advise();
    let best = best(&advice);
    assert_ne!(best.settings.promotion, "always");
    let always = advice.candidates.iter().find(|candidate| {
        candidate.settings.sizes == best.settings.sizes && candidate.settings.promotion == "always"
    });
    let always = always.expect("it was a candidate");
    assert!(best.cache_written.bytes < always.cache_written.bytes / 2);
}

#[test]
fn overwritten_data_is_kept_dirty() {
    let advice = hot_set("Write", "Write").advise();
    let best = best(&advice);
    assert_eq!(best.settings.mode, "write-back");
    assert!(
        advice.write_back_saves > Some(0.5),
        "{:?}",
        advice.write_back_saves
    );
    assert!(best.dirty_bytes > 0 && best.backing_bytes >= best.dirty_bytes);
}

#[test]
fn write_back_that_saves_nothing_is_not_advised() {
    let advice = hot_set("Read", "Write").advise();
    assert!(!best(&advice).settings.is_write_back());
    assert!(
        advice.write_back_saves < Some(0.1),
        "{:?}",
        advice.write_back_saves
    );
}

#[test]
fn traces_that_allow_no_advice_are_rejected() {
    let one = Folder::new([("Read", 7)]).error();
    assert!(
        one.contains("1 reads and writes are too few for advice; it takes 1000"),
        "{one}"
    );
    let none = Folder::new([]).error();
    assert!(none.contains("0 reads and writes are too few"), "{none}");
    let tiny = Folder::new((0..2000).map(|at| ("Read", at % 8))).error();
    assert!(tiny.contains("smaller than one block of 256KiB"), "{tiny}");
    let keys = Folder::of("keys", TraceFormat::Twitter, "0,a,1,2,3,get,0\n").error();
    assert!(keys.contains("whose requests are for objects"), "{keys}");
}

#[test]
fn sizes_beyond_the_working_set_are_rejected() {
    let mut folder = hot_set("Read", "Read");
    folder.options.capacity = Some(ByteSize::gib(1));
    let error = folder.error();
    assert!(
        error.contains("nothing of caches beyond its working set"),
        "{error}"
    );
    folder.options.capacity = Some(ByteSize::mib(2));
    let advice = folder.advise();
    assert_eq!(
        (advice.sizing.capacity_bytes, advice.sizing.is_given),
        (Some(2 * MIB), true)
    );
    folder.options.capacity = None;
    folder.options.cache_max = Some(ByteSize::kib(4));
    assert!(folder.error().contains("give at least 256KiB"));
    folder.options.within = 1.0;
    assert!(folder.error().contains("from 0% to below 100%"));
}

#[test]
fn the_times_limit_what_is_told_per_day() {
    let text = |advice: &Advice| advice.limits.join("\n");
    let forwards = hot_set("Read", "Read").advise();
    let limits = text(&forwards);
    assert!(
        limits.contains("spans 19999 s with 20000 requests, less than a day"),
        "{limits}"
    );
    assert!(!limits.contains("stands still"), "{limits}");
    let per_day = best(&forwards).written_bytes_per_day.expect("a span");
    let written = best(&forwards).cache_written.bytes as f64;
    assert!((per_day - written * 86_400.0 / 19_999.0).abs() < 1.0);
    let backwards = (0..2000).rev().zip((0..2000).map(|at| ("Read", at % 500)));
    let backwards = Folder::at_seconds(backwards).advise();
    assert!(
        text(&backwards).contains("1999 requests have times before"),
        "{backwards:?}"
    );
    let lines = (0..2000).map(|at| format!("{}\n", at % 1000));
    let timeless = Folder::of("disk.lbn", TraceFormat::Lbn, &lines.collect::<String>()).advise();
    assert!(text(&timeless).contains("no times: nothing is known per day"));
    assert!(best(&timeless).written_bytes_per_day.is_none());
}

#[test]
fn a_sample_tells_its_error() {
    let mut folder = hot_set("Read", "Read");
    let exact = folder.advise();
    assert!(exact.facts.is_exact && exact.sizing.sample_difference == 0.0);
    folder.options.sample = 512;
    let sampled = folder.advise();
    assert!(!sampled.facts.is_exact);
    let working_set = [&exact, &sampled].map(|advice| advice.facts.working_set_bytes as f64);
    assert!(
        (working_set[1] / working_set[0] - 1.0).abs() < 0.2,
        "{working_set:?}"
    );
    assert!(sampled.sizing.sample_difference > 0.0);
    assert!(
        sampled
            .limits
            .iter()
            .any(|limit| limit.contains("second sample"))
    );
}

#[test]
fn advice_has_a_page() {
    let folder = hot_set("Read", "Write");
    let provenance = crate::results::Provenance::default();
    let report = crate::report::ReportData::of_advice(&folder.advise(), String::new(), provenance);
    let folder = folder.folder.path().join("page");
    let page = report.write(&folder).expect("written");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("Hit ratio by cache size"));
    let rows = std::fs::read_to_string(folder.join("results.jsonl")).expect("rows");
    assert!(rows.contains("device_write_amplification"), "{rows}");
}

fn candidate(mode: &'static str, [backing, written, memory]: [u64; 3]) -> Candidate {
    let settings = Settings {
        sizes: "4KiB",
        promotion: "always",
        mode,
    };
    Candidate {
        settings,
        volume: format!("{backing} {written} {memory}"),
        reads: Accesses::default(),
        writes: Accesses::default(),
        cache_read: Io::default(),
        cache_written: Io {
            operations: 0,
            bytes: written,
        },
        backing_read: Io::default(),
        backing_written: Io::default(),
        dirty_bytes: 0,
        backing_bytes: backing,
        backing_share: 0.0,
        device_write_amplification: None,
        written_bytes_per_day: None,
        drive_writes_per_day: None,
        memory_bytes: memory,
    }
}

#[test]
fn the_choice_is_by_backing_bytes_then_cache_writes_then_memory() {
    let rule = Rule {
        tolerance: 0.05,
        write_back_saves: 0.1,
    };
    let choose = |modes: &[(&'static str, [u64; 3])]| {
        let candidates: Vec<Candidate> = modes.iter().map(|(m, f)| candidate(m, *f)).collect();
        let choice = rule.choose(&candidates).expect("there are some");
        (choice.best.candidate.volume.clone(), choice.best.decided_by)
    };
    let through = "write-through";
    let best = choose(&[(through, [106, 1, 1]), (through, [100, 9, 9])]);
    assert_eq!(best, ("100 9 9".to_owned(), DecidedBy::BackingBytes));
    let best = choose(&[(through, [105, 90, 9]), (through, [100, 100, 1])]);
    assert_eq!(best, ("105 90 9".to_owned(), DecidedBy::CacheWrites));
    let best = choose(&[(through, [105, 98, 9]), (through, [100, 100, 1])]);
    assert_eq!(best, ("100 100 1".to_owned(), DecidedBy::Memory));
    let best = choose(&[("write-back", [90, 50, 9]), ("write-around", [100, 1, 1])]);
    assert_eq!(best.0, "90 50 9");
    let best = choose(&[("write-back", [91, 50, 9]), ("write-around", [100, 1, 1])]);
    assert_eq!(best.0, "100 1 1");
}

/// Garbage collection of random writes moves more than that of sequential ones.
#[test]
fn the_drive_amplifies_random_writes_more_than_sequential_ones() {
    let capacity = 32 * MIB;
    let pages = capacity / 4096;
    let of = |page: fn(u64) -> u64| {
        let mut drive = Drive::new(capacity)
            .expect("a drive")
            .expect("small enough");
        for at in 0..4 * pages {
            let place = page(at) % pages * 4096;
            drive.write(place + 512, 512).expect("written");
        }
        drive.write_amplification().expect("writes")
    };
    let sequential = of(|at| at);
    let random = of(|at| xxhash_rust::xxh3::xxh3_64(&at.to_le_bytes()));
    assert!((1.0..2.5).contains(&sequential), "{sequential}");
    assert!(random > sequential + 1.0, "{random} {sequential}");
}

#[test]
fn a_drive_without_writes_amplifies_nothing() {
    let drive = Drive::new(MIB).expect("a drive").expect("small enough");
    assert_eq!(drive.write_amplification(), None);
    assert!(Drive::new(65 << 30).expect("no fault").is_none());
    let mut drive = Drive::new(MIB).expect("a drive").expect("small enough");
    drive.write(0, 256 << 10).expect("written");
    assert!(drive.write_amplification() >= Some(1.0));
}
