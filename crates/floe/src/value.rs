//! A value and its fate: the types that the store, its engines and the caches
//! above them share. This module must not depend on any of them.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::error::CacheError;

/// The tier that a value was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// In the RAM tier.
    Ram,
    /// In a write buffer on its way to flash.
    Buffer,
    /// On flash.
    Flash,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes.
    pub bytes: Bytes,
    /// The tier that held them.
    pub tier: Tier,
}

/// The result of a read that is answered from memory alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InRam {
    /// The value.
    Hit(Value),
    /// Flash may hold the value; only a full `get` can tell.
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
    /// Forget the value after this long (whole seconds, at least one); `None`
    /// keeps it until it is evicted.
    pub ttl: Option<Duration>,
    /// The previous value of this key may reappear after a crash. Saves the
    /// durable note that an overwrite otherwise costs; right for values that
    /// are equivalent or re-validated before use, such as refreshed metadata.
    pub relaxed: bool,
}

impl PutOptions {
    /// The same, forgetting the value after `ttl`; `None` keeps it.
    #[must_use]
    pub fn with_ttl(self, ttl: impl Into<Option<Duration>>) -> Self {
        PutOptions {
            ttl: ttl.into(),
            ..self
        }
    }

    /// The same, for a value whose predecessor may reappear after a crash; see
    /// [`relaxed`](PutOptions::relaxed).
    #[must_use]
    pub fn with_relaxed(self, relaxed: bool) -> Self {
        PutOptions { relaxed, ..self }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The value is in the cache, and stays there until it is evicted.
    Stored,
    /// The admission policy kept the value off flash. The RAM tier holds it,
    /// unless it is longer than that tier takes or was streamed in; it does not
    /// survive a restart. Any older value of the key is gone.
    RamOnly,
    /// No zone took the value, and the statistics count it. Any older value of
    /// the key is gone all the same.
    Dropped,
}

/// A read that failed after it began; the caller fetches the rest elsewhere.
/// The value has been quarantined: the next lookup misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value could not be read back from flash")]
pub struct ReadFault;

/// Returns `given`, unless more bytes came than were announced.
pub(crate) fn check_given(announced: u64, given: u64) -> Result<u64, CacheError> {
    match given <= announced {
        true => Ok(given),
        false => Err(CacheError::WrongLength { announced, given }),
    }
}

/// Fails unless as many bytes came as were announced.
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
