//! Requests of the protocol.

use super::line::{Words, words};
use super::meta::{Key, Meta};

/// A parsed line.
#[derive(Debug)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set` and its variants: a value of `len` bytes and a line end follow.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Send no response.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Count {
        /// The key.
        key: &'a [u8],
        /// The amount.
        delta: u64,
        /// Increment; otherwise decrement.
        up: bool,
        /// Send no response.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The new time to live.
        exptime: i32,
        /// Send no response.
        noreply: bool,
    },
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `ms`: a value of `len` bytes and a line end follow.
    MetaSet(Meta<'a>, u32),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaCount(Meta<'a>),
    /// `me`.
    MetaDebug(Key<'a>),
    /// `mn`.
    MetaNoop,
    /// `flush_all`.
    FlushAll {
        /// Relative seconds, or a second since 1970; at once unless positive.
        exptime: i32,
        /// Send no response.
        noreply: bool,
    },
    /// `stats` and its arguments.
    Stats(Words<'a>),
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// Only a response.
    Respond {
        /// The line, without its end.
        line: &'static str,
        /// Send no response.
        noreply: bool,
    },
    /// An error response after which `len` bytes are skipped.
    Reject {
        /// The line, without its end.
        line: &'static str,
        /// Bytes of the rejected request.
        len: u64,
    },
    /// Not memcached's protocol: the connection ends without a response.
    Hangup,
}

/// `get` and its variants.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The keys, separated by spaces.
    pub keys: &'a [u8],
    /// The response has versions.
    pub with_version: bool,
    /// The time to live to set.
    pub exptime: Option<i32>,
}

impl<'a> Get<'a> {
    /// Each key.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        words(self.keys)
    }
}

/// The condition of a store command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// None.
    Set,
    /// There is no item.
    Add,
    /// There is an item.
    Replace,
    /// There is an item; the value is appended to it.
    Append,
    /// There is an item; the value is prepended to it.
    Prepend,
    /// The item has the given version.
    Cas,
}

/// `set` and its variants.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// The command.
    pub verb: Verb,
    /// The key.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The time to live.
    pub exptime: i32,
    /// Bytes of the value, less than 2 GiB.
    pub len: u32,
    /// The version to compare; 0 if there is none.
    pub version: u64,
    /// Send no response.
    pub noreply: bool,
}

/// A request that only responds with `line`.
pub(super) fn answer<'a>(line: &'static str) -> Request<'a> {
    Request::Respond {
        line,
        noreply: false,
    }
}
