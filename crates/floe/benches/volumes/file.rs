//! Hits of 4 KiB on a file beside a plain io_uring loop on a file of the volume's size.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe::volume::Volume;
use floe_device::baseline::{Cost, Offsets, Reads, Stopwatch, plain_reads};
use floe_device::config::Direct;
use floe_device::{FileBlocks, FileBlocksConfig, SharedBlockDevice};

use super::{BLOCK, Options, ROOM, SLICES, VOLUME, cached, runtime, sharded};

const DEPTHS: [usize; 3] = [1, 8, 64];

pub(super) fn compare(options: &Options) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    let plain = folder.path().join("plain");
    write_file(&plain);
    let path = folder.path().join("cache");
    let created = File::create(&path).and_then(|file| file.set_len(ROOM.bytes()));
    created.expect("a scratch file");
    let config = FileBlocksConfig {
        direct: Direct::On,
        ..FileBlocksConfig::new(&path)
    };
    let device: SharedBlockDevice = Arc::new(FileBlocks::open(&config).expect("it opens"));
    let runtime = runtime();
    let (cache, volume) = runtime.block_on(cached(Arc::clone(&device), &sharded(16)));
    runtime.block_on(volume.flush()).expect("it flushes");
    for depth in DEPTHS {
        let mut reads = Reads {
            bytes: BLOCK,
            depth,
            count: 64 * depth as u64,
            span: VOLUME.bytes(),
            seed: 1,
        };
        let registered = |reads: &Reads| plain_reads(&plain, reads, true).expect("it reads");
        let ordinary = |reads: &Reads| plain_reads(&plain, reads, false).expect("it reads");
        let alone = |reads: &Reads| {
            let target = Target::Device(Arc::clone(&device));
            runtime.block_on(read_all(&target, *reads))
        };
        let hit = |reads: &Reads| {
            let target = Target::Volume(volume.clone());
            runtime.block_on(read_all(&target, *reads))
        };
        let peers: [Peer<'_>; 4] = [
            ("plain io_uring loop", &registered),
            ("plain loop, unregistered", &ordinary),
            ("the file alone", &alone),
            ("read hit, 16 shards", &hit),
        ];
        let trial = registered(&reads);
        reads.count = ((trial.rate() * options.slice.as_secs_f64()) as u64).max(1000);
        let mut totals: [Option<Cost>; 4] = [None; 4];
        for seed in 0..SLICES {
            reads.seed = u64::from(seed);
            for ((_, run), total) in peers.iter().zip(&mut totals) {
                let cost = run(&reads);
                *total = Some(total.map_or(cost, |total| total.plus(cost)));
            }
        }
        let us = totals.map(|cost| {
            let cost = cost.map(|cost| cost.cpu_per_operation());
            cost.unwrap_or_default().as_secs_f64() * 1e6
        });
        for ((name, _), of) in peers.iter().zip(us) {
            let row = serde_json::json!({
                "file": name,
                "depth": depth,
                "cpu_us": (of * 100.0).round() / 100.0,
                "of_plain_loop": (of / us[0] * 100.0).round() / 100.0,
                "goal": (*name == peers[3].0).then_some("at most 1.3 of the plain loop"),
            });
            let text = format!(
                "{name:26} depth {depth:2} {of:6.2} µs of CPU, {:.2} of the plain loop",
                of / us[0]
            );
            options.show(&row, &text);
        }
    }
    runtime.block_on(cache.close()).expect("it closes");
}

/// A file as large as the volume, without holes.
fn write_file(path: &Path) {
    let mut file = File::create(path).expect("a scratch file");
    let chunk = vec![1; 1 << 20];
    for _ in 0..VOLUME.bytes() >> 20 {
        file.write_all(&chunk).expect("room for the scratch file");
    }
    file.sync_all().expect("the scratch file reaches the disk");
}

/// A name, and what makes reads.
type Peer<'a> = (&'a str, &'a dyn Fn(&Reads) -> Cost);

#[derive(Clone)]
enum Target {
    Device(SharedBlockDevice),
    Volume(Volume),
}

impl Target {
    async fn read(&self, at: u64) {
        match self {
            Target::Device(device) => {
                let read = device.read(at, device.allocate(BLOCK)).await;
                drop(read.expect("it reads"));
            }
            Target::Volume(volume) => {
                let read = volume.read_at(at, BLOCK).await;
                drop(read.expect("it reads"));
            }
        }
    }
}

/// Makes `reads` by as many tasks as there are in flight.
async fn read_all(target: &Target, reads: Reads) -> Cost {
    let left = Arc::new(AtomicU64::new(reads.count));
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..reads.depth as u64)
        .map(|task| {
            let (target, left) = (target.clone(), Arc::clone(&left));
            let seed = reads.seed ^ task << 32;
            let mut offsets = Offsets::new(&Reads { seed, ..reads });
            tokio::spawn(async move {
                let take = |left: u64| left.checked_sub(1);
                while left.fetch_update(Relaxed, Relaxed, take).is_ok() {
                    target.read(offsets.draw()).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it reads");
    }
    watch.stop(reads.count)
}
