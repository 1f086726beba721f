//! Deaths made durable: the superblock and the journal in the two metadata zones.
//!
//! One task owns the metadata zones. Commits that arrive together share one
//! append and one flush. When the active zone is full, the notes that still
//! matter are copied to the other, which counts only once its
//! `CheckpointEnd` note is there; then the old one is reset.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use floe_core::ZoneId;
use floe_core::chunk::{Durability, Plan};
use floe_core::hash::KeyHash;
use floe_core::layout::{Generation, JournalChain, LayoutError, Note, Superblock};
use floe_device::{DeviceError, IoBuf, Placement, SharedDevice};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::deaths::{Owed, Pressure, Unsent};
use super::zone_state::ZoneStates;
use crate::error::CacheError;
use crate::metadata::{goes_on, leave_copy, other, read_window, reserve};

/// Commits that may wait for the task; further callers wait for a place.
const QUEUE: usize = 1024;
/// Notes gathered into one append.
const GROUP_NOTES: usize = 4096;
/// How often a journal is read back that reads otherwise than it was written.
const READS_BACK: usize = 4;
/// Generations reserved by one note.
const GENERATION_STRIDE: u32 = 256;

/// Why the metadata zones cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
    #[error(
        "the notes that must be kept do not fit a metadata zone; use larger zones (device.zone_size)"
    )]
    TooManyNotes,
    #[error(
        "the journal reads back otherwise than it was written, so that it cannot move on; deletes and overwrites are refused until it does, or the cache is reopened, which forgets what it cannot vouch for"
    )]
    ReadBack,
    #[error("the last append to the journal failed")]
    Spoiled,
}

struct Request {
    notes: Vec<Note>,
    done: Option<oneshot::Sender<Result<(), String>>>,
    /// Nothing comes after this.
    last: bool,
}

/// A handle to the journal's task.
#[derive(Debug)]
pub(crate) struct Journal {
    requests: mpsc::Sender<Request>,
    /// Generations below this are journaled as used.
    generation_floor: AtomicU32,
    pressure: Arc<Pressure>,
    owed: Arc<Owed>,
}

impl Journal {
    /// Deaths of `hash` that are not written yet.
    pub(crate) fn owed(&self, hash: KeyHash) -> Vec<Note> {
        self.owed.of(hash)
    }

    /// From now on, whoever writes or deletes one of these keys sees to these
    /// deaths, too.
    pub(crate) fn owe(&self, deaths: &[Note]) {
        self.owed.add(deaths);
    }

    /// Deaths that did not come to be.
    pub(crate) fn forgive(&self, deaths: &[Note]) {
        self.owed.paid(deaths);
    }

    /// Holds notes that are sent after something else is done.
    pub(crate) fn hold(&self, notes: Vec<Note>) -> Unsent {
        Unsent::new(&self.owed, notes)
    }

    /// Starts the task that owns the metadata zones.
    pub(crate) fn start(task: JournalTask, generation_floor: Generation) -> (Self, JoinHandle<()>) {
        let (requests, inbox) = mpsc::channel(QUEUE);
        let pressure = Arc::clone(&task.pressure);
        let owed = Arc::clone(&task.owed);
        let running = tokio::spawn(task.run(inbox));
        (
            Journal {
                requests,
                generation_floor: AtomicU32::new(generation_floor.0),
                pressure,
                owed,
            },
            running,
        )
    }

    /// Writes `notes`; when this returns `Ok` they are as durable as configured.
    pub(crate) async fn commit(&self, notes: Vec<Note>) -> Result<(), CacheError> {
        if notes.is_empty() {
            return Ok(());
        }
        if self.owed.is_full() {
            return Err(CacheError::NotDurable(
                "the journal has failed too often; reopen the cache".into(),
            ));
        }
        let unsent = self.hold(notes);
        let place = self.requests.reserve().await;
        let Ok(place) = place else {
            return Err(CacheError::Closed);
        };
        let (done, result) = oneshot::channel();
        place.send(Request {
            notes: unsent.take(),
            done: Some(done),
            last: false,
        });
        match result.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(CacheError::NotDurable(reason)),
            Err(_) => Err(CacheError::Closed),
        }
    }

    /// Writes `notes` some time soon; waits only for a place in the queue.
    pub(crate) async fn commit_later(&self, notes: Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        let unsent = self.hold(notes);
        // A closed journal keeps no notes: what they would have saved is scanned or re-validated.
        if let Ok(place) = self.requests.reserve().await {
            place.send(Request {
                notes: unsent.take(),
                done: None,
                last: false,
            });
        }
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

    /// How full of deaths the journal is.
    pub(crate) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Waits until everything sent so far is written, and ends the task.
    pub(crate) async fn close(&self) {
        let (done, result) = oneshot::channel();
        if self
            .requests
            .send(Request {
                notes: Vec::new(),
                done: Some(done),
                last: true,
            })
            .await
            .is_ok()
        {
            let _ = result.await;
        }
    }
}

