//! Runs the tasks that an engine issues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use floe_core::tiny::{
    Discarded, Due, Durability, Engine as _, Label, Outcome, Page, PageAddress, TaskId, Work,
};
use floe_device::{Clock, IoData};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::MutexGuard;

use super::instance::Instance;
use crate::abort::OnAbort;

/// Most concurrent tasks of an engine that needs no order.
const TASKS_MAX: usize = 64;

/// Pieces of the engine's own work after which other tasks of the thread get their turn.
const PIECES: usize = 8;

/// How long the engine's own work goes on before requests that found the lock held get a
/// [`PAUSE`].
const TURN: Duration = Duration::from_micros(500);

/// How long requests get the lock for themselves. Tokio's timer makes it one to two milliseconds.
const PAUSE: Duration = Duration::from_micros(500);

/// A task of the engine, with the labels of its pages.
struct Order {
    id: TaskId,
    work: Work,
    labels: Vec<Label>,
    /// The oldest set-group when the task was issued.
    oldest: u64,
}

impl Order {
    /// The place and the sequence of the set-group that the task completes.
    fn set_group(&self) -> Option<(PageAddress, u64)> {
        match &self.work {
            Work::Seal { first, summary, .. } if !summary.of_index => {
                Some((*first, summary.sequence))
            }
            _ => None,
        }
    }

    /// The note that must precede the task.
    fn sealing(&self) -> Option<Note> {
        let (page, sequence) = self.set_group()?;
        Some(Note::Sealing { page, sequence })
    }
}

/// The next step of the loop.
enum Next {
    Order(Order),
    /// The engine has done a piece of work: ask again.
    Advanced(Discarded),
    /// No task until a notification.
    Wait,
    /// No task, now or later: the engine rejects objects, and nothing is
    /// running that could change its state.
    WornOut,
}

/// A durable note about set-groups.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    /// Set-groups before this one are evicted, although their zone could not be reset.
    Gone(u64),
    /// Set-groups before this one were written.
    Written(u64),
    /// A set-group's summary is about to be written.
    Sealing { page: PageAddress, sequence: u64 },
}

/// A finished task.
struct Ended {
    id: TaskId,
    outcome: Outcome,
    /// For a reset: the order's `oldest`.
    emptied: Option<u64>,
    /// For a summary of a set-group: the set-group's sequence.
    sealed: Option<u64>,
}

impl Instance {
    /// Runs the engine's tasks until [`stop`](Instance::stop). `note` makes a
    /// note durable, and returns whether it succeeded.
    pub(super) async fn run(
        self: Arc<Self>,
        clock: Clock,
        now_seconds: impl Fn() -> u32,
        note: impl AsyncFn(Note) -> bool,
    ) {
        let aborted = OnAbort::new(|| self.abort());
        if !self.carry_out_all(&clock, now_seconds, note).await {
            self.freeze();
        }
        aborted.done();
    }

    /// Returns false if a note could not be made durable.
    async fn carry_out_all(
        &self,
        clock: &Clock,
        now_seconds: impl Fn() -> u32,
        note: impl AsyncFn(Note) -> bool,
    ) -> bool {
        let tasks_max = if self.durability.is_ordered() {
            1
        } else {
            TASKS_MAX
        };
        let mut running = FuturesUnordered::new();
        loop {
            // Volatile objects need not be written at shutdown.
            let goes_on = self.durability.is_persistent() || !self.stopping.load(SeqCst);
            let has_room = goes_on && running.len() < tasks_max;
            if running.is_empty() && !goes_on {
                return true;
            }
            // The next task is prepared while others run.
            let ended = tokio::select! {
                biased;
                Some(ended) = running.next() => Some(ended),
                () = self.advance(clock) => None,
            };
            let ended = match ended {
                None if has_room => match self.next_order(running.is_empty()) {
                    Next::Advanced(discarded) => {
                        drop(discarded);
                        continue;
                    }
                    Next::Order(order) => {
                        if let Some(sealing) = order.sealing()
                            && self.durability.is_persistent()
                            && !note(sealing).await
                        {
                            return false;
                        }
                        running.push(self.run_task(order));
                        continue;
                    }
                    Next::Wait if running.is_empty() && self.stopping.load(SeqCst) => return true,
                    Next::Wait => {
                        tokio::select! {
                            biased;
                            Some(ended) = running.next() => Some(ended),
                            () = self.work.notified() => None,
                        }
                    }
                    Next::WornOut => {
                        tracing::error!(
                            "the zones for tiny objects are worn out; the cache rejects further objects"
                        );
                        self.stop();
                        return true;
                    }
                },
                None => running.next().await,
                ended => ended,
            };
            if let Some(ended) = ended
                && !self.finish(ended, &now_seconds, &note).await
            {
                return false;
            }
        }
    }

