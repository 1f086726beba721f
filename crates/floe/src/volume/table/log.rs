//! The end of the log: batches of records in a ring.

use floe_core::layout::volume::{
    BATCH_BYTES_MAX, BlockBatch, BlockRecord, VOLUME_SUPERBLOCK_BYTES, VolumeSuperblock,
    batch_bytes,
};
use floe_device::{DeviceError, IoData};

use super::disk::Disk;

/// The log of an open cache.
#[derive(Debug)]
pub(super) struct Log {
    disk: Disk,
    superblock: VolumeSuperblock,
    /// Number of the next batch.
    number: u64,
    /// Batches with lower numbers survive a power loss.
    stable: u64,
    /// Bytes ever written to the ring, and those of them that the table has.
    head: u64,
    tail: u64,
    /// The records that the table lacks.
    records: Vec<BlockRecord>,
}

/// The stable records of a log, for a checkpoint.
pub(super) struct Snapshot {
    pub(super) records: Vec<BlockRecord>,
    number: u64,
    head: u64,
}

impl Log {
    /// An empty log behind `superblock`, which is durable.
    pub(super) fn new(disk: Disk, superblock: VolumeSuperblock) -> Self {
        Log {
            disk,
            number: superblock.first_batch,
            stable: superblock.first_batch,
            head: superblock.log_position,
            tail: superblock.log_position,
            superblock,
            records: Vec::new(),
        }
    }

    /// The log that a process left, none of whose batches is known to be stable: the
    /// next one has `number`, and begins at `position`.
    pub(super) fn resumed(
        disk: Disk,
        superblock: VolumeSuperblock,
        number: u64,
        position: u64,
    ) -> Self {
        Log {
            number,
            head: position,
            ..Log::new(disk, superblock)
        }
    }

    /// True if a batch fits, and one of a checkpoint's commit besides.
    pub(super) fn has_room(&self) -> bool {
        // Each batch can also waste the end of the ring.
        self.used() + 4 * BATCH_BYTES_MAX as u64 <= self.disk.plan.log_bytes
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.used() * 2 > self.disk.plan.log_bytes
    }

    /// Appends the records of one batch. If `commits`, everything that the device has
    /// written, and all records up to these, survive a power loss afterwards: one flush,
    /// and one batch that is written durably.
    pub(super) async fn append(
        &mut self,
        records: Vec<BlockRecord>,
        commits: bool,
    ) -> Result<(), DeviceError> {
        if commits {
            self.disk.flush().await?;
        }
        if records.is_empty() && (!commits || self.stable == self.number) {
            return Ok(());
        }
        let batch = BlockBatch {
            epoch: self.superblock.epoch,
            number: self.number,
            stable: match commits {
                true => self.number + 1,
                false => self.stable,
            },
            records,
        };
        let (at, data) = self.place(&batch);
        match commits {
            true => self.disk.write_durably(at, data).await?,
            false => self.disk.write(at, data).await?,
        }
        self.number += 1;
        self.stable = batch.stable;
        self.records.extend(batch.records);
        Ok(())
    }

    /// The records that the table lacks, which must be stable.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        debug_assert_eq!(self.stable, self.number);
        Snapshot {
            records: std::mem::take(&mut self.records),
            number: self.number,
            head: self.head,
        }
    }

    /// Notes that the table has the records of `snapshot`, durably.
    pub(super) async fn forget(&mut self, snapshot: &Snapshot) -> Result<(), DeviceError> {
        for record in &snapshot.records {
            self.superblock.apply_intent(record);
        }
        self.superblock.first_batch = snapshot.number;
        self.superblock.log_position = snapshot.head % self.disk.plan.log_bytes;
        self.write_superblock(|_| {}).await?;
        self.tail = snapshot.head;
        Ok(())
    }

    /// Changes the superblock, durably.
    pub(super) async fn write_superblock(
        &mut self,
        change: impl FnOnce(&mut VolumeSuperblock),
    ) -> Result<(), DeviceError> {
        change(&mut self.superblock);
        self.superblock.sequence += 1;
        write_superblock(&self.disk, &self.superblock).await
    }

    /// Encodes `batch`, and takes room for it. Returns its offset on the device.
    fn place(&mut self, batch: &BlockBatch) -> (u64, IoData) {
        let ring = self.disk.plan.log_bytes;
        let len = batch_bytes(batch.records.len(), self.disk.plan.block_size);
        let mut position = self.head % ring;
        if position + len as u64 > ring {
            self.head += ring - position;
            position = 0;
        }
        let mut buf = self.disk.allocate(len);
        buf.fill(0);
        let encoded = batch.encode(self.disk.id, &mut buf);
        debug_assert!(encoded.is_ok(), "the batch has room and few records");
        self.head += len as u64;
        (self.disk.plan.log_offset + position, buf.freeze())
    }

    fn used(&self) -> u64 {
        self.head - self.tail
    }
}

/// Writes both copies of the superblock, one after the other.
pub(super) async fn write_superblock(
    disk: &Disk,
    superblock: &VolumeSuperblock,
) -> Result<(), DeviceError> {
    for copy in 0..2 {
        let mut buf = disk.allocate(VOLUME_SUPERBLOCK_BYTES);
        let encoded = superblock.encode(&mut buf);
        debug_assert!(encoded.is_ok(), "the plan and the names were checked");
        let at = copy * VOLUME_SUPERBLOCK_BYTES as u64;
        disk.write(at, buf.freeze()).await?;
        disk.flush().await?;
    }
    Ok(())
}
