//! Bytes that are a function of seed, key, generation and offset, so that any
//! piece of any object can be checked without having the object.

use floe_core::content::MadeUp;
use xxhash_rust::xxh3::Xxh3;

use crate::origin::types::ObjectKey;

/// The content of one generation of one emulated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(MadeUp);

impl Content {
    /// The content of `key` in its `generation`: 0 until it is written or
    /// changes, then one more each time.
    pub fn new(seed: u64, key: &ObjectKey, generation: u64) -> Self {
        let mut hasher = Xxh3::with_seed(seed);
        hasher.update(key.bucket().as_bytes());
        hasher.update(&[0]);
        hasher.update(key.key().as_bytes());
        hasher.update(&generation.to_le_bytes());
        Content(MadeUp::new(hasher.digest()))
    }

    /// Writes the bytes that begin at `offset`.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) {
        self.0.fill(offset, bytes);
    }

    /// The offset in the object of the first byte that is wrong, if any.
    pub fn mismatch(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let right = self.0.agreement(offset, bytes);
        (right < bytes.len()).then_some(offset + right as u64)
    }
}

/// Bytes that are not what the emulated origin gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the byte at offset {offset} is not the origin's")]
pub struct WrongBytes {
    /// Where the first wrong byte is in the object.
    pub offset: u64,
}

/// Checks bytes that were read from `key` at `offset`, for an object that was
/// never written and never changed.
///
/// # Errors
/// With the place of the first wrong byte.
pub fn verify(seed: u64, key: &ObjectKey, offset: u64, bytes: &[u8]) -> Result<(), WrongBytes> {
    match Content::new(seed, key, 0).mismatch(offset, bytes) {
        None => Ok(()),
        Some(offset) => Err(WrongBytes { offset }),
    }
}
