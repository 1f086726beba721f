//! ARC `.lis`: `start_block n_blocks ignored request_number`. Each line reads
//! `n_blocks` consecutive pages of 512 bytes.

use super::fields::{self, number};
use super::request::Decoded;

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    let line = fields::text(line)?;
    let given: Vec<&str> = line.split_ascii_whitespace().collect();
    match given[..] {
        [] => Ok(Decoded::Nothing),
        [start, count, ..] => {
            let start: u64 = number("the first block", start)?;
            let count: u32 = number("the number of blocks", count)?;
            Decoded::run(start, u64::from(count))
        }
        [_] => Err("the line has one field instead of 4".into()),
    }
}
