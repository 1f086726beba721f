//! The journal of a metadata zone: blocks of records, each linked to the block
//! before it; and the records of a chunk cache, its notes.
//!
//! The blocks follow the superblock, each padded to whole device blocks. After
//! the frame, whose count is the number of records:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 8 | epoch, the superblock's |
//! | 32 | 8 | block number, from zero |
//! | 40 | 4 | checksum of the journal block before; 0 in the first |
//! | 44 | 4 | zero |
//! | 48 | | records |
//!
//! and a note:
//!
//! | offset | bytes | zone full | tombstone | checkpoint end | generation floor | zone closed | slot use | use noted | zone dropped | mark |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | 0 | 4 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
//! | 4 | 4 | zone | zone | zero | zero | zone | zone | zero | zone | span |
//! | 8 | 4 | generation | generation | zero | zero | generation | generation | zero | generation | group, low half |
//! | 12 | 4 | record count | zero | zero | zero | zero | first slot | zero | zero | group, high half |
//! | 16 | 8 | summary offset | key hash | number of notes before it | generation | end offset | low bits | sequence | zero | id |
//! | 24 | 8 | zero | sequence | zero | zero | zero | high bits | zero | zero | number |
//!
//! Blocks behind the checkpoint, and its end, are written twice. A reader
//! recognises the next block by its link, in its first copy or the second, and
//! stops where neither is left.

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

/// A record of a journal. Records may differ in length; none is empty.
pub trait JournalRecord: Clone {
    /// The structure of the blocks that hold such records.
    const BLOCK: Structure;

    /// Bytes that [`encode`](Self::encode) writes.
    fn encoded_bytes(&self) -> usize;

    /// Writes the record over `out`, which is zeroed and just as long.
    ///
    /// # Errors
    /// [`LayoutError`] if the record has no representation.
    fn encode(&self, out: &mut [u8]) -> Result<(), LayoutError>;

    /// Splits the first record off `bytes`; `None` if they do not start with a
    /// record.
    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])>;

    /// The record that ends a checkpoint of `records` others. A metadata zone
    /// without one does not count: the other metadata zone does.
    fn checkpoint_end(records: u64) -> Self;

    /// The number of records before this one, if it ends a checkpoint.
    fn as_checkpoint_end(&self) -> Option<u64>;
}

/// A durable note about a zone or the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// This life of a zone is full and its summary is durable.
    ZoneFull {
        /// The zone's life.
        life: ZoneLife,
        /// Start of the summary, in bytes from the zone's start.
        summary_offset: u64,
        /// Number of entries of the summary.
        records: u32,
    },
    /// In this life of a zone, records with this key hash and this sequence or
    /// a lower one are dead.
    Tombstone {
        /// The zone's life.
        life: ZoneLife,
        /// The key's hash.
        hash: KeyHash,
        /// The highest dead sequence.
        sequence: Sequence,
    },
    /// All notes that were live when this metadata zone was begun are before
    /// this one. A metadata zone without it does not count: the other metadata
    /// zone does.
    CheckpointEnd {
        /// Number of notes before it in this metadata zone.
        notes: u64,
    },
    /// Generations below this one may have been used. The note is durable
    /// before the first of them is used, so that no generation is ever used
    /// twice, whatever zone headers are lost.
    GenerationFloor {
        /// The lowest generation that was certainly never used.
        generation: Generation,
    },
    /// This life of a zone takes no more batches, and any summary of it is
    /// void. Only batches that start below `end_offset` count. Data behind it
    /// could not be read when this was noted, and must not be served if it
    /// becomes readable again. Of several notes for one life the lowest offset
    /// counts.
    ZoneClosed {
        /// The zone's life.
        life: ZoneLife,
        /// The end of the valid batches, in bytes from the zone's start.
        end_offset: u64,
    },
    /// How recently the values of some slots were used: a hint for the order of
    /// eviction. Of several notes for the same slots the last one counts.
    SlotUse {
        /// The zone's life.
        life: ZoneLife,
        /// The first of the [`SLOTS_PER_NOTE`] slots; a multiple of that.
        first_slot: u32,
        /// Their uses.
        uses: SlotUses,
    },
    /// The slot-use notes before this one cover records up to this sequence.
    /// Records with a higher sequence were used later than all of those.
    UseNoted {
        /// The highest sequence that they cover.
        sequence: Sequence,
    },
    /// Nothing of this life of a zone, or of an earlier one, counts any more: the
    /// cache has dropped its values, but could not reset the zone. They must not be
    /// served if the zone becomes readable again. Void once the zone has a later life.
    ZoneDropped {
        /// The zone's life.
        life: ZoneLife,
    },
    /// A number that a layer above the engine keeps.
    Mark(Mark),
}

/// A durable number for a set of names, such as all names that begin with a prefix.
/// Eviction does not remove it. Of several marks for one set the highest number
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The form of the set.
    pub span: Span,
    /// The hash of the group of names to which the set belongs.
    pub group: u64,
    /// The hash of what the names of the set have in common.
    pub id: u64,
    /// The number.
    pub number: u64,
}

