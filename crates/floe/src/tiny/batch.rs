//! Batches of writes, whose fences share a group in the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_device::Clock;
use tokio::sync::Notify;

/// Writes that are made one after the other without waiting for any of them. While this lives,
/// the journal waits with their fences for about a millisecond, so that as a rule they share a
/// block and a durable write. Drop it before waiting: until then the fences of all callers may wait.
#[derive(Debug)]
pub struct TinyBatch(Option<Arc<Batches>>);

impl TinyBatch {
    /// For a store without fences.
    pub(super) const NONE: TinyBatch = TinyBatch(None);
}

/// Time for which a group of fences waits for batches.
const PATIENCE: Duration = Duration::from_millis(1);

/// The batches of a store.
#[derive(Debug, Default)]
pub(super) struct Batches {
    begun: AtomicU64,
    ended: AtomicU64,
    news: Notify,
}

impl Batches {
    pub(super) fn begin(self: &Arc<Self>) -> TinyBatch {
        self.begun.fetch_add(1, SeqCst);
        TinyBatch(Some(Arc::clone(self)))
    }

    /// Waits until as many batches have ended as have begun by now, within [`PATIENCE`].
    pub(super) async fn end(&self, clock: &Clock) {
        let begun = self.begun.load(SeqCst);
        if self.ended.load(SeqCst) >= begun {
            return;
        }
        let ended = async {
            loop {
                let news = self.news.notified();
                if self.ended.load(SeqCst) >= begun {
                    return;
                }
                news.await;
            }
        };
        tokio::select! {
            biased;
            () = ended => {}
            () = clock.sleep(PATIENCE) => {}
        }
    }
}

impl Drop for TinyBatch {
    fn drop(&mut self) {
        if let Some(batches) = &self.0 {
            batches.ended.fetch_add(1, SeqCst);
            // The journal's task alone waits. If it is about to wait, the permit is kept for it.
            batches.news.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use floe_device::virtual_time;

    use super::*;

    #[test]
    fn a_group_waits_for_the_batches_that_had_begun_but_not_for_long() {
        virtual_time::run(1, |clock: Clock| async move {
            let batches = Arc::<Batches>::default();
            let started = clock.now();
            let waited = |clock: &Clock| Duration::from_nanos(clock.now().0 - started.0);
            batches.end(&clock).await;
            assert_eq!(waited(&clock), Duration::ZERO);

            let (first, second) = (batches.begin(), batches.begin());
            let ends = clock.clone();
            let task = tokio::spawn(async move {
                ends.sleep(PATIENCE / 4).await;
                drop(first);
                ends.sleep(PATIENCE / 4).await;
                drop(second);
            });
            batches.end(&clock).await;
            assert_eq!(waited(&clock), PATIENCE / 2);
            task.await.expect("no panic");

            let held = batches.begin();
            batches.end(&clock).await;
            assert_eq!(waited(&clock), PATIENCE / 2 + PATIENCE);
            drop(held);
        });
    }
}
