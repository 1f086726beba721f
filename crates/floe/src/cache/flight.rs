//! Single-flight: one fetch per missing key, whose result all its callers share.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

/// An error that several callers receive.
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl From<Box<dyn Error + Send + Sync>> for SharedError {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        SharedError(Arc::from(error))
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

type Outcome = Result<Bytes, SharedError>;

#[derive(Debug)]
struct Flight {
    outcome: watch::Sender<Option<Outcome>>,
    /// The key was put or deleted since the fetch began, so the fetched value may be stale.
    overtaken: AtomicBool,
    /// Held while the result is stored: a put waits, and so replaces it.
    publishing: Semaphore,
}

/// The running fetches.
#[derive(Debug, Default)]
pub(super) struct Flights {
    running: Mutex<HashMap<Box<[u8]>, Arc<Flight>>>,
    /// As many as are running, changed with the lock.
    count: AtomicUsize,
}

/// A caller's part after a miss.
pub(super) enum Turn {
    Lead(Lead),
    Wait(Waiting),
}

/// The obligation to fetch a key. Dropping it passes it to a waiting caller.
pub(super) struct Lead {
    flights: Arc<Flights>,
    key: Box<[u8]>,
    flight: Arc<Flight>,
}

/// A caller that waits for another's fetch.
pub(super) struct Waiting(watch::Receiver<Option<Outcome>>);

impl Flights {
    /// Starts a fetch of `key`, or joins the running one. The lock that ends
    /// flights covers the subscription, so no result is missed.
    pub(super) fn join(self: &Arc<Self>, key: &[u8]) -> Turn {
        let mut running = self.running.lock();
        if let Some(flight) = running.get(key) {
            return Turn::Wait(Waiting(flight.outcome.subscribe()));
        }
        let flight = Arc::new(Flight {
            outcome: watch::Sender::new(None),
            overtaken: AtomicBool::new(false),
            publishing: Semaphore::new(1),
        });
        running.insert(key.into(), Arc::clone(&flight));
        self.count.store(running.len(), SeqCst);
        Turn::Lead(Lead {
            flights: Arc::clone(self),
            key: key.into(),
            flight,
        })
    }

    /// True if a fetch of `key` is running.
    pub(super) fn is_running(&self, key: &[u8]) -> bool {
        self.count.load(SeqCst) > 0 && self.running.lock().contains_key(key)
    }

    /// Prevents a running fetch of `key` from being stored.
    pub(super) async fn overtake(&self, key: &[u8]) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        let flight = self.running.lock().get(key).cloned();
        if let Some(flight) = flight {
            flight.overtaken.store(true, SeqCst);
            // A result that is being stored must be stored before the caller goes on.
            let _ = flight.publishing.acquire().await;
        }
    }
}

impl Lead {
    /// Runs `store` unless a put or delete overtook the fetch.
    pub(super) async fn publish<F: Future<Output = ()>>(&self, store: impl FnOnce() -> F) {
        if let Ok(_publishing) = self.flight.publishing.acquire().await
            && !self.flight.overtaken.load(SeqCst)
        {
            store().await;
        }
    }

    pub(super) fn succeed(self, value: Bytes) {
        self.flight.outcome.send_replace(Some(Ok(value)));
    }

    pub(super) fn fail(self, error: SharedError) {
        self.flight.outcome.send_replace(Some(Err(error)));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // This drops the last sender, so waiting callers see a result or the end.
        let mut running = self.flights.running.lock();
        running.remove(&self.key);
        self.flights.count.store(running.len(), SeqCst);
    }
}

impl Waiting {
    /// The result, or `None` if the fetching caller was dropped.
    pub(super) async fn outcome(mut self) -> Option<Outcome> {
        self.0
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|outcome| outcome.clone())
    }
}
