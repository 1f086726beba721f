//! `floe serve`: start, requests, stop, and faults of the environment.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use common::{Serving, floe, get, run};

/// A small device, so that tests can run concurrently.
const SMALL: [&str; 4] = ["--device-size", "16MiB", "--device-zone-size", "1MiB"];

#[test]
fn the_first_start_serves_the_demo_object_and_restarts_warm() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    assert_eq!(serving.announced["s3_anonymous"], true);
    assert_eq!(serving.announced["consistency"], "etag");
    assert_eq!(serving.announced["formatted"], true);
    let hello = fs::read(folder.path().join("floe-data/origin/demo/hello.txt")).unwrap();
    // An answer leaves before its object is stored: reads right after it are no hits.
    let is_hit = (0..1000).any(|_| {
        assert_eq!(get(serving.s3, "/demo/hello.txt"), (200, hello.clone()));
        metrics(&serving).contains("floe_object_reads_total{result=\"hit\"} 1")
    });
    let metrics = metrics(&serving);
    assert!(is_hit, "{metrics}");
    assert!(metrics.contains("floe_object_fetches_total 1"), "{metrics}");
    assert_eq!(get(serving.admin, "/health").0, 200);
    assert_eq!(get(serving.s3, "/demo/absent").0, 404);
    assert_eq!(serving.stop(), 0);

    run(folder.path(), &["check"]).expect(0, &["no damage"]);
    run(folder.path(), &["inspect", "--records"]).expect(0, &["superblock", "journal"]);

    let serving = Serving::start(folder.path(), &[]);
    assert_eq!(serving.announced["formatted"], false);
    assert!(serving.announced["warm_records"].as_u64().unwrap() > 0);
    assert_eq!(get(serving.s3, "/demo/hello.txt").0, 200);
}

/// The text that a start prints, up to its last line.
fn printed(folder: &std::path::Path, arguments: &[&str]) -> String {
    let mut child = floe(folder)
        .args(["serve", "--s3-listen=127.0.0.1:0", "--admin-listen=off"])
        .args(["--memcached-listen=off", "--tiny-enabled=false"])
        .args(["--chunk-write-buffer=8MiB"])
        .args(SMALL)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = lines.map(Result::unwrap);
    let text: Vec<String> = lines.take_while(|line| !line.contains("Ctrl-C")).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    text.join("\n")
}

#[test]
fn a_start_names_the_price_of_a_hit() {
    let folder = tempfile::tempdir().unwrap();
    let cure = "object.consistency = \"ttl\"";
    let directory = printed(folder.path(), &[]);
    let price = "each hit looks at the file once";
    assert!(
        directory.contains(price) && directory.contains(cure),
        "{directory}"
    );
    assert!(
        directory.contains("memory    up to about ")
            && directory.contains(" 8MiB chunk.write_buffer"),
        "{directory}"
    );
    let s3 = [
        "--origin-kind=s3",
        "--origin-endpoint=https://127.0.0.1:1",
        "--s3-anonymous=loopback",
    ];
    let service = printed(folder.path(), &s3);
    let price = "each hit asks the origin once";
    let cure = "object.consistency = \"events\"";
    assert!(
        service.contains(price) && service.contains(cure),
        "{service}"
    );
    for mode in ["ttl", "immutable"] {
        let mode = format!("--object-consistency={mode}");
        let text = printed(folder.path(), &[&mode]);
        assert!(
            text.contains("is serving") && !text.contains("each hit"),
            "{text}"
        );
    }
}

fn metrics(serving: &Serving) -> String {
    String::from_utf8(get(serving.admin, "/metrics").1).unwrap()
}

#[test]
fn a_flipped_byte_is_found_by_check_and_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let hello = get(serving.s3, "/demo/hello.txt");
    serving.stop();
    let path = folder.path().join("floe-data/cache.floe");
    let mut bytes = fs::read(&path).unwrap();
    let text = b"Hello from Floe";
    let places: Vec<usize> = (0..bytes.len() - text.len())
        .step_by(512)
        .filter(|at| bytes[*at..].starts_with(text))
        .collect();
    assert!(!places.is_empty(), "the value is on flash");
    for at in places {
        bytes[at] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    run(folder.path(), &["check"]).expect(4, &["damage:", "do not match", "damaged places"]);
    let checked = run(folder.path(), &["check", "--json"]).expect(4, &[]);
    let checked: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(checked["ok"], false);
    let serving = Serving::start(folder.path(), &[]);
    assert_eq!(get(serving.s3, "/demo/hello.txt"), hello);
}

