//! Deciding about requests: the locks that they need, and what they leave for the table
//! of blocks.

use std::sync::Arc;

use floe_core::Tick;
use floe_core::layout::volume::{BlockRecord, MappedBlock};
use floe_core::volume::mode::{Mode, Sector};
use floe_core::volume::{
    ByteRange, Cache, Extent, Operation, Outcome, Piece, Plan, Request, SECTOR_BYTES, Step,
};

use super::locks::{Hold, LockId};
use super::shard::{Retired, State};
use super::state::Shared;

/// The steps of a request in one region, and the lock that they need.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) steps: Vec<Step>,
    pub(super) outcome: Outcome,
    pub(super) lock: RangeLock,
    /// The bytes of a change that were dirty before.
    pub(super) dirty: Vec<ByteRange>,
    /// A change removes bytes that are being written back: they count as clean, and the
    /// backing device need not have them durably.
    pub(super) forgets_pinned: bool,
}

/// A range lock that is held, or waited for.
#[derive(Debug)]
pub(super) struct RangeLock {
    shared: Arc<Shared>,
    shard: usize,
    id: LockId,
}

impl RangeLock {
    /// A lock that the shard's state has granted.
    pub(super) fn new(shared: &Arc<Shared>, shard: usize, id: LockId) -> Self {
        RangeLock {
            shared: Arc::clone(shared),
            shard,
            id,
        }
    }

    /// The cache that the lock belongs to.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Lets the lock keep others from less.
    pub(super) fn downgrade(&self, to: Hold) {
        self.shared.shards[self.shard]
            .lock()
            .locks
            .downgrade(self.id, to);
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.shared.shards[self.shard].lock().locks.release(self.id);
    }
}

impl Shared {
    /// Decides about a request that lies within one region, once no other request has
    /// its bytes. If the future is dropped, the request has had no effect.
    pub(super) async fn decide(self: &Arc<Self>, request: Request) -> Decision {
        let decide = |state: &mut State, lock| self.decided(state, request, lock);
        self.locked(request, decide).await
    }

    /// As [`Shared::decide`], with the lock that the request needs.
    pub(super) fn decide_with(&self, request: Request, lock: RangeLock) -> Decision {
        let mut state = self.shards[lock.shard].lock();
        self.decided(&mut state, request, lock)
    }

    /// Takes the lock that a request within one region needs, and calls `then` before any
    /// other request is decided.
    pub(super) async fn locked<T>(
        self: &Arc<Self>,
        request: Request,
        then: impl FnOnce(&mut State, RangeLock) -> T,
    ) -> T {
        let shard = self.plan.shard_of(request.volume, request.range.start);
        loop {
            let (lock, granted, needed) = {
                let mut state = self.shards[shard].lock();
                let needed = needs(&state.cache, &self.plan, request);
                match state.locks.lock(needed.0, needed.1) {
                    (id, None) => {
                        let lock = RangeLock::new(self, shard, id);
                        return then(&mut state, lock);
                    }
                    (id, Some(granted)) => (RangeLock::new(self, shard, id), granted, needed),
                }
            };
            // The sender is dropped only with the locks.
            let _ = granted.await;
            let mut state = self.shards[shard].lock();
            // Another request may have changed the blocks since.
            let (extent, hold) = needs(&state.cache, &self.plan, request);
            let is_enough = needed.0.range.contains(extent.range)
                && (needed.1 == hold || needed.1 == Hold::Exclusive);
            if is_enough {
                return then(&mut state, lock);
            }
            drop(state);
        }
    }

    /// Takes a request within one region that changes no block, if `choose` finds its
    /// place, and no other request has its bytes.
    pub(super) fn in_place(
        self: &Arc<Self>,
        extent: Extent,
        hold: Hold,
        choose: impl FnOnce(&mut Cache, Extent, Tick) -> Option<Piece>,
    ) -> Option<(Piece, RangeLock)> {
        if self.region_end(extent.range.start) < extent.range.end {
            return None;
        }
        let shard = self.plan.shard_of(extent.volume, extent.range.start);
        let mut state = self.shards[shard].lock();
        if !state.is_loaded {
            return None;
        }
        let id = state.locks.try_lock(extent, hold)?;
        match choose(&mut state.cache, extent, self.clock.now()) {
            Some(piece) => {
                drop(state);
                Some((piece, RangeLock::new(self, shard, id)))
            }
            None => {
                state.locks.release(id);
                None
            }
        }
    }