/// The owner of the metadata zones.
pub(crate) struct JournalTask {
    device: SharedDevice,
    plan: Plan,
    superblock: Superblock,
    states: Arc<ZoneStates>,
    active: ZoneId,
    chain: JournalChain,
    written_bytes: u64,
    /// An append to the active zone failed: what lies behind the chain is
    /// unknown, perhaps the block itself. Nothing may follow it.
    is_spoiled: bool,
    counters: Arc<JournalCounters>,
    pressure: Arc<Pressure>,
    owed: Arc<Owed>,
}

/// What the journal counts.
#[derive(Debug, Default)]
pub(crate) struct JournalCounters {
    pub(crate) notes: std::sync::atomic::AtomicU64,
    pub(crate) moves: std::sync::atomic::AtomicU64,
}

impl JournalTask {
    /// Starts a new metadata zone in `zone` holding `notes`, and an empty task that continues it.
    pub(crate) async fn begin(
        device: SharedDevice,
        plan: Plan,
        superblock: Superblock,
        states: Arc<ZoneStates>,
        zone: ZoneId,
        notes: Vec<Note>,
    ) -> Result<Self, JournalError> {
        reserve(&device);
        let chain = JournalChain::new(superblock.id, superblock.epoch);
        let pressure = Pressure::new(plan.geometry.zone_capacity);
        let mut task = JournalTask {
            device,
            plan,
            superblock,
            states,
            active: zone,
            chain,
            written_bytes: 0,
            is_spoiled: false,
            counters: Arc::default(),
            pressure,
            owed: Arc::default(),
        };
        task.write_checkpoint(zone, task.superblock.epoch, notes)
            .await?;
        task.leave_copy().await?;
        Ok(task)
    }

    pub(crate) fn counters(&self) -> Arc<JournalCounters> {
        Arc::clone(&self.counters)
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        while let Some(first) = inbox.recv().await {
            let mut notes = first.notes;
            let mut waiting: Vec<_> = first.done.into_iter().collect();
            let mut last = first.last;
            while notes.len() < GROUP_NOTES
                && let Ok(next) = inbox.try_recv()
            {
                notes.extend(next.notes);
                waiting.extend(next.done);
                last |= next.last;
            }
            notes.extend(self.owed.take_orphans());
            let result = self.write(&notes).await;
            if matches!(&result, Err(JournalError::Device(error)) if error.is_no_space()) {
                self.pressure.starve();
            }
            let result = result.map_err(|e| e.to_string());
            match &result {
                Ok(()) => self.owed.paid(&notes),
                // Before the callers hear of it: their next write must find it.
                Err(_) => self.owed.add(&notes),
            }
            if let Err(error) = &result {
                tracing::error!(%error, "the journal could not be written; deletes and overwrites are refused");
            }
            for done in waiting {
                // A caller that is gone has nobody to tell.
                let _ = done.send(result.clone());
            }
            if last {
                return;
            }
        }
    }

    /// Always to stable media where power loss counts, waited for or not: of two
    /// blocks that are not, the later may survive alone, and a journal with a hole
    /// cannot be believed.
    async fn write(&mut self, notes: &[Note]) -> Result<(), JournalError> {
        if !notes.is_empty() {
            match self.append_notes(notes).await {
                Ok(()) => {}
                // Full, or failed: what still matters moves to the other zone, then once more.
                Err(_) => {
                    self.advance().await?;
                    self.append_notes(notes).await?;
                }
            }
            self.counters.notes.fetch_add(notes.len() as u64, SeqCst);
            let deaths = notes
                .iter()
                .filter(|note| matches!(note, Note::Death { .. }));
            self.pressure.add(deaths.count() as u64);
        }
        if self.plan.durability == Durability::Power {
            self.device.flush().await?;
        }
        Ok(())
    }