/// The same with slots, whose tables are checked too.
#[test]
fn slots_are_inspected_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Serving::spawn(floe(folder.path()).env("FLOE_CHUNK_EVICTION", "clru"));
    let serving = start();
    let hello = get(serving.s3, "/demo/hello.txt");
    serving.stop();
    run(folder.path(), &["inspect"])
        .expect(0, &["layout slots", "slots, open: 2 records", "in 2 slots"]);
    run(folder.path(), &["check"]).expect(0, &["no damage", "2 records"]);

    let path = folder.path().join("floe-data/cache.floe");
    let whole = fs::read(&path).unwrap();
    let text = b"Hello from Floe";
    // Zone 2 is the first data zone: its header is one block, and its tables follow.
    let table = (2 << 20) + 4096 + 64;
    let value = (table..whole.len() - text.len())
        .find(|&at| whole[at..].starts_with(text))
        .expect("the value is on flash");
    // A small value is checked together with its key, which slots do not hold:
    // only a read detects the damage.
    for (at, code, words) in [(table, 4, "slot table"), (value, 0, "no damage")] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        run(folder.path(), &["check"]).expect(code, &[words]);
        let serving = start();
        assert_eq!(get(serving.s3, "/demo/hello.txt"), hello, "{words}");
        serving.stop();
        run(folder.path(), &["check"]).expect(0, &["no damage"]);
    }
}

#[test]
fn systemd_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let supervisor = UnixDatagram::bind(&socket).unwrap();
    let mut command = floe(folder.path());
    let command = command.env("NOTIFY_SOCKET", &socket);
    let serving = Serving::spawn(command.env("WATCHDOG_USEC", "100000"));
    let message = || {
        let mut buffer = [0; 256];
        let length = supervisor.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(message(), "READY=1\nSTATUS=serving\n");
    assert_eq!(message(), "WATCHDOG=1\n");
    assert_eq!(serving.stop(), 0);
    let mut messages = std::iter::repeat_with(message);
    let last = messages.find(|message| message != "WATCHDOG=1\n").unwrap();
    assert!(last.starts_with("STOPPING=1\n"), "{last}");
}

#[test]
fn a_port_in_use_is_an_environment_error() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = [
        "serve",
        "--memcached-listen",
        "off",
        "--s3-listen",
        &address,
    ];
    let arguments = [&arguments[..], &SMALL].concat();
    run(folder.path(), &arguments).expect(3, &[&address, "s3.listen", "--s3-listen"]);
}

