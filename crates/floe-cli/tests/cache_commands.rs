//! `floe cache`, with a running server.

mod common;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Serving, floe, get, outcome, run};
use serde_json::Value;

const LARGE_BYTES: usize = 3 << 20;

/// A folder whose origin has two buckets.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, bytes: &[u8]| {
        let path = folder.path().join("floe-data/origin").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write("data/train/a", b"first");
    write("data/train/b\u{e4} \"b", &vec![7; LARGE_BYTES]);
    write("data/other", b"other");
    write("logs/one", b"one");
    folder
}

fn start(folder: &Path) -> Serving {
    Serving::spawn(floe(folder).env("FLOE_OBJECT_CONSISTENCY", "immutable"))
}

/// The state of each object below `data`.
fn states(folder: &Path, objects: &str) -> Vec<(String, String)> {
    let listed = run(folder, &["cache", "ls", objects, "--json"]).expect(0, &[]);
    let lines = listed.out.lines();
    lines
        .map(|line| {
            let object: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| object[name].as_str().unwrap().to_owned();
            (text("key"), text("state"))
        })
        .collect()
}

fn state(folder: &Path, object: &str) -> String {
    states(folder, object)[0].1.clone()
}

/// A metric of the server.
fn metric(server: &Serving, name: &str) -> u64 {
    let (_, text) = get(server.admin, "/metrics");
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("{name} is in {text}"));
    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
}

