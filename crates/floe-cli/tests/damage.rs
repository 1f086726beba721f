//! Damaged and missing parts of a cache, in `check` and `serve`.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Serving, floe, get, run};

const TINY: [&str; 2] = ["--tiny-size", "32MiB"];

fn serve(folder: &Path) -> Serving {
    let mut command = floe(folder);
    command.env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0");
    for (name, value) in [("FLOE_TINY_SIZE", "32MiB"), ("FLOE_TINY_ZONE_SIZE", "1MiB")] {
        command.env(name, value);
    }
    Serving::spawn(&mut command)
}

fn tiny_file(folder: &Path) -> PathBuf {
    folder.join("floe-data/tiny.floe")
}

fn flip(path: &Path, range: std::ops::Range<u64>) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x55;
    }
    file.write_all_at(&bytes, range.start).unwrap();
}

/// Sends a memcached command; returns the response up to `end`.
fn ask(serving: &Serving, command: &str, end: &str) -> String {
    let address = serving.announced["memcached"].as_str().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(command.as_bytes()).unwrap();
    let mut response = Vec::new();
    let mut byte = [0];
    while !response.ends_with(end.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{response:?}");
        response.push(byte[0]);
    }
    String::from_utf8(response).unwrap()
}

fn set(serving: &Serving, value: &str) {
    let command = format!("set key 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(ask(serving, &command, "\r\n"), "STORED\r\n");
}

#[test]
fn check_covers_tiny_objects() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serve(folder.path());
    set(&serving, "value");
    assert_eq!(serving.stop(), 0);
    run(folder.path(), &["check"]).expect(0, &["no damage", "tiny objects: "]);
    flip(&tiny_file(folder.path()), 0..100);
    let outcome = run(folder.path(), &["check"]).expect(4, &["tiny objects: ", "damage"]);
    assert!(
        outcome.out.contains("no damage: "),
        "of chunks: {outcome:?}"
    );
    run(folder.path(), &["check", "--json"]).expect(4, &["\"ok\": false", "\"tiny\""]);
    // With `--device-path` only that device is checked.
    run(
        folder.path(),
        &["check", "--device-path", "floe-data/cache.floe"],
    )
    .expect(0, &["no damage"]);
}

#[test]
fn a_damaged_superblock_is_replaced_by_its_copy() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let serving = serve(folder.path());
        assert_eq!(get(serving.s3, "/demo/hello.txt").0, 200);
        if round == 0 {
            set(&serving, "value");
        }
        assert_eq!(serving.stop(), 0);
    }
    let chunks = folder.path().join("floe-data/cache.floe");
    for (path, zone) in [
        (&chunks, 0),
        (&chunks, 1),
        (&tiny_file(folder.path()), 0),
        (&tiny_file(folder.path()), 1),
    ] {
        let sound = fs::read(path).unwrap();
        flip(path, zone << 20..(zone << 20) + 100);
        run(folder.path(), &["check"]).expect(4, &["damage", "superblock"]);
        let serving = serve(folder.path());
        assert_eq!(serving.announced["tiny_is_missing"], false);
        assert_eq!(serving.announced["formatted"], false);
        assert!(serving.announced["warm_records"].as_u64() > Some(0));
        assert_eq!(
            ask(&serving, "get key\r\n", "END\r\n"),
            "VALUE key 0 5\r\nvalue\r\nEND\r\n"
        );
        assert_eq!(serving.stop(), 0);
        run(folder.path(), &["check"]).expect(0, &["no damage"]);
        fs::write(path, sound).unwrap();
    }
}

/// As a crash leaves the cache before the copy of its superblock is written,
/// with damage to the superblock that is left.
#[test]
fn a_cache_without_a_sound_superblock_is_taken_for_foreign_data() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(serve(folder.path()).stop(), 0);
    let path = folder.path().join("floe-data/cache.floe");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 4096], 1 << 20).unwrap();
    file.write_all_at(&[0x5a; 4096], 0).unwrap();
    let damaged = fs::read(&path).unwrap();
    let on_device = |words: &[&str]| {
        let device = ["--device-path", "floe-data/cache.floe"];
        run(folder.path(), &[words, &device].concat())
    };
    let refused = ["did not write", "floe format --force --device-path"];
    on_device(&["serve"]).expect(3, &refused);
    assert!(fs::read(&path).unwrap() == damaged, "nothing was written");
    on_device(&["format", "--force"]).expect(0, &["new, empty"]);
    on_device(&["check"]).expect(0, &["no damage"]);
}

#[test]
fn a_broken_tiny_file_does_not_keep_s3_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = tiny_file(folder.path());
    let serving = serve(folder.path());
    set(&serving, "old");
    assert_eq!(serving.stop(), 0);
    let whole = fs::read(&tiny).unwrap();

    fs::write(&tiny, "a text of another program").unwrap();
    let strict = [
        "serve",
        "--strict",
        "--memcached-listen=127.0.0.1:0",
        "--s3-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--device-size=16MiB",
        "--device-zone-size=1MiB",
        "--ram-size=1MiB",
        "--chunk-write-buffer=8MiB",
        "--tiny-zone-size=1MiB",
    ];
    run(folder.path(), &[&strict[..], &TINY].concat()).expect(3, &["tiny", "did not write"]);
    let serving = serve(folder.path());
    assert_eq!(serving.announced["tiny_is_missing"], true);
    assert_eq!(get(serving.s3, "/demo/hello.txt").0, 200);
    assert_eq!(get(serving.admin, "/ready").0, 200);
    let metrics = String::from_utf8(get(serving.admin, "/metrics").1).unwrap();
    assert!(metrics.contains("floe_tiny_unavailable 1"), "{metrics}");
    assert_eq!(ask(&serving, "get key\r\n", "END\r\n"), "END\r\n");
    set(&serving, "new");
    assert!(ask(&serving, "get key\r\n", "END\r\n").contains("new"));
    assert_eq!(ask(&serving, "delete key\r\n", "\r\n"), "DELETED\r\n");
    assert_eq!(serving.stop(), 0);
    assert_eq!(fs::read(&tiny).unwrap(), b"a text of another program");

    // Restores the file, which has a value that was overwritten and deleted since.
    fs::write(&tiny, whole).unwrap();
    let serving = serve(folder.path());
    assert_eq!(serving.announced["tiny_is_missing"], false);
    assert_eq!(ask(&serving, "get key\r\n", "END\r\n"), "END\r\n");
    assert_eq!(serving.stop(), 0);
}
