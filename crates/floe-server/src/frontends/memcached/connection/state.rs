//! The state of one connection.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::BytesMut;
use floe::WriteBatch;

use super::batch_gets::BatchGets;
use super::patience::Patience;
use super::room::{READ_BYTES, Room};
use crate::frontends::memcached::execute::Context;
use crate::frontends::memcached::memory::Account;
use crate::frontends::memcached::open::Listed;
use crate::frontends::memcached::protocol::Verb;
use crate::frontends::memcached::replies::Replies;

/// A longer line without an end is a `get` of many keys, or invalid.
pub(super) const LINE_BYTES_MAX: usize = 2048;

/// Responses are sent before they exceed this.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Bytes of values in responses that need no share of the memory of all
/// connections: the size of a read buffer.
pub(super) const UNCOUNTED_BYTES_MAX: usize = READ_BYTES;

/// Requests, also those that memory serves, before other tasks of the thread run.
pub(super) const REQUESTS_MAX: usize = 1024;

/// Operations that begin before other tasks of the thread run.
pub(super) const TURN_MAX: usize = 64;

/// Operations whose fences and tombstones share a group.
pub(super) const BATCH_MAX: usize = 4 * TURN_MAX;

/// One connection and its requests.
pub(super) struct Connection<'a, S> {
    pub(super) stream: S,
    pub(super) listed: &'a Listed,
    pub(super) context: Context,
    pub(super) input: BytesMut,
    pub(super) room: Room,
    pub(super) replies: Replies,
    /// This connection's memory.
    pub(super) account: Arc<Account>,
    /// Bytes of values that the shares of unsent responses still have room for.
    pub(super) response_room: usize,
    /// Most requests that wait for flash.
    pub(super) max_pipeline: usize,
    pub(super) patience: Patience,
    /// Set during a `get` whose line exceeds the read buffer.
    pub(super) long_get: Option<LongGet>,
    pub(super) batch_gets: BatchGets,
    /// Changes under way, whose fences and tombstones should share a group.
    pub(super) batch: Option<WriteBatch>,
    /// More input has arrived behind the current request.
    pub(super) more_follows: bool,
    /// Operations that began in the current batch.
    pub(super) begun: usize,
}

/// The bytes that follow a request's line.
pub(super) enum Follows<'a> {
    Nothing,
    /// A value to store, and its bytes.
    Value(Head<'a>, usize),
    /// Bytes to skip, and the answer after them; an empty one is none. A proxy takes an earlier
    /// answer for that to another request.
    Skip(u64, &'static str),
}

/// A request with a value.
pub(super) enum Head<'a> {
    Classic(ClassicHead<'a>),
    /// The whole line, to be parsed again.
    Meta(Cow<'a, [u8]>),
}

impl Head<'_> {
    /// One that does not borrow its line.
    pub(super) fn into_owned(self) -> Head<'static> {
        match self {
            Head::Classic(head) => Head::Classic(ClassicHead {
                key: Cow::Owned(head.key.into_owned()),
                ..head
            }),
            Head::Meta(line) => Head::Meta(Cow::Owned(line.into_owned())),
        }
    }
}

pub(super) struct ClassicHead<'a> {
    pub(super) verb: Verb,
    pub(super) key: Cow<'a, [u8]>,
    pub(super) flags: u32,
    pub(super) exptime: i32,
    pub(super) version: u64,
    pub(super) noreply: bool,
}

/// The progress of a long `get`.
#[derive(Clone, Copy)]
pub(super) struct LongGet {
    pub(super) with_version: bool,
    /// The error of the command; the rest of the line is skipped.
    pub(super) fault: Option<&'static str>,
}
