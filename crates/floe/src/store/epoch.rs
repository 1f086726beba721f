//! Write epochs: they prevent a fetch that read an old version from storing it
//! as the current one.
//!
//! Objects hash to stripes. A write locks its stripe against publication from
//! before it invalidates the old metadata until the origin has the new version.
//! A fetch that began before the write ended has an older epoch, and its
//! publication is rejected. A new write waits for running publications, so none
//! completes after it began.
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
    /// may have been written since.
    pub(crate) fn publish(&self, epoch: Epoch) -> Option<Publication> {
        let mut state = self.stripe(epoch.stripe).state.lock();
        if state.number != epoch.number || state.writers > 0 {
            return None;
        }
        state.publishers += 1;
        Some(Publication {
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
        loop {
            let mut published = std::pin::pin!(own.published.notified());
            // Registered before the check, so no wake-up is lost.
            published.as_mut().enable();
            if own.state.lock().publishers == 0 {
                return writing;
            }
            published.await;
        }
    }

    fn stripe(&self, stripe: u32) -> &Stripe {
        &self.stripes[stripe as usize]
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
        assert!(epochs.publish(before).is_none());
        assert!(epochs.publish(during).is_none());
        drop(writing);
        assert!(epochs.publish(before).is_none());
        assert!(epochs.publish(during).is_none());
        assert!(epochs.publish(epochs.current(1)).is_some());
    }

    #[tokio::test]
    async fn a_write_waits_for_publications_and_a_dropped_one_leaves_nothing() {
        let epochs = WriteEpochs::new();
        let publication = epochs.publish(epochs.current(1)).unwrap();
        let mut write = Box::pin(epochs.write(1));
        assert!(futures::poll!(&mut write).is_pending());
        assert!(epochs.publish(epochs.current(1)).is_none());
        drop(write);
        assert!(epochs.publish(epochs.current(1)).is_some());
        let mut write = Box::pin(epochs.write(1));
        assert!(futures::poll!(&mut write).is_pending());
        drop(publication);
        assert!(futures::poll!(&mut write).is_ready());
    }
}
