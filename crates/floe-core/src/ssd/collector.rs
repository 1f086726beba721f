//! The state of garbage collection, and the credits that pace the host's
//! writes. The translation layer carries collection out.

use std::collections::VecDeque;

use super::array::{Array, Stream};
use super::config::{FtlConfig, Victim};
use super::nand::Work;
use super::saved::{Busy, Reader, StateFault, Writer, check};
use super::slab::Slab;
use super::statistics::{Collected, Collection};

#[derive(Clone, Debug)]
pub(super) struct Collector {
    pub(super) collect_below: usize,
    pub(super) throttle_at: usize,
    pub(super) window: u64,
    pub(super) choice: Victim,
    pub(super) victim: Option<Current>,
    pub(super) moves: Slab<Move>,
    /// Units that were read and wait for a free superblock.
    pub(super) landed: VecDeque<u32>,
    pub(super) streams: Vec<Option<Stream>>,
    pub(super) credits: u64,
    /// No superblock has garbage.
    pub(super) is_stuck: bool,
    /// Bytes being moved: read or being read, and not yet programmed.
    pub(super) under_way_bytes: u64,
    pub(super) collection: Collection,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) superblock: u32,
    /// The next unit of the superblock to examine.
    pub(super) cursor: u32,
    /// Moves that are not yet in the buffer.
    pub(super) moving: u32,
    pub(super) credit_per_unit: u64,
    pub(super) record: Collected,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) place: u32,
    pub(super) reads_left: u32,
}

impl Collector {
    pub(super) fn new(config: &FtlConfig, streams: u16) -> Self {
        Collector {
            collect_below: config.collect_below as usize,
            throttle_at: config.throttle_at as usize,
            window: config
                .collect_window
                .bytes()
                .max(config.mapping_unit.bytes()),
            choice: config.victim,
            victim: None,
            moves: Slab::new(),
            landed: VecDeque::new(),
            streams: vec![None; usize::from(streams)],
            credits: 0,
            is_stuck: false,
            under_way_bytes: 0,
            collection: Collection::default(),
        }
    }

    /// Writes the streams, the host's credits, whether collection is stuck, and
    /// its totals.
    pub(super) fn save(&self, out: &mut Writer) -> Result<(), Busy> {
        if self.victim.is_some() || !self.landed.is_empty() {
            return Err(Busy);
        }
        for stream in &self.streams {
            Stream::save(stream.as_ref(), out);
        }
        out.numbers([self.credits, u64::from(self.is_stuck)]);
        out.numbers([self.collection.victims, self.collection.moved_bytes]);
        Ok(())
    }

    /// Restores a saved state. Returns the streams.
    pub(super) fn restore(
        &mut self,
        from: &mut Reader<'_>,
        flash: &mut Array,
    ) -> Result<Vec<Stream>, StateFault> {
        for stream in &mut self.streams {
            *stream = Stream::restore(from, flash)?;
            let row = stream
                .map(|stream| stream.unprogrammed())
                .unwrap_or_default();
            check(
                u64::from(row.collected) == row.total(),
                "collection's stream holds something else",
            )?;
            self.under_way_bytes += u64::from(row.collected);
        }
        self.credits = from.count()?;
        self.is_stuck = from.flag()?;
        [self.collection.victims, self.collection.moved_bytes] = from.counts()?;
        Ok(self.streams.iter().flatten().copied().collect())
    }

    /// Free superblocks reserved for collection.
    pub(super) fn reserve(&self) -> usize {
        self.streams.len()
    }

    /// True if the host may write `bytes` while `free` superblocks are free. If
    /// so, their credits are spent.
    pub(super) fn grants(&mut self, free: usize, bytes: u64) -> bool {
        if free > self.throttle_at || self.is_stuck {
            self.credits = 0;
            return true;
        }
        if self.credits < bytes {
            return false;
        }
        self.credits -= bytes;
        true
    }
}

/// Queues the page reads of a range behind other work. Returns their number.
pub(super) fn read(
    now: u64,
    flash: &mut Array,
    superblock: u32,
    offset: u64,
    bytes: u64,
    move_number: Option<u32>,
) -> u32 {
    let mut reads = Vec::with_capacity(16);
    flash.reads(superblock, offset, bytes, |pages| reads.push(pages));
    for pages in &reads {
        let work = Work::Read {
            move_number,
            pages: pages.pages,
        };
        flash.nand.work(now, pages.die, work);
    }
    reads.len() as u32
}