    /// Completes a task, after the note that it needs. Returns false without one.
    async fn finish(
        &self,
        ended: Ended,
        now_seconds: &impl Fn() -> u32,
        note: &impl AsyncFn(Note) -> bool,
    ) -> bool {
        if self.durability.is_persistent()
            && let Some(oldest) = ended.emptied
            && ended.outcome != Outcome::Done
            && !note(Note::Gone(oldest)).await
        {
            return false;
        }
        // The note must precede the end of the fences that this set-group makes obsolete.
        if let Some(sequence) = ended.sealed
            && ended.outcome == Outcome::Done
            && !note(Note::Written(sequence + 1)).await
        {
            return false;
        }
        self.complete_task(ended, now_seconds());
        true
    }

    /// Lets the engine do the work that needs no device, in pieces. Others may take the lock
    /// after each, and this thread after a few.
    ///
    /// A request that finds the lock held costs a change of threads, so many of them would be
    /// slow as long as this lasts. Once there was one they get the lock for themselves now and
    /// then, unless writes wait for room or the engine stops.
    async fn advance(&self, clock: &Clock) {
        let mut since = clock.now();
        self.was_held.store(false, Relaxed);
        loop {
            for _ in 0..PIECES {
                let mut state = self.state.lock();
                let piece = state.advance();
                MutexGuard::unlock_fair(state);
                if piece.is_none() {
                    return;
                }
            }
            if self.was_held.load(Relaxed)
                && !self.is_short.load(Relaxed)
                && !self.stopping.load(Relaxed)
                && clock.now() - since >= TURN
            {
                self.was_held.store(false, Relaxed);
                clock.sleep(PAUSE).await;
                since = clock.now();
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes no more objects, because the journal failed. Recovery could bring back objects
    /// of set-groups of which it has no note, so no more are written.
    fn freeze(&self) {
        tracing::error!(
            "the journal of tiny objects failed; the cache rejects further objects: reopen it"
        );
        self.frozen.store(true, SeqCst);
        self.room.notify_waiters();
    }

    fn next_order(&self, idle: bool) -> Next {
        let mut state = self.state.lock();
        let state = &mut *state;
        if self.closing.load(SeqCst) || self.stopping.load(SeqCst) {
            state.engine.stop_loading();
        }
        let was_busy = state.engine.due(&state.stripe) == Due::Yes;
        let Some(task) = state.next_task() else {
            let engine = &state.engine;
            if was_busy && engine.due(&state.stripe) == Due::No {
                // The engine dropped its pending writes: waiting callers must retry.
                self.room.notify_waiters();
                // If space was lacking, the engine accepts objects nevertheless.
                state.rejected &= !engine.waits_for_space();
            }
            if let Some(discarded) = state.advance() {
                return Next::Advanced(discarded);
            }
            return match idle && state.rejected && state.searching == 0 {
                true => Next::WornOut,
                false => Next::Wait,
            };
        };
        state.running += 1;
        let engine = &state.engine;
        let labels = match &task.work {
            // The labels are known only after the zone's reset.
            Work::Append { .. } if !self.durability.is_persistent() => Vec::new(),
            Work::Append { first, .. } => vec![engine.label(*first)],
            Work::Read(pages) | Work::ReadIndex(pages) => self.labels(engine, pages),
            Work::Write { .. } | Work::Seal { .. } | Work::Reset(_) => Vec::new(),
        };
        Next::Order(Order {
            id: task.id,
            work: task.work,
            labels,
            oldest: engine.oldest(),
        })
    }

    fn complete_task(&self, ended: Ended, now_seconds: u32) {
        let durable = {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.running -= 1;
            let stripe = &mut state.stripe;
            state
                .engine
                .complete(stripe, ended.id, ended.outcome, now_seconds);
            state.rejected = false;
            state.engine.durable()
        };
        self.fence_bounds.set_durable(durable);
        self.room.notify_waiters();
    }

    async fn run_task(&self, order: Order) -> Ended {
        let is_reset = matches!(order.work, Work::Reset(_));
        let sealed = order.set_group().map(|(_, sequence)| sequence);
        Ended {
            id: order.id,
            emptied: is_reset.then_some(order.oldest),
            sealed,
            outcome: self.outcome(order.work, &order.labels).await,
        }
    }

    /// Stops using all zones that are read-only or offline, after a task on `failed` has shown
    /// one.
    async fn leave_unwritable(&self, failed: Option<u32>) {
        let report = self.medium.device.report().await.unwrap_or_default();
        let unwritable = report.iter().filter(|zone| zone.state.is_unwritable());
        let here = unwritable.filter_map(|zone| self.medium.zone_here(zone.zone));
        let zones: BTreeSet<u32> = here.chain(failed).collect();
        let known = self.medium.unwritable.swap(zones.len() as u32, SeqCst);
        self.medium.say_unwritable(known);
        let engine = &mut self.state.lock().engine;
        engine.retire_zones(&|zone| zones.contains(&zone));
    }

    async fn outcome(&self, work: Work, labels: &[Label]) -> Outcome {
        let medium = &self.medium;
        let written = match &work {
            Work::Append { first, .. } | Work::Seal { first, .. } => Some(*first),
            Work::Read(_) | Work::ReadIndex(_) | Work::Write { .. } | Work::Reset(_) => None,
        };
        let zone = match &work {
            Work::Write { at, .. } => Some(medium.flash.zone_of(*at)),
            Work::Reset(zone) => Some(*zone),
            _ => written.map(|first| medium.flash.zone_of(first)),
        };
        let done = match work {
            Work::Read(pages) => {
                let read = medium.read_all(&pages).await;
                let pages = read.iter().zip(labels);
                return Outcome::Read(
                    pages
                        .map(|(bytes, label)| medium.objects(*label, bytes.as_deref()))
                        .collect(),
                );
            }
            Work::ReadIndex(pages) => {
                let read = medium.read_runs(&pages).await;
                let pages = read.iter().zip(labels);
                let index = |bytes: &Option<IoData>, label| {
                    let page = medium.index(label, bytes.as_deref());
                    page.map(|page| Page::Index(page.into()))
                };
                return Outcome::Read(pages.map(|(bytes, label)| index(bytes, *label)).collect());
            }
            Work::Append { first, pages } => {
                medium.append(first, labels.first().copied(), &pages).await
            }
            Work::Write { at, page } => medium.write(at, &page).await,
            Work::Seal {
                first,
                pages,
                ends_zone,
                summary,
            } => {
                let sets = self.set_group_sets;
                medium.seal(first, pages, sets, ends_zone, &summary).await
            }
            Work::Reset(zone) => match self.durability {
                Durability::Persistent { .. } => {
                    medium.reset_durably(zone).await.map_err(Into::into)
                }
                Durability::Volatile => medium.reset(zone).await.map_err(Into::into),
            },
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_unwritable() => {
                self.leave_unwritable(zone).await;
                Outcome::Failed
            }
            Err(error) => {
                let no_space = error.is_no_space();
                tracing::warn!(%error, no_space, "tiny objects could not be written; their extent stays unused");
                if let Some(first) = written
                    && self.durability.is_persistent()
                {
                    medium.give_up(medium.flash.zone_of(first)).await;
                }
                match no_space {
                    true => Outcome::NoSpace,
                    false => Outcome::Failed,
                }
            }
        }
    }
}
