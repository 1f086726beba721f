//! Parses one line of memcached's text protocol, classic or meta.
//!
//! The words are borrowed from the line; only base64 keys are copied. Limits
//! and error responses are those of memcached 1.6.

mod line;
mod meta;
mod meta_line;
pub(super) mod number;
mod request;
#[cfg(test)]
mod tests;
mod tuning;

use super::words as say;
use line::words;
pub use line::{KEY_BYTES_MAX, Words};
pub use meta::{Key, Meta, Mode};
use number::{signed_32, unsigned, unsigned_32};
use request::answer;
pub use request::{Get, Request, Store, Verb};

/// Parses one line without its end.
pub fn parse(line: &[u8]) -> Request<'_> {
    // memcached treats a line as a C string.
    let line = match memchr::memchr(0, line) {
        Some(end) => &line[..end],
        None => line,
    };
    let start = line.iter().position(|&byte| byte != b' ');
    let line = &line[start.unwrap_or(line.len())..];
    let (command, rest) = match memchr::memchr(b' ', line) {
        Some(end) => (&line[..end], &line[end + 1..]),
        None => (line, &[][..]),
    };
    match command {
        b"get" | b"bget" => get(rest, false),
        b"gets" => get(rest, true),
        b"mg" => meta_line::get(Words::of(rest)),
        b"ms" => meta_line::set(Words::of(rest)),
        b"md" => meta_line::delete(Words::of(rest)),
        b"ma" => meta_line::count(Words::of(rest)),
        b"me" => meta_line::debug(Words::of(rest)),
        b"mn" => Request::MetaNoop,
        b"gat" => get_and_touch(rest, false),
        b"gats" => get_and_touch(rest, true),
        b"set" => store(Verb::Set, Words::of(rest)),
        b"add" => store(Verb::Add, Words::of(rest)),
        b"replace" => store(Verb::Replace, Words::of(rest)),
        b"append" => store(Verb::Append, Words::of(rest)),
        b"prepend" => store(Verb::Prepend, Words::of(rest)),
        b"cas" => store(Verb::Cas, Words::of(rest)),
        b"delete" => delete(Words::of(rest)),
        b"incr" => count(Words::of(rest), true),
        b"decr" => count(Words::of(rest), false),
        b"touch" => touch(Words::of(rest)),
        b"flush_all" => flush_all(Words::of(rest)),
        b"stats" => Request::Stats(Words::of(rest)),
        b"version" => Request::Version,
        b"quit" => Request::Quit,
        _ => rare(command, Words::of(rest)),
    }
}

fn get(rest: &[u8], with_version: bool) -> Request<'_> {
    if words(rest).next().is_none() {
        return answer(say::ERROR);
    }
    Request::Get(Get {
        keys: rest,
        with_version,
        exptime: None,
    })
}

fn get_and_touch(rest: &[u8], with_version: bool) -> Request<'_> {
    let Some(exptime) = words(rest).next() else {
        return answer(say::ERROR);
    };
    let Some(seconds) = signed_32(exptime) else {
        return answer(say::BAD_EXPTIME);
    };
    let start = rest.iter().position(|&byte| byte != b' ').unwrap_or(0);
    Request::Get(Get {
        keys: &rest[start + exptime.len()..],
        with_version,
        exptime: Some(seconds),
    })
}