#[test]
fn memcached_is_served_beside_s3_and_restarts_warm() {
    let folder = tempfile::tempdir().unwrap();
    let start = || Serving::spawn(floe(folder.path()).env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0"));
    let serving = start();
    let stored = ask_memcached(&serving, "set hello 7 0 5\r\nworld\r\n");
    assert_eq!(stored, "STORED\r\n");
    assert_eq!(get(serving.s3, "/demo/hello.txt").0, 200);
    let taken = serving.announced["memcached"].as_str().unwrap().to_owned();
    let other = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--s3-listen", "off", "--admin-listen", "off"];
    let arguments = [&arguments[..], &["--memcached-listen", &taken], &SMALL].concat();
    run(other.path(), &arguments).expect(3, &[&taken, "memcached.listen", "--memcached-listen"]);
    assert_eq!(serving.stop(), 0);

    let serving = start();
    let found = ask_memcached(&serving, "get hello\r\n");
    assert_eq!(found, "VALUE hello 7 5\r\nworld\r\nEND\r\n");
}

/// Sends `lines` to the memcached frontend; returns the output until QUIT.
fn ask_memcached(serving: &Serving, lines: &str) -> String {
    let address = serving.announced["memcached"].as_str().unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "{lines}quit\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn the_configured_engine_keeps_tiny_objects() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "--tiny-size=16MiB",
        "--tiny-zone-size=1MiB",
        "--tiny-fairywren-over-provisioning-percent=70",
    ];
    let start = |engine: &str| {
        let mut command = floe(folder.path());
        command.env("FLOE_TINY_ENGINE", engine);
        command.env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0");
        command.env("FLOE_TINY_SIZE", "16MiB");
        command.env("FLOE_TINY_ZONE_SIZE", "1MiB");
        command.env("FLOE_TINY_FAIRYWREN_OVER_PROVISIONING_PERCENT", "70");
        Serving::spawn(&mut command)
    };
    let path = folder.path().join("floe-data/tiny.floe");
    let path = path.to_str().unwrap();
    for (engine, warm) in [
        ("nemo", true),
        ("log", false),
        ("set", false),
        ("kangaroo", false),
        ("fairywren", false),
    ] {
        let serving = start(engine);
        let tiny = &serving.announced["tiny"];
        assert_eq!(tiny["engine"], engine);
        assert_eq!(tiny["bytes"], 16 << 20);
        assert_eq!(tiny["formatted"], true);
        assert!(tiny["device"].as_str().unwrap().contains("tiny.floe"));
        let response = ask_memcached(&serving, "set key 0 0 5\r\nvalue\r\nget key\r\n");
        assert_eq!(response, "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n");
        let metrics = metrics(&serving);
        let sample = format!("floe_tiny_engine_info{{engine=\"{engine}\"}} 1");
        assert!(metrics.contains(&sample), "{metrics}");
        assert_eq!(serving.stop(), 0);

        let name = format!("engine {engine}");
        run(folder.path(), &["inspect", "--device-path", path]).expect(0, &[&name]);
        run(folder.path(), &["check", "--device-path", path]).expect(0, &["no damage"]);

        let serving = start(engine);
        assert_eq!(serving.announced["tiny"]["formatted"], false);
        let objects = serving.announced["tiny"]["warm_objects"].as_u64().unwrap();
        assert_eq!(objects > 0, warm, "{engine}");
        let response = ask_memcached(&serving, "get key\r\n");
        assert_eq!(
            response.starts_with("VALUE key"),
            warm,
            "{engine}: {response}"
        );
        assert_eq!(serving.stop(), 0);

        let other = if warm { "log" } else { "nemo" };
        let mut again = vec!["serve", "--tiny-engine", other];
        again.extend(["--s3-listen", "127.0.0.1:0", "--admin-listen", "off"]);
        again.extend(["--memcached-listen", "127.0.0.1:0"]);
        again.extend(SMALL.iter().chain(&settings));
        let differs = format!("the engine on flash is {engine}, but {other} is wanted");
        run(folder.path(), &again).expect(2, &[&differs, "floe format --tiny --force"]);
        let next = match engine {
            "nemo" => "log",
            "log" => "set",
            "set" => "kangaroo",
            _ => "fairywren",
        };
        let mut format = vec!["format", "--tiny", "--force", "--tiny-engine", next];
        format.extend(settings);
        run(folder.path(), &format).expect(0, &["is a new, empty cache"]);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn blocks_of_tiny_objects_may_be_sectors() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = floe(folder.path());
        command.env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0");
        command.env("FLOE_TINY_SIZE", "16MiB");
        command.env("FLOE_TINY_ZONE_SIZE", "1MiB");
        command.env("FLOE_TINY_BLOCK_SIZE", "512");
        Serving::spawn(&mut command)
    };
    let serving = start();
    ask_memcached(
        &serving,
        "set gone 0 0 3\r\nold\r\nset kept 0 0 3\r\nold\r\n",
    );
    assert_eq!(serving.stop(), 0);
    // Both items are on flash now, so these commands leave fences there.
    let serving = start();
    let response = ask_memcached(&serving, "delete gone\r\nset kept 0 0 3\r\nnew\r\n");
    assert_eq!(response, "DELETED\r\nSTORED\r\n");
    assert_eq!(serving.stop(), 0);
    let path = folder.path().join("floe-data/tiny.floe");
    let path = path.to_str().unwrap();
    // The journal is in the second zone by now, and the first is blank.
    run(folder.path(), &["inspect", "--device-path", path]).expect(0, &["blocks of 512B"]);
    run(folder.path(), &["check", "--device-path", path]).expect(0, &["no damage"]);
    let serving = start();
    let response = ask_memcached(&serving, "get gone kept\r\n");
    assert_eq!(response, "VALUE kept 0 3\r\nnew\r\nEND\r\n");
    assert_eq!(serving.stop(), 0);

    let mut other = vec!["serve", "--tiny-block-size", "4KiB", "--tiny-size", "16MiB"];
    other.extend([
        "--tiny-zone-size",
        "1MiB",
        "--memcached-listen",
        "127.0.0.1:0",
    ]);
    other.extend(["--s3-listen", "127.0.0.1:0", "--admin-listen", "off"]);
    other.extend(&SMALL);
    run(folder.path(), &other).expect(2, &["block size", "floe format --tiny --force"]);
    let odd = ["config", "check", "--tiny-block-size", "8KiB"];
    run(folder.path(), &odd).expect(2, &["block_size"]);
}