    /// The end of the region that has byte `at`.
    fn region_end(&self, at: u64) -> u64 {
        let bytes = self.plan.region_bytes();
        (at / bytes + 1) * bytes
    }

    fn decided(&self, state: &mut State, request: Request, lock: RangeLock) -> Decision {
        let mut steps = Vec::new();
        let dirty = match request.operation {
            Operation::Read | Operation::Flush => Vec::new(),
            Operation::Write | Operation::Trim | Operation::WriteZeroes => {
                dirty_of(&state.cache, exact(request))
                    .iter()
                    .map(|piece| piece.extent.range)
                    .collect()
            }
        };
        let is_pinned = state.locks.is_pinned(exact(request));
        let now = self.clock.now();
        let outcome = state.cache.request(&request, now, &mut steps);
        if state.cache.is_short() {
            self.short.notify_one();
        }
        let forgets = |step: &Step| matches!(step, Step::Unmap(_) | Step::Mark(_, Sector::Missing));
        Decision {
            forgets_pinned: is_pinned && steps.iter().any(forgets),
            steps,
            outcome,
            lock,
            dirty,
        }
    }

    /// Enqueues the records of steps that have been carried out.
    pub(super) fn settle(&self, steps: &[Step], lock: &RangeLock) {
        let mut state = self.shards[lock.shard].lock();
        self.settle_in(&mut state, steps);
    }

    /// As [`Shared::settle`]. Answers of later changes wait for records that tell where
    /// the only copy is, or that there is none any more.
    pub(super) fn settle_in(&self, state: &mut State, steps: &[Step]) {
        let mut needs_writing = false;
        let mut records = Vec::new();
        for step in steps {
            match *step {
                Step::Map(block) => records.push(map(&self.plan, block)),
                Step::Mark(piece, sector) => {
                    needs_writing |= sector != Sector::Clean;
                    self.mark(piece, sector, &mut records);
                }
                Step::Unmap(block) => {
                    needs_writing = true;
                    let latest = state.locks.latest();
                    state.retired.push(Retired { block, latest });
                    let granule = granule(&self.plan, block.place);
                    records.push(BlockRecord::Unmap { granule });
                }
                _ => {}
            }
        }
        if records.is_empty() {
            return;
        }
        let ticket = self.table.enqueue(records);
        if needs_writing {
            self.table.need(ticket);
        }
    }

    /// Appends records of a piece's state, and of its checksums.
    pub(super) fn mark(&self, piece: Piece, sector: Sector, records: &mut Vec<BlockRecord>) {
        records.push(mark(&self.plan, piece, sector));
        if let (Some(sums), true) = (&self.sums, sector != Sector::Missing) {
            sums.records(piece.places(), false, records);
        }
    }

    /// Undoes the steps of a request that has failed: new blocks leave, and so do those
    /// that it wrote to and that are clean. A dirty block stays, and forgets what was not
    /// `dirty` before: the backing device has it. The rest has old or new data.
    pub(super) fn undo(&self, steps: &[Step], dirty: &[ByteRange], lock: &RangeLock) {
        let mut state = self.shards[lock.shard].lock();
        let mut undone = Vec::new();
        for step in steps {
            match *step {
                Step::Map(block) => state.cache.invalidate(block.place, &mut undone),
                Step::Unmap(_) => undone.push(*step),
                Step::WriteCache(piece) | Step::Fill(piece) | Step::ZeroCache(piece) => {
                    if !state.cache.is_dirty(piece.place) {
                        state.cache.invalidate(piece.place, &mut undone);
                        continue;
                    }
                    for part in without(piece, dirty) {
                        state.cache.forget(part, &mut undone);
                    }
                }
                _ => {}
            }
        }
        // The table hears of the sectors that stay.
        for step in steps {
            if let Step::Mark(piece, _) = *step {
                let mut mark = |piece, sector| undone.push(Step::Mark(piece, sector));
                state.cache.runs(piece, &mut mark);
            }
        }
        self.settle_in(&mut state, &undone);
    }
}

