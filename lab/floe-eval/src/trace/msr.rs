//! MSR Cambridge, CSV without a header:
//! `timestamp,hostname,disk,type,offset,size,response_time`. Times are Windows
//! file times (ticks of 100 ns since 1601) and become times since the Unix
//! epoch; offset and size are bytes. A volume is a host's disk: `prxy.0`.

use super::fields::{self, number};
use super::request::{Decoded, Key};

/// The Unix epoch as a Windows file time.
const UNIX_EPOCH_TICKS: u64 = 116_444_736_000_000_000;

const NS_PER_TICK: u64 = 100;

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    let columns = "timestamp,hostname,disk,type,offset,size,response_time";
    let Some([time, host, disk, op, offset, size, _]) = fields::columns(line, columns)? else {
        return Ok(Decoded::Nothing);
    };
    let ticks: u64 = number("the timestamp", time)?;
    let time_ns = ticks
        .checked_sub(UNIX_EPOCH_TICKS)
        .and_then(|ticks| ticks.checked_mul(NS_PER_TICK))
        .ok_or_else(|| format!("the timestamp {ticks} is no Windows file time since 1970"))?;
    let disk: u32 = number("the disk", disk)?;
    let op = match op.trim() {
        "Read" | "Write" => fields::read_or_write(op)?,
        other => {
            let other = fields::excerpt(other);
            return Err(format!("type `{other}` is neither Read nor Write"));
        }
    };
    Decoded::block(
        Some(time_ns),
        Key::Bytes(format!("{host}.{disk}").into_bytes().into()),
        op,
        number("the offset", offset)?,
        number("the size", size)?,
    )
}
