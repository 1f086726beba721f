//! The two metadata zones, and the end of the active one.

use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::Durability;
use floe_core::layout::{JOURNAL_HEADER_BYTES, JournalChain, JournalRecord};
use floe_device::{Address, IoBuf, IoData, Placement, SharedDevice};

use super::scan::scan;
use super::{LogError, LogSuperblock, METADATA, other};

/// Longest append.
const APPEND_BYTES_MAX: u32 = 128 << 10;

/// Copies of the checkpoint end: recovery trusts it as soon as it is on flash.
const END_COPIES: usize = 2;

/// Records of a checkpoint that are held in memory at once.
const CHECKPOINT_GROUP: usize = 1 << 14;

/// Attempts to read back a zone that does not read as it was written.
const READ_BACK_ATTEMPTS: usize = 4;

/// Space below the device that each metadata zone reserves. On a full disk the
/// log continues: the live records fit, and move to the other zone.
const RESERVED_BYTES: u64 = 1 << 20;

/// The writing end of a log.
#[derive(Debug)]
pub(super) struct Log<S> {
    device: SharedDevice,
    durability: Durability,
    end: End<S>,
    /// Epoch of the next attempt to begin a zone.
    next_epoch: u64,
    /// An append or a flush failed. The bytes behind the end are unknown, and a
    /// later successful flush does not cover the earlier writes: nothing more may
    /// be appended to this zone.
    is_poisoned: bool,
    /// The last block, until its second copy is on flash. Loss of the only copy
    /// would look like an interrupted append.
    single: Option<IoData>,
}

/// The active zone and its end.
#[derive(Clone, Copy, Debug)]
struct End<S> {
    zone: ZoneId,
    superblock: S,
    chain: JournalChain,
    written_bytes: u64,
}

