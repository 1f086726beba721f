//! The state of one connection.

use std::sync::Arc;

use bytes::BytesMut;

use super::answered::Answered;
use super::patience::Patience;
use crate::frontends::memcached::execute::Context;
use crate::frontends::memcached::memory::Account;
use crate::frontends::memcached::open::Listed;
use crate::frontends::memcached::protocol::Verb;
use crate::frontends::memcached::replies::Replies;

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 16 << 10;

/// A line this long without an end is a `get` of many keys, or junk.
pub(super) const LINE_BYTES_MAX: usize = 2048;

/// Answers are sent before more than this is gathered.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Bytes of values that answers from memory may hold without a share of the
/// memory of all connections: as much as a connection's read buffer.
pub(super) const UNCOUNTED_BYTES_MAX: usize = READ_BYTES;

/// One connection and its requests.
pub(super) struct Connection<'a, S> {
    pub(super) stream: S,
    pub(super) listed: &'a Listed,
    pub(super) context: Context,
    pub(super) input: BytesMut,
    pub(super) replies: Replies,
    /// The memory that this connection holds.
    pub(super) account: Arc<Account>,
    /// Bytes of values that fit the shares of the answers that are gathered.
    pub(super) answer_room: usize,
    /// Requests that wait for flash at once.
    pub(super) max_pipeline: usize,
    pub(super) patience: Patience,
    /// In the middle of a `get` whose line is too long to be seen at once.
    pub(super) long_get: Option<LongGet>,
    pub(super) answered: Answered,
}

/// The bytes that follow a request's line.
pub(super) enum Follows {
    Nothing,
    /// A value of so many bytes, to be stored.
    Value(Head, usize),
    /// So many bytes to skip.
    Waste(u64),
}

/// The part of a request that is kept while its value arrives.
pub(super) enum Head {
    Classic(ClassicHead),
    /// The whole line, to be read again.
    Meta(Box<[u8]>),
}

pub(super) struct ClassicHead {
    pub(super) verb: Verb,
    pub(super) key: Box<[u8]>,
    pub(super) flags: u32,
    pub(super) exptime: i32,
    pub(super) version: u64,
    pub(super) noreply: bool,
}

/// The progress of a long `get`.
#[derive(Clone, Copy)]
pub(super) struct LongGet {
    pub(super) with_version: bool,
    /// The error for which the rest of the line is skipped.
    pub(super) fault: Option<&'static str>,
}
