//! How far a run is.

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TinyProgress {
    /// Bytes that the engine accepted.
    pub bytes_done: u64,
    /// Of how many.
    pub bytes: u64,
    /// Operations so far.
    pub operations: u64,
}
