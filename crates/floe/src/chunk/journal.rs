//! Tombstones made durable: the chunk engine's notes in the metadata log.
//!
//! A panic in the log's work poisons the engine, once the engine's watcher has seen it: every
//! write, and every delete of a value that may be on flash, fails from then on. Lookups go on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use floe_core::ZoneId;
use floe_core::hash::KeyHash;
use floe_core::layout::{
    Generation, JournalChain, LayoutError, Mark, Note, Span, Superblock, ZoneLife,
};
use tokio::task::JoinHandle;

use super::pressure::Pressure;
use super::tombstones::{PendingTombstones, Unsent};
use super::zone_state::ZoneStates;
use crate::error::CacheError;
use crate::metadata_log::{
    Batch, Contents, Demand, LogError, LogSuperblock, Queue, Start, Written,
};

/// Generations reserved by one note.
const GENERATION_STRIDE: u32 = 256;

impl LogSuperblock for Superblock {
    type Record = Note;

    fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError> {
        Superblock::encode(self, out)
    }

    fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        Superblock::decode(bytes)
    }

    fn chain(&self) -> JournalChain {
        JournalChain::new(self.id, self.epoch)
    }

    fn with_epoch(self, epoch: u64) -> Self {
        Superblock { epoch, ..self }
    }
}

/// A handle to the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    queue: Queue<Notes>,
    /// Generations below this are journaled as used.
    generation_floor: AtomicU32,
    counters: Arc<JournalCounters>,
    pressure: Arc<Pressure>,
    pending: Arc<PendingTombstones>,
}

/// Counters of the journal.
#[derive(Debug, Default)]
pub(crate) struct JournalCounters {
    pub(crate) notes: AtomicU64,
    pub(crate) moves: AtomicU64,
}

/// The notes that a journal begins with.
pub(crate) struct Checkpoint {
    pub(crate) notes: Vec<Note>,
    /// The notes reserve the generations below this one.
    pub(crate) generation_floor: Generation,
}

impl Journal {
    /// Begins a journal with `checkpoint`, and starts its keeper.
    pub(crate) async fn begin(
        start: Start<Superblock>,
        states: Arc<ZoneStates>,
        checkpoint: Checkpoint,
    ) -> Result<(Self, JoinHandle<()>), LogError> {
        let pressure = Pressure::new(start.device.geometry().zone_capacity);
        let counters = Arc::<JournalCounters>::default();
        let pending = Arc::<PendingTombstones>::default();
        let notes = Notes {
            states,
            counters: Arc::clone(&counters),
            pressure: Arc::clone(&pressure),
            pending: Arc::clone(&pending),
        };
        let (queue, task) = start.begin(checkpoint.notes, notes).await?;
        let journal = Journal {
            queue,
            generation_floor: AtomicU32::new(checkpoint.generation_floor.0),
            counters,
            pressure,
            pending,
        };
        Ok((journal, task))
    }

    /// Tombstones of `hash` that are not written yet.
    pub(crate) fn pending(&self, hash: KeyHash) -> Vec<Note> {
        self.pending.of(hash)
    }

    /// From now on, every write or delete of one of these keys waits for these
    /// tombstones, too.
    pub(crate) fn enqueue(&self, tombstones: &[Note]) {
        self.pending.enqueue(tombstones);
    }

    /// Takes tombstones back whose values are alive.
    pub(crate) fn cancel(&self, tombstones: &[Note]) {
        self.pending.remove(tombstones);
    }

    /// Holds notes that are sent after something else is done.
    pub(crate) fn hold(&self, notes: Vec<Note>) -> Unsent {
        Unsent::new(&self.pending, notes)
    }

    /// Writes `notes`; when this returns `Ok` they are as durable as configured.
    pub(crate) async fn commit(&self, notes: Vec<Note>) -> Result<(), CacheError> {
        if notes.is_empty() {
            return Ok(());
        }
        if self.pending.is_full() {
            return Err(CacheError::NotDurable(
                "the journal has failed too often; reopen the cache".into(),
            ));
        }
        let unsent = self.hold(notes);
        let place = self.queue.place().await?;
        place.send(unsent.take()).wait().await
    }

    /// Writes `notes` some time soon; waits only for a place in the queue.
    pub(crate) async fn commit_later(&self, notes: Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        let unsent = self.hold(notes);
        // A closed journal keeps no notes: what they would have saved is scanned or re-validated.
        if let Ok(place) = self.queue.place().await {
            place.send_unwatched(unsent.take());
        }
    }

    /// Begins a batch of commits.
    pub(crate) fn batch(&self) -> Batch {
        self.queue.batch()
    }

