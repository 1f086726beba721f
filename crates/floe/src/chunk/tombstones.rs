//! Tombstones on their way to flash.

use floe_core::layout::Note;

/// What must be durable before a delete or an overwrite is acknowledged.
#[derive(Debug)]
pub(crate) enum Tombstones {
    /// Notes for the journal.
    Notes(Vec<Note>),
    /// Whether changes of slot tables were queued.
    InTables(bool),
}
