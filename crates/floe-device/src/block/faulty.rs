//! Faults by seed for block devices.

use std::ops::Range;

use super::{BlockDevice, blocks_below};
use crate::buffer::{IoBuf, IoData};
use crate::contract::OpFuture;
use crate::error::Operation;
use crate::faulty::{Faulty, fail_after, flip_bit, injected, torn};

/// Of [`Faults`](crate::Faults), those of zones, appends and space do not apply. Torn
/// and lost writes include writes of zeros. Discards fail at the rate of writes.
impl<D: BlockDevice + ?Sized> BlockDevice for Faulty<D> {
    blocks_below!("faulty");

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        let fate = self.fate(Operation::Read, None);
        self.start_counting(Operation::Read, None, fate, self.below.counters(), || {
            flip_bit(self.below.read(at, buf), fate.spoils)
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.change(Operation::Write, data.len(), |written| {
            self.below.write(at, data.slice(0..written))
        })
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        let len = range.end.saturating_sub(range.start) as usize;
        self.change(Operation::WriteZeroes, len, |written| {
            self.below
                .write_zeroes(range.start..range.start + written as u64)
        })
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        let fate = self.fate(Operation::Discard, None);
        let discard = || self.below.discard(range);
        self.start_counting(
            Operation::Discard,
            None,
            fate,
            self.below.counters(),
            discard,
        )
    }

    fn flush(&self) -> OpFuture<()> {
        let fate = self.fate(Operation::Flush, None);
        let flush = || self.below.flush();
        self.start_counting(Operation::Flush, None, fate, self.below.counters(), flush)
    }
}

impl<D: BlockDevice + ?Sized> Faulty<D> {
    /// Changes `len` bytes, of which `change` carries out the first ones.
    fn change(
        &self,
        operation: Operation,
        len: usize,
        change: impl FnOnce(usize) -> OpFuture<()>,
    ) -> OpFuture<()> {
        let fate = self.fate(operation, None);
        let counters = self.below.counters();
        self.start_counting(operation, None, fate, counters, || match fate.spoils {
            _ if fate.is_lost => OpFuture::ready(Ok(())),
            None => change(len),
            Some(share) => match torn(len, self.below.block_bytes(), share) {
                0 => OpFuture::ready(Err(injected(operation, None, None))),
                kept => fail_after(change(kept), operation, None),
            },
        })
    }
}
