//! LIRS authors' traces: a key per line; a line with `*` marks a phase and is
//! no request.

use super::fields::{self, number};
use super::request::{Decoded, Key, Request};

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    match fields::text(line)?.trim() {
        "" | "*" => Ok(Decoded::Nothing),
        key => Ok(Decoded::One(Request::get(Key::Id(number("the key", key)?)))),
    }
}
