//! Changes that end with the requests that asked for them.

use std::io::ErrorKind::Interrupted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use crate::origin::error::OriginError;

const WAITING: u8 = 0;
const COMMITTING: u8 = 1;
const ABANDONED: u8 = 2;

/// A change that a request asked for. Blocking work goes on after its request was dropped, so it
/// asks here before it changes anything.
#[derive(Default)]
pub(super) struct Change(AtomicU8);

impl Change {
    /// Begins to change the object. The caller has the key's turn and keeps it to the end: later
    /// writes of the key then come after this one, even if the request is dropped now.
    ///
    /// # Errors
    /// The request was dropped: a later write may have been acknowledged.
    pub(super) fn begin(&self) -> Result<(), OriginError> {
        match self.move_on(COMMITTING) {
            true => Ok(()),
            false => Err(dropped()),
        }
    }

    /// Fails once the request was dropped.
    pub(super) fn check(&self) -> Result<(), OriginError> {
        match self.0.load(SeqCst) {
            ABANDONED => Err(dropped()),
            _ => Ok(()),
        }
    }

    fn move_on(&self, state: u8) -> bool {
        self.0
            .compare_exchange(WAITING, state, SeqCst, SeqCst)
            .is_ok()
    }
}

/// The request of a change. A change that has not begun by its drop never begins.
pub(super) struct Asked(pub(super) Arc<Change>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.move_on(ABANDONED);
    }
}

fn dropped() -> OriginError {
    std::io::Error::new(Interrupted, "the request was dropped").into()
}