    /// Makes sure that `generation` is journaled as used before it is.
    pub(crate) async fn reserve_generation(
        &self,
        generation: Generation,
    ) -> Result<(), CacheError> {
        if generation.0 < self.generation_floor.load(SeqCst) {
            return Ok(());
        }
        let floor = Generation(generation.0.saturating_add(GENERATION_STRIDE));
        self.commit(vec![Note::GenerationFloor { generation: floor }])
            .await?;
        self.generation_floor.fetch_max(floor.0, SeqCst);
        Ok(())
    }

    /// How full of tombstones the journal is.
    pub(crate) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    pub(crate) fn counters(&self) -> &JournalCounters {
        &self.counters
    }

    /// Waits until everything sent so far is written, and ends the journal.
    pub(crate) async fn close(&self) {
        let closed = self
            .queue
            .place()
            .await
            .map(|place| place.demand(Demand::Close));
        if let Ok(closed) = closed {
            // A failed group has said so.
            let _ = closed.wait().await;
        }
    }
}

/// The notes of the journal. Those of a life that is over do not matter.
struct Notes {
    states: Arc<ZoneStates>,
    counters: Arc<JournalCounters>,
    pressure: Arc<Pressure>,
    pending: Arc<PendingTombstones>,
}

impl Contents for Notes {
    type Superblock = Superblock;
    type Entry = Note;
    type Entries = Vec<Note>;

    const READS_BACK: bool = true;
    const FAILS_FOR_GOOD: bool = false;

    fn record(note: &Note) -> Note {
        *note
    }

    fn stands_alone(note: &Note) -> bool {
        match note {
            // These notes forbid values, and recovery obeys them whether a value is durable or not.
            Note::Tombstone { .. } | Note::Mark(_) | Note::GenerationFloor { .. } => true,
            Note::ZoneFull { .. }
            | Note::ZoneClosed { .. }
            | Note::ZoneDropped { .. }
            | Note::SlotUse { .. }
            | Note::UseNoted { .. }
            | Note::CheckpointEnd { .. } => false,
        }
    }

    fn begun(&mut self, written_bytes: u64) {
        self.pressure.set(written_bytes);
    }

    fn gather(&mut self, notes: &mut Vec<Note>) {
        notes.extend(self.pending.take_orphans());
    }

    fn live(
        &mut self,
        written: Vec<Note>,
    ) -> impl IntoIterator<Item = Note, IntoIter: Send> + Send {
        filter_notes(written, |zone| self.states.life(zone).generation)
    }

    fn written(&mut self, notes: &[Note], result: &Result<Written, LogError>) {
        match result {
            Ok(written) => {
                self.counters.notes.fetch_add(notes.len() as u64, SeqCst);
                let tombstones = notes
                    .iter()
                    .filter(|note| matches!(note, Note::Tombstone { .. }));
                match written {
                    Written::Appended => self.pressure.add(tombstones.count() as u64),
                    Written::Moved { bytes } => {
                        self.counters.moves.fetch_add(1, SeqCst);
                        self.pressure.set(*bytes);
                    }
                }
                self.pending.remove(notes);
            }
            Err(error) => {
                if matches!(error, LogError::Device(error) if error.is_no_space()) {
                    self.pressure.note_out_of_space();
                }
                tracing::error!(%error, "the journal could not be written; deletes and overwrites are rejected");
                self.pending.enqueue(notes);
            }
        }
    }
}

