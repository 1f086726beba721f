//! VMware vscsi traces (CloudPhysics), packed little-endian records. Version 1
//! has 32 bytes, `u32 serial, length, segments; u16 command, version; u64 block,
//! time`; version 2 has 40, `u16 command, version; u32 serial, length, segments;
//! u64 block, time, response_time`. Length is bytes, a block 512 bytes, time
//! microseconds. The high byte of `version` is the version.

use super::binary::Fields;
use super::fields::NS_PER_US;
use super::request::{Decoded, Key, SECTOR_BYTES};
use super::scsi;

/// Bytes of a record of version 1.
pub(super) const V1_BYTES: usize = 32;
/// Bytes of a record of version 2.
pub(super) const V2_BYTES: usize = 40;

/// One record of version 1.
pub(super) fn decode_v1(record: &[u8]) -> Result<Decoded, String> {
    let mut fields = Fields(record);
    let [_serial, length, _segments] = words(&mut fields)?;
    let (command, version) = (fields.u16_le()?, fields.u16_le()?);
    request(1, version, command, length, fields)
}

/// One record of version 2.
pub(super) fn decode_v2(record: &[u8]) -> Result<Decoded, String> {
    let mut fields = Fields(record);
    let (command, version) = (fields.u16_le()?, fields.u16_le()?);
    let [_serial, length, _segments] = words(&mut fields)?;
    request(2, version, command, length, fields)
}

fn words(fields: &mut Fields<'_>) -> Result<[u32; 3], String> {
    Ok([fields.u32_le()?, fields.u32_le()?, fields.u32_le()?])
}

/// The request, whose block and time are the next fields of both versions.
fn request(
    wanted: u16,
    version: u16,
    command: u16,
    length: u32,
    mut fields: Fields<'_>,
) -> Result<Decoded, String> {
    if version >> 8 != wanted {
        return Err(format!(
            "the record's version is {version:#06x} instead of {wanted}; the file may be of another version"
        ));
    }
    let Some(op) = scsi::operation(command) else {
        return Ok(Decoded::Nothing);
    };
    let (block, time_us) = (fields.u64_le()?, fields.u64_le()?);
    let offset = block
        .checked_mul(SECTOR_BYTES)
        .ok_or_else(|| format!("the block {block} is too large"))?;
    let time_ns = time_us
        .checked_mul(NS_PER_US)
        .ok_or_else(|| format!("the time {time_us} us is too large"))?;
    Decoded::block(Some(time_ns), Key::Id(0), op, offset, length.into())
}
