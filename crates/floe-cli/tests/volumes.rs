//! Caches of volumes in `inspect` and `check`.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use common::run;
use floe::ByteSize;
use floe::device::{Clock, FileBlocks, FileBlocksConfig, IoBuf, MemoryBlocks};
use floe::volume::{Mode, VolumeCache, VolumeCacheConfig, VolumeConfig};

/// A closed cache with a dirty block of 4 KiB in the file at `path`.
fn make(path: &Path) {
    File::create_new(path).unwrap().set_len(8 << 20).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let device = Arc::new(FileBlocks::open(&FileBlocksConfig::new(path)).unwrap());
        let backing = Arc::new(MemoryBlocks::new(ByteSize::mib(8), 512).unwrap());
        let config = VolumeCacheConfig {
            sizes: "4KiB".parse().unwrap(),
            ..VolumeCacheConfig::default()
        };
        let opened = VolumeCache::open(device, Clock::real(), &config).await;
        let cache = opened.unwrap();
        let config = VolumeConfig {
            mode: Mode::WriteBack,
            allow_data_loss: true,
            ..VolumeConfig::default()
        };
        let volume = cache.attach("disk", backing, &config).await.unwrap();
        let data = IoBuf::zeroed(4096).freeze();
        volume.write_at(8192, data, true).await.unwrap();
        cache.close().await.unwrap();
    });
}

#[test]
fn a_cache_of_volumes_is_inspected_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volumes.floe");
    make(&path);
    let on_device = |words: &[&str]| {
        let device = ["--device-path", "volumes.floe"];
        run(folder.path(), &[words, &device].concat())
    };
    let inspected = on_device(&["inspect"]).expect(
        0,
        &[
            "superblock of volumes",
            "volume 0: disk",
            "log",
            "table",
            "no damage: 1 blocks",
        ],
    );
    assert!(!inspected.out.contains("volume 0 + 0x2000"));
    on_device(&["inspect", "--records"]).expect(0, &["volume 0 + 0x2000", "batch 1"]);
    on_device(&["inspect", "--json"]).expect(0, &[r#""finding":"block_table""#]);
    on_device(&["inspect", "--zone", "1"]).expect(2, &["has no zones"]);
    on_device(&["check"]).expect(0, &["no damage"]);
    let checked = on_device(&["check", "--json"]).expect(0, &[]);
    let checked: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(
        (&checked["ok"], &checked["totals"]["blocks"]),
        (&true.into(), &1.into())
    );

    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0x5a; 64], 100).unwrap();
    let sound_copy = ["damage", "its other copy is sound", "dirty data"];
    on_device(&["check"]).expect(4, &sound_copy);
    file.write_all_at(&[0x5a; 64], 32868).unwrap();
    let unusable = ["both superblocks are unusable", "dirty data"];
    let before = fs::read(&path).unwrap();
    on_device(&["check"]).expect(4, &unusable);
    on_device(&["inspect"]).expect(4, &unusable);
    assert!(fs::read(&path).unwrap() == before, "nothing was written");
}

/// A lock that is not looked at must not seem to be held.
#[test]
fn a_lock_needs_etcd_and_takes_the_place_of_a_reservation() {
    let folder = tempfile::tempdir().unwrap();
    File::create_new(folder.path().join("disk.img"))
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    let serve = |volume: &str, more: &[&str]| {
        let words = [
            "serve",
            "--data-dir",
            "data",
            "--device-size",
            "64MiB",
            "--volumes-size",
            "16MiB",
            "--tiny-enabled=false",
            "--s3-listen",
            "off",
            "--memcached-listen",
            "off",
            "--volume",
            volume,
        ];
        run(folder.path(), &[&words[..], more].concat())
    };
    serve("disk=disk.img,lock=store/disk", &[]).expect(2, &["store/disk", "--node-etcd"]);
    // Nothing listens there.
    let etcd = ["--node-etcd", "http://127.0.0.1:1", "--node-rejoin", "wait"];
    serve("disk=disk.img,lock=store/disk", &etcd).expect(3, &["volume disk", "no address"]);
    let both = "disk=disk.img,lock=store/disk,reserve=auto";
    serve(both, &etcd).expect(2, &["lock", "reserve=required"]);
    serve("disk=disk.img,lock=", &etcd).expect(2, &["no name of a lock"]);
}