/// Drops notes of lives that are over or dropped, and tombstones that a later one covers.
/// `generation_of` returns the generation of a zone's current life.
pub(crate) fn filter_notes(
    notes: Vec<Note>,
    generation_of: impl Fn(ZoneId) -> Generation,
) -> Vec<Note> {
    let mut dropped = BTreeMap::new();
    for note in &notes {
        if let Note::ZoneDropped { life } = *note
            && generation_of(life.zone) <= life.generation
        {
            let last = dropped.entry(life.zone).or_insert(life.generation);
            *last = life.generation.max(*last);
        }
    }
    let current = |life: &ZoneLife| {
        generation_of(life.zone) == life.generation && !dropped.contains_key(&life.zone)
    };
    let mut floor = None;
    let mut closed = HashMap::new();
    let mut tombstones = HashMap::new();
    let mut slot_uses = BTreeMap::new();
    let mut use_noted = None;
    let mut marks = Vec::new();
    let mut kept = Vec::new();
    for note in notes {
        match note {
            Note::ZoneFull { life, .. } if current(&life) => kept.push(note),
            Note::Tombstone {
                life,
                hash,
                sequence,
            } if current(&life) => {
                let newest = tombstones.entry((life, hash)).or_insert(sequence);
                *newest = (*newest).max(sequence);
            }
            Note::ZoneClosed { life, end_offset } if current(&life) => {
                let end = closed.entry(life).or_insert(end_offset);
                *end = end_offset.min(*end);
            }
            Note::SlotUse {
                life, first_slot, ..
            } if current(&life) => {
                slot_uses.insert((life, first_slot), note);
            }
            Note::UseNoted { sequence } => use_noted = use_noted.max(Some(sequence)),
            Note::GenerationFloor { generation } => floor = floor.max(Some(generation)),
            Note::Mark(mark) => marks.push(mark),
            _ => {}
        }
    }
    let mut tombstones: Vec<Note> = tombstones
        .into_iter()
        .map(|((life, hash), sequence)| Note::Tombstone {
            life,
            hash,
            sequence,
        })
        .collect();
    // A hash map's order must not decide what is written: the same history writes the same bytes.
    tombstones.sort_unstable_by_key(|note| match note {
        Note::Tombstone { life, hash, .. } => (life.zone, life.generation, hash.0),
        _ => (ZoneId(0), Generation(0), 0),
    });
    let mut closed: Vec<_> = closed.into_iter().collect();
    closed.sort_unstable();
    kept.extend(
        closed
            .into_iter()
            .map(|(life, end_offset)| Note::ZoneClosed { life, end_offset }),
    );
    let dropped = dropped.iter();
    kept.extend(dropped.map(|(&zone, &generation)| Note::ZoneDropped {
        life: ZoneLife::new(zone, generation),
    }));
    kept.extend(tombstones);
    kept.extend(slot_uses.into_values());
    kept.extend(use_noted.map(|sequence| Note::UseNoted { sequence }));
    kept.extend(live_marks(marks).into_iter().map(Note::Mark));
    kept.extend(floor.map(|generation| Note::GenerationFloor { generation }));
    kept
}

/// The marks that count, in an order that depends on them alone.
pub(crate) fn live_marks(marks: Vec<Mark>) -> Vec<Mark> {
    let mut all = 0;
    let mut groups = HashMap::new();
    let mut newest = BTreeMap::new();
    for mark in marks {
        match mark.span {
            Span::All => all = all.max(mark.number),
            Span::Group => {
                let group = groups.entry(mark.group).or_insert(mark.number);
                *group = mark.number.max(*group);
            }
            Span::Prefix(_) | Span::Name => {}
        }
        let known = newest
            .entry((mark.group, mark.span, mark.id))
            .or_insert(mark);
        if mark.number > known.number {
            *known = mark;
        }
    }
    let counts = |mark: &Mark| match mark.span {
        Span::All => true,
        Span::Group => mark.number > all,
        Span::Prefix(_) | Span::Name => {
            mark.number > all
                && groups
                    .get(&mark.group)
                    .is_none_or(|&number| mark.number > number)
        }
    };
    newest.into_values().filter(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(span: Span, group: u64, id: u64, number: u64) -> Mark {
        Mark {
            span,
            group,
            id,
            number,
        }
    }

    #[test]
    fn a_mark_of_a_set_supersedes_the_older_ones_within_it() {
        let of = |number| mark(Span::Prefix(3), 1, 5, number);
        assert_eq!(live_marks(vec![of(2), of(4), of(3)]), [of(4)]);
        let name = mark(Span::Name, 1, 5, 4);
        let group = |number| mark(Span::Group, 1, 1, number);
        let other = mark(Span::Name, 2, 5, 1);
        assert_eq!(
            live_marks(vec![name, group(3), other]),
            [group(3), name, other]
        );
        assert_eq!(live_marks(vec![name, group(5), other]), [group(5), other]);
        let all = mark(Span::All, 0, 0, 6);
        assert_eq!(
            live_marks(vec![name, group(5), all, group(7)]),
            [all, group(7)]
        );
    }

    #[test]
    fn notes_that_speak_of_other_bytes_need_a_flush() {
        let life = ZoneLife::new(ZoneId(3), Generation(1));
        let full = Note::ZoneFull {
            life,
            summary_offset: 0,
            records: 1,
        };
        let tombstone = Note::Tombstone {
            life,
            hash: KeyHash(1),
            sequence: floe_core::layout::Sequence(1),
        };
        assert!(Notes::stands_alone(&tombstone));
        assert!(Notes::stands_alone(&Note::Mark(mark(Span::All, 0, 0, 1))));
        assert!(!Notes::stands_alone(&full));
        assert!(!Notes::stands_alone(&Note::ZoneDropped { life }));
    }

    #[test]
    fn a_checkpoint_keeps_the_marks_that_count() {
        let group = Note::Mark(mark(Span::Group, 1, 1, 2));
        let older = Note::Mark(mark(Span::Name, 1, 5, 1));
        assert_eq!(filter_notes(vec![older, group], |_| Generation(0)), [group]);
    }
}
