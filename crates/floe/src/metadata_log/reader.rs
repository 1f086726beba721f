//! Reading a log block by block.

use std::marker::PhantomData;

use floe_core::ZoneId;
use floe_core::layout::{JournalChain, LayoutError};
use floe_device::{Address, DeviceError, IoBuf, SharedDevice};

use super::LogSuperblock;

/// Bytes read at once: both copies of the longest block, with room to spare.
const WINDOW_BYTES: u64 = 1 << 20;

/// Reads the log of a metadata zone, from its start.
pub(crate) struct Reader<'a, S> {
    device: &'a SharedDevice,
    zone: ZoneId,
    chain: JournalChain,
    /// The chain before the last block. It decodes further copies of that block.
    before_last: Option<JournalChain>,
    /// End of the last block.
    offset: u64,
    window: IoBuf,
    window_start: u64,
    superblock: PhantomData<S>,
}

/// A block of a log.
pub(crate) struct Block<R> {
    pub(crate) offset: u64,
    pub(crate) records: Vec<R>,
    /// A damaged copy, of this block or of the previous one, between the two.
    pub(crate) damage: Option<Damage>,
}

/// A place in a log that does not read back as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) offset: u64,
    pub(crate) error: LayoutError,
}

impl<'a, S: LogSuperblock> Reader<'a, S> {
    /// The start of the log behind `superblock` in `zone`.
    pub(crate) fn new(device: &'a SharedDevice, superblock: &S, zone: ZoneId) -> Self {
        Reader {
            device,
            zone,
            chain: superblock.chain(),
            before_last: None,
            offset: u64::from(device.geometry().block_size),
            window: IoBuf::zeroed(0),
            window_start: 0,
            superblock: PhantomData,
        }
    }

    /// The position as a chain.
    pub(crate) fn chain(&self) -> JournalChain {
        self.chain
    }

    /// End of the last block, or of the superblock.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next block, or `None` at the end. A copy of the last block and a
    /// damaged copy of the next one may stand before it, so it is searched for.
    /// The link to its predecessor distinguishes it from all other bytes.
    pub(crate) async fn next(&mut self) -> Result<Option<Block<S::Record>>, DeviceError> {
        let geometry = self.device.geometry();
        loop {
            let mut chain = self.chain;
            if let Some((start, block)) = chain.find(geometry.block_size, self.rest()) {
                let damage = self.damage(&self.rest()[..start]);
                let offset = self.offset + start as u64;
                self.before_last = Some(self.chain);
                self.chain = chain;
                self.offset = offset + block.encoded_bytes as u64;
                return Ok(Some(Block {
                    offset,
                    records: block.records,
                    damage,
                }));
            }
            if self.window_start == self.offset || self.offset >= geometry.zone_capacity {
                return Ok(None);
            }
            // The window may end inside the block: read again, from its start.
            let len = WINDOW_BYTES.min(geometry.zone_capacity - self.offset);
            let buf = self.device.allocate(len as usize);
            let at = Address::new(self.zone, self.offset);
            self.window = self.device.read(at, buf).await?;
            self.window_start = self.offset;
        }
    }

    /// At the end: true if later blocks of the log follow. The log writes a block
    /// only once the previous one is durable, so the next block is damaged.
    pub(crate) fn goes_on(&self) -> bool {
        let rest = self.rest();
        (0..rest.len())
            .step_by(self.device.geometry().block_size as usize)
            .any(|at| self.chain.is_behind_next::<S::Record>(&rest[at..]))
    }

    /// At the end: the block there, if it is damaged or torn.
    pub(crate) fn damage_at_end(&self) -> Option<Damage> {
        let damage = self.damage(self.rest())?;
        let bytes = &self.rest()[(damage.offset - self.offset) as usize..];
        let is_torn =
            self.chain.names_epoch(bytes) && !matches!(damage.error, LayoutError::Malformed(_));
        (is_torn || self.goes_on()).then_some(damage)
    }

    /// The bytes of the window behind the last block.
    fn rest(&self) -> &[u8] {
        let start = (self.offset - self.window_start) as usize;
        self.window.get(start..).unwrap_or_default()
    }

    /// The first place in `bytes`, which follow the last block, that is not a
    /// copy of it.
    fn damage(&self, bytes: &[u8]) -> Option<Damage> {
        let block_size = self.device.geometry().block_size;
        let mut at = 0;
        while at < bytes.len() {
            let mut chain = self.before_last.unwrap_or(self.chain);
            match chain.decode::<S::Record>(block_size, &bytes[at..]) {
                Ok(copy) => at += copy.encoded_bytes,
                Err(error) => {
                    let offset = self.offset + at as u64;
                    return Some(Damage { offset, error });
                }
            }
        }
        None
    }
}
