//! The requests of the protocol.

use super::line::{Words, words};
use super::meta::{Key, Meta};

/// The request of one line.
#[derive(Debug)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set` and its variants: a value of `len` bytes and a line end follow.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// Whose.
        key: &'a [u8],
        /// Nothing is answered.
        noreply: bool,
    },
    /// `incr`, `decr`.
    Count {
        /// Whose.
        key: &'a [u8],
        /// By how much.
        delta: u64,
        /// Up or down.
        up: bool,
        /// Nothing is answered.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Whose.
        key: &'a [u8],
        /// The new time to live.
        exptime: i32,
        /// Nothing is answered.
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
        /// In so many seconds, or at that second; at once unless positive.
        exptime: i32,
        /// Nothing is answered.
        noreply: bool,
    },
    /// `stats`, with what follows it.
    Stats(Words<'a>),
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// Nothing is done but to answer this.
    Answer {
        /// The line, without its end.
        line: &'static str,
        /// Nothing is answered.
        noreply: bool,
    },
    /// An error after which `len` bytes are to be passed over.
    Refuse {
        /// The line, without its end.
        line: &'static str,
        /// Bytes that belong to the refused request.
        len: u64,
    },
    /// Not for us: the connection ends without an answer.
    Hangup,
}

/// `get` and its kin.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The keys, separated by spaces.
    pub keys: &'a [u8],
    /// Whether versions are asked for.
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

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Whatever is there.
    Set,
    /// If nothing is there.
    Add,
    /// If something is there.
    Replace,
    /// Behind what is there.
    Append,
    /// In front of what is there.
    Prepend,
    /// If the version is as given.
    Cas,
}

/// `set` and its kin.
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
    /// The version to compare; 0 where none is.
    pub version: u64,
    /// Nothing is answered.
    pub noreply: bool,
}

/// A request that only sends `line`.
pub(super) fn answer<'a>(line: &'static str) -> Request<'a> {
    Request::Answer {
        line,
        noreply: false,
    }
}
