//! Write epochs: they prevent a fetch that read an old version from storing it
//! as the current one.
//!
//! Objects hash to stripes. A write locks its stripe against publication from
//! before it invalidates the old metadata until the origin has the new version.
//! A fetch that began before the write ended has an older epoch, and its
//! publication is rejected. A new write waits for running publications, so none
//! completes after it began.
//!
//! Writing a record of metadata again, unchanged, excludes all of these for its short time: no
//! write begins, no other record is published and none is deleted meanwhile.
//!
//! A write to one object may reject a publication of another in the same
//! stripe.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

const STRIPES: usize = 4096;

/// A stripe's state when an operation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epoch {
    stripe: u32,
    number: u64,
}

#[derive(Clone)]
pub(crate) struct WriteEpochs {
    stripes: Arc<[Stripe]>,
}

#[derive(Default)]
struct Stripe {
    state: Mutex<State>,
    published: Notify,
}

#[derive(Default)]
struct State {
    number: u64,
    writers: u32,
    publishers: u32,
    /// Deletes of records that are no writes.
    forgetters: u32,
    /// A record is written again.
    is_renewing: bool,
}

impl WriteEpochs {
    pub(crate) fn new() -> Self {
        WriteEpochs {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
        }
    }

    pub(crate) fn current(&self, name_hash: u64) -> Epoch {
        // The remainder is below 4096.
        let stripe = (name_hash % STRIPES as u64) as u32;
        let number = self.stripe(stripe).state.lock().number;
        Epoch { stripe, number }
    }

    /// True if the stripe had no write since `epoch`.
    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        let state = self.stripe(epoch.stripe).state.lock();
        state.number == epoch.number && state.writers == 0
    }

    /// Permission to store metadata requested in `epoch`; `None` if the object
    /// may have been written since. Waits while a record is written again.
    pub(crate) async fn publish(&self, epoch: Epoch) -> Option<Publication> {
        let begin = |state: &mut State| {
            let is_current = state.number == epoch.number && state.writers == 0;
            let may_begin = is_current && !state.is_renewing;
            state.publishers += u32::from(may_begin);
            (may_begin || !is_current).then_some(may_begin)
        };
        let has_begun = self.stripe(epoch.stripe).until(begin).await;
        has_begun.then(|| Publication {
            epochs: self.clone(),
            stripe: epoch.stripe,
        })
    }

    /// Begins a write: blocks new publications, then waits for the running ones.
    pub(crate) async fn write(&self, name_hash: u64) -> Writing {
        let stripe = self.current(name_hash).stripe;
        {
            let mut state = self.stripe(stripe).state.lock();
            state.number += 1;
            state.writers += 1;
        }
        // Created before the wait, so dropping this future also ends the write.
        let writing = Writing {
            epochs: self.clone(),
            stripe,
        };
        let own = self.stripe(stripe);
        own.until(|state| (state.publishers == 0 && !state.is_renewing).then_some(()))
            .await;
        writing
    }

    /// Permission to write the stripe's records again as they are; `None` if one is being
    /// written or published.
    pub(crate) fn renew(&self, name_hash: u64) -> Option<Renewal> {
        let stripe = self.current(name_hash).stripe;
        let mut state = self.stripe(stripe).state.lock();
        if state.writers + state.publishers + state.forgetters > 0 || state.is_renewing {
            return None;
        }
        state.is_renewing = true;
        drop(state);
        Some(Renewal {
            epochs: self.clone(),
            stripe,
        })
    }

    /// Permission to delete records of the stripe: waits until none is being written again.
    pub(crate) async fn forget(&self, name_hash: u64) -> Forgetting {
        let stripe = self.current(name_hash).stripe;
        let begin = |state: &mut State| {
            let may_begin = !state.is_renewing;
            state.forgetters += u32::from(may_begin);
            may_begin.then_some(())
        };
        self.stripe(stripe).until(begin).await;
        Forgetting {
            epochs: self.clone(),
            stripe,
        }
    }

    fn stripe(&self, stripe: u32) -> &Stripe {
        &self.stripes[stripe as usize]
    }
}

