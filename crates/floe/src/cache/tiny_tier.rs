//! The tiny engine beside the store.

use std::sync::Arc;

use crate::error::CacheError;
use crate::store::pairing::Pairing;
use crate::tiny::Tiny;

/// The tiny engine and its share of the values.
#[derive(Clone, Debug)]
pub(super) struct TinyTier {
    pub(super) engine: Tiny,
    /// The store's notes of this engine.
    pub(super) pairing: Arc<Pairing>,
    /// Most bytes of key and value together.
    pub(super) threshold: usize,
}

impl TinyTier {
    pub(super) fn takes(&self, key: &[u8], value_bytes: usize) -> bool {
        key.len() + value_bytes <= self.threshold && self.engine.fits(key.len(), value_bytes)
    }

    /// True if `key` is short enough for the engine.
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        self.engine.fits(key.len(), 0)
    }

    /// Removes `key` durably if the engine may hold it.
    pub(super) async fn forget(&self, key: &[u8]) -> Result<(), CacheError> {
        match self.may_hold(key) {
            true => self.engine.delete(key).await,
            false => Ok(()),
        }
    }
}
