//! Values and results of operations: types that the store, its engines and the
//! caches above them share. Must not depend on any of them.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::error::CacheError;

/// The tier that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// In the RAM tier.
    Ram,
    /// In a write buffer on its way to flash.
    Buffer,
    /// On flash.
    Flash,
}

/// A value and its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes.
    pub bytes: Bytes,
    /// The tier that held them.
    pub tier: Tier,
}

/// The result of a read from memory only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InRam {
    /// The value.
    Hit(Value),
    /// Flash may hold the value; only a full `get` decides.
    OnFlash {
        /// Upper bound on the length of the value, in bytes.
        len: u64,
    },
    /// There is no value.
    Miss,
}

/// Options of a put.
///
/// ```
/// # use std::time::Duration;
/// # use floe::PutOptions;
/// let hour = PutOptions::default().with_ttl(Duration::from_secs(3600));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutOptions {
    /// Lifetime of the value (whole seconds, at least one); `None` keeps it
    /// until it is evicted.
    pub ttl: Option<Duration>,
    /// A crash may bring back the previous value of the key. Saves the durable
    /// note of an overwrite. For values that are equivalent or validated before
    /// use, such as refreshed metadata.
    pub relaxed: bool,
}

/// A value in parts that is put at once, as far as that needs no wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewValue<'a> {
    pub(crate) key: &'a [u8],
    /// The value is their concatenation.
    pub(crate) parts: &'a [&'a [u8]],
    pub(crate) options: PutOptions,
}

impl NewValue<'_> {
    /// Bytes of the value.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

impl PutOptions {
    /// The same options with a lifetime; `None` keeps the value until it is evicted.
    #[must_use]
    pub fn with_ttl(self, ttl: impl Into<Option<Duration>>) -> Self {
        PutOptions {
            ttl: ttl.into(),
            ..self
        }
    }

    /// The same options, for a value whose predecessor may return after a
    /// crash; see [`relaxed`](PutOptions::relaxed).
    #[must_use]
    pub fn with_relaxed(self, relaxed: bool) -> Self {
        PutOptions { relaxed, ..self }
    }
}

/// The result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The value is in the cache until it is evicted.
    Stored,
    /// The admission policy declined the value. The RAM tier holds it, unless
    /// it exceeds the tier's longest value or was streamed in; a restart loses
    /// it. An older value of the key is durably invalid.
    RamOnly,
    /// The value was not stored, and the statistics count that. An older value
    /// of the key is durably invalid.
    Dropped,
}

/// A read that failed after it began; the caller must fetch the rest elsewhere.
/// The value is quarantined: the next lookup misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value could not be read back from flash")]
pub struct ReadFault;

/// Returns `given`, or an error if it exceeds the announced bytes.
pub(crate) fn check_given(announced: u64, given: u64) -> Result<u64, CacheError> {
    match given <= announced {
        true => Ok(given),
        false => Err(CacheError::WrongLength { announced, given }),
    }
}

/// Fails unless exactly the announced bytes were given.
pub(crate) fn check_whole(announced: u64, given: u64) -> Result<(), CacheError> {
    match given == announced {
        true => Ok(()),
        false => Err(CacheError::WrongLength { announced, given }),
    }
}

/// The part of `range` inside a value of `len` bytes.
pub(crate) fn clip(range: &Range<u64>, len: u64) -> Range<u64> {
    let end = range.end.min(len);
    range.start.min(end)..end
}
