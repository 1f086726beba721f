//! Parses lines of meta commands.

use super::line::{KEY_BYTES_MAX, Words, value_len};
use super::meta::{Key, Meta};
use super::number::signed_32;
use super::request::{Request, answer};
use crate::frontends::memcached::words as say;

/// The number of words, including the command, that is too many.
const WORDS_TOO_MANY: usize = 20;

pub(super) fn get(words: Words<'_>) -> Request<'_> {
    match read(words, say::FLAGS_ARE_TOO_LONG) {
        Ok(meta) => Request::MetaGet(meta),
        Err(Fault::Line(line) | Fault::Flags(line)) => answer(line),
    }
}

pub(super) fn delete(words: Words<'_>) -> Request<'_> {
    match read(words, say::FLAGS_TOO_LONG) {
        Ok(meta) => Request::MetaDelete(meta),
        Err(fault) => answer(fault.without_detail()),
    }
}

pub(super) fn count(words: Words<'_>) -> Request<'_> {
    match read(words, say::FLAGS_TOO_LONG) {
        Ok(meta) => match meta.mode.0 {
            None | Some(b'I' | b'+' | b'D' | b'-') => Request::MetaCount(meta),
            Some(_) => answer(say::BAD_COUNT_MODE),
        },
        Err(fault) => answer(fault.without_detail()),
    }
}

/// The error response to a meta command.
enum Fault {
    /// The line is malformed.
    Line(&'static str),
    /// A flag is invalid.
    Flags(&'static str),
}

impl Fault {
    /// `md` and `ma` have one response for all invalid flags.
    fn without_detail(self) -> &'static str {
        match self {
            Fault::Line(line) => line,
            Fault::Flags(_) => say::INVALID_OR_DUPLICATE_FLAG,
        }
    }
}

fn read<'a>(words: Words<'a>, too_many: &'static str) -> Result<Meta<'a>, Fault> {
    let Some(key) = words.as_slice().first() else {
        return Err(Fault::Line(say::ERROR));
    };
    if key.len() > KEY_BYTES_MAX {
        return Err(Fault::Line(say::BAD_FORMAT));
    }
    // memcached also counts the command and an end mark.
    if words.len + 2 > WORDS_TOO_MANY {
        return Err(Fault::Line(too_many));
    }
    let meta = Meta::read(words, 1).map_err(Fault::Flags)?;
    match meta.has_long_opaque() {
        true => Err(Fault::Line(say::OPAQUE_TOO_LONG)),
        false => Ok(meta),
    }
}

pub(super) fn set(words: Words<'_>) -> Request<'_> {
    let given = words.as_slice();
    let Some(key) = given.first() else {
        return answer(say::ERROR);
    };
    if key.len() > KEY_BYTES_MAX || given.len() == 1 {
        return answer(say::BAD_FORMAT);
    }
    if given.len() + 2 > WORDS_TOO_MANY {
        return answer(say::FLAGS_TOO_LONG);
    }
    let Some(len) = signed_32(given[1]).and_then(value_len) else {
        return answer(say::BAD_FORMAT);
    };
    // After this, a fault must skip the value that follows.
    let reject = |line| Request::Reject {
        line,
        len: u64::from(len) + 2,
    };
    let meta = match Meta::read(words, 2) {
        Ok(meta) => meta,
        Err(line) => return reject(line),
    };
    match meta.mode.0 {
        None | Some(b'E' | b'A' | b'P' | b'R' | b'S') => {}
        Some(_) => return reject(say::BAD_SET_MODE),
    }
    if meta.has_long_opaque() {
        return reject(say::OPAQUE_TOO_LONG);
    }
    Request::MetaSet(meta, len)
}

pub(super) fn debug(words: Words<'_>) -> Request<'_> {
    match *words.as_slice() {
        [key, ..] if key.len() > KEY_BYTES_MAX => answer(say::BAD_FORMAT),
        [key, b"b", ..] => match Key::decode(key) {
            Some(key) => Request::MetaDebug(key),
            None => answer(say::BAD_FORMAT),
        },
        [key, ..] => Request::MetaDebug(Key::Plain(key)),
        [] => answer(say::BAD_FORMAT),
    }
}