#[test]
fn an_unwritable_data_dir_is_an_environment_error() {
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere, so a file takes the directory's place.
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("taken"), "").unwrap();
        run(folder.path(), &["serve", "--data-dir", "taken/below"])
            .expect(3, &["cannot create `taken/below`", "--data-dir"]);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    run(folder.path(), &["serve"]).expect(3, &["cannot create `floe-data`", "--data-dir"]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn foreign_data_is_never_wiped_without_consent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious.img");
    let precious = vec![0x5a; 16 << 20];
    fs::write(&path, &precious).unwrap();
    let device = [
        "--device-path",
        "precious.img",
        "--device-zone-size",
        "1MiB",
    ];
    run(folder.path(), &[&["serve"][..], &device].concat()).expect(
        3,
        &[
            "did not write",
            "floe format --force --device-path precious.img",
        ],
    );
    run(folder.path(), &[&["format"][..], &device].concat()).expect(3, &["--force"]);
    run(folder.path(), &["check", "--device-path", "precious.img"])
        .expect(3, &["no Floe cache", "not written by Floe"]);
    assert!(fs::read(&path).unwrap() == precious, "nothing was written");
    run(
        folder.path(),
        &[&["format", "--force"][..], &device].concat(),
    )
    .expect(0, &["new, empty"]);
    run(folder.path(), &["check", "--device-path", "precious.img"]).expect(0, &["no damage"]);
    run(folder.path(), &[&["format"][..], &device].concat())
        .expect(2, &["already", "nothing was changed"]);
}

#[test]
fn a_foreign_file_keeps_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let precious = b"not a cache\n".repeat(142);
    fs::write(&path, &precious).unwrap();
    let shape = ["--device-size=128MiB", "--device-zone-size=4MiB"];
    let ports = [
        "--strict",
        "--s3-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--memcached-listen=127.0.0.1:0",
    ];
    for command in [
        [&["format", "--device-path=notes.txt"], &shape[..]].concat(),
        [&["serve", "--device-path=notes.txt"], &shape[..]].concat(),
        vec!["format", "--tiny", "--tiny-path=notes.txt"],
        vec![
            "format",
            "--tiny",
            "--tiny-path=notes.txt",
            "--tiny-size=128MiB",
        ],
        [&["serve", "--tiny-path=notes.txt"], &shape[..], &ports].concat(),
    ] {
        run(folder.path(), &command).expect(3, &["notes.txt", "did not write", "--force"]);
        assert!(
            fs::read(&path).unwrap() == precious,
            "{command:?} changed it"
        );
    }
}

#[test]
fn a_cache_of_another_size_is_not_extended() {
    let folder = tempfile::tempdir().unwrap();
    Serving::start(folder.path(), &[]).stop();
    let path = folder.path().join("floe-data/cache.floe");
    let length = fs::metadata(&path).unwrap().len();
    let other = ["serve", "--device-zone-size=1MiB", "--device-size=64MiB"];
    run(folder.path(), &other).expect(2, &["16MiB", "64MiB", "change the setting back"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
}

#[test]
fn paths_that_are_no_files_are_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, what) in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("/dev/null", "a character device"),
        (".", "a directory"),
    ] {
        for command in [&["serve"][..], &["format", "--force"]] {
            let device = [
                "--device-size=16MiB",
                "--device-zone-size=1MiB",
                "--device-path",
                path,
            ];
            run(folder.path(), &[command, &device].concat()).expect(3, &[what]);
        }
    }
}

/// Foreign signatures past the first block.
#[test]
fn a_signature_behind_the_first_block_is_recognised() {
    let signatures: [(&str, u64, &[u8]); 6] = [
        ("ext4", 0x438, &[0x53, 0xef]),
        ("iso9660", 0x8001, b"CD001"),
        ("btrfs", 0x1_0040, b"_BHRfS_M"),
        ("zfs", 0x2_1000, &0x00ba_b10c_u64.to_le_bytes()),
        ("the end of the first MiB", (1 << 20) - 1, &[1]),
        ("the start of a later MiB", 9 << 20, b"precious"),
    ];
    for (name, at, signature) in signatures {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious.img");
        let mut precious = vec![0; 16 << 20];
        precious[at as usize..][..signature.len()].copy_from_slice(signature);
        fs::write(&path, &precious).unwrap();
        let flags = [
            "serve",
            "--device-path",
            "precious.img",
            "--device-zone-size",
            "2MiB",
        ];
        run(folder.path(), &flags).expect(3, &["did not write", "format --force"]);
        assert!(fs::read(&path).unwrap() == precious, "{name}: written to");
    }
}