impl Mark {
    /// True if other marks may become void by this one.
    pub fn supersedes_others(&self) -> bool {
        matches!(self.span, Span::All | Span::Group)
    }
}

/// The form of a [`Mark`]'s set of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// All names: it supersedes every mark with a lower number.
    All,
    /// The names of one group: it supersedes the group's marks with lower numbers.
    Group,
    /// The names of a group that begin with a prefix of so many bytes; with none, all of them.
    Prefix(u16),
    /// One name.
    Name,
}

impl Span {
    const ALL: u32 = 1 << 16;
    const NAME: u32 = 2 << 16;

    fn to_wire(self) -> u32 {
        match self {
            Span::All => Self::ALL,
            Span::Group => 0,
            Span::Prefix(bytes) => u32::from(bytes),
            Span::Name => Self::NAME,
        }
    }

    fn from_wire(span: u32) -> Option<Self> {
        match span {
            0 => Some(Span::Group),
            Self::ALL => Some(Span::All),
            Self::NAME => Some(Span::Name),
            bytes => Some(Span::Prefix(u16::try_from(bytes).ok()?)),
        }
    }
}

/// Slots that one note covers.
pub const SLOTS_PER_NOTE: u32 = 64;

/// How recently the value in a slot was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotUse {
    /// Not served: the slot counts as free, whatever its table says.
    Evicted = 0,
    /// Among the first to be evicted.
    Cold = 1,
    /// Between cold and hot.
    Warm = 2,
    /// Among the last to be evicted.
    Hot = 3,
}

/// The use of [`SLOTS_PER_NOTE`] neighbouring slots, two bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotUses {
    /// The low bit of each slot's use.
    pub low: u64,
    /// The high bit of each slot's use.
    pub high: u64,
}

impl SlotUses {
    /// The use of slot number `slot` among them, below [`SLOTS_PER_NOTE`].
    pub fn get(&self, slot: u32) -> SlotUse {
        let bit = |bits: u64| bits >> (slot % SLOTS_PER_NOTE) & 1 != 0;
        match (bit(self.high), bit(self.low)) {
            (false, false) => SlotUse::Evicted,
            (false, true) => SlotUse::Cold,
            (true, false) => SlotUse::Warm,
            (true, true) => SlotUse::Hot,
        }
    }

    /// Sets the use of slot number `slot` among them.
    pub fn set(&mut self, slot: u32, slot_use: SlotUse) {
        let mask = 1 << (slot % SLOTS_PER_NOTE);
        let with = |bits: u64, bit: bool| if bit { bits | mask } else { bits & !mask };
        self.low = with(self.low, slot_use as u8 & 1 != 0);
        self.high = with(self.high, slot_use as u8 & 2 != 0);
    }
}

impl JournalRecord for Note {
    const BLOCK: Structure = Structure::Journal;

    fn encoded_bytes(&self) -> usize {
        NOTE_BYTES
    }

    fn encode(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        self.put(first_mut(out)?);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (note, rest) = bytes.split_first_chunk()?;
        Some((Note::read(note)?, rest))
    }

    fn checkpoint_end(records: u64) -> Self {
        Note::CheckpointEnd { notes: records }
    }

    fn as_checkpoint_end(&self) -> Option<u64> {
        match *self {
            Note::CheckpointEnd { notes } => Some(notes),
            _ => None,
        }
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
            Note::Tombstone {
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
            Note::ZoneDropped { life } => (8, Some(life), 0, 0, 0),
            Note::Mark(mark) => {
                put_u32(bytes, 0, 9);
                put_u32(bytes, 4, mark.span.to_wire());
                put_u64(bytes, 8, mark.group);
                put_u64(bytes, 16, mark.id);
                put_u64(bytes, 24, mark.number);
                return;
            }
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
            1 | 2 | 5 | 6 | 8 if life.generation < Generation::FIRST => None,
            1 => Some(Note::ZoneFull {
                life,
                summary_offset: u64_at(bytes, 16),
                records: u32_at(bytes, 12),
            }),
            2 => Some(Note::Tombstone {
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
            8 => Some(Note::ZoneDropped { life }),
            9 => Some(Note::Mark(Mark {
                span: Span::from_wire(u32_at(bytes, 4))?,
                group: u64_at(bytes, 8),
                id: u64_at(bytes, 16),
                number: u64_at(bytes, 24),
            })),
            _ => None,
        }
    }
}

/// A position in a journal: decodes or encodes the next block.
///
/// After a journal was read, the chain is at the position for the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalChain {
    id: CacheId,
    epoch: u64,
    next: u64,
    previous_checksum: u32,
}

impl JournalChain {
    /// The start of a journal, behind the superblock of this epoch.
    pub fn new(id: CacheId, epoch: u64) -> Self {
        JournalChain {
            id,
            epoch,
            next: 0,
            previous_checksum: 0,
        }
    }

    /// The number of the next block.
    pub fn next_block(&self) -> u64 {
        self.next
    }

