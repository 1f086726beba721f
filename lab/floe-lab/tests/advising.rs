//! `floe advise`.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{Outcome, run};

fn advise(folder: &Path, more: &[&str]) -> Outcome {
    run(
        folder,
        &[&["advise", "disk.csv", "--format", "msr"], more].concat(),
    )
}

/// Writes of 4 KiB in the format of MSR Cambridge, ten each second: nine of ten to 256
/// blocks in turn, the tenth to a block of its own.
fn write_trace(folder: &Path) {
    let mut lines = String::new();
    for at in 0..5000_u64 {
        let block = match at % 10 {
            9 => 1000 + at,
            _ => (at - at / 10) % 256,
        };
        let (time, offset) = (128_166_391_024_154_329 + at * 1_000_000, block << 18);
        let _ = writeln!(lines, "{time},host,0,Write,{offset},4096,100");
    }
    fs::write(folder.join("disk.csv"), lines).unwrap();
}

#[test]
fn advice_tells_its_reasons_costs_limits_and_the_replay_that_confirms_it() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    let outcome = advise(folder.path(), &["--out", "page"]).expect(
        0,
        &[
            "disk.csv: 5000 requests of 1 volumes, format msr",
            "LRU hits",
            "chosen",
            "device WA",
            "capacity    1.2MiB: the smallest whose LRU hit ratio is within 5 points",
            "mode        write-back: it saves",
            "RISK: a cache device that fails loses acknowledged writes",
            "drive writes per day; device write amplification",
            "spans 500 s with 5000 requests, less than a day",
            "no advice for caches larger than the working set, 3.0 MiB",
            "The curve is exact.",
            "report: page/report.html",
        ],
    );
    let confirm = outcome.out.lines().find(|line| line.starts_with("  floe "));
    let confirm: Vec<&str> = confirm.unwrap().split_whitespace().skip(1).collect();
    let found = advise(folder.path(), &["--json"]).expect(0, &[]);
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    let replayed = run(folder.path(), &[&confirm[..], &["--json"]].concat()).expect(0, &[]);
    let replayed: serde_json::Value = serde_json::from_str(&replayed.out).unwrap();
    let (best, cache) = (&found["candidates"][0], &replayed["caches"][0]);
    assert_eq!(best["volume"], cache["settings"]);
    for (of_best, of_cache) in [("reads", "reads"), ("writes", "writes")] {
        assert_eq!(best[of_best], cache["statistics"][of_cache]);
    }
    assert_eq!(best["dirty_bytes"], cache["occupancy"]["dirty_bytes"]);
    assert!(
        fs::read_to_string(folder.path().join("page/report.html"))
            .unwrap()
            .contains("Hit ratio by cache size")
    );
}

#[test]
fn a_size_may_be_given_and_none_may_be_advised() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    for (arguments, part) in [
        (["--capacity", "2MiB"], "capacity    2MiB: as given"),
        (
            ["--max-cache", "512KiB"],
            "no cache    the best reachable LRU hit ratio is 0.0 % at 512KiB",
        ),
        (
            ["--write-back-saves", "99"],
            "moves 100.0 % of the bytes that the backing device moves without a cache; write-back",
        ),
    ] {
        advise(folder.path(), &arguments).expect(0, &[part]);
    }
}

#[test]
fn input_that_allows_no_advice_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path());
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::write(folder.path().join("keys.csv"), "0,a,1,2,3,get,0\n").unwrap();
    for (arguments, part) in [
        (&["empty"][..], "cannot tell the format of"),
        (
            &["empty", "--format", "msr"],
            "0 reads and writes are too few",
        ),
        (&["absent.csv"], "cannot open the trace"),
        (
            &["keys.csv", "--format", "twitter"],
            "whose requests are for objects",
        ),
        (&["disk.csv", "--format", "spc"], "line 1"),
        (
            &["disk.csv", "--requests", "999"],
            "999 reads and writes are too few",
        ),
        (
            &["disk.csv", "--capacity", "1GiB"],
            "nothing of caches beyond its working set",
        ),
        (
            &["disk.csv", "--within", "100"],
            "no percentage from 0 to below 100",
        ),
    ] {
        run(folder.path(), &[&["advise"][..], arguments].concat()).expect(2, &[part]);
    }
}
