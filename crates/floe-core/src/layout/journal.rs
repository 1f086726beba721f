//! The journal of a metadata zone: which zones are full, and who is dead.
//!
//! Behind the superblock come blocks, each padded to whole device blocks and
//! linked to the one before. After the frame, whose count is the notes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 8 | epoch, the superblock's |
//! | 32 | 8 | block number, from zero |
//! | 40 | 4 | checksum of the journal block before; 0 in the first |
//! | 44 | 4 | zero |
//! | 48 | 32 × count | notes |
//!
//! and a note:
//!
//! | offset | bytes | zone full | death | checkpoint end | generation floor | zone closed | slot use | use noted |
//! |---|---|---|---|---|---|---|---|---|
//! | 0 | 4 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! | 4 | 4 | zone | zone | zero | zero | zone | zone | zero |
//! | 8 | 4 | generation | generation | zero | zero | generation | generation | zero |
//! | 12 | 4 | record count | zero | zero | zero | zero | first slot | zero |
//! | 16 | 8 | summary offset | key hash | number of notes before it | generation | end offset | low bits | sequence |
//! | 24 | 8 | zero | sequence | zero | zero | zero | high bits | zero |
//!
//! A reader stops at the first block that is not the next of this epoch.

use super::error::LayoutError;
use super::frame::{Frame, Opened, open, seal};
use super::ids::{CacheId, Generation, Sequence, ZoneLife};
use super::structure::Structure;
use super::wire::{first_mut, narrow, prefix_mut, put_u32, put_u64, round_up_len, u32_at, u64_at};
use crate::geometry::ZoneId;
use crate::hash::KeyHash;

/// Length of a journal block's header.
pub const JOURNAL_HEADER_BYTES: usize = 48;

/// Length of a note.
pub const NOTE_BYTES: usize = 32;

/// Something the journal remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// This life of a zone is full and its summary is durable.
    ZoneFull {
        /// The zone's life.
        life: ZoneLife,
        /// Where its summary starts, in bytes from the zone's start.
        summary_offset: u64,
        /// How many entries the summary has.
        records: u32,
    },
    /// In this life of a zone, records with this key hash and this sequence or
    /// a lower one are dead.
    Death {
        /// The zone's life.
        life: ZoneLife,
        /// The key's hash.
        hash: KeyHash,
        /// The highest sequence that is dead.
        sequence: Sequence,
    },
    /// All notes that were live when this metadata zone was started stand
    /// before this one. A metadata zone without it does not count: its
    /// predecessor does.
    CheckpointEnd {
        /// How many notes stand before it in this metadata zone.
        notes: u64,
    },
    /// Generations below this one may have been used. Journaled before the
    /// first of them is, so that no generation is ever used twice, whatever
    /// zone headers are lost.
    GenerationFloor {
        /// The least generation that was certainly never used.
        generation: Generation,
    },
    /// This life of a zone takes no more batches, and any summary of it is void.
    /// Only batches that start below `end_offset` are believed: what stands
    /// behind could not be read when this was noted, and must not come back
    /// later. Of several notes for one life the lowest offset counts.
    ZoneClosed {
        /// The zone's life.
        life: ZoneLife,
        /// Bytes from the zone's start.
        end_offset: u64,
    },
    /// How recently the values of some slots were used: a hint that only says
    /// what is evicted first. Of several notes for the same slots the last counts.
    SlotUse {
        /// The zone's life.
        life: ZoneLife,
        /// The first of the [`SLOTS_PER_NOTE`] slots; a multiple of that.
        first_slot: u32,
        /// What is known of them.
        uses: SlotUses,
    },
    /// The slot-use notes before this one know the records with this sequence
    /// or a lower one; younger ones were used later than all of those.
    UseNoted {
        /// The highest sequence that they know.
        sequence: Sequence,
    },
}

/// Slots that one note tells the use of.
pub const SLOTS_PER_NOTE: u32 = 64;

/// How recently the value in a slot was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotUse {
    /// Not served: the slot is free, whatever its table says.
    Evicted = 0,
    /// Among the first to be evicted.
    Cold = 1,
    /// In between.
    Warm = 2,
    /// Among the last to be evicted.
    Hot = 3,
}

/// The use of [`SLOTS_PER_NOTE`] neighbouring slots, two bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotUses {
    /// The low bit of each slot's use.
    pub low: u64,
    /// The high bit of each.
    pub high: u64,
}

impl SlotUses {
    /// The use of the slot with this number among them, below [`SLOTS_PER_NOTE`].
    pub fn get(&self, slot: u32) -> SlotUse {
        let bit = |bits: u64| bits >> (slot % SLOTS_PER_NOTE) & 1 != 0;
        match (bit(self.high), bit(self.low)) {
            (false, false) => SlotUse::Evicted,
            (false, true) => SlotUse::Cold,
            (true, false) => SlotUse::Warm,
            (true, true) => SlotUse::Hot,
        }
    }