    /// The journal's epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Bytes that [`encode`](Self::encode) writes for these records: whole
    /// device blocks, at least one.
    pub fn encoded_bytes<R: JournalRecord>(records: &[R], block_size: u32) -> usize {
        let bytes: usize = records.iter().map(R::encoded_bytes).sum();
        round_up_len(JOURNAL_HEADER_BYTES.saturating_add(bytes), block_size)
    }

    /// Writes the next journal block and advances past it. Returns its length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`encoded_bytes`](Self::encoded_bytes), or the error of a record. The
    /// chain then does not advance.
    pub fn encode<R: JournalRecord>(
        &mut self,
        block_size: u32,
        records: &[R],
        out: &mut [u8],
    ) -> Result<usize, LayoutError> {
        let out = prefix_mut(out, Self::encoded_bytes(records, block_size))?;
        out.fill(0);
        let mut end = JOURNAL_HEADER_BYTES;
        for record in records {
            let start = end;
            end += record.encoded_bytes();
            record.encode(&mut out[start..end])?;
        }
        let frame = Frame {
            structure: R::BLOCK,
            kind: 0,
            count: narrow(records.len())?,
        };
        let covered = prefix_mut(out, end)?;
        let header = first_mut::<JOURNAL_HEADER_BYTES>(covered)?;
        put_u64(header, 24, self.epoch);
        put_u64(header, 32, self.next);
        put_u32(header, 40, self.previous_checksum);
        self.previous_checksum = seal(self.id, frame, covered)?;
        self.next += 1;
        Ok(out.len())
    }

    /// Reads the next journal block from the start of `bytes`, and advances
    /// past it.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] for a block of another epoch or not the next
    /// one. Any error means that the journal ended before these bytes, except
    /// for [`LayoutError::TooShort`], which may also mean that a longer block
    /// is cut off. The chain then does not advance.
    pub fn decode<R: JournalRecord>(
        &mut self,
        block_size: u32,
        bytes: &[u8],
    ) -> Result<JournalBlock<R>, LayoutError> {
        let opened = open(self.id, R::BLOCK, bytes)?;
        let (header, mut rest) = split_header(&opened)?;
        if u64_at(header, 24) != self.epoch {
            return Err(LayoutError::Malformed("a journal block of another epoch"));
        }
        if u64_at(header, 32) != self.next || u32_at(header, 40) != self.previous_checksum {
            return Err(LayoutError::Malformed("not the next journal block"));
        }
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (record, behind) = R::decode(rest).ok_or(LayoutError::Malformed(
                "a record of unknown kind, or cut off",
            ))?;
            records.push(record);
            rest = behind;
        }
        if records.len() != opened.count as usize {
            return Err(LayoutError::Malformed("the block's records are miscounted"));
        }
        self.next += 1;
        self.previous_checksum = opened.checksum;
        Ok(JournalBlock {
            encoded_bytes: round_up_len(opened.covered.len(), block_size),
            records,
        })
    }

    /// Reads the next journal block, which may start at any device block of
    /// `bytes`, and advances past it. Returns the offset where it starts, too.
    pub fn find<R: JournalRecord>(
        &mut self,
        block_size: u32,
        bytes: &[u8],
    ) -> Option<(usize, JournalBlock<R>)> {
        (0..bytes.len())
            .step_by(block_size as usize)
            .filter(|&start| has_magic::<R>(&bytes[start..]))
            .find_map(|start| {
                let block = self.decode(block_size, &bytes[start..]).ok()?;
                Some((start, block))
            })
    }

    /// True if `bytes` start with a header that names this journal's epoch,
    /// whether or not its checksum holds.
    pub fn names_epoch(&self, bytes: &[u8]) -> bool {
        bytes.get(24..32) == Some(&self.epoch.to_le_bytes()[..])
    }

    /// True if `bytes` start with a block of this journal that follows the next
    /// one. Then the next one is not missing but damaged.
    pub fn is_behind_next<R: JournalRecord>(&self, bytes: &[u8]) -> bool {
        let is_behind = || {
            let opened = open(self.id, R::BLOCK, bytes)?;
            let (header, _) = split_header(&opened)?;
            Ok::<_, LayoutError>(u64_at(header, 24) == self.epoch && u64_at(header, 32) > self.next)
        };
        has_magic::<R>(bytes) && is_behind().unwrap_or(false)
    }
}

/// True if `bytes` start as a block does. A search asks this first at each place: to
/// tell blank bytes from foreign ones, opening them would read all that follow.
fn has_magic<R: JournalRecord>(bytes: &[u8]) -> bool {
    bytes.starts_with(&R::BLOCK.magic())
}

/// A block's header, and its records.
fn split_header<'a>(
    opened: &Opened<'a>,
) -> Result<(&'a [u8; JOURNAL_HEADER_BYTES], &'a [u8]), LayoutError> {
    opened
        .covered
        .split_first_chunk()
        .ok_or(LayoutError::Malformed("the block's header ends early"))
}

/// A checked journal block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBlock<R> {
    /// The records, in order.
    pub records: Vec<R>,
    /// The block's length, padding included: the next one starts behind it.
    pub encoded_bytes: usize,
}
