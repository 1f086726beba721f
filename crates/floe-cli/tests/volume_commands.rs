//! `floe volume`, with a running server and without one.

mod common;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::{Serving, floe, get, run};
use serde_json::Value;

/// A client of an export over NBD, and the size that it was told.
struct Nbd(UnixStream, u64);

const READ: u16 = 0;
const WRITE: u16 = 1;
const ESHUTDOWN: u32 = 108;
const BLOCK: usize = 4096;

impl Nbd {
    fn connect(folder: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(folder.join("floe-data/nbd.sock"))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3_u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT")?;
        stream.write_all(&1_u32.to_be_bytes())?;
        stream.write_all(&(export.len() as u32).to_be_bytes())?;
        stream.write_all(export.as_bytes())?;
        // Size and flags; the server closes if there is no such export.
        let (mut size, mut flags) = ([0; 8], [0; 2]);
        stream.read_exact(&mut size)?;
        stream.read_exact(&mut flags)?;
        Ok(Nbd(stream, u64::from_be_bytes(size)))
    }

    /// Sends a request for the first block, and returns the error of its reply.
    fn request(&mut self, command: u16, data: &[u8]) -> io::Result<u32> {
        self.request_at(0, command, data)
    }

    fn request_at(&mut self, at: u64, command: u16, data: &[u8]) -> io::Result<u32> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(0_u16.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend(at.to_be_bytes());
        bytes.extend((BLOCK as u32).to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes)?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        Ok(u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]))
    }

    fn write(&mut self, byte: u8) {
        assert_eq!(self.request(WRITE, &[byte; BLOCK]).unwrap(), 0);
    }

    fn read(&mut self) -> u8 {
        self.read_at(0)
    }

    fn read_at(&mut self, at: u64) -> u8 {
        assert_eq!(self.request_at(at, READ, b"").unwrap(), 0);
        let mut data = [0; BLOCK];
        self.0.read_exact(&mut data).unwrap();
        data[0]
    }
}

/// A folder with a backing file of 64 MiB.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = ["volume", "create", "disk.img", "--size", "64MiB"];
    run(folder.path(), &made).expect(0, &["disk.img has 64MiB"]);
    folder
}

fn first_byte(folder: &Path) -> u8 {
    fs::read(folder.join("disk.img")).unwrap()[0]
}

fn status(folder: &Path) -> Value {
    let status = run(folder, &["volume", "status", "--json"]).expect(0, &[]);
    serde_json::from_str(&status.out).unwrap()
}

/// A server with these settings, as variables.
fn serve(folder: &Path, settings: &[(&str, &str)]) -> Serving {
    Serving::spawn(floe(folder).envs(settings.iter().copied()))
}

#[test]
fn backing_files_are_made_sparse_or_allocated() {
    let folder = folder();
    let blocks = |name: &str| fs::metadata(folder.path().join(name)).unwrap().blocks();
    assert!(blocks("disk.img") < 100);
    let make = |name: &str, size: &str| {
        let words = [
            "volume",
            "create",
            name,
            "--size",
            size,
            "--allocate",
            "--json",
        ];
        run(folder.path(), &words)
    };
    make("full.img", "8MiB").expect(0, &["done"]);
    assert!(blocks("full.img") >= 8 << 11);
    make("full.img", "8MiB").expect(3, &["cannot create", "exists"]);
    make("odd.img", "8193").expect(2, &["no multiple of 4KiB"]);
    assert!(!folder.path().join("odd.img").exists());
}

