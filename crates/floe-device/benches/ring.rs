//! Random O_DIRECT reads through the file device against a plain io_uring
//! loop on the same file: CPU per read and throughput, as ratios.
//!
//! `cargo bench -p floe-device --bench ring [-- <MiB of file> <seconds per case> <part of a peer's name>]`
//!
//! Peers take turns in short slices, so that a disturbance hits both.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe_core::ByteSize;
use floe_device::baseline::{Cost, Offsets, Reads, Stopwatch, plain_reads};
use floe_device::config::{DeviceConfig, Direct, IoChoice, RingChoice};
use floe_device::{Address, Clock, SharedDevice, ZoneId, open};
use tokio::runtime::Runtime;

const SLICES: u32 = 8;

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let file_bytes = numbers.first().copied().unwrap_or(1024) << 20;
    let seconds = numbers.get(1).copied().unwrap_or(2);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let path = directory.path().join("device");
    fill(&path, file_bytes);

    println!(
        "{:>6} {:>5}  {:<22} {:>10} {:>9} {:>10} {:>11}",
        "bytes", "depth", "peer", "reads/s", "CPU us", "CPU ratio", "rate ratio"
    );
    for bytes in [4096, 65536] {
        for depth in [1, 8, 64] {
            compare(
                &path,
                file_bytes,
                bytes,
                depth,
                Duration::from_secs(seconds),
            );
        }
    }
}

/// Writes every byte of the file: holes would be read without any I/O.
fn fill(path: &Path, bytes: u64) {
    let mut file = std::fs::File::create(path).expect("a scratch file");
    let chunk: Vec<u8> = (0..1 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for _ in 0..bytes >> 20 {
        file.write_all(&chunk).expect("room for the scratch file");
    }
    file.sync_all().expect("the scratch file reaches the disk");
}

struct Peer {
    name: &'static str,
    run: Box<dyn FnMut(&Reads) -> Cost>,
    total: Option<Cost>,
}

fn compare(path: &Path, span: u64, bytes: usize, depth: usize, time: Duration) {
    let mut peers = peers(path);
    let mut reads = Reads {
        bytes,
        depth,
        count: 64 * depth as u64,
        span,
        seed: 1,
    };
    // As many reads per slice as the plain loop does in its share of the time.
    let trial = (peers[0].run)(&reads);
    reads.count = ((trial.rate() * time.as_secs_f64()) as u64 / u64::from(SLICES)).max(1000);
    for slice in 0..SLICES {
        reads.seed = u64::from(slice);
        for peer in &mut peers {
            let cost = (peer.run)(&reads);
            peer.total = Some(peer.total.map_or(cost, |total| total.plus(cost)));
        }
    }
    let costs: Vec<_> = peers
        .iter()
        .filter_map(|c| Some((c.name, c.total?)))
        .collect();
    let limit = costs[0].1;
    for (name, cost) in costs {
        println!(
            "{bytes:>6} {depth:>5}  {name:<22} {:>10.0} {:>9.2} {:>10.2} {:>11.2}",
            cost.rate(),
            cost.cpu_per_operation().as_secs_f64() * 1e6,
            cost.cpu_per_operation().as_secs_f64() / limit.cpu_per_operation().as_secs_f64(),
            cost.rate() / limit.rate(),
        );
    }
}

fn peers(path: &Path) -> Vec<Peer> {
    let owned = path.to_owned();
    let plain = move |registered: bool| {
        let path = owned.clone();
        move |reads: &Reads| plain_reads(&path, reads, registered).expect("the plain loop reads")
    };
    let current = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let multi = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let mut peers = vec![
        peer("plain loop", plain(true)),
        peer("plain, unregistered", plain(false)),
    ];
    let auto = RingChoice::Auto;
    for (name, runtime, io, rings) in [
        ("uring, current_thread", current(), IoChoice::Uring, auto),
        ("uring, multi_thread", multi(), IoChoice::Uring, auto),
        (
            "uring, a ring a worker",
            multi(),
            IoChoice::Uring,
            RingChoice::PerThread,
        ),
        ("threads", multi(), IoChoice::Threads, auto),
    ] {
        let run = through_device(path, runtime, io, rings);
        peers.push(peer(name, run));
    }
    // Words that are not numbers choose peers; the plain loop is always there.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word.parse::<u64>().is_err() && !word.starts_with('-'))
        .collect();
    peers.retain(|peer| {
        peer.name == "plain loop"
            || words.is_empty()
            || words.iter().any(|word| peer.name.contains(word.as_str()))
    });
    peers
}

fn peer(name: &'static str, run: impl FnMut(&Reads) -> Cost + 'static) -> Peer {
    Peer {
        name,
        run: Box::new(run),
        total: None,
    }
}

/// Reads through a device that is opened for each slice, since only one may
/// have the file at a time.
fn through_device(
    path: &Path,
    runtime: Runtime,
    io: IoChoice,
    rings: RingChoice,
) -> impl FnMut(&Reads) -> Cost + use<> {
    let config = DeviceConfig {
        path: Some(path.to_owned()),
        zone_size: Some(ByteSize::mib(64)),
        direct: Direct::On,
        io,
        rings,
        // The file has random bytes.
        accept_foreign: true,
        ..DeviceConfig::default()
    };
    move |reads| {
        runtime.block_on(async {
            let device = open(&config, &Clock::real()).expect("the device opens");
            device_reads(device, *reads).await
        })
    }
}

async fn device_reads(device: SharedDevice, reads: Reads) -> Cost {
    let left = Arc::new(AtomicU64::new(reads.count));
    let watch = Stopwatch::start();
    let readers: Vec<_> = (0..reads.depth as u64)
        .map(|reader| {
            let (device, left) = (Arc::clone(&device), Arc::clone(&left));
            let seed = reads.seed ^ (reader << 32);
            tokio::spawn(read_until_none_left(device, Reads { seed, ..reads }, left))
        })
        .collect();
    for reader in readers {
        reader.await.expect("a reader reads");
    }
    watch.stop(reads.count)
}

async fn read_until_none_left(device: SharedDevice, reads: Reads, left: Arc<AtomicU64>) {
    let zone_size = device.geometry().zone_size;
    let mut offsets = Offsets::new(&reads);
    while left
        .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
        .is_ok()
    {
        let offset = offsets.draw();
        let at = Address::new(ZoneId((offset / zone_size) as u32), offset % zone_size);
        let buf = device.allocate(reads.bytes);
        let buf = device.read(at, buf).await.expect("the device reads");
        assert_eq!(buf.len(), reads.bytes);
    }
}
