//! Arbitrary contents of a device, opened as a cache of volumes: an error, or a cache
//! that serves, closes and opens again.

use std::sync::Arc;

use floe::ByteSize;
use floe::device::{Clock, IoBuf, MemoryBlocks, SharedBlockDevice};
use floe::volume::{Mode, Volume, VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe_fuzz_targets::seal_volumes;

use crate::device::{contents, seed};

const BLOCK: usize = 512;
const NAME: &str = "disk";
const VOLUME_BYTES: u64 = 1 << 20;

/// Length of a device, in units of 64 KiB.
const UNITS: u8 = 26;

pub(crate) fn volume_contents(data: &[u8]) {
    let Some(mut contents) = contents(data) else {
        return;
    };
    contents.truncate(contents.len() / BLOCK * BLOCK);
    if contents.is_empty() {
        return;
    }
    run(serve(&contents));
    seal_volumes(&mut contents);
    run(serve(&contents));
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test)
}

fn config() -> VolumeCacheConfig {
    VolumeCacheConfig {
        sizes: "4KiB..64KiB".parse().expect("they are powers of two"),
        ..VolumeCacheConfig::default()
    }
}

fn memory(bytes: u64) -> SharedBlockDevice {
    Arc::new(MemoryBlocks::new(ByteSize(bytes), BLOCK as u32).expect("whole blocks"))
}

async fn open(device: &SharedBlockDevice) -> Option<VolumeCache> {
    let opened = VolumeCache::open(Arc::clone(device), Clock::real(), &config()).await;
    let cache = opened.ok()?;
    cache.loaded().await.ok().map(|()| cache)
}

/// Attaches the volume, unless the cache refuses the backing device.
async fn attach(cache: &VolumeCache, mode: Mode) -> Option<Volume> {
    let config = VolumeConfig {
        mode,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    let attached = cache.attach(NAME, memory(VOLUME_BYTES), &config).await;
    attached.ok()
}

async fn serve(contents: &[u8]) {
    let device = memory(contents.len() as u64);
    for (at, block) in (0..).step_by(BLOCK).zip(contents.chunks(BLOCK)) {
        if block.iter().any(|byte| *byte != 0) {
            let written = device.write(at, IoBuf::copy_of(block, BLOCK).freeze());
            written.await.expect("memory takes it");
        }
    }
    let Some(cache) = open(&device).await else {
        return;
    };
    if let Some(volume) = attach(&cache, Mode::WriteBack).await {
        change(&volume).await;
        volume.clean().await.expect("no device fails");
    }
    cache.close().await.expect("no device fails");
    let again = open(&device).await;
    assert!(again.is_some(), "what was closed opens again");
}

/// Reads everything, and overwrites parts.
async fn change(volume: &Volume) {
    let read = volume.read_at(0, VOLUME_BYTES as usize).await;
    read.expect("no device fails");
    for (at, len) in [(0, 4096), (60 << 10, 16 << 10), (300 << 10, 512)] {
        let data = IoBuf::copy_of(&vec![0xda; len], len).freeze();
        let written = volume.write_at(at, data.clone(), false).await;
        written.expect("no device fails");
        let read = volume.read_at(at, len).await.expect("no device fails");
        assert!(*read == *data, "the newest write is read");
    }
}

/// A device with the content of `device`.
async fn seed_of(device: &SharedBlockDevice) -> Vec<u8> {
    let len = device.size_bytes() as usize;
    let bytes = device.read(0, IoBuf::zeroed(len)).await;
    let bytes = bytes.expect("memory can be read");
    let pieces: Vec<(u32, &[u8])> = (0..)
        .step_by(128)
        .zip(bytes.chunks(128))
        .filter(|(_, piece)| piece.iter().any(|byte| *byte != 0))
        .collect();
    seed(UNITS, &pieces)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let blank = seed(UNITS, &[]);
    let caches = [Mode::WriteBack, Mode::WriteThrough].map(|mode| {
        run(async {
            let device = memory(u64::from(UNITS) * (64 << 10));
            let cache = open(&device).await.expect("a blank device is laid out");
            let volume = attach(&cache, mode).await.expect("it attaches");
            for at in [0, 128 << 10] {
                // Few bytes of content, so that most changes of a seed hit structures.
                let data = IoBuf::zeroed(6 << 10).freeze();
                let written = volume.write_at(at, data, true).await;
                written.expect("no device fails");
            }
            let unclean = seed_of(&device).await;
            cache.close().await.expect("no device fails");
            drop(cache);
            let clean = seed_of(&device).await;
            let cache = open(&device).await.expect("it opens");
            cache.close().await.expect("no device fails");
            [unclean, clean, seed_of(&device).await]
        })
    });
    caches.into_iter().flatten().chain([blank]).collect()
}
