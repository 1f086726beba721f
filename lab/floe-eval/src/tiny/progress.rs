//! The progress of a run.

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TinyProgress {
    /// Bytes that the engine accepted.
    pub bytes_done: u64,
    /// Bytes of the whole run.
    pub bytes: u64,
    /// Operations so far.
    pub operations: u64,
}
