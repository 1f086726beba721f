//! The flash array: superblocks over dies, filled row by row.

use super::config::FlashConfig;
use super::layout::{Layout, Pages};
use super::nand::{Nand, Portions, Program, Work};
use super::saved::{Reader, StateFault, Writer, check};
use super::statistics::{Programmed, Wear};

/// The flash array: dies, and the state of every superblock on them.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) nand: Nand,
    pub(super) layout: Layout,
    pub(super) superblock_bytes: u64,
    blocks: Vec<Block>,
    pub(super) programmed: Programmed,
    /// Bytes accepted and not yet programmed.
    pub(super) buffered: Programmed,
    pub(super) discarded_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    /// How many times the superblock was erased or abandoned. A program of an
    /// earlier life does not count as data of this one.
    life: u32,
    programmed: u64,
    erasing_dies: u32,
    erases: u32,
}

/// A superblock that is being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) superblock: u32,
    pub(super) filled: u64,
    row: Portions,
}

/// Why bytes are programmed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    Host,
    Collected,
    Rewritten,
    Padding,
}

/// Consecutive bytes that are stored contiguously: in a superblock from an
/// offset on, or in none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) bytes: u64,
    pub(super) place: Option<(u32, u64)>,
}

impl Stream {
    pub(super) fn new(superblock: u32) -> Self {
        Stream {
            superblock,
            filled: 0,
            row: Portions::default(),
        }
    }

    /// Writes the superblock's number plus one, how far it is filled, and the
    /// contents of its incomplete row; zero for no stream.
    pub(super) fn save(stream: Option<&Self>, out: &mut Writer) {
        out.option(stream.map(|stream| u64::from(stream.superblock)));
        if let Some(stream) = stream {
            out.number(stream.filled);
            out.numbers(stream.row.programmed().in_order());
        }
    }

    /// Reads a saved stream. The contents of its incomplete row are in the
    /// write buffer again.
    pub(super) fn restore(
        from: &mut Reader<'_>,
        flash: &mut Array,
    ) -> Result<Option<Self>, StateFault> {
        let most = flash.blocks.len() as u64 - 1;
        let superblock = from.option(most, "a stream's superblock does not exist")?;
        let Some(superblock) = superblock else {
            return Ok(None);
        };
        let row = flash.layout.row_bytes();
        let full = flash.superblock_bytes;
        let filled = from.at_most(full, "a superblock is filled beyond its end")?;
        let mut portions = [0; 4];
        for portion in &mut portions {
            *portion = from.at_most(row, "a row holds more than it can")?;
        }
        check(
            portions.iter().sum::<u64>() == filled % row,
            "a row holds something else than its stream",
        )?;
        let [host, collected, rewritten, padding] = portions.map(|bytes| bytes as u32);
        let row = Portions {
            host,
            collected,
            rewritten,
            padding,
        };
        flash.buffered.add(&row.programmed());
        Ok(Some(Stream {
            superblock: superblock as u32,
            filled,
            row,
        }))
    }

    /// The contents of the incomplete row, which a discard would lose.
    pub(super) fn unprogrammed(&self) -> Portions {
        self.row
    }
}

impl Array {
    pub(super) fn new(config: &FlashConfig) -> Self {
        Array {
            nand: Nand::new(&config.nand),
            layout: Layout::new(&config.nand),
            superblock_bytes: config.superblock.bytes(),
            blocks: vec![Block::default(); config.superblocks as usize],
            programmed: Programmed::default(),
            buffered: Programmed::default(),
            discarded_bytes: 0,
        }
    }

    /// Adds bytes to a stream that has room for them; programs full rows.
    pub(super) fn place(&mut self, now: u64, stream: &mut Stream, cause: Cause, mut bytes: u64) {
        let row = self.layout.row_bytes();
        while bytes > 0 {
            let piece = bytes.min(row - stream.filled % row);
            // A row is far below 4 GiB (validated).
            let piece_u32 = piece as u32;
            let (portion, counter) = match cause {
                Cause::Host => (&mut stream.row.host, &mut self.buffered.host_bytes),
                Cause::Collected => (
                    &mut stream.row.collected,
                    &mut self.buffered.collected_bytes,
                ),
                Cause::Rewritten => (
                    &mut stream.row.rewritten,
                    &mut self.buffered.rewritten_bytes,
                ),
                Cause::Padding => (&mut stream.row.padding, &mut self.buffered.padding_bytes),
            };
            *portion += piece_u32;
            *counter += piece;
            stream.filled += piece;
            bytes -= piece;
            if stream.filled.is_multiple_of(row) {
                let number = (stream.filled / row - 1) as u32;
                self.program_row(now, stream.superblock, number, stream.row);
                stream.row = Portions::default();
            }
        }
    }

