//! The ASCII format that DiskSim, SSDsim and MQSim share:
//! `arrival device sector sectors flags`, with sectors of 512 bytes. Bit 0 of
//! the flags, which are hexadecimal, reads. Arrival is milliseconds in DiskSim's
//! traces and nanoseconds in MQSim's. Lines do not name the unit, so each is a
//! format of its own.

use super::fields::{self, NS_PER_MS, number};
use super::request::{BlockOp, Decoded, Key, SECTOR_BYTES};

/// One line with the arrival in (decimal) milliseconds.
pub(super) fn decode_ms(line: &[u8]) -> Result<Decoded, String> {
    decode(line, |time| {
        fields::decimal_ns("the arrival", time, NS_PER_MS)
    })
}

/// One line with the arrival in nanoseconds.
pub(super) fn decode_ns(line: &[u8]) -> Result<Decoded, String> {
    decode(line, |time| number("the arrival", time))
}

fn decode(line: &[u8], time_ns: fn(&str) -> Result<u64, String>) -> Result<Decoded, String> {
    let Some([time, device, sector, sectors, flags]) = fields::words(line)? else {
        return Ok(Decoded::Nothing);
    };
    let op = if fields::hexadecimal("the flags", flags)? & 1 != 0 {
        BlockOp::Read
    } else {
        BlockOp::Write
    };
    Decoded::block(
        Some(time_ns(time)?),
        Key::Id(number("the device", device)?),
        op,
        fields::scaled("the sector", sector, SECTOR_BYTES)?,
        fields::scaled("the number of sectors", sectors, SECTOR_BYTES)?,
    )
}
