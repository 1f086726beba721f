//! The two metadata zones, and where the active one ends.

use floe_core::ZoneId;
use floe_core::chunk::Durability;
use floe_core::layout::{JOURNAL_HEADER_BYTES, JournalChain, JournalRecord};
use floe_device::{IoBuf, IoData, Placement, SharedDevice};

use super::scan::scan;
use super::{LogError, LogSuperblock, METADATA, other};

/// Longest append.
const APPEND_BYTES_MAX: u32 = 128 << 10;

/// Records of a checkpoint that are held in memory at once.
const CHECKPOINT_GROUP: usize = 1 << 14;

/// Attempts to read back a zone that reads otherwise than it was written.
const READ_BACK_ATTEMPTS: usize = 4;

/// Space below the device that each metadata zone keeps. A log goes on where a
/// disk is full: the records that must be kept fit, and move to the other zone.
const RESERVED_BYTES: u64 = 1 << 20;

/// The writing end of a log.
#[derive(Debug)]
pub(crate) struct Log<S> {
    device: SharedDevice,
    durability: Durability,
    end: End<S>,
    /// Epoch of the next attempt to begin a zone.
    next_epoch: u64,
    /// An append to the active zone failed: the bytes behind its end are
    /// unknown, perhaps the block itself. Nothing may follow it.
    is_poisoned: bool,
}

/// The active zone and where it ends.
#[derive(Clone, Copy, Debug)]
struct End<S> {
    zone: ZoneId,
    superblock: S,
    chain: JournalChain,
    written_bytes: u64,
}