#[test]
fn objects_are_listed_and_warmed() {
    let folder = folder();
    let folder = folder.path();
    let server = start(folder);
    let names = ["other", "train/a", "train/b\u{e4} \"b"];
    let none = names.map(|name| (name.to_owned(), "none".to_owned()));
    assert_eq!(states(folder, "data"), none);
    run(folder, &["cache", "warm", "data/train/"])
        .expect(0, &["2 objects are warm, 3.0MiB fetched"]);
    let shown = run(folder, &["cache", "ls", "s3://data/"]).expect(0, &["3MiB", "whole train/a\n"]);
    assert!(
        shown.out.contains("- ") && shown.out.contains(" other\n"),
        "{shown:?}"
    );
    // Nothing is fetched twice, and a read finds it.
    let again = run(folder, &["cache", "warm", "data/train/", "--json"]).expect(0, &[]);
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(
        (again["objects"].as_u64(), again["fetched_bytes"].as_u64()),
        (Some(2), Some(0))
    );
    let fetched = metric(&server, "floe_object_fetches_total");
    assert_eq!(get(server.s3, "/data/train/a"), (200, b"first".to_vec()));
    let (_, large) = get(server.s3, "/data/train/b%C3%A4%20%22b");
    assert_eq!(large, vec![7; LARGE_BYTES]);
    assert_eq!(metric(&server, "floe_object_fetches_total"), fetched);
    assert_eq!(states(folder, "data/t").len(), 2);
    let after = run(folder, &["cache", "ls", "data", "--after", "train/a"]).expect(0, &[]);
    assert_eq!(after.out.lines().count(), 1, "{after:?}");
    let begun = Instant::now();
    let slow = run(folder, &["cache", "ls", "data", "--rate", "2"]).expect(0, &[]);
    assert_eq!(slow.out.lines().count(), 3, "{slow:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    run(folder, &["cache", "ls", "data", "--rate", "0"]).expect(2, &["--rate"]);
    // A write through the cache is another version.
    fs::write(
        folder.join("floe-data/origin/data/train/a"),
        b"longer than the first",
    )
    .unwrap();
    assert_eq!(state(folder, "data/train/a"), "stale");
}

#[test]
fn a_manifest_names_objects_and_failures_are_reported() {
    let folder = folder();
    let folder = folder.path();
    let _server = start(folder);
    fs::write(
        folder.join("list"),
        "data/other\n\ns3://logs/one\ndata/absent\n",
    )
    .unwrap();
    run(folder, &["cache", "warm", "--manifest", "list"]).expect(
        3,
        &["2 objects are warm", "1 failed", "data/absent", "no object"],
    );
    assert_eq!(state(folder, "logs"), "whole");
    let mut command = floe(folder);
    command.args(["cache", "warm", "--manifest", "-", "--rate", "64MiB"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"data/train/a\n").unwrap();
    drop(input);
    outcome(child.wait_with_output().unwrap()).expect(0, &["1 objects are warm, 5B fetched"]);
    run(folder, &["cache", "warm", "--manifest", "absent"]).expect(3, &["absent"]);
    run(folder, &["cache", "warm", "none/"]).expect(2, &["no bucket"]);
    run(folder, &["cache", "warm"]).expect(2, &["BUCKET[/PREFIX]"]);
}

/// The whole story of a purge: it holds at once, after a kill, and only for its objects.
#[test]
fn a_purge_holds_after_a_kill() {
    let folder = folder();
    let folder = folder.path();
    let server = start(folder);
    for object in ["data/train/a", "data/other", "logs/one"] {
        run(folder, &["cache", "warm", object]).expect(0, &["1 objects are warm"]);
    }
    run(folder, &["cache", "purge", "--prefix", "data/train/"]).expect(0, &["1 purged"]);
    assert_eq!(state(folder, "data/train/a"), "none");
    assert_eq!(state(folder, "data/other"), "whole");
    server.kill();
    let server = start(folder);
    assert_eq!(state(folder, "data/train/a"), "none");
    let fetched = metric(&server, "floe_object_fetches_total");
    assert_eq!(get(server.s3, "/data/train/a"), (200, b"first".to_vec()));
    assert_eq!(metric(&server, "floe_object_fetches_total"), fetched + 1);
    run(folder, &["cache", "warm", "data/train/a"]).expect(0, &["1 objects are warm"]);
    assert_eq!(state(folder, "data/train/a"), "whole");
    run(folder, &["cache", "warm", "data/"]).expect(0, &["3 objects are warm"]);
    let both = [
        "cache",
        "purge",
        "data/other",
        "s3://data/train/a",
        "--json",
    ];
    run(folder, &both).expect(0, &["\"purged\": 2"]);
    assert_eq!(state(folder, "data/other"), "none");
    run(folder, &["cache", "warm", "data/"]).expect(0, &["3 objects are warm"]);
    run(folder, &["cache", "purge", "--bucket", "data"]).expect(0, &[]);
    assert!(
        states(folder, "data")
            .iter()
            .all(|(_, state)| state == "none")
    );
    run(folder, &["cache", "purge", "--all"]).expect(0, &[]);
    assert_eq!(state(folder, "logs/one"), "none");
    assert_eq!(metric(&server, "floe_object_purges_total"), 4);
    for (wrong, named) in [
        (&["cache", "purge"][..], "BUCKET/KEY"),
        (&["cache", "purge", "data"], "--bucket"),
        (&["cache", "purge", "/key"], "names no bucket"),
    ] {
        run(folder, wrong).expect(2, &[named]);
    }
}

#[test]
fn pins_are_set_listed_and_removed_and_survive_a_kill() {
    let folder = folder();
    let folder = folder.path();
    let server = start(folder);
    run(folder, &["cache", "pins"]).expect(0, &[]);
    run(
        folder,
        &["cache", "pin", "s3://data/train/", "--cap", "1MiB"],
    )
    .expect(0, &["0B", "1MiB", "data/train/"]);
    let pinned = run(folder, &["cache", "pin", "logs", "--json"]).expect(0, &[]);
    let pinned: Value = serde_json::from_str(&pinned.out).unwrap();
    assert_eq!(
        (pinned["bucket"].as_str(), pinned["prefix"].as_str()),
        (Some("logs"), Some(""))
    );
    let limit = pinned["cap_bytes"].as_u64().unwrap();
    assert!(limit > 0 && limit <= (16 << 20) / 4, "{limit}");
    let listed = |folder| run(folder, &["cache", "pins"]).expect(0, &[]).out;
    let before = listed(folder);
    assert_eq!(before.lines().count(), 2, "{before}");
    assert!(before.lines().next().unwrap().ends_with(" data/train/"));
    server.kill();
    let server = start(folder);
    assert_eq!(listed(folder), before);
    assert_eq!(metric(&server, "floe_pinned_bytes"), 0);
    run(folder, &["cache", "unpin", "data/train"]).expect(2, &["no pin", "floe cache pins"]);
    run(folder, &["cache", "unpin", "data/train/"]).expect(0, &["no longer pinned"]);
    run(folder, &["cache", "unpin", "logs", "--json"]).expect(0, &["\"unpinned\": \"logs/\""]);
    server.kill();
    let _server = start(folder);
    assert_eq!(listed(folder), "");
    run(folder, &["cache", "pin", "/x"]).expect(2, &["names no bucket"]);
}

#[test]
fn without_a_server_the_error_names_the_socket() {
    let folder = folder();
    run(folder.path(), &["cache", "ls", "data"]).expect(3, &["control.sock", "floe serve"]);
    let off = ["cache", "ls", "data", "--control-path", ""];
    run(folder.path(), &off).expect(2, &["control.path"]);
    // A server without volumes says so.
    let _server = start(folder.path());
    run(folder.path(), &["volume", "status"]).expect(2, &["no cache of volumes"]);
}

/// The default socket is a convenience: it keeps no server from starting.
#[test]
fn a_server_starts_without_its_control_socket() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("floe-data/control.sock"), "no socket").unwrap();
    let server = start(folder);
    assert_eq!(get(server.s3, "/data/other"), (200, b"other".to_vec()));
    run(folder, &["cache", "ls", "data"]).expect(3, &["no server answers"]);
    drop(server);
    // One that the settings name must be there.
    let command = ["serve", "--control-path", "absent/control.sock"];
    let mut arguments = command.to_vec();
    arguments.extend(["--s3-listen", "127.0.0.1:0", "--admin-listen", "off"]);
    arguments.extend(["--device-size", "16MiB", "--device-zone-size", "1MiB"]);
    arguments.extend(["--ram-size", "1MiB", "--chunk-write-buffer", "8MiB"]);
    arguments.extend(["--memcached-listen", "off"]);
    run(folder, &arguments).expect(3, &["control.path"]);
}