    /// Sets that slot's use.
    pub fn set(&mut self, slot: u32, slot_use: SlotUse) {
        let mask = 1 << (slot % SLOTS_PER_NOTE);
        let with = |bits: u64, bit: bool| if bit { bits | mask } else { bits & !mask };
        self.low = with(self.low, slot_use as u8 & 1 != 0);
        self.high = with(self.high, slot_use as u8 & 2 != 0);
    }
}

impl Note {
    fn put(&self, bytes: &mut [u8; NOTE_BYTES]) {
        let (kind, life, number, first, second) = match *self {
            Note::ZoneFull {
                life,
                summary_offset,
                records,
            } => (1, Some(life), records, summary_offset, 0),
            Note::Death {
                life,
                hash,
                sequence,
            } => (2, Some(life), 0, hash.0, sequence.0),
            Note::CheckpointEnd { notes } => (3, None, 0, notes, 0),
            Note::GenerationFloor { generation } => (4, None, 0, u64::from(generation.0), 0),
            Note::ZoneClosed { life, end_offset } => (5, Some(life), 0, end_offset, 0),
            Note::SlotUse {
                life,
                first_slot,
                uses,
            } => (6, Some(life), first_slot, uses.low, uses.high),
            Note::UseNoted { sequence } => (7, None, 0, sequence.0, 0),
        };
        put_u32(bytes, 0, kind);
        put_u32(bytes, 4, life.map_or(0, |life| life.zone.0));
        put_u32(bytes, 8, life.map_or(0, |life| life.generation.0));
        put_u32(bytes, 12, number);
        put_u64(bytes, 16, first);
        put_u64(bytes, 24, second);
    }

    fn read(bytes: &[u8; NOTE_BYTES]) -> Option<Self> {
        let life = ZoneLife::new(ZoneId(u32_at(bytes, 4)), Generation(u32_at(bytes, 8)));
        match u32_at(bytes, 0) {
            1 | 2 | 5 | 6 if life.generation < Generation::FIRST => None,
            1 => Some(Note::ZoneFull {
                life,
                summary_offset: u64_at(bytes, 16),
                records: u32_at(bytes, 12),
            }),
            2 => Some(Note::Death {
                life,
                hash: KeyHash(u64_at(bytes, 16)),
                sequence: Sequence(u64_at(bytes, 24)),
            }),
            3 => Some(Note::CheckpointEnd {
                notes: u64_at(bytes, 16),
            }),
            4 => Some(Note::GenerationFloor {
                generation: Generation(u32::try_from(u64_at(bytes, 16)).ok()?),
            }),
            5 => Some(Note::ZoneClosed {
                life,
                end_offset: u64_at(bytes, 16),
            }),
            6 => Some(Note::SlotUse {
                life,
                first_slot: u32_at(bytes, 12),
                uses: SlotUses {
                    low: u64_at(bytes, 16),
                    high: u64_at(bytes, 24),
                },
            }),
            7 => Some(Note::UseNoted {
                sequence: Sequence(u64_at(bytes, 16)),
            }),
            _ => None,
        }
    }
}

/// How many notes fill one device block.
pub fn journal_notes_per_block(block_size: u32) -> usize {
    (block_size as usize).saturating_sub(JOURNAL_HEADER_BYTES) / NOTE_BYTES
}

/// A position in a journal: decodes or encodes the block that comes next.
///
/// Reading a journal leaves the chain where writing may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalChain {
    id: CacheId,
    epoch: u64,
    next: u64,
    previous_checksum: u32,
}

impl JournalChain {
    /// The start of the journal behind the superblock with this epoch.
    pub fn new(id: CacheId, epoch: u64) -> Self {
        JournalChain {
            id,
            epoch,
            next: 0,
            previous_checksum: 0,
        }
    }

    /// The number of the block that comes next.
    pub fn next_block(&self) -> u64 {
        self.next
    }

    /// The epoch it belongs to.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Bytes that [`encode`](Self::encode) writes for so many notes: one device
    /// block for up to [`journal_notes_per_block`], more for more.
    pub fn encoded_bytes(notes: usize, block_size: u32) -> usize {
        round_up_len(
            JOURNAL_HEADER_BYTES.saturating_add(notes.saturating_mul(NOTE_BYTES)),
            block_size,
        )
    }

    /// Writes the next journal block and steps past it. Returns its length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`encoded_bytes`](Self::encoded_bytes); the chain is then as before.
    pub fn encode(
        &mut self,
        block_size: u32,
        notes: &[Note],
        out: &mut [u8],
    ) -> Result<usize, LayoutError> {
        let out = prefix_mut(out, Self::encoded_bytes(notes.len(), block_size))?;
        out.fill(0);
        let covered = prefix_mut(out, JOURNAL_HEADER_BYTES + notes.len() * NOTE_BYTES)?;
        let (slots, _) = covered[JOURNAL_HEADER_BYTES..].as_chunks_mut();
        for (slot, note) in slots.iter_mut().zip(notes) {
            note.put(slot);
        }
        let frame = Frame {
            structure: Structure::Journal,
            kind: 0,
            count: narrow(notes.len())?,
        };
        self.seal_next(frame, covered)?;
        Ok(out.len())
    }

