//! Floe's `Store`: the RAM tier over the chunk engine on one file, with default
//! settings except those that must be equal for all peers.

use std::path::Path;

use anyhow::Result;
use bytes::Bytes;
use floe::{PutOptions, PutOutcome, RamConfig, Store, StoreConfig};
use floe_core::ByteSize;
use floe_core::chunk::ChunkConfig;
use floe_device::config::Direct;
use floe_device::{Clock, DeviceConfig};

use crate::peer::Sizes;

/// foyer's block size. A block of foyer corresponds to a zone of Floe.
const ZONE: ByteSize = ByteSize::mib(16);

#[derive(Clone)]
pub struct FloeCache {
    store: Store,
    /// A replaced value may come back after a crash.
    relaxed: bool,
}

impl FloeCache {
    pub async fn open(folder: &Path, sizes: Sizes, relaxed: bool) -> Result<Self> {
        let clock = Clock::real();
        let device = DeviceConfig {
            zone_size: Some(ZONE),
            direct: Direct::On,
            ..DeviceConfig::file(folder.join("cache"), ByteSize(sizes.flash_bytes))
        };
        let device = floe_device::open(&device, &clock)?;
        let config = StoreConfig {
            chunk: ChunkConfig {
                size: ByteSize((sizes.value_bytes as u64).max(ByteSize::kib(64).bytes())),
                ..ChunkConfig::default()
            },
            ram: RamConfig {
                size: ByteSize(sizes.ram_bytes),
                max_value_size: ByteSize::mib(1),
            },
            ..StoreConfig::default()
        };
        Ok(FloeCache {
            store: Store::open(device, clock, &config).await?,
            relaxed,
        })
    }

    pub async fn get(&self, key: u64) -> Result<Option<Bytes>> {
        Ok(self
            .store
            .get(&key.to_le_bytes())
            .await?
            .map(|value| value.bytes))
    }

    pub async fn put(&self, key: u64, value: Bytes) -> Result<bool> {
        let options = PutOptions::default().with_relaxed(self.relaxed);
        let admission = self.store.put(&key.to_le_bytes(), value, options).await?;
        Ok(admission == PutOutcome::Stored)
    }

    pub async fn close(self) -> Result<()> {
        Ok(self.store.close().await?)
    }
}