impl Stripe {
    /// Waits until `step` returns something. It runs under the lock: at once, and whenever a
    /// publication or a renewal has ended.
    async fn until<T>(&self, step: impl Fn(&mut State) -> Option<T>) -> T {
        loop {
            let mut published = std::pin::pin!(self.published.notified());
            // Registered before the check, so no wake-up is lost.
            published.as_mut().enable();
            if let Some(result) = step(&mut self.state.lock()) {
                return result;
            }
            published.await;
        }
    }
}

/// Permission to write records again, until dropped.
pub(crate) struct Renewal {
    epochs: WriteEpochs,
    stripe: u32,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let stripe = self.epochs.stripe(self.stripe);
        stripe.state.lock().is_renewing = false;
        stripe.published.notify_waiters();
    }
}

/// Permission to delete records, until dropped.
pub(crate) struct Forgetting {
    epochs: WriteEpochs,
    stripe: u32,
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.epochs.stripe(self.stripe).state.lock().forgetters -= 1;
    }
}

/// Permission to publish, until dropped.
pub(crate) struct Publication {
    epochs: WriteEpochs,
    stripe: u32,
}

impl Drop for Publication {
    fn drop(&mut self) {
        let stripe = self.epochs.stripe(self.stripe);
        stripe.state.lock().publishers -= 1;
        stripe.published.notify_waiters();
    }
}

/// A running write. Dropping it begins a new epoch.
pub(crate) struct Writing {
    epochs: WriteEpochs,
    stripe: u32,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.epochs.stripe(self.stripe).state.lock();
        state.number += 1;
        state.writers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_read_before_a_write_ended_are_not_published() {
        let epochs = WriteEpochs::new();
        let before = epochs.current(1);
        let writing = epochs.write(1).await;
        let during = epochs.current(1);
        assert!(epochs.publish(before).await.is_none());
        assert!(epochs.publish(during).await.is_none());
        drop(writing);
        assert!(epochs.publish(before).await.is_none());
        assert!(epochs.publish(during).await.is_none());
        assert!(epochs.publish(epochs.current(1)).await.is_some());
    }

    #[tokio::test]
    async fn a_write_waits_for_publications_and_a_dropped_one_leaves_nothing() {
        let epochs = WriteEpochs::new();
        let publication = epochs.publish(epochs.current(1)).await.unwrap();
        let mut write = Box::pin(epochs.write(1));
        assert!(futures::poll!(&mut write).is_pending());
        assert!(epochs.publish(epochs.current(1)).await.is_none());
        drop(write);
        assert!(epochs.publish(epochs.current(1)).await.is_some());
        let mut write = Box::pin(epochs.write(1));
        assert!(futures::poll!(&mut write).is_pending());
        drop(publication);
        assert!(futures::poll!(&mut write).is_ready());
    }

    #[tokio::test]
    async fn a_renewal_excludes_all_others_of_its_stripe() {
        let epochs = WriteEpochs::new();
        let publication = epochs.publish(epochs.current(1)).await.unwrap();
        assert!(epochs.renew(1).is_none());
        assert!(epochs.renew(2).is_some(), "another stripe");
        drop(publication);
        let renewal = epochs.renew(1).unwrap();
        assert!(epochs.renew(1).is_none());
        let mut publish = Box::pin(epochs.publish(epochs.current(1)));
        assert!(futures::poll!(&mut publish).is_pending());
        let mut write = Box::pin(epochs.write(1));
        let mut forget = Box::pin(epochs.forget(1));
        assert!(futures::poll!(&mut write).is_pending());
        assert!(futures::poll!(&mut forget).is_pending());
        drop(renewal);
        let forgetting = forget.await;
        // A write began meanwhile, so that nothing is published.
        assert!(publish.await.is_none());
        let writing = write.await;
        assert!(epochs.renew(1).is_none());
        drop(writing);
        assert!(epochs.renew(1).is_none());
        drop(forgetting);
        drop(epochs.renew(1).unwrap());
        assert!(epochs.publish(epochs.current(1)).await.is_some());
    }
}
