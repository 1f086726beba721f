//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes,
//! `u32 time_s; u64 object; u32 size; i64 next_access`.

use super::fields::NS_PER_S;
use super::request::{Decoded, Key, Op, Request};

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 24;

/// One record. The next access is knowledge of the future, and is dropped.
pub(super) fn decode(record: &[u8]) -> Result<Decoded, String> {
    let record: &[u8; RECORD_BYTES] = record.try_into().map_err(|_| {
        format!(
            "the record has {} bytes instead of {RECORD_BYTES}",
            record.len()
        )
    })?;
    let [
        t0,
        t1,
        t2,
        t3,
        key @ ..,
        s0,
        s1,
        s2,
        s3,
        n0,
        n1,
        n2,
        n3,
        n4,
        n5,
        n6,
        n7,
    ] = *record;
    let next = i64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
    if next < -1 {
        return Err(format!(
            "the next access {next} is negative; the file may be of another format"
        ));
    }
    Ok(Decoded::One(Request {
        time_ns: Some(u64::from(u32::from_le_bytes([t0, t1, t2, t3])) * NS_PER_S),
        key: Key::Id(u64::from_le_bytes(key)),
        op: Op::Get,
        size: Some(u64::from(u32::from_le_bytes([s0, s1, s2, s3]))),
        range: None,
        ttl: None,
    }))
}