#[test]
fn volumes_are_operated_while_the_server_runs() {
    let folder = folder();
    let folder = folder.path();
    let volume = |words: &[&str]| run(folder, &[&["volume"], words].concat());
    volume(&["status"]).expect(3, &["no server answers", "--data-dir"]);
    let settings = [
        ("FLOE_VOLUMES_PATH", "cache.floe"),
        ("FLOE_VOLUMES_SIZE", "64MiB"),
        ("FLOE_NBD_LISTEN", "off"),
    ];
    let serving = serve(folder, &settings);
    volume(&["status"]).expect(0, &[]);
    // Only this user can read what is cached, and its space is allocated.
    let cache = fs::metadata(folder.join("cache.floe")).unwrap();
    assert_eq!((cache.mode() & 0o777, cache.len()), (0o600, 64 << 20));
    assert!(cache.blocks() * 512 >= cache.len());
    assert!(Nbd::connect(folder, "disk").is_err());
    volume(&["attach", "disk=disk.img,mode=write-back"]).expect(0, &["volume disk", "write-back"]);
    volume(&["attach", "disk=disk.img"]).expect(3, &["in use"]);
    volume(&["attach", "disk=absent.img"]).expect(3, &["absent.img"]);
    volume(&["attach", "disk=disk.img,cache=1GiB"]).expect(2, &["all volumes share the cache"]);

    let mut client = Nbd::connect(folder, "disk").unwrap();
    client.write(7);
    assert_eq!(client.read(), 7);
    let report = &status(folder)[0];
    assert_eq!(report["name"], "disk");
    assert_eq!(report["mode"], "write-back");
    assert_eq!(report["size_bytes"], 64 << 20);
    assert_eq!(report["usage"]["dirty_bytes"], 4096);
    assert_eq!(report["usage"]["reads"]["hits"], 1);
    let shown = ["state    good", "dirty    4KiB", "100.0 % of 1 reads"];
    volume(&["status", "disk"]).expect(0, &shown);
    volume(&["status", "other"]).expect(2, &["not attached"]);
    assert_eq!(first_byte(folder), 0);
    volume(&["flush", "disk"]).expect(0, &["dirty    0B"]);
    assert_eq!(first_byte(folder), 7);

    volume(&["scrub", "--rate", "1GiB"]).expect(0, &["read, 0B of damaged"]);

    client.write(8);
    volume(&["mode", "disk", "write-through"]).expect(0, &["write-through", "dirty    0B"]);
    assert_eq!(first_byte(folder), 8);
    volume(&["mode", "disk", "fast"]).expect(2, &["fast"]);
    volume(&["mode", "disk", "write-back"]).expect(0, &["write-back"]);
    client.write(9);
    let metrics = String::from_utf8(get(serving.admin, "/metrics").1).unwrap();
    assert!(metrics.contains("floe_volume_info{volume=\"disk\",mode=\"write-back\"} 1"));
    volume(&["detach", "disk"]).expect(0, &["disk is detached"]);
    assert_eq!(first_byte(folder), 9);
    let after = client.request(READ, b"");
    assert!(matches!(after, Err(_) | Ok(ESHUTDOWN)), "{after:?}");
    assert!(
        client.request(READ, b"").is_err(),
        "the connection has ended"
    );
    assert!(Nbd::connect(folder, "disk").is_err());
    volume(&["detach", "disk"]).expect(2, &["not attached"]);

    // Dirty data can stay, or be lost.
    let attach = ["attach", "disk=disk.img,mode=write-back"];
    volume(&attach).expect(0, &[]);
    Nbd::connect(folder, "disk").unwrap().write(1);
    volume(&["detach", "disk", "--keep-dirty"]).expect(0, &[]);
    assert_eq!(first_byte(folder), 9);
    volume(&attach).expect(0, &["dirty    4KiB"]);
    assert_eq!(Nbd::connect(folder, "disk").unwrap().read(), 1);
    volume(&["detach", "disk", "--discard-dirty"]).expect(0, &[]);
    volume(&attach).expect(0, &["dirty    0B", "0B in 0 blocks"]);
    assert_eq!(Nbd::connect(folder, "disk").unwrap().read(), 9);
    assert_eq!(serving.stop(), 0);
    assert!(!folder.join("floe-data/control.sock").exists());
}