    async fn append_notes(&mut self, notes: &[Note]) -> Result<(), JournalError> {
        if self.is_spoiled {
            return Err(JournalError::Spoiled);
        }
        let block_size = self.plan.geometry.block_size;
        let per_append = notes_per_append(&self.plan);
        let bytes: u64 = notes
            .chunks(per_append)
            .map(|n| JournalChain::encoded_bytes(n, block_size) as u64)
            .sum();
        if self.written_bytes + bytes > self.plan.geometry.zone_capacity {
            return Err(JournalError::TooManyNotes);
        }
        for group in notes.chunks(per_append) {
            let mut chain = self.chain;
            let mut buf = IoBuf::zeroed(JournalChain::encoded_bytes(group, block_size));
            chain.encode(block_size, group, &mut buf)?;
            let len = buf.len() as u64;
            let appended = self
                .device
                .append(self.active, buf.freeze(), Placement(0))
                .await;
            self.is_spoiled = appended.is_err();
            let at = appended?;
            self.chain = chain;
            self.written_bytes = at.offset + len;
        }
        Ok(())
    }

    /// Moves to the other metadata zone, taking along the notes that still matter.
    async fn advance(&mut self) -> Result<(), JournalError> {
        let notes = self.still_matter(self.read_back().await?);
        let to = other(self.active);
        let epoch = self.superblock.epoch + 1;
        self.write_checkpoint(to, epoch, notes).await?;
        self.counters.moves.fetch_add(1, SeqCst);
        self.leave_copy().await
    }

    /// The active zone is complete and stable: the other one may go.
    async fn leave_copy(&self) -> Result<(), JournalError> {
        let block_size = self.plan.geometry.block_size;
        let mut copy = IoBuf::zeroed(Superblock::encoded_bytes(block_size));
        self.superblock.encode(&mut copy)?;
        leave_copy(&self.device, other(self.active), copy).await;
        Ok(())
    }

    /// All notes of the active zone. A block that reads back wrong looks like
    /// the journal's end: only the chain says whether that was all.
    async fn read_back(&self) -> Result<Vec<Note>, JournalError> {
        for _ in 0..READS_BACK {
            let (device, plan) = (&self.device, &self.plan);
            let end = Some(self.chain);
            let scan = scan_journal(device, plan, &self.superblock, self.active, end).await?;
            if scan.reached_end {
                return Ok(scan.notes);
            }
            tracing::warn!("the journal reads back otherwise than it was written");
        }
        Err(JournalError::ReadBack)
    }

    fn still_matter(&self, notes: Vec<Note>) -> Vec<Note> {
        let current = |life: &floe_core::layout::ZoneLife| {
            self.states.life(life.zone).generation == life.generation
        };
        filter_notes(notes, current)
    }

