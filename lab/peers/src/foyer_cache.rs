//! foyer, with default settings except those that must be equal for all peers:
//! sizes, direct I/O, and a write to flash on insertion.

use std::hash::Hash;
use std::path::Path;

use anyhow::Result;
use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, IoEngineConfig, PsyncIoEngineConfig, StorageKey, UringIoEngineConfig,
};

use crate::peer::Sizes;

/// foyer 0.22 has one storage engine (blocks) over two I/O engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FoyerIo {
    Psync,
    Uring,
}

/// foyer's documentation recommends larger queues for bursts.
const QUEUE_BYTES: usize = 64 << 20;
const URING_DEPTH: usize = 64;

#[derive(Clone)]
pub struct FoyerCache(HybridCache<u64, Bytes>);

/// An open cache.
pub async fn build<K: StorageKey + Hash>(
    folder: &Path,
    sizes: Sizes,
    io: FoyerIo,
) -> Result<HybridCache<K, Bytes>> {
    let device = FsDeviceBuilder::new(folder)
        .with_capacity(sizes.flash_bytes as usize)
        .with_direct(true)
        .build()?;
    let engine = BlockEngineConfig::new(device)
        .with_buffer_pool_size(QUEUE_BYTES)
        .with_submit_queue_size_threshold(QUEUE_BYTES);
    let builder = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(sizes.ram_bytes as usize)
        .with_weighter(|_key: &K, value: &Bytes| value.len())
        .storage()
        .with_engine_config(engine);
    let builder = match io {
        FoyerIo::Psync => builder.with_io_engine_config(PsyncIoEngineConfig::new()),
        FoyerIo::Uring => {
            let config: Box<dyn IoEngineConfig> =
                Box::new(UringIoEngineConfig::new().with_io_depth(URING_DEPTH));
            builder.with_io_engine_config(config)
        }
    };
    Ok(builder.build().await?)
}

impl FoyerCache {
    pub async fn open(folder: &Path, sizes: Sizes, io: FoyerIo) -> Result<Self> {
        Ok(FoyerCache(build(folder, sizes, io).await?))
    }

    pub async fn get(&self, key: u64) -> Result<Option<Bytes>> {
        Ok(self.0.get(&key).await?.map(|entry| entry.value().clone()))
    }

    pub fn put(&self, key: u64, value: Bytes) -> Result<bool> {
        self.0.insert(key, value);
        Ok(true) // foyer does not say when it drops an insert
    }

    pub async fn close(self) -> Result<()> {
        Ok(self.0.close().await?)
    }
}
