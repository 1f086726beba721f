//! A limit on concurrent use of a resource that can change at runtime.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit on units that are held concurrently. Waiters are served in order.
#[derive(Debug)]
pub struct Limit {
    free: Arc<Semaphore>,
    size: Mutex<Size>,
}

#[derive(Debug)]
struct Size {
    units: usize,
    /// Units held beyond a limit that was lowered: returning them does not free them.
    excess: usize,
}

impl Limit {
    /// Creates a limit of `units`.
    pub fn new(units: usize) -> Arc<Self> {
        let units = units.min(Semaphore::MAX_PERMITS);
        Arc::new(Limit {
            free: Arc::new(Semaphore::new(units)),
            size: Mutex::new(Size { units, excess: 0 }),
        })
    }

    /// Changes the limit. Held units stay held.
    pub fn set(&self, units: usize) {
        let units = units.min(Semaphore::MAX_PERMITS);
        let mut size = self.size.lock();
        let (more, less) = (
            units.saturating_sub(size.units),
            size.units.saturating_sub(units),
        );
        let settled = more.min(size.excess);
        size.excess -= settled;
        self.free.add_permits(more - settled);
        size.excess += less - self.free.forget_permits(less);
        size.units = units;
    }

    /// The limit.
    pub fn units(&self) -> usize {
        self.size.lock().units
    }

    /// Units that are held.
    pub fn held(&self) -> usize {
        let size = self.size.lock();
        (size.units + size.excess).saturating_sub(self.free.available_permits())
    }

    /// Takes `units` if they are free.
    pub fn try_hold(self: &Arc<Self>, units: u32) -> Option<Held> {
        let permit = Arc::clone(&self.free).try_acquire_many_owned(units);
        Some(Held::new(self, permit.ok()?))
    }

    /// Waits for `units`.
    pub async fn hold(self: Arc<Self>, units: u32) -> Held {
        match Arc::clone(&self.free).acquire_many_owned(units).await {
            Ok(permit) => Held::new(&self, permit),
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Units of a limit, returned on drop.
#[derive(Debug)]
pub struct Held {
    limit: Arc<Limit>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Held {
    fn new(limit: &Arc<Limit>, permit: OwnedSemaphorePermit) -> Self {
        Held {
            limit: Arc::clone(limit),
            permit: Some(permit),
        }
    }

    /// Merges units of the same limit.
    ///
    /// # Panics
    /// `other` is of another limit.
    pub fn merge(&mut self, mut other: Held) {
        match (&mut self.permit, other.permit.take()) {
            (Some(permit), Some(other)) => permit.merge(other),
            (permit, other) => *permit = permit.take().or(other),
        }
    }

    /// Splits `units` off, if there are as many.
    pub fn split(&mut self, units: usize) -> Option<Held> {
        let permit = self.permit.as_mut()?.split(units)?;
        Some(Held::new(&self.limit, permit))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut permit) = self.permit.take() else {
            return;
        };
        let mut size = self.limit.size.lock();
        let beyond = permit.num_permits().min(size.excess);
        if let Some(beyond) = permit.split(beyond) {
            size.excess -= beyond.num_permits();
            beyond.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_lowered_counts_what_is_held() {
        let limit = Limit::new(4);
        let mut held = limit.try_hold(3).unwrap();
        limit.set(2);
        assert_eq!((limit.units(), limit.held()), (2, 3));
        assert!(limit.try_hold(1).is_none());
        drop(held.split(1));
        assert_eq!(limit.held(), 2);
        assert!(limit.try_hold(1).is_none());
        limit.set(3);
        let third = limit.try_hold(1).unwrap();
        assert!(limit.try_hold(1).is_none());
        held.merge(third);
        drop(held);
        assert_eq!(limit.held(), 0);
        assert!(limit.try_hold(4).is_none());
        assert!(limit.try_hold(3).is_some());
    }

    #[test]
    fn raising_a_lowered_limit_takes_effect_at_once() {
        let limit = Limit::new(8);
        let held = limit.try_hold(8).unwrap();
        limit.set(1);
        limit.set(10);
        assert_eq!(limit.held(), 8);
        let more = limit.try_hold(2).unwrap();
        assert!(limit.try_hold(1).is_none());
        drop((held, more));
        assert!(limit.try_hold(10).is_some());
    }
}
