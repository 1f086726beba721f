//! The records of a log, as the engine that writes them sees them.

use super::{LogError, LogSuperblock};

/// The records of a log as its engine sees them.
pub(crate) trait Contents: Send + 'static {
    /// The superblock of the engine's cache.
    type Superblock: LogSuperblock;

    /// A record, with the state that decides how long it is live.
    type Entry: Send + Sync;

    /// The entries of one request.
    type Entries: IntoIterator<Item = Self::Entry> + Send;

    /// A checkpoint is made from the records of the active zone, read back.
    /// Otherwise [`live`](Self::live) knows all records.
    const READS_BACK: bool;

    /// A failed group ends the log, because callers rely on records that other
    /// callers sent. Otherwise the next group moves to the other zone.
    const FAILS_FOR_GOOD: bool;

    /// The record of an entry.
    fn record(entry: &Self::Entry) -> RecordOf<Self>;

    /// True if an entry is durable once its block is. Otherwise it speaks of bytes that were
    /// written before, and one flush makes both durable.
    fn stands_alone(entry: &Self::Entry) -> bool;

    /// The log was begun, and its checkpoint takes so many bytes.
    fn begun(&mut self, written_bytes: u64);

    /// Receives the entries of a group before they are written, and may add more.
    fn gather(&mut self, entries: &mut Vec<Self::Entry>);

    /// The records that a checkpoint must hold. If the log is read back,
    /// `written` has the records of the active zone and of the current group.
    fn live(
        &mut self,
        written: Vec<RecordOf<Self>>,
    ) -> impl IntoIterator<Item = RecordOf<Self>, IntoIter: Send> + Send;

    /// True if all records of the log are live. Then settling a log without
    /// entries to write does nothing; otherwise the log moves.
    fn is_settled(&self) -> bool {
        false
    }

    /// Receives the result of a group, before the callers do.
    fn written(&mut self, entries: &[Self::Entry], result: &Result<Written, LogError>);
}

/// The record type of some contents.
pub(crate) type RecordOf<C> = <<C as Contents>::Superblock as LogSuperblock>::Record;

/// How a group was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Behind the previous group.
    Appended,
    /// To the other zone's checkpoint. The log now ends at `bytes` there.
    Moved { bytes: u64 },
}

/// The demand of a request besides writing its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// None.
    Append,
    /// Drop the records that are not live.
    Settle,
    /// End the log.
    Close,
}
