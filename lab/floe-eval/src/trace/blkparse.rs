//! The text that Linux' blkparse prints:
//! `major,minor cpu sequence seconds pid action rwbs sector + sectors [process]`.
//! Sectors are 512 bytes, time is decimal seconds. One request causes several
//! events, of which one kind is read: Q (queued by an application) or D
//! (dispatched to the device, after merging). A write with a flush counts as a
//! write.

use super::fields;
use super::request::{BlockOp, Decoded, Key, SECTOR_BYTES};

/// One line, with queued requests.
pub(super) fn decode_queued(line: &[u8]) -> Result<Decoded, String> {
    decode(line, "Q")
}

/// One line, with requests dispatched to the device.
pub(super) fn decode_dispatched(line: &[u8]) -> Result<Decoded, String> {
    decode(line, "D")
}

/// Lines that do not start with a device belong to the final summary.
fn decode(line: &[u8], wanted: &str) -> Result<Decoded, String> {
    let line = fields::text(line)?;
    let mut words = line.split_ascii_whitespace();
    let Some(device) = words.next().filter(|word| is_device(word)) else {
        return Ok(Decoded::Nothing);
    };
    let (_cpu, _sequence, time, _pid) = (words.next(), words.next(), words.next(), words.next());
    let (Some(time), Some(action), Some(rwbs)) = (time, words.next(), words.next()) else {
        return Err("the event has fewer than 7 fields".into());
    };
    if action != wanted {
        return Ok(Decoded::Nothing);
    }
    let (first, plus, count) = (words.next(), words.next(), words.next());
    let range = match (first, plus, count) {
        (Some(first), Some("+"), Some(count)) => Some((
            fields::scaled("the sector", first, SECTOR_BYTES)?,
            fields::scaled("the number of sectors", count, SECTOR_BYTES)?,
        )),
        _ => None,
    };
    let (Some(op), (offset, length)) = (
        operation(rwbs, range.is_some_and(|(_, length)| length > 0)),
        range.unwrap_or_default(),
    ) else {
        return Ok(Decoded::Nothing);
    };
    Decoded::block(
        Some(fields::decimal_seconds_ns("the time", time)?),
        Key::Bytes(device.as_bytes().into()),
        op,
        offset,
        length,
    )
}

fn is_device(word: &str) -> bool {
    word.split_once(',')
        .is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
}

/// The operation of these letters: a flush comes first, then D discards, W writes
/// or R reads. Commands of other kinds (N) and without a length have none.
fn operation(rwbs: &str, has_range: bool) -> Option<BlockOp> {
    let is_flush = rwbs.starts_with('F');
    match rwbs.trim_start_matches('F').chars().next() {
        Some('D') if has_range => Some(BlockOp::Trim),
        Some('W') if has_range => Some(BlockOp::Write),
        Some('R') if has_range => Some(BlockOp::Read),
        _ if is_flush => Some(BlockOp::Flush),
        _ => None,
    }
}
