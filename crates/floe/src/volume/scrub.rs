//! Reading all data of the cache, to find what the device has damaged.

use std::sync::Arc;

use floe_core::volume::mode::Sector;
use floe_core::volume::{Operation, Piece, Request, Step};
use floe_core::{ByteSize, Tick};

use super::cache::VolumeCache;
use super::error::VolumeError;
use super::limits::time_at;
use super::state::Shared;

/// The result of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ScrubReport {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Clean bytes that could not be read, or had another checksum. They have left the
    /// cache: the backing device has them.
    pub dropped_bytes: u64,
    /// Dirty bytes that could not be read, or had another checksum. Reads of them fail
    /// until they are written again or discarded.
    pub damaged_bytes: u64,
}

impl VolumeCache {
    /// Reads the data of every block, at `rate` bytes a second at most, or as fast as the
    /// device if it is 0. Blocks that are in use are waited for, and those that enter
    /// meanwhile may be left out. Without checksums only errors of the device are found.
    ///
    /// # Errors
    /// The cache is closed, or its blocks cannot be read.
    pub async fn scrub(&self, rate: ByteSize) -> Result<ScrubReport, VolumeError> {
        let shared = &self.shared;
        let mut report = ScrubReport::default();
        let mut may_read = Tick::ZERO;
        shared.loaded().await?;
        for place in shared.groups() {
            let mut blocks = Vec::new();
            let shard = &shared.shards[shared.plan.shard_of_place(place)];
            let each = |block| blocks.push(block);
            shard.lock().cache.blocks_around(place, each);
            for block in blocks {
                shared.clock.sleep_until(may_read).await;
                let _request = shared.begin_request()?;
                let read = shared.scrub_block(block, &mut report).await;
                may_read = may_read.max(shared.clock.now()) + time_at(rate.bytes(), read);
            }
        }
        tracing::info!(?report, "the data of all blocks was read");
        Ok(report)
    }
}

impl Shared {
    /// Reads the valid bytes of `block`, if it is still there. Returns how many they are.
    async fn scrub_block(self: &Arc<Self>, block: Piece, report: &mut ScrubReport) -> u64 {
        let request = Request {
            volume: block.extent.volume,
            operation: Operation::Read,
            range: block.extent.range,
        };
        let mut runs = Vec::new();
        let lock = self.locked(request, |state, lock| {
            state.cache.runs(block, |piece, sector| {
                if sector != Sector::Missing {
                    runs.push((piece, sector));
                }
            });
            lock
        });
        let lock = lock.await;
        let mut read = 0;
        for (piece, sector) in runs {
            let bytes = piece.extent.range.len();
            read += bytes;
            let Err(error) = self.read_piece(piece).await else {
                continue;
            };
            let volume = piece.extent.volume.0;
            let range = piece.extent.range;
            if sector == Sector::Dirty {
                report.damaged_bytes += self.unreadable_bytes(piece).await;
                tracing::error!(volume, ?range, %error, "the only copy of data is damaged");
            } else {
                report.dropped_bytes += bytes;
                tracing::warn!(volume, ?range, %error, "damaged data leaves the cache");
                self.undo(&[Step::Fill(piece)], &[], &lock);
            }
        }
        report.read_bytes += read;
        read
    }

    /// Bytes of the device's blocks in `piece` that cannot be read.
    async fn unreadable_bytes(&self, piece: Piece) -> u64 {
        let (block, mut unreadable) = (u64::from(self.device.block_bytes()), 0);
        for at in (0..piece.extent.range.len()).step_by(block as usize) {
            let place = self.offset(piece.place + at);
            let read = self
                .device
                .read(place, self.device.allocate(block as usize));
            unreadable += u64::from(read.await.is_err()) * block;
        }
        unreadable
    }
}