#[test]
fn damaged_data_of_the_cache_is_found_and_not_returned() {
    let folder = folder();
    let folder = folder.path();
    let settings = [
        ("FLOE_VOLUMES_PATH", "cache.floe"),
        ("FLOE_VOLUMES_SIZE", "64MiB"),
        ("FLOE_VOLUMES_CHECKSUMS", "true"),
        ("FLOE_NBD_LISTEN", "off"),
    ];
    let volume = |words: &[&str]| run(folder, &[&["volume"], words].concat());
    let serving = serve(folder, &settings);
    volume(&["attach", "disk=disk.img,mode=write-back"]).expect(0, &[]);
    Nbd::connect(folder, "disk").unwrap().write(0x77);
    volume(&["scrub"]).expect(0, &["4KiB read, 0B of damaged"]);
    assert_eq!(serving.stop(), 0);

    let cache = fs::read(folder.join("cache.floe")).unwrap();
    let (blocks, _) = cache.as_chunks::<BLOCK>();
    let written = blocks.iter().position(|block| *block == [0x77; BLOCK]);
    let at = written.unwrap() * BLOCK + 99;
    let file = fs::File::options()
        .write(true)
        .open(folder.join("cache.floe"));
    file.unwrap().write_all_at(&[0x76], at as u64).unwrap();

    let serving = serve(folder, &settings);
    volume(&["attach", "disk=disk.img,mode=write-back"]).expect(0, &["dirty    4KiB"]);
    let mut client = Nbd::connect(folder, "disk").unwrap();
    const EIO: u32 = 5;
    assert_eq!(client.request(READ, b"").unwrap(), EIO);
    volume(&["scrub"]).expect(4, &["of dirty data are damaged", "log"]);
    volume(&["scrub", "--json"]).expect(4, &["\"damaged_bytes\":"]);
    volume(&["flush"]).expect(3, &["checksum"]);
    let metrics = String::from_utf8(get(serving.admin, "/metrics").1).unwrap();
    assert!(!metrics.contains("floe_volume_checksum_errors_total 0"));
    client.write(0x78);
    volume(&["scrub"]).expect(0, &["4KiB read, 0B of damaged"]);
    volume(&["flush"]).expect(0, &["dirty    0B"]);
    assert_eq!(first_byte(folder), 0x78);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn volumes_and_the_cache_are_resized_while_the_server_runs() {
    const MIB: u64 = 1 << 20;
    let folder = folder();
    let folder = folder.path();
    let volume = |words: &[&str]| run(folder, &[&["volume"], words].concat());
    let len = |name: &str| fs::metadata(folder.join(name)).unwrap().len() / MIB;
    let settings = [
        ("FLOE_VOLUMES_PATH", "floe-data/volumes.floe"),
        ("FLOE_VOLUMES_SIZE", "64MiB"),
        ("FLOE_NBD_LISTEN", "off"),
    ];
    let serving = serve(folder, &settings);
    let attach = ["attach", "disk=disk.img,mode=write-back"];
    volume(&attach).expect(0, &[]);
    let connect = || Nbd::connect(folder, "disk").unwrap();
    let mut client = connect();
    client.write(7);
    let byte = |byte| [byte; BLOCK];
    let written = client.request_at(60 * MIB, WRITE, &byte(6)).unwrap();
    assert_eq!((written, client.1), (0, 64 * MIB));

    // A file is made larger, and smaller only if that is allowed.
    volume(&["resize", "disk"]).expect(0, &["volume disk has 64MiB, as before"]);
    let grown = ["volume disk has 96MiB, before 64MiB"];
    volume(&["resize", "disk", "--size", "96MiB"]).expect(0, &grown);
    assert_eq!((len("disk.img"), connect().1), (96, 96 * MIB));
    assert_eq!(connect().read_at(90 * MIB), 0);
    let shrink = ["resize", "disk", "--size", "32MiB"];
    volume(&shrink).expect(2, &["past 32MiB would be lost", "--shrink"]);
    assert_eq!(client.read_at(60 * MIB), 6);
    volume(&[&shrink[..], &["--shrink", "--json"]].concat())
        .expect(0, &["before_bytes", "100663296", "now_bytes", "33554432"]);
    assert_eq!((len("disk.img"), connect().1), (32, 32 * MIB));
    // The client goes on, and gets an error past the end.
    assert_eq!(client.read(), 7);
    assert_ne!(client.request_at(60 * MIB, READ, b"").unwrap(), 0);
    assert_ne!(client.request_at(60 * MIB, WRITE, &byte(5)).unwrap(), 0);
    assert_eq!(status(folder)[0]["size_bytes"], 32 * MIB);

    // The size that the backing device has got otherwise is taken over.
    let disk = fs::File::options()
        .write(true)
        .open(folder.join("disk.img"));
    let disk = disk.unwrap();
    disk.set_len(64 * MIB).unwrap();
    let grown = ["volume disk has 64MiB, before 32MiB"];
    volume(&["resize", "disk"]).expect(0, &grown);
    assert_eq!(connect().read_at(60 * MIB), 0);
    let written = connect().request_at(60 * MIB, WRITE, &byte(4)).unwrap();
    assert_eq!(written, 0);
    disk.set_len(48 * MIB).unwrap();
    volume(&["resize", "disk"]).expect(2, &["dirty data", "ends at 48MiB", "--shrink"]);
    volume(&["resize", "disk", "--shrink"]).expect(0, &["48MiB, before 64MiB"]);
    volume(&["resize", "disk", "--size", "1"]).expect(2, &["1 is no multiple of"]);
    volume(&["resize", "other"]).expect(2, &["not attached"]);
    volume(&["resize"]).expect(2, &["--cache"]);

    // The cache file is enlarged, and its space is allocated.
    volume(&["resize", "--cache"]).expect(0, &["as before"]);
    let enlarge = ["resize", "--cache", "--size", "160MiB"];
    volume(&enlarge).expect(0, &["the cache has room for 157.5MiB, before 60MiB"]);
    assert_eq!(len("floe-data/volumes.floe"), 160);
    let file = fs::metadata(folder.join("floe-data/volumes.floe")).unwrap();
    assert!(file.blocks() * 512 >= file.len());
    let smaller = ["resize", "--cache", "--size", "64MiB"];
    volume(&smaller).expect(2, &["does not shrink", "format a smaller cache"]);

    // The server dies in the middle of a growth.
    let folder_of_thread = folder.to_owned();
    let growth = std::thread::spawn(move || {
        let words = ["volume", "resize", "--cache", "--size", "256MiB"];
        run(&folder_of_thread, &words)
    });
    std::thread::sleep(Duration::from_millis(60));
    serving.kill();
    growth.join().unwrap();
    let serving = serve(folder, &settings);
    volume(&attach).expect(0, &["dirty    4KiB"]);
    assert_eq!((connect().read(), connect().1), (7, 48 * MIB));
    volume(&["resize", "--cache"]).expect(0, &["the cache has room for"]);
    assert_eq!(connect().read(), 7);
    assert_eq!(serving.stop(), 0);
    run(folder, &["check"]).expect(0, &["volumes: no damage"]);
}

#[test]
fn dirty_data_is_flushed_without_a_server() {
    let folder = folder();
    let folder = folder.path();
    fs::write(
        folder.join("floe.toml"),
        "[volumes]\nsize = \"64MiB\"\n[nbd]\nlisten = \"off\"\n\
         [volume.disk]\nbacking = \"disk.img\"\nmode = \"write-back\"\n",
    )
    .unwrap();
    let flush = ["volume", "flush", "--offline", "--config", "floe.toml"];
    run(folder, &flush).expect(2, &["no cache", "volumes.floe"]);
    let serving = serve(folder, &[("FLOE_CONFIG", "floe.toml")]);
    Nbd::connect(folder, "disk").unwrap().write(5);
    run(folder, &flush).expect(3, &["in use"]);
    serving.kill();
    assert_eq!(first_byte(folder), 0);
    run(folder, &["volume", "flush", "--offline"]).expect(2, &["no such volume"]);
    let other = [&flush[..], &["other"]].concat();
    run(folder, &other).expect(2, &["no such volume"]);
    run(folder, &flush).expect(0, &["1 volumes have no dirty data"]);
    assert_eq!(first_byte(folder), 5);
    let as_flags = [
        "volume",
        "flush",
        "--offline",
        "--volume",
        "disk=disk.img,cache=64MiB",
    ];
    run(folder, &as_flags).expect(0, &["1 volumes"]);
    let shown = ["volume", "[volume]", "disk.img", "floe.toml"];
    run(folder, &["config", "show", "--config", "floe.toml"]).expect(0, &shown);
}

#[test]
fn check_and_inspect_cover_the_cache_of_volumes() {
    let folder = folder();
    let folder = folder.path();
    let settings = [
        ("FLOE_VOLUMES_PATH", "floe-data/volumes.floe"),
        ("FLOE_VOLUMES_SIZE", "64MiB"),
        ("FLOE_NBD_LISTEN", "off"),
    ];
    let serving = serve(folder, &settings);
    run(folder, &["volume", "attach", "disk=disk.img"]).expect(0, &[]);
    assert_eq!(serving.stop(), 0);
    run(folder, &["check"]).expect(0, &["no damage", "volumes: no damage"]);
    run(folder, &["inspect"]).expect(0, &["zone 0", "superblock of volumes", "volume 0: disk"]);
    let checked = run(folder, &["check", "--json"]).expect(0, &[]);
    let checked: Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(
        (&checked["ok"], &checked["volumes"]["ok"]),
        (&true.into(), &true.into())
    );
    let path = folder.join("floe-data/volumes.floe");
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0x5a; 64], 100).unwrap();
    run(folder, &["check"]).expect(4, &["volumes: ", "damage", "dirty data"]);
    let alone = ["check", "--device-path", "floe-data/cache.floe"];
    run(folder, &alone).expect(0, &["no damage"]);
}
