//! Errors of the cache's public API.

/// Errors of cache operations. Faults of flash are not among them: an
/// unreadable value is a miss, and is counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The key is longer than the format allows.
    #[error("the key has {len} bytes; at most {limit} are allowed")]
    KeyTooLong {
        /// Bytes of the key.
        len: usize,
        /// Most bytes allowed.
        limit: usize,
    },
    /// The value is longer than the store's longest.
    #[error("the value has {len} bytes; this cache takes at most {limit} (its chunk size)")]
    ValueTooLarge {
        /// Bytes of the value.
        len: u64,
        /// Most bytes allowed.
        limit: u64,
    },
    /// A writer received more or fewer bytes than announced.
    #[error("the value was announced with {announced} bytes, but {given} were given")]
    WrongLength {
        /// Bytes announced.
        announced: u64,
        /// Bytes given.
        given: u64,
    },
    /// A delete or overwrite could not be made durable, so it was not acknowledged.
    #[error("the cache device did not make an invalidation durable: {0}")]
    NotDurable(String),
    /// A background task of the cache panicked. The cache takes no more writes
    /// until it is opened again.
    #[error("a background task of the cache panicked, so that it takes no writes; reopen it")]
    Poisoned,
    /// The cache was closed.
    #[error("the cache is closed")]
    Closed,
}