    /// Resets `zone` and writes a superblock of `epoch`, `notes` and their end mark into it.
    async fn write_checkpoint(
        &mut self,
        zone: ZoneId,
        epoch: u64,
        notes: Vec<Note>,
    ) -> Result<(), JournalError> {
        let block_size = self.plan.geometry.block_size;
        self.device.reset(zone).await?;
        let superblock = Superblock {
            epoch,
            ..self.superblock
        };
        let mut buf = IoBuf::zeroed(Superblock::encoded_bytes(block_size));
        superblock.encode(&mut buf)?;
        let len = buf.len() as u64;
        let at = self.device.append(zone, buf.freeze(), Placement(0)).await?;
        let previous = (self.active, self.chain, self.written_bytes);
        self.is_spoiled = false;
        self.active = zone;
        self.chain = JournalChain::new(self.superblock.id, epoch);
        self.written_bytes = at.offset + len;
        let mut all = notes;
        all.push(Note::CheckpointEnd {
            notes: all.len() as u64,
        });
        let written = match self.append_notes(&all).await {
            Ok(()) => self.device.flush().await.map_err(JournalError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            (self.active, self.chain, self.written_bytes) = previous;
            // It may be complete on flash all the same, and then it is what a
            // recovery believes: nothing more may be said in the old zone.
            self.is_spoiled = true;
            return Err(error);
        }
        self.superblock = superblock;
        self.pressure.set(self.written_bytes);
        Ok(())
    }
}

fn notes_per_append(plan: &Plan) -> usize {
    let append = plan.geometry.max_append_bytes.min(128 << 10) as usize;
    (append.saturating_sub(floe_core::layout::JOURNAL_HEADER_BYTES) / floe_core::layout::NOTE_BYTES)
        .max(1)
}

/// Drops notes of lives that are over and deaths that a later note covers.
pub(crate) fn filter_notes(
    notes: Vec<Note>,
    current: impl Fn(&floe_core::layout::ZoneLife) -> bool,
) -> Vec<Note> {
    let mut floor = None;
    let mut closed = HashMap::new();
    let mut deaths = HashMap::new();
    let mut slot_uses = BTreeMap::new();
    let mut use_noted = None;
    let mut kept = Vec::new();
    for note in notes {
        match note {
            Note::ZoneFull { life, .. } if current(&life) => kept.push(note),
            Note::Death {
                life,
                hash,
                sequence,
            } if current(&life) => {
                let newest = deaths.entry((life, hash)).or_insert(sequence);
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
            _ => {}
        }
    }
    let mut deaths: Vec<Note> = deaths
        .into_iter()
        .map(|((life, hash), sequence)| Note::Death {
            life,
            hash,
            sequence,
        })
        .collect();
    // A hash map's order must not decide what is written: the same history writes the same bytes.
    deaths.sort_unstable_by_key(|note| match note {
        Note::Death { life, hash, .. } => (life.zone, life.generation, hash.0),
        _ => (ZoneId(0), Generation(0), 0),
    });
    let mut closed: Vec<_> = closed.into_iter().collect();
    closed.sort_unstable();
    kept.extend(
        closed
            .into_iter()
            .map(|(life, end_offset)| Note::ZoneClosed { life, end_offset }),
    );
    kept.extend(deaths);
    kept.extend(slot_uses.into_values());
    kept.extend(use_noted.map(|sequence| Note::UseNoted { sequence }));
    kept.extend(floor.map(|generation| Note::GenerationFloor { generation }));
    kept
}

/// What a metadata zone's journal holds.
#[derive(Debug, Default)]
pub(crate) struct JournalScan {
    pub(crate) notes: Vec<Note>,
    /// Whether the checkpoint that the zone starts with is complete.
    pub(crate) complete: bool,
    /// Whether a block in its middle cannot be read: deaths are missing.
    pub(crate) damaged: bool,
    /// Whether the end that was given was come to.
    reached_end: bool,
}

/// Reads the journal behind `superblock` in `zone`, up to `end` if it is known.
pub(crate) async fn scan_journal(
    device: &SharedDevice,
    plan: &Plan,
    superblock: &Superblock,
    zone: ZoneId,
    end: Option<JournalChain>,
) -> Result<JournalScan, JournalError> {
    let geometry = &plan.geometry;
    let mut chain = JournalChain::new(superblock.id, superblock.epoch);
    let mut scan = JournalScan::default();
    let mut offset = Superblock::encoded_bytes(geometry.block_size) as u64;
    let mut window = read_window(device, zone, offset).await?;
    let mut window_start = offset;
    loop {
        if end == Some(chain) {
            scan.reached_end = true;
            return Ok(scan);
        }
        let rest = window
            .get((offset - window_start) as usize..)
            .unwrap_or_default();
        match chain.decode::<Note>(geometry.block_size, rest) {
            Ok(block) => {
                offset += block.encoded_bytes as u64;
                for note in block.records {
                    if let Note::CheckpointEnd { notes } = note {
                        scan.complete = notes == scan.notes.len() as u64;
                    }
                    scan.notes.push(note);
                }
            }
            Err(_) if offset > window_start && offset < geometry.zone_capacity => {
                // Perhaps cut off by the window: look again with the block at its start.
                window = read_window(device, zone, offset).await?;
                window_start = offset;
            }
            Err(_) => {
                scan.damaged = goes_on(geometry.block_size, rest, |block| {
                    chain.is_behind_next::<Note>(block)
                });
                return Ok(scan);
            }
        }
    }
}