fn store(verb: Verb, words: Words<'_>) -> Request<'_> {
    let required = if verb == Verb::Cas { 5 } else { 4 };
    let given = words.as_slice();
    if given.len() != required && given.len() != required + 1 {
        return answer(say::ERROR);
    }
    let noreply = words.noreply();
    let read = || {
        let key = Some(given[0]).filter(|key| key.len() <= KEY_BYTES_MAX)?;
        let flags = unsigned_32(given[1])?;
        let exptime = signed_32(given[2])?;
        let len = signed_32(given[3])?;
        let version = match verb {
            Verb::Cas => unsigned(given[4])?,
            _ => 0,
        };
        Some(Store {
            verb,
            key,
            flags,
            exptime,
            len: line::value_len(len)?,
            version,
            noreply,
        })
    };
    match read() {
        Some(store) => Request::Store(store),
        None => Request::Respond {
            line: say::BAD_FORMAT,
            noreply,
        },
    }
}

fn delete(words: Words<'_>) -> Request<'_> {
    let noreply = words.noreply() && words.len > 1;
    let key = match *words.as_slice() {
        [key] | [key, b"0" | b"noreply"] | [key, b"0", b"noreply"] => key,
        [] | [_, _, _, _, ..] => return answer(say::ERROR),
        _ => {
            let line = say::DELETE_USAGE;
            return Request::Respond { line, noreply };
        }
    };
    if key.len() > KEY_BYTES_MAX {
        let line = say::BAD_FORMAT;
        return Request::Respond { line, noreply };
    }
    Request::Delete { key, noreply }
}

fn count(words: Words<'_>, up: bool) -> Request<'_> {
    with_number(words, unsigned, say::BAD_DELTA, |key, delta, noreply| {
        Request::Count {
            key,
            delta,
            up,
            noreply,
        }
    })
}

fn touch(words: Words<'_>) -> Request<'_> {
    with_number(
        words,
        signed_32,
        say::BAD_EXPTIME,
        |key, exptime, noreply| Request::Touch {
            key,
            exptime,
            noreply,
        },
    )
}

/// The request of a key and a number that `parse` reads; `bad_number` answers
/// another word.
fn with_number<'a, T>(
    words: Words<'a>,
    parse: fn(&[u8]) -> Option<T>,
    bad_number: &'static str,
    request: impl FnOnce(&'a [u8], T, bool) -> Request<'a>,
) -> Request<'a> {
    let (&[key, number] | &[key, number, _]) = words.as_slice() else {
        return answer(say::ERROR);
    };
    let noreply = words.noreply();
    let line = match parse(number) {
        _ if key.len() > KEY_BYTES_MAX => say::BAD_FORMAT,
        Some(number) => return request(key, number, noreply),
        None => bad_number,
    };
    Request::Respond { line, noreply }
}

fn flush_all(words: Words<'_>) -> Request<'_> {
    let noreply = words.noreply();
    let exptime = match *words.as_slice() {
        [] => Some(0),
        [_] if noreply => Some(0),
        [exptime] | [exptime, _] => signed_32(exptime),
        _ => return answer(say::ERROR),
    };
    match exptime {
        Some(exptime) => Request::FlushAll { exptime, noreply },
        None => Request::Respond {
            line: say::BAD_EXPTIME,
            noreply,
        },
    }
}

/// Commands that tune features Floe lacks, and invalid commands.
fn rare<'a>(command: &[u8], words: Words<'a>) -> Request<'a> {
    let given = words.as_slice();
    let noreply = words.noreply();
    match (command, given) {
        (b"verbosity", [level] | [level, _]) => Request::Respond {
            line: match unsigned_32(level) {
                Some(_) => say::OK,
                None => say::BAD_FORMAT,
            },
            noreply,
        },
        (b"cache_memlimit", [limit] | [limit, _]) => Request::Respond {
            line: match unsigned_32(limit) {
                None => say::ERROR,
                Some(..8) => say::MEMLIMIT_TOO_SMALL,
                Some(8..=1_000_000_000) => say::MEMLIMIT_FIXED,
                Some(_) => say::MEMLIMIT_MEGABYTES,
            },
            noreply,
        },
        (b"shutdown", _) => answer(say::NO_SHUTDOWN),
        (b"slabs", given) => tuning::slabs(given, noreply),
        (b"lru_crawler", given) => answer(tuning::lru_crawler(given)),
        (b"lru", given) => Request::Respond {
            line: tuning::lru(given),
            noreply: noreply && !given.is_empty(),
        },
        (b"watch", _) => Request::Respond {
            line: say::NO_WATCH,
            noreply,
        },
        _ if is_known(command) => answer(say::ERROR),
        _ => {
            let last = given.last().copied().unwrap_or(command);
            match last.starts_with(b"HTTP/") && command.len() >= 2 {
                true => Request::Hangup,
                false => answer(say::ERROR),
            }
        }
    }
}

/// True if memcached recognises this command by its name or first letter. It
/// then responds with an error instead of closing the connection as a
/// browser's.
fn is_known(command: &[u8]) -> bool {
    matches!(
        command.first(),
        Some(b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't')
    ) || (command.len() == 2 && command[0] == b'm')
        || matches!(
            command,
            b"verbosity" | b"lru_crawler" | b"lru" | b"extstore"
        )
}

/// Bytes after the first line of a client that must authenticate: `set
/// <anything> <anything> <anything> <bytes>`.
pub(crate) fn authentication_len(line: &[u8]) -> Option<usize> {
    let words = Words::of(line);
    match *words.as_slice() {
        [b"set", _, _, _, len, ..] => unsigned_32(len).map(|len| len as usize),
        _ => None,
    }
}

/// Parses the value of the authenticating `set`.
pub(crate) fn name_and_password(sent: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut words = words(sent);
    Some((words.next()?, words.next()?))
}
