//! The distinct bytes of a trace.

use std::collections::HashMap;

use crate::trace::{BlockOp, BlockRequest};

/// The unit in which distinct bytes are counted.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Blocks of one word of the bitmap.
const BLOCKS_PER_WORD: u64 = 64;

/// The distinct 4 KiB blocks that reads and writes touched. One bit per block, in
/// words of 256 KiB of a volume.
#[derive(Debug, Default)]
pub struct WorkingSet {
    words: HashMap<(u32, u64), u64>,
    blocks: u64,
}

impl WorkingSet {
    /// Adds the blocks of `request`.
    pub fn add(&mut self, request: &BlockRequest) {
        if request.length == 0 || !matches!(request.op, BlockOp::Read | BlockOp::Write) {
            return;
        }
        let last = (request.offset + request.length - 1) / BLOCK_BYTES;
        let mut block = request.offset / BLOCK_BYTES;
        while block <= last {
            let word = block / BLOCKS_PER_WORD;
            let until = last.min(word * BLOCKS_PER_WORD + BLOCKS_PER_WORD - 1);
            let count = until - block + 1;
            let mask = (u64::MAX >> (BLOCKS_PER_WORD - count)) << (block % BLOCKS_PER_WORD);
            let bits = self.words.entry((request.volume, word)).or_default();
            self.blocks += u64::from((mask & !*bits).count_ones());
            *bits |= mask;
            block = until + 1;
        }
    }

    /// The number of distinct bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES
    }
}