    /// Reads the next journal block, which `bytes` start with, and steps past
    /// it. [`Notes::encoded_bytes`] says where the one after starts.
    ///
    /// # Errors
    /// Any error means that the journal ended before these bytes, except
    /// [`LayoutError::TooShort`], which may mean that a longer block is cut off;
    /// the chain is then as before. [`LayoutError::Malformed`] for a block of
    /// another epoch or not the next one.
    pub fn decode<'a>(
        &mut self,
        block_size: u32,
        bytes: &'a [u8],
    ) -> Result<Notes<'a>, LayoutError> {
        let (opened, notes) = self.open_next::<NOTE_BYTES>(Structure::Journal, bytes)?;
        if notes.iter().any(|note| Note::read(note).is_none()) {
            return Err(LayoutError::Malformed("a note of unknown kind"));
        }
        self.step(&opened);
        Ok(Notes {
            notes: notes.iter(),
            encoded_bytes: Self::encoded_bytes(notes.len(), block_size),
        })
    }

    /// Writes frame and header of the next block over the start of `covered`,
    /// whose notes are final, and steps past it.
    pub(super) fn seal_next(
        &mut self,
        frame: Frame,
        covered: &mut [u8],
    ) -> Result<(), LayoutError> {
        let header = first_mut::<JOURNAL_HEADER_BYTES>(covered)?;
        put_u64(header, 24, self.epoch);
        put_u64(header, 32, self.next);
        put_u32(header, 40, self.previous_checksum);
        put_u32(header, 44, 0);
        self.previous_checksum = seal(self.id, frame, covered)?;
        self.next += 1;
        Ok(())
    }

    /// Opens the next block, whose notes are `N` bytes each, without stepping
    /// past it.
    pub(super) fn open_next<'a, const N: usize>(
        &self,
        structure: Structure,
        bytes: &'a [u8],
    ) -> Result<(Opened<'a>, &'a [[u8; N]]), LayoutError> {
        let opened = open(self.id, structure, bytes)?;
        let (header, rest) = opened
            .covered
            .split_first_chunk::<JOURNAL_HEADER_BYTES>()
            .ok_or(LayoutError::Malformed("the block's header ends early"))?;
        if u64_at(header, 24) != self.epoch {
            return Err(LayoutError::Malformed("a journal block of another epoch"));
        }
        if u64_at(header, 32) != self.next || u32_at(header, 40) != self.previous_checksum {
            return Err(LayoutError::Malformed("not the next journal block"));
        }
        let (notes, rest) = rest.as_chunks::<N>();
        if !rest.is_empty() || notes.len() != opened.count as usize {
            return Err(LayoutError::Malformed("the block's notes are miscounted"));
        }
        Ok((opened, notes))
    }

    /// Steps past the block that [`open_next`](Self::open_next) opened.
    pub(super) fn step(&mut self, opened: &Opened<'_>) {
        self.next += 1;
        self.previous_checksum = opened.checksum;
    }
}

/// The epoch and number of the journal block that `bytes` start with, wherever
/// in the chain it stands: tells a journal that ended from one with a damaged
/// block in its middle.
///
/// # Errors
/// As every decoder.
pub fn journal_block_position(id: CacheId, bytes: &[u8]) -> Result<(u64, u64), LayoutError> {
    block_position(id, Structure::Journal, bytes)
}

/// The same, of a block of either kind of journal.
pub(super) fn block_position(
    id: CacheId,
    structure: Structure,
    bytes: &[u8],
) -> Result<(u64, u64), LayoutError> {
    let opened = open(id, structure, bytes)?;
    let header = opened
        .covered
        .first_chunk::<JOURNAL_HEADER_BYTES>()
        .ok_or(LayoutError::Malformed("the block's header ends early"))?;
    Ok((u64_at(header, 24), u64_at(header, 32)))
}

/// The notes of one checked journal block, in order.
#[derive(Clone, Debug)]
pub struct Notes<'a> {
    notes: std::slice::Iter<'a, [u8; NOTE_BYTES]>,
    encoded_bytes: usize,
}

impl Notes<'_> {
    /// Length of the block they come from, padding included.
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }
}

impl Iterator for Notes<'_> {
    type Item = Note;

    fn next(&mut self) -> Option<Note> {
        // Every note was checked when the block was.
        self.notes.next().and_then(Note::read)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.notes.size_hint()
    }
}

impl ExactSizeIterator for Notes<'_> {}
