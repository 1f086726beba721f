//! Reads and writes whole blocks of slot tables.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use floe_core::layout::{
    CacheId, LayoutError, SlotEntry, SlotGeometry, ZoneLife, decode_slot_block, encode_slot_block,
};
use floe_device::{Address, DeviceError, Placement, SharedDevice};

/// Table bytes per read.
const READ_BYTES: u64 = 1 << 20;
/// Most attempts to read or write a block.
const ATTEMPTS: usize = 3;

/// The tables of one cache.
#[derive(Debug)]
pub(crate) struct TableBlocks {
    device: SharedDevice,
    id: CacheId,
    geometry: SlotGeometry,
    writes: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
}

/// Slots of a block and their entries.
pub(crate) type Block = Vec<(u32, Option<SlotEntry>)>;

/// Errors of reading or writing a table block.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
}

impl TableBlocks {
    pub(crate) fn new(device: SharedDevice, id: CacheId, geometry: SlotGeometry) -> Self {
        TableBlocks {
            device,
            id,
            geometry,
            writes: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
        }
    }

    pub(crate) fn geometry(&self) -> &SlotGeometry {
        &self.geometry
    }

    /// Makes all writes so far durable.
    pub(super) async fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush().await
    }

    /// Blocks written.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// Reads that failed, and blocks that read back wrong.
    pub(crate) fn read_errors(&self) -> u64 {
        self.read_errors.load(Relaxed)
    }

    /// Writes that failed.
    pub(crate) fn write_errors(&self) -> u64 {
        self.write_errors.load(Relaxed)
    }

    /// Reads all blocks of a zone's table; `None` for an invalid block.
    pub(crate) async fn read_table(&self, life: ZoneLife) -> Vec<Option<Block>> {
        let block = u64::from(self.geometry.block_size);
        let at_once = (READ_BYTES / block).max(1) as u32;
        let mut table = Vec::with_capacity(self.geometry.table_blocks as usize);
        let mut first = 0;
        while first < self.geometry.table_blocks {
            let count = at_once.min(self.geometry.table_blocks - first);
            let at = Address::new(life.zone, self.geometry.table_block_offset(first));
            let buf = self.device.allocate((u64::from(count) * block) as usize);
            match self.device.read(at, buf).await {
                Ok(buf) => {
                    for (number, bytes) in (first..).zip(buf.chunks(block as usize)) {
                        table.push(self.decode(life, number, bytes).ok());
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, zone = %life.zone, "a part of a slot table could not be read at once");
                    for number in first..first + count {
                        table.push(self.read(life, number).await.ok());
                    }
                }
            }
            first += count;
        }
        table
    }

    pub(crate) async fn read(&self, life: ZoneLife, number: u32) -> Result<Block, TableError> {
        let at = Address::new(life.zone, self.geometry.table_block_offset(number));
        let buf = self.device.allocate(self.geometry.block_size as usize);
        let buf = self.device.read(at, buf).await?;
        Ok(self.decode(life, number, &buf)?)
    }

    /// Reads a block with retries; `None` if it is unreadable.
    pub(super) async fn read_with_retries(&self, life: ZoneLife, number: u32) -> Option<Block> {
        for _ in 0..ATTEMPTS {
            match self.read(life, number).await {
                Ok(block) => return Some(block),
                Err(error) => {
                    self.read_errors.fetch_add(1, Relaxed);
                    tracing::warn!(%error, zone = %life.zone, block = number, "a slot table block could not be read");
                }
            }
        }
        None
    }

    pub(crate) async fn write(
        &self,
        life: ZoneLife,
        number: u32,
        entries: &[Option<SlotEntry>],
    ) -> Result<(), TableError> {
        let geometry = &self.geometry;
        let mut buf = self.device.allocate(geometry.block_size as usize);
        encode_slot_block(self.id, life, geometry, number, entries, &mut buf)?;
        let at = Address::new(life.zone, geometry.table_block_offset(number));
        self.device
            .write(at, buf.freeze(), Placement::METADATA)
            .await?;
        self.writes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Writes a block with retries.
    pub(crate) async fn write_with_retries(
        &self,
        life: ZoneLife,
        number: u32,
        entries: &[Option<SlotEntry>],
    ) -> Result<(), TableError> {
        let mut attempt = 1;
        loop {
            let Err(error) = self.write(life, number, entries).await else {
                return Ok(());
            };
            self.write_errors.fetch_add(1, Relaxed);
            tracing::warn!(%error, zone = %life.zone, block = number, "a slot table block could not be written");
            if attempt == ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// Writes the table of a zone with only free slots.
    pub(crate) async fn write_empty_table(&self, life: ZoneLife) -> Result<(), TableError> {
        for number in 0..self.geometry.table_blocks {
            self.write(life, number, &self.empty_block(number)).await?;
        }
        Ok(())
    }

    /// The entries of a block with only free slots.
    pub(crate) fn empty_block(&self, number: u32) -> Vec<Option<SlotEntry>> {
        vec![None; self.geometry.slots_of_block(number).len()]
    }

    fn decode(&self, life: ZoneLife, number: u32, bytes: &[u8]) -> Result<Block, LayoutError> {
        decode_slot_block(self.id, life, &self.geometry, number, bytes)
    }
}
