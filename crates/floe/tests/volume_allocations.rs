//! Requests of a volume that allocate nothing.

use std::sync::Arc;

use floe::volume::{Mode, Volume, VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe_core::ByteSize;
use floe_device::{Clock, IoBuf, IoData, MemoryBlocks};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;

/// Overwrites and reads every block.
async fn pass(volume: &Volume, data: &IoData) {
    for at in (0..BLOCKS * BLOCK as u64).step_by(BLOCK) {
        let written = volume.write_at(at, data.clone(), false).await;
        written.expect("it writes");
        drop(volume.read_at(at, BLOCK).await.expect("it reads"));
    }
}

#[test]
fn hits_and_overwrites_allocate_nothing() {
    let memory = |size| Arc::new(MemoryBlocks::new(ByteSize::mib(size), 4096).expect("a size"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let config = VolumeCacheConfig::default();
    let opened = VolumeCache::open(memory(16), Clock::real(), &config);
    let cache = runtime.block_on(opened).expect("it opens");
    let write_back = VolumeConfig {
        mode: Mode::WriteBack,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    let attached = cache.attach("disk", memory(8), &write_back);
    let volume = runtime.block_on(attached).expect("it attaches");
    let data = IoBuf::zeroed(BLOCK).freeze();
    // The first pass brings blocks in, the second fills what is kept for reuse.
    runtime.block_on(pass(&volume, &data));
    runtime.block_on(pass(&volume, &data));
    let third = || runtime.block_on(pass(&volume, &data));
    assert_eq!(allocation_counter::measure(third).count_total, 0);
}
