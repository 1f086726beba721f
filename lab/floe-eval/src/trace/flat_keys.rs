//! Files that have only keys of a fixed width: cache2k (32-bit
//! big-endian), Corda (64-bit big-endian), ZNCache workloads and LIRS2 (32-bit
//! little-endian).

use super::request::{Decoded, Key, Request};

/// A 32-bit big-endian key; negative ones keep their bits.
pub(super) fn decode_be32(record: &[u8]) -> Result<Decoded, String> {
    let bytes = record.try_into().map_err(|_| width(record, 4))?;
    Ok(key(u64::from(u32::from_be_bytes(bytes))))
}

/// A 64-bit big-endian key; negative ones keep their bits.
pub(super) fn decode_be64(record: &[u8]) -> Result<Decoded, String> {
    let bytes = record.try_into().map_err(|_| width(record, 8))?;
    Ok(key(u64::from_be_bytes(bytes)))
}

/// A 32-bit little-endian key.
pub(super) fn decode_le32(record: &[u8]) -> Result<Decoded, String> {
    let bytes = record.try_into().map_err(|_| width(record, 4))?;
    Ok(key(u64::from(u32::from_le_bytes(bytes))))
}

fn key(id: u64) -> Decoded {
    Decoded::One(Request::get(Key::Id(id)))
}

fn width(record: &[u8], wanted: usize) -> String {
    format!("the record has {} bytes instead of {wanted}", record.len())
}
