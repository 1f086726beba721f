//! Bytes that are a function of seed, key, generation and offset, so that any
//! piece of any object can be checked without having the object.

use xxhash_rust::xxh3::Xxh3;

use crate::origin::types::ObjectKey;

/// The content of one generation of one emulated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    base: u64,
}

impl Content {
    /// The content of `key` in its `generation`: 0 until it is written or
    /// changes, then one more each time.
    pub fn new(seed: u64, key: &ObjectKey, generation: u64) -> Self {
        let mut hasher = Xxh3::with_seed(seed);
        hasher.update(key.bucket().as_bytes());
        hasher.update(&[0]);
        hasher.update(key.key().as_bytes());
        hasher.update(&generation.to_le_bytes());
        Content {
            base: hasher.digest(),
        }
    }

    /// Writes the bytes that begin at `offset`.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) {
        self.pieces(offset, bytes.len(), |at, piece| {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            true
        });
    }

    /// The offset in the object of the first byte that is wrong, if any.
    pub fn mismatch(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut wrong = None;
        self.pieces(offset, bytes.len(), |at, piece| {
            let given = &bytes[at..at + piece.len()];
            if given != piece {
                let within = given.iter().zip(piece).position(|(a, b)| a != b);
                wrong = Some(offset + (at + within.unwrap_or(0)) as u64);
            }
            wrong.is_none()
        });
        wrong
    }

    /// Calls `each` with the place in the buffer and the bytes of every
    /// 8-byte word that the range touches, clipped, until it says stop.
    fn pieces(&self, offset: u64, len: usize, mut each: impl FnMut(usize, &[u8]) -> bool) {
        let mut at = 0;
        while at < len {
            let position = offset + at as u64;
            let skip = (position % 8) as usize;
            let word = self.word(position / 8).to_le_bytes();
            let take = (8 - skip).min(len - at);
            if !each(at, &word[skip..skip + take]) {
                return;
            }
            at += take;
        }
    }

    /// SplitMix64 at position `index`.
    fn word(&self, index: u64) -> u64 {
        let mut z = self
            .base
            .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