    fn program_row(&mut self, now: u64, superblock: u32, row: u32, mut rest: Portions) {
        let life = self.blocks[superblock as usize].life;
        let mut left = self.layout.stripe();
        for unit in self.layout.units(superblock, row) {
            let share = Portions {
                host: rest.host / left,
                collected: rest.collected / left,
                rewritten: rest.rewritten / left,
                padding: rest.padding / left,
            };
            rest.host -= share.host;
            rest.collected -= share.collected;
            rest.rewritten -= share.rewritten;
            rest.padding -= share.padding;
            left -= 1;
            let mut program = Program {
                superblock,
                life,
                bytes: share,
            };
            self.nand.work(now, unit.die, Work::Program(program));
            if let Some(die) = unit.parity_die {
                program.bytes = Portions::default();
                self.nand.work(now, die, Work::Program(program));
            }
        }
    }

    /// Drops the unprogrammed bytes of a stream. Returns how many of them were
    /// in the write buffer.
    pub(super) fn discard(&mut self, stream: &Stream) -> u64 {
        self.buffered.subtract(&stream.row.programmed());
        self.discarded_bytes += u64::from(stream.row.host);
        u64::from(stream.row.host) + u64::from(stream.row.rewritten)
    }

    /// Erases a superblock, and with it all that it holds.
    pub(super) fn erase(&mut self, now: u64, superblock: u32) {
        let block = &mut self.blocks[superblock as usize];
        block.life += 1;
        block.programmed = 0;
        block.erasing_dies += self.nand.dies();
        block.erases += 1;
        for die in 0..self.nand.dies() {
            self.nand.work(now, die, Work::Erase { superblock });
        }
    }

    /// Calls `each` for the page reads of a range of a superblock, except for
    /// bytes that are still in the buffer.
    pub(super) fn reads(
        &self,
        superblock: u32,
        offset: u64,
        bytes: u64,
        mut each: impl FnMut(Pages),
    ) {
        let programmed = self.blocks[superblock as usize].programmed;
        let end = (offset + bytes).min(programmed);
        let row = self.layout.row_bytes();
        let mut at = offset;
        while at < end {
            let piece = (row - at % row).min(end - at);
            self.layout.reads(superblock, at, piece, &mut each);
            at += piece;
        }
    }

    /// Marks whole rows of `bytes` as programmed, without time passing, for a
    /// precondition.
    pub(super) fn assume_programmed(&mut self, superblock: u32, bytes: u64) {
        let row = self.layout.row_bytes();
        self.blocks[superblock as usize].programmed = bytes - bytes % row;
    }

    pub(super) fn programmed(&mut self, program: &Program) {
        let bytes = program.bytes.programmed();
        self.programmed.add(&bytes);
        self.buffered.subtract(&bytes);
        let block = &mut self.blocks[program.superblock as usize];
        if block.life == program.life {
            block.programmed += program.bytes.total();
        }
    }

    /// Counts a die's erase as done; whether it was the superblock's last.
    pub(super) fn erased(&mut self, superblock: u32) -> bool {
        let block = &mut self.blocks[superblock as usize];
        block.erasing_dies -= 1;
        block.erasing_dies == 0
    }

    /// True if the dies are idle and no erase is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.nand.next().is_none() && self.blocks.iter().all(|block| block.erasing_dies == 0)
    }

    /// Writes the programmed bytes, then how far each superblock is programmed
    /// and how often it was erased.
    pub(super) fn save(&self, out: &mut Writer) {
        out.numbers(self.programmed.in_order());
        out.number(self.discarded_bytes);
        for block in &self.blocks {
            out.numbers([block.programmed, u64::from(block.erases)]);
        }
        self.nand.save(out);
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), StateFault> {
        self.programmed = Programmed::of(from.counts()?);
        self.discarded_bytes = from.count()?;
        for block in &mut self.blocks {
            block.programmed = from.at_most(
                self.superblock_bytes,
                "more of a superblock is programmed than there is",
            )?;
            block.erases = from.small(u32::MAX >> 1, "a superblock was erased too often")?;
        }
        self.nand.restore(from)
    }

    /// True if exactly the whole rows of the `filled` bytes are programmed. A
    /// superblock that was closed early may hold fewer.
    pub(super) fn holds_rows(&self, superblock: u32, filled: u64, is_closed: bool) -> bool {
        let programmed = self.blocks[superblock as usize].programmed;
        let row = self.layout.row_bytes();
        let rows = filled - filled % row;
        programmed == rows || is_closed && programmed.is_multiple_of(row)
    }

    pub(super) fn wear(&self) -> Wear {
        let erases: Vec<u32> = self.blocks.iter().map(|block| block.erases).collect();
        Wear::of(&erases)
    }
}
