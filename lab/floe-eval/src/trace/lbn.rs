//! Bare lists of logical block numbers, one per line. Each is a read of one block
//! of 512 bytes: the lists have neither operation nor length.

use super::fields::{self, number};
use super::request::Decoded;

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    match fields::text(line)?.trim() {
        "" => Ok(Decoded::Nothing),
        block => Decoded::run(number("the block", block)?, 1),
    }
}