fn exact(request: Request) -> Extent {
    Extent {
        volume: request.volume,
        range: request.range,
    }
}

/// The dirty bytes of `extent`.
pub(super) fn dirty_of(cache: &Cache, extent: Extent) -> Vec<Piece> {
    let mut dirty = Vec::new();
    cache.lookup(extent, |piece| {
        cache.runs(piece, |piece, sector| {
            if sector == Sector::Dirty {
                dirty.push(piece);
            }
        });
    });
    dirty
}

/// The parts of `piece` that are not in `ranges`, which ascend.
fn without(piece: Piece, ranges: &[ByteRange]) -> Vec<Piece> {
    let all = piece.extent.range;
    let mut parts = Vec::new();
    let mut start = all.start;
    let end = ByteRange::at(all.end, 0);
    for range in ranges.iter().chain([&end]) {
        let end = range.start.min(all.end);
        if start < end {
            parts.push(Piece {
                extent: Extent {
                    range: ByteRange { start, end },
                    ..piece.extent
                },
                place: piece.place + (start - all.start),
            });
        }
        start = start.max(range.end);
    }
    parts
}

/// True if the request makes clean blocks dirty that keep no map of their sectors.
fn dirties_whole_blocks(cache: &Cache, plan: &Plan, request: Request) -> bool {
    let makes_dirty = cache.mode_of(request.volume).makes_dirty();
    let mut is_any_clean = false;
    if request.operation == Operation::Write && makes_dirty && !plan.keeps_maps() {
        cache.lookup(exact(request), |piece| {
            cache.clean_runs(piece, |_| is_any_clean = true);
        });
    }
    is_any_clean
}

/// The lock that a request needs.
fn needs(cache: &Cache, plan: &Plan, request: Request) -> (Extent, Hold) {
    let exact = exact(request);
    if dirties_whole_blocks(cache, plan, request) {
        // Its record makes all of a block dirty: other writes to the block rely on it.
        let region = Extent {
            range: request.range.aligned_to(plan.region_bytes()),
            ..exact
        };
        return (region, Hold::Exclusive);
    }
    let is_cached = cache.is_cached(exact);
    let granules = Extent {
        volume: request.volume,
        range: request.range.aligned_to(plan.granule_bytes()),
    };
    match request.operation {
        Operation::Read if is_cached && cache.mode_of(request.volume) != Mode::PassThrough => {
            (exact, Hold::Shared)
        }
        Operation::Write | Operation::Trim | Operation::WriteZeroes if is_cached => {
            (exact, Hold::Exclusive)
        }
        _ => (granules, Hold::Exclusive),
    }
}

fn granule(plan: &Plan, place: u64) -> u32 {
    (place / plan.granule_bytes()) as u32
}

fn map(plan: &Plan, block: Piece) -> BlockRecord {
    let bytes = plan.granule_bytes();
    let ByteRange { start, .. } = block.extent.range;
    BlockRecord::Map {
        granule: granule(plan, block.place),
        block: MappedBlock {
            volume: block.extent.volume,
            class: (block.extent.range.len() / bytes).ilog2() as u8,
            address: start / bytes,
        },
    }
}

fn mark(plan: &Plan, piece: Piece, state: Sector) -> BlockRecord {
    let granule = granule(plan, piece.place);
    let within = piece.place % plan.granule_bytes() / SECTOR_BYTES;
    let sectors = piece.extent.range.len().div_ceil(SECTOR_BYTES);
    BlockRecord::Mark {
        granule,
        first: within as u16,
        end: (within + sectors) as u16,
        state,
    }
}