#[test]
fn another_plan_is_rejected_with_both_remedies() {
    let folder = tempfile::tempdir().unwrap();
    Serving::start(folder.path(), &[]).stop();
    let other = [
        "serve",
        "--device-zone-size",
        "2MiB",
        "--device-size",
        "16MiB",
    ];
    run(folder.path(), &other).expect(2, &["zone size", "change the setting back", "floe format"]);
}

#[test]
fn the_error_of_a_small_device_names_a_valid_size() {
    let folder = tempfile::tempdir().unwrap();
    let zones = ["serve", "--device-zone-size=64MiB", "--device-size=64MiB"];
    run(folder.path(), &zones).expect(2, &["device.size = 64MiB", "384MiB"]);
    fs::write(folder.path().join("small"), vec![0; 1 << 20]).unwrap();
    run(folder.path(), &["serve", "--device-path", "small"]).expect(2, &["chunk.size", "64KiB"]);
}

#[test]
fn the_error_of_a_chunk_larger_than_a_zone_names_a_valid_size() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["serve", "--chunk-size", "256MiB"]).expect(
        2,
        &[
            "chunk.size = 256MiB",
            "capacity is 64MiB",
            "device.zone_size",
        ],
    );
    run(folder.path(), &["serve", "--object-chunk-size", "256MiB"])
        .expect(2, &["object.chunk_size = 256MiB", "device.zone_size"]);
    // The remedy works, even if it requires a larger device.
    for (size, chunk, remedy, works) in [
        (
            "1MiB",
            "64KiB",
            "zones of at least 128KiB (device.zone_size)",
            ["1MiB", "128KiB"],
        ),
        (
            "700KiB",
            "64KiB",
            "a device of at least 768KiB (device.size)",
            ["768KiB", "128KiB"],
        ),
        (
            "2MiB",
            "1MiB",
            "a device of at least 6912KiB (device.size)",
            ["6912KiB", "1152KiB"],
        ),
    ] {
        let check = |size: &str, more: &[&str]| {
            let size = format!("--device-size={size}");
            let chunk = format!("--chunk-size={chunk}");
            run(
                folder.path(),
                &[&["config", "check", &size, &chunk], more].concat(),
            )
        };
        check(size, &[]).expect(2, &["chunk.size", remedy]);
        let [size, zone] = works;
        check(size, &[&format!("--device-zone-size={zone}")]).expect(0, &["ok"]);
    }
}

#[test]
fn a_start_waits_for_the_last_one_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let first = Serving::start(folder.path(), &[]);
    assert_eq!(get(first.s3, "/demo/hello.txt").0, 200);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Serving::start(folder.path(), &[]));
        first.kill();
        let second = second.join().unwrap();
        assert_eq!(get(second.s3, "/demo/hello.txt").0, 200);
    });
}

#[test]
fn a_device_in_use_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = Serving::start(folder.path(), &[]);
    run(folder.path(), &["check"]).expect(3, &["in use"]);
    run(
        folder.path(),
        &[
            "format",
            "--force",
            "--device-size",
            "16MiB",
            "--device-zone-size",
            "1MiB",
        ],
    )
    .expect(3, &["in use"]);
}

#[test]
fn inspecting_a_missing_file_is_an_error_and_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["check"]).expect(3, &["cannot read `floe-data/cache.floe`", "--data-dir"]);
    assert!(!folder.path().join("floe-data").exists());
    fs::write(folder.path().join("cut"), vec![0; 100]).unwrap();
    run(folder.path(), &["inspect", "--device-path", "cut"])
        .expect(3, &["`cut` holds no Floe cache"]);
}

#[test]
fn a_truncated_cache_is_reported_as_damaged() {
    let folder = tempfile::tempdir().unwrap();
    Serving::start(folder.path(), &[]).stop();
    let path = folder.path().join("floe-data/cache.floe");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(8 << 20))
        .unwrap();
    run(folder.path(), &["check"]).expect(4, &["was truncated"]);
    assert_eq!(
        fs::metadata(&path).unwrap().len(),
        8 << 20,
        "it is not extended"
    );
}
