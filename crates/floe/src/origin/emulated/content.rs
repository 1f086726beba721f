//! Bytes that are a function of seed, key, generation and offset, so that a
//! reader can check any piece of any object.

use floe_core::content::MadeUp;
use xxhash_rust::xxh3::Xxh3;

use crate::origin::types::ObjectKey;

/// The content of one generation of one emulated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(MadeUp);

impl Content {
    /// The content of `key` in its `generation`: 0 at first, one more after
    /// each write or change.
    pub fn new(seed: u64, key: &ObjectKey, generation: u64) -> Self {
        let mut hasher = Xxh3::with_seed(seed);
        hasher.update(key.bucket().as_bytes());
        hasher.update(&[0]);
        hasher.update(key.key().as_bytes());
        hasher.update(&generation.to_le_bytes());
        Content(MadeUp::new(hasher.digest()))
    }

    /// Fills `bytes` with the content from `offset` on.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) {
        self.0.fill(offset, bytes);
    }

    /// The offset in the object of the first wrong byte, if any.
    pub fn mismatch(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let right = self.0.agreement(offset, bytes);
        (right < bytes.len()).then_some(offset + right as u64)
    }
}

/// Bytes that differ from the emulated object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the byte at offset {offset} is not the origin's")]
pub struct WrongBytes {
    /// Offset in the object of the first wrong byte.
    pub offset: u64,
}

/// Checks bytes that were read from `key` at `offset`; the object must never
/// have been written or changed.
///
/// # Errors
/// With the offset of the first wrong byte.
pub fn verify(seed: u64, key: &ObjectKey, offset: u64, bytes: &[u8]) -> Result<(), WrongBytes> {
    match Content::new(seed, key, 0).mismatch(offset, bytes) {
        None => Ok(()),
        Some(offset) => Err(WrongBytes { offset }),
    }
}
