//! The task that sees to a log.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_device::Clock;

use super::combiner::{Driver, Work};
use super::contents::Contents;
use super::shared::Shared;

/// Time after which the keeper drives work that a waiter should have driven.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// Idle time after which the last block gets its second copy. A busy log is
/// never idle for so long: at most 20 blocks a second are written twice.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(50);

/// Drives the log when no waiter does.
pub(super) struct Keeper<C: Contents> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) clock: Clock,
}

impl<C: Contents> Keeper<C> {
    /// After [`QUIET_TIME`] without groups, the last block gets its second copy.
    ///
    /// # Panics
    /// If the log's work panicked.
    pub(super) async fn run(self) {
        let shared = &self.shared;
        let wakers = shared.combiner.wakers();
        let (mut groups, mut since) = (0, self.clock.now());
        let mut looked_at = since;
        loop {
            if shared.is_active.load(SeqCst) {
                tokio::select! {
                    biased;
                    () = shared.keeper.notified() => {}
                    () = self.clock.sleep(TICK) => {}
                }
            } else {
                shared.keeper.notified().await;
            }
            let (before, now) = (shared.groups.load(SeqCst), self.clock.now());
            // However often it is woken between.
            if now.since(looked_at) >= TICK {
                looked_at = now;
                self.reap();
                wakers.relieve_poller();
            }
            if before != groups {
                (groups, since) = (before, now);
            }
            let is_abandoned = shared.is_abandoned.load(SeqCst);
            let is_quiet = now.since(since) >= QUIET_TIME;
            let mut is_idle = false;
            let goes_on = shared.combiner.drive(Driver::Keeper, |owner| {
                is_idle = false;
                shared.take(owner).or_else(|owner| {
                    let completes = (is_quiet && owner.log.lacks_copy()) || is_abandoned;
                    is_idle = !completes;
                    match completes {
                        true => Ok((Box::pin(owner.complete(is_abandoned)) as Work<_>, 0)),
                        false => Err(owner),
                    }
                })
            });
            if !goes_on {
                if let Some(payload) = shared.combiner.panic() {
                    // It was reported where it happened. The watcher of this task sees it here.
                    resume_unwind(payload);
                }
                return;
            }
            if is_idle && !shared.lacks_copy.load(SeqCst) {
                shared.is_active.store(false, SeqCst);
                // A request that was queued before this store did not wake the keeper.
                let inbox = shared.inbox.lock();
                let has_news = !inbox.requests.is_empty() || shared.groups.load(SeqCst) != groups;
                shared.is_active.fetch_or(has_news, SeqCst);
            }
        }
    }

    /// Ends operations of a thread that is too busy to do so.
    fn reap(&self) {
        if self.shared.combiner.awaits_device()
            && let Some(device) = self.shared.device.upgrade()
        {
            device.reap();
        }
    }
}

/// The keeper's runtime has ended, or the log has.
impl<C: Contents> Drop for Keeper<C> {
    fn drop(&mut self) {
        self.shared.combiner.end();
        self.shared.refuse();
    }
}
