//! The state of the host's garbage collection.

use super::zones::Place;

/// The host's garbage collection.
#[derive(Debug, Default)]
pub(super) struct Mover {
    /// The chunk that it moves, or checks next.
    pub(super) from: Option<Place>,
    /// It waits for a zone to write to, while others are being reset.
    pub(super) is_waiting: bool,
    /// It continues until enough zones are left.
    pub(super) is_cleaning: bool,
    pub(super) moved_chunks: u64,
}
