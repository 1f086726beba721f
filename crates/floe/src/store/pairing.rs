//! Pairs a store with the tiny engine that shares its keys.
//!
//! The engine and the store may both hold a key, one of them a stale copy. A
//! store that was written without its engine does not know which of the
//! engine's keys are stale. So the store keeps a note of the engine's identity,
//! durable before the engine accepts its first object: **an engine's content is
//! valid only while the note exists**. Opening a store without its engine
//! removes the note first.
//!
//! The note may be evicted like any value, so there are two, written one after
//! the other and rewritten before they grow old. If both are lost, the engine
//! starts empty.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use floe_device::{Clock, SharedDevice};
use tokio::sync::Mutex;

use super::{OpenError, RETRY_PAUSE, Store, StoreConfig};
use crate::error::CacheError;
use crate::value::PutOptions;

const NOTE_KEYS: [&[u8]; 2] = [b"\0floe tiny 0", b"\0floe tiny 1"];

/// The notes have not been written.
const NEVER: u64 = u64::MAX;

impl Store {
    /// Opens the store on `device`: recovers it, or formats a blank device.
    ///
    /// # Errors
    /// [`OpenError`] names the setting that cannot work, or describes the device's content.
    pub async fn open(
        device: SharedDevice,
        clock: Clock,
        config: &StoreConfig,
    ) -> Result<Store, OpenError> {
        let store = Store::open_paired(device, clock, config).await?;
        match unpair(&store).await {
            Ok(()) => Ok(store),
            Err(error) => Err(OpenError::Metadata(error.to_string())),
        }
    }
}

/// A store and the engine named in its notes.
#[derive(Debug)]
pub(crate) struct Pairing {
    store: Store,
    engine_identity: u64,
    /// Bytes that the device had written when the notes were, or [`NEVER`].
    noted_at_bytes: AtomicU64,
    /// True if the notes are from before the store was opened: their age is unknown.
    is_from_earlier: AtomicBool,
    writing: Mutex<()>,
}

/// True if the store's notes name this engine. Removes notes that name another,
/// because its objects may become stale.
pub(crate) async fn is_paired(store: &Store, engine_identity: u64) -> Result<bool, CacheError> {
    for key in NOTE_KEYS {
        // Unlike `get`, `contains` counts no miss.
        if !store.contains(key)? {
            continue;
        }
        let note = store.get(key).await?;
        if note.is_some_and(|note| note.bytes == engine_identity.to_le_bytes()[..]) {
            return Ok(true);
        }
    }
    unpair(store).await?;
    Ok(false)
}

/// Removes the notes durably.
pub(crate) async fn unpair(store: &Store) -> Result<(), CacheError> {
    for key in NOTE_KEYS {
        store.remove(key).await?;
    }
    Ok(())
}

impl Pairing {
    /// `is_noted` is the result of [`is_paired`]. A task rewrites the notes
    /// until the pairing is dropped.
    pub(crate) fn new(store: Store, engine_identity: u64, is_noted: bool) -> Arc<Self> {
        let noted_at_bytes = if is_noted {
            store.written_bytes()
        } else {
            NEVER
        };
        let pairing = Arc::new(Pairing {
            store,
            engine_identity,
            noted_at_bytes: noted_at_bytes.into(),
            is_from_earlier: is_noted.into(),
            writing: Mutex::default(),
        });
        tokio::spawn(keep(Arc::downgrade(&pairing)));
        pairing
    }

    /// True if the notes are durable.
    pub(crate) fn is_noted(&self) -> bool {
        self.noted_at_bytes.load(Relaxed) != NEVER
    }

    /// Makes the notes durable. The engine must not accept an object before.
    pub(crate) async fn note(&self) -> Result<(), CacheError> {
        if self.is_noted() {
            return Ok(());
        }
        let _writing = self.writing.lock().await;
        if !self.is_noted() {
            self.write().await?;
        }
        Ok(())
    }

    /// Writes both notes, one after the other, so that one is always intact.
    /// Losing both notes only costs the engine its objects.
    async fn write(&self) -> Result<(), CacheError> {
        let note = Bytes::copy_from_slice(&self.engine_identity.to_le_bytes());
        for key in NOTE_KEYS {
            let options = PutOptions::default();
            self.store.put_unasked(key, note.clone(), options).await?;
            self.store.flush().await?;
        }
        let written = self.store.written_bytes();
        self.noted_at_bytes.store(written, Relaxed);
        self.is_from_earlier.store(false, Relaxed);
        Ok(())
    }

    /// True if the notes must be rewritten. Those from before the store was opened must be with
    /// the first write, or many short runs would let them grow old.
    fn is_due(&self) -> bool {
        let noted_at = self.noted_at_bytes.load(Relaxed);
        let is_first_write =
            || self.is_from_earlier.load(Relaxed) && self.store.written_bytes() > noted_at;
        noted_at != NEVER && (is_first_write() || self.store.is_old(noted_at))
    }
}

async fn keep(pairing: Weak<Pairing>) {
    loop {
        let Some(wait) = pairing
            .upgrade()
            .map(|pairing| pairing.store.clock().sleep(pairing.store.age_interval()))
        else {
            return;
        };
        wait.await;
        let Some(pairing) = pairing.upgrade() else {
            return;
        };
        if !pairing.is_due() {
            continue;
        }
        let written = {
            let _writing = pairing.writing.lock().await;
            pairing.write().await
        };
        match written {
            Ok(()) => {}
            Err(CacheError::Closed | CacheError::Poisoned) => return,
            Err(error) => {
                tracing::warn!(%error, "the note of the tiny engine was not written; retrying");
                let pause = pairing.store.clock().sleep(RETRY_PAUSE);
                drop(pairing);
                pause.await;
            }
        }
    }
}