impl<S: LogSuperblock> Log<S> {
    /// Begins a log in `zone` with a checkpoint of `records`. The epoch of
    /// `superblock` is above every one that was read from either zone.
    pub(crate) async fn begin(
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
        };
        log.begin_zone(zone, records).await?;
        Ok(log)
    }

    /// Bytes written to the active zone.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.end.written_bytes
    }

    /// Makes everything appended durable where power loss counts. Of two
    /// appends that are not durable the later may survive alone, and a log with
    /// a hole is not believed: so each group is flushed, waited for or not.
    pub(super) async fn flush(&self) -> Result<(), LogError> {
        if self.durability == Durability::Power {
            self.device.flush().await?;
        }
        Ok(())
    }

    /// Appends records behind the last ones.
    pub(super) async fn append(&mut self, records: &[S::Record]) -> Result<(), LogError> {
        if self.is_poisoned {
            return Err(LogError::Poisoned);
        }
        let appends = self.appends(records);
        let block_size = self.device.geometry().block_size;
        let bytes = |records: &&[S::Record]| JournalChain::encoded_bytes(records, block_size);
        let needed: usize = appends.iter().map(bytes).sum();
        if self.end.written_bytes + needed as u64 > self.device.geometry().zone_capacity {
            return Err(LogError::Full);
        }
        for records in appends {
            self.append_block(records).await?;
        }
        Ok(())
    }

    /// Cuts records into as few blocks as can be appended.
    fn appends<'a>(&self, mut records: &'a [S::Record]) -> Vec<&'a [S::Record]> {
        let geometry = self.device.geometry();
        let block = geometry.block_size;
        let longest = geometry.max_append_bytes.min(APPEND_BYTES_MAX) / block * block;
        let room = (longest as usize).saturating_sub(JOURNAL_HEADER_BYTES);
        let mut appends = Vec::new();
        while !records.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&S::Record| {
                bytes += record.encoded_bytes();
                bytes <= room
            };
            let count = records.iter().take_while(fits).count().max(1);
            let (append, rest) = records.split_at(count);
            appends.push(append);
            records = rest;
        }
        appends
    }

    async fn append_block(&mut self, records: &[S::Record]) -> Result<(), LogError> {
        let block_size = self.device.geometry().block_size;
        let mut chain = self.end.chain;
        let mut buf = IoBuf::zeroed(JournalChain::encoded_bytes(records, block_size));
        chain.encode(block_size, records, &mut buf)?;
        let len = buf.len() as u64;
        let appended = self
            .device
            .append(self.end.zone, buf.freeze(), Placement(0));
        let appended = appended.await;
        self.is_poisoned = appended.is_err();
        let at = appended?;
        // Only now: a block that failed is not part of the chain.
        self.end.chain = chain;
        self.end.written_bytes = at.offset + len;
        Ok(())
    }

    /// Moves to the other zone, which begins with `records`.
    pub(super) async fn checkpoint(
        &mut self,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<(), LogError> {
        self.begin_zone(other(self.end.zone), records).await
    }

    /// Resets `zone` and writes a superblock and a checkpoint of `records` into it.
    async fn begin_zone(
        &mut self,
        zone: ZoneId,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<(), LogError> {
        self.device.reset(zone).await?;
        let superblock = self.end.superblock.with_epoch(self.next_epoch);
        // Each attempt has an epoch of its own: a reset may leave the blocks of
        // a failed one readable.
        self.next_epoch += 1;
        let block = self.block(&superblock)?;
        let len = block.len() as u64;
        let at = self.device.append(zone, block, Placement(0)).await?;
        let new = End {
            zone,
            superblock,
            chain: superblock.chain(),
            written_bytes: at.offset + len,
        };
        let previous = std::mem::replace(&mut self.end, new);
        self.is_poisoned = false;
        if let Err(error) = self.append_checkpoint(records).await {
            self.end = previous;
            // The new zone may be complete on flash all the same, and then a
            // recovery believes it: the old one takes nothing more.
            self.is_poisoned = true;
            return Err(error);
        }
        self.leave_copy().await;
        Ok(())
    }

    async fn append_checkpoint(
        &mut self,
        records: impl IntoIterator<Item = S::Record, IntoIter: Send>,
    ) -> Result<(), LogError> {
        let mut records = records.into_iter();
        let mut count = 0;
        loop {
            let mut group: Vec<_> = records.by_ref().take(CHECKPOINT_GROUP).collect();
            count += group.len() as u64;
            let is_last = group.len() < CHECKPOINT_GROUP;
            group.extend(is_last.then(|| S::Record::checkpoint_end(count)));
            self.append(&group).await?;
            if is_last {
                self.device.flush().await?;
                return Ok(());
            }
        }
    }

    /// Empties the zone of the earlier epoch, which must not be taken for the
    /// newer, and leaves a copy of the superblock there. The cache is known by
    /// the copy where the superblock in front of the log is damaged.
    async fn leave_copy(&self) {
        let zone = other(self.end.zone);
        if let Err(error) = self.write_copy(zone).await {
            tracing::warn!(%error, %zone, "the old journal zone could not be emptied, or takes no copy of the superblock");
        }
    }

    async fn write_copy(&self, zone: ZoneId) -> Result<(), LogError> {
        let copy = self.block(&self.end.superblock)?;
        self.device.reset(zone).await?;
        self.device.append(zone, copy, Placement(0)).await?;
        Ok(())
    }

    fn block(&self, superblock: &S) -> Result<IoData, LogError> {
        let mut block = IoBuf::zeroed(self.device.geometry().block_size as usize);
        superblock.encode(&mut block)?;
        Ok(block.freeze())
    }

    /// All records of the active zone. A block that reads back wrong looks like
    /// the end of the log: only the chain tells whether all was read.
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
            tracing::warn!("the journal reads back otherwise than it was written");
        }
        Err(LogError::ReadBack)
    }
}

/// Takes the space that a log needs below a device.
fn reserve(device: &SharedDevice) {
    let bytes = RESERVED_BYTES.min(device.geometry().zone_capacity);
    for zone in METADATA {
        if let Err(error) = device.reserve(zone, bytes) {
            tracing::warn!(%error, "no space is set aside for the journal; where it lacks some, writes are refused");
        }
    }
}