impl<S: LogSuperblock> Log<S> {
    /// Begins a log in `zone` with a checkpoint of `records`. The epoch of
    /// `superblock` must be above every epoch that was read from either zone.
    pub(super) async fn begin(
        device: SharedDevice,
        durability: Durability,
        superblock: S,
        zone: ZoneId,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<Self, LogError> {
        reserve(&device);
        let chain = superblock.chain();
        let mut log = Log {
            device,
            durability,
            end: End {
                zone,
                superblock,
                chain,
                written_bytes: 0,
            },
            next_epoch: chain.epoch(),
            is_poisoned: false,
            single: None,
        };
        log.begin_zone(zone, records).await?;
        Ok(log)
    }

    /// The device of the log.
    pub(super) fn device(&self) -> SharedDevice {
        Arc::clone(&self.device)
    }

    /// Bytes written to the active zone.
    pub(super) fn written_bytes(&self) -> u64 {
        self.end.written_bytes
    }

    /// Appends records, as durable as configured. Each block is durable before
    /// the next one is written, so a later block proves that this one was durable.
    /// If the records do not `stand_alone`, all that the device was given before them
    /// becomes durable with them.
    ///
    /// An error poisons the zone: its bytes behind the end are unknown, and so is
    /// the durability of the blocks.
    pub(super) async fn commit(
        &mut self,
        records: &[S::Record],
        stand_alone: bool,
    ) -> Result<(), LogError> {
        if self.is_poisoned {
            return Err(LogError::Poisoned);
        }
        let end = self.end;
        for records in self.blocks(records)? {
            let appended = self.append_next(records, stand_alone).await;
            if appended.is_err() {
                self.end = end;
                self.is_poisoned = true;
                return appended;
            }
        }
        Ok(())
    }

    /// True if only one copy of the last block is on flash.
    pub(super) fn lacks_copy(&self) -> bool {
        self.single.is_some() && !self.is_poisoned
    }

    /// Appends the second copy of the last block. An error poisons the zone, and
    /// leaves the records as durable as they were.
    pub(super) async fn complete(&mut self) -> Result<(), LogError> {
        let Some(block) = self.single.take().filter(|_| !self.is_poisoned) else {
            return Ok(());
        };
        self.is_poisoned = true;
        self.append_block(&block).await?;
        self.flush().await?;
        self.is_poisoned = false;
        Ok(())
    }

    /// Makes all appends durable, if durability includes a power loss.
    async fn flush(&self) -> Result<(), LogError> {
        if self.durability == Durability::Power {
            self.device.flush().await?;
        }
        Ok(())
    }

    /// Cuts records into as few blocks as can be appended.
    ///
    /// # Errors
    /// [`LogError::Full`] if the rest of the log has no room for them and for
    /// another copy of the last one.
    fn blocks<'a>(&self, mut records: &'a [S::Record]) -> Result<Vec<&'a [S::Record]>, LogError> {
        let geometry = self.device.geometry();
        let block_size = geometry.block_size;
        let longest = geometry.max_append_bytes.min(APPEND_BYTES_MAX) / block_size * block_size;
        let room = (longest as usize).saturating_sub(JOURNAL_HEADER_BYTES);
        let (mut blocks, mut end, mut last) = (Vec::new(), self.end.written_bytes, 0);
        while !records.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&S::Record| {
                bytes += record.encoded_bytes();
                bytes <= room
            };
            let count = records.iter().take_while(fits).count().max(1);
            let (block, rest) = records.split_at(count);
            last = JournalChain::encoded_bytes(block, block_size) as u64;
            end += last;
            blocks.push(block);
            records = rest;
        }
        if end + last > geometry.zone_capacity.min(S::BYTES_MAX) {
            return Err(LogError::Full);
        }
        Ok(blocks)
    }

    /// Appends one block of a group, as durable as configured.
    async fn append_next(
        &mut self,
        records: &[S::Record],
        stands_alone: bool,
    ) -> Result<(), LogError> {
        let (chain, block) = self.encode(records)?;
        let is_power = self.durability == Durability::Power;
        if is_power && stands_alone && self.device.appends_durably() {
            let (device, zone) = (&self.device, self.end.zone);
            let append = device.append_durably(zone, block.clone(), Placement::METADATA);
            self.appended(append.await?, &block);
        } else {
            self.append_block(&block).await?;
            self.flush().await?;
        }
        self.end.chain = chain;
        self.single = Some(block);
        Ok(())
    }

    /// Appends one block, `copies` times.
    async fn append(&mut self, records: &[S::Record], copies: usize) -> Result<(), LogError> {
        let (chain, block) = self.encode(records)?;
        for _ in 0..copies {
            self.append_block(&block).await?;
        }
        // The chain advances last: a failed block is not part of it.
        self.end.chain = chain;
        self.single = (copies == 1).then_some(block);
        Ok(())
    }

    /// The next block of the log, and the chain that ends with it.
    fn encode(&self, records: &[S::Record]) -> Result<(JournalChain, IoData), LogError> {
        let block_size = self.device.geometry().block_size;
        let mut chain = self.end.chain;
        let mut buf = IoBuf::zeroed(JournalChain::encoded_bytes(records, block_size));
        chain.encode(block_size, records, &mut buf)?;
        Ok((chain, buf.freeze()))
    }

    async fn append_block(&mut self, block: &IoData) -> Result<(), LogError> {
        let append = self
            .device
            .append(self.end.zone, block.clone(), Placement::METADATA);
        self.appended(append.await?, block);
        Ok(())
    }

    fn appended(&mut self, at: Address, block: &IoData) {
        self.end.written_bytes = at.offset + block.len() as u64;
    }

    /// Moves to the other zone, with `records` as its checkpoint.
    pub(super) async fn checkpoint(
        &mut self,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<(), LogError> {
        self.begin_zone(other(self.end.zone), records).await
    }

    /// Resets `zone` and writes a superblock and a checkpoint of `records` into
    /// it. Each step is durable before the next one.
    async fn begin_zone(
        &mut self,
        zone: ZoneId,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<(), LogError> {
        self.device.reset(zone).await?;
        // Poisoned until all is done: even after an error the new zone may be
        // complete on flash, and then recovery trusts it. So the old one must
        // take no more appends.
        self.is_poisoned = true;
        let superblock = self.end.superblock.with_epoch(self.next_epoch);
        // Each attempt has its own epoch: a reset may leave the blocks of a
        // failed attempt readable.
        self.next_epoch += 1;
        let block = self.block(&superblock)?;
        let len = block.len() as u64;
        let at = self.device.append(zone, block, Placement::METADATA).await?;
        self.device.flush().await?;
        let new = End {
            zone,
            superblock,
            chain: superblock.chain(),
            written_bytes: at.offset + len,
        };
        let previous = std::mem::replace(&mut self.end, new);
        if let Err(error) = self.append_checkpoint(records).await {
            self.end = previous;
            return Err(error);
        }
        self.retire(other(zone)).await?;
        self.is_poisoned = false;
        Ok(())
    }

    async fn append_checkpoint(
        &mut self,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<(), LogError> {
        let mut records = records.into_iter();
        let mut count = 0;
        loop {
            let group: Vec<_> = records.by_ref().take(CHECKPOINT_GROUP).collect();
            if group.is_empty() {
                break;
            }
            count += group.len() as u64;
            for block in self.blocks(&group)? {
                self.append(block, 1).await?;
            }
        }
        if count > 0 {
            self.device.flush().await?;
        }
        let end = [S::Record::checkpoint_end(count)];
        self.blocks(&end)?;
        self.append(&end, END_COPIES).await?;
        Ok(self.device.flush().await?)
    }

    /// Durably resets the zone of the earlier epoch, so that only the active zone
    /// has the records, and writes a copy of the superblock to it. The copy
    /// identifies the cache if the superblock before the log is damaged.
    async fn retire(&self, zone: ZoneId) -> Result<(), LogError> {
        let copy = self.block(&self.end.superblock)?;
        self.device.reset(zone).await?;
        if let Err(error) = self.device.append(zone, copy, Placement::METADATA).await {
            tracing::warn!(%error, %zone, "the old journal zone takes no copy of the superblock");
        }
        Ok(self.device.flush().await?)
    }

    fn block(&self, superblock: &S) -> Result<IoData, LogError> {
        let mut block = IoBuf::zeroed(self.device.geometry().block_size as usize);
        superblock.encode(&mut block)?;
        Ok(block.freeze())
    }

    /// All records of the active zone. A damaged block looks like the end of the
    /// log, so the chain at the end is compared with the expected one.
    pub(super) async fn read_back(&self) -> Result<Vec<S::Record>, LogError> {
        let End {
            superblock,
            zone,
            chain,
            ..
        } = &self.end;
        for _ in 0..READ_BACK_ATTEMPTS {
            let scan = scan(&self.device, superblock, *zone, Some(*chain)).await?;
            if scan.reached_end {
                return Ok(scan.records);
            }
            tracing::warn!("the journal does not read back as it was written");
        }
        Err(LogError::ReadBack)
    }
}

/// Reserves the space below the device that a log needs.
fn reserve(device: &SharedDevice) {
    let bytes = RESERVED_BYTES.min(device.geometry().zone_capacity);
    for zone in METADATA {
        if let Err(error) = device.reserve(zone, bytes) {
            tracing::warn!(%error, "no space is reserved for the journal; on a full disk, writes are rejected");
        }
    }
}
