//! The witness: remembers, apart from the cache device, the volumes that went on
//! without it.
//!
//! A cache device that cannot be written cannot be told that its blocks become stale.
//! So a volume may go on without it only once the witness says so durably; when the
//! cache is opened again, all blocks of that volume are forgotten. The superblock has
//! the number of the witness until a clean stop. With another witness, or none, clean
//! blocks are forgotten, and dirty ones are an error, because they may be stale.

use floe_core::layout::volume::{VolumeWitness, WITNESS_BYTES};
use floe_core::layout::{CacheId, LayoutError};
use floe_core::volume::VolumeId;
use floe_device::{DeviceError, SharedBlockDevice};
use rand::RngExt as _;
use tokio::sync::Mutex;

use super::error::OpenVolumesError;

/// The witness of an open cache.
#[derive(Debug)]
pub(super) struct Witness {
    device: SharedBlockDevice,
    content: Mutex<VolumeWitness>,
}

impl Witness {
    /// Opens the witness of the cache `id`. A blank one, a damaged one, and one of
    /// another cache become new ones.
    pub(super) async fn open(
        device: SharedBlockDevice,
        id: CacheId,
    ) -> Result<Self, OpenVolumesError> {
        let bytes = device.read(0, device.allocate(2 * WITNESS_BYTES)).await?;
        let (first, second) = bytes.split_at(WITNESS_BYTES);
        let copies = [first, second].map(VolumeWitness::decode);
        if let Some(source) = copies.iter().find_map(|copy| match copy {
            Err(error @ (LayoutError::Foreign | LayoutError::Unexpected(_))) => Some(*error),
            _ => None,
        }) {
            let device = device.describe();
            return Err(OpenVolumesError::NotBlank { device, source });
        }
        let found = copies.into_iter().flatten();
        let found = found.max_by_key(|copy| copy.sequence);
        let is_new = found.as_ref().is_none_or(|copy| copy.cache_id != id);
        let witness = Witness {
            device,
            content: Mutex::new(match found {
                Some(content) if !is_new => content,
                _ => VolumeWitness {
                    cache_id: id,
                    number: rand::rng().random_range(1..=u32::MAX),
                    sequence: 0,
                    stale: Vec::new(),
                },
            }),
        };
        if is_new {
            witness.change(|_| {}).await?;
        }
        Ok(witness)
    }

    /// Its number, and the volumes whose blocks on the cache device are stale.
    pub(super) async fn content(&self) -> (u32, Vec<VolumeId>) {
        let content = self.content.lock().await;
        (content.number, content.stale.clone())
    }

    /// Notes that the blocks of `volumes` are stale, durably.
    pub(super) async fn add_stale(&self, volumes: &[VolumeId]) -> Result<(), DeviceError> {
        self.change(|content| {
            content.stale.retain(|known| !volumes.contains(known));
            content.stale.extend(volumes);
        })
        .await
    }

    /// Notes that no block is stale: the table of blocks has forgotten them.
    pub(super) async fn clear(&self) -> Result<(), DeviceError> {
        if self.content.lock().await.stale.is_empty() {
            return Ok(());
        }
        self.change(|content| content.stale.clear()).await
    }

    async fn change(&self, change: impl FnOnce(&mut VolumeWitness)) -> Result<(), DeviceError> {
        let mut content = self.content.lock().await;
        change(&mut content);
        content.sequence += 1;
        for copy in 0..2 {
            let mut buf = self.device.allocate(WITNESS_BYTES);
            let encoded = content.encode(&mut buf);
            debug_assert!(encoded.is_ok(), "a cache has few volumes");
            let at = copy * WITNESS_BYTES as u64;
            self.device.write(at, buf.freeze()).await?;
            self.device.flush().await?;
        }
        Ok(())
    }
}
