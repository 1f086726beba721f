//! Valid checksums over arbitrary bytes, so that they reach the deep parts of a
//! decoder.
//!
//! Written from `docs/format.md`, not with Floe's own encoders: a fuzzer that
//! seals with the code under test misses faults that both share.

use crc32c::{crc32c, crc32c_append};

/// Length in bytes of the frame that every structure starts with.
const FRAME_BYTES: usize = 24;

/// Length in bytes of a batch's header, which is all that its frame covers.
const BATCH_HEADER_BYTES: usize = 72;

/// Lengths in bytes of a page of tiny objects and of its header.
const PAGE_BYTES: usize = 4096;
const PAGE_HEADER_BYTES: usize = 24;

/// Format versions of tiny objects, of volumes, and of everything else.
const TINY_VERSION: u16 = 1;
const VOLUME_VERSION: u16 = 1;
const VERSION: u16 = 2;

/// `data` with a valid frame: magic, the version of that magic, a covered length
/// within `data`, and its checksum. The rest is unchanged.
pub(crate) fn sealed(id: &[u8; 16], magic: &[u8; 8], data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(FRAME_BYTES), 0);
    let claimed = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]) as usize;
    let covered = match claimed {
        claimed if (FRAME_BYTES..=bytes.len()).contains(&claimed) => claimed,
        _ => bytes.len(),
    };
    seal(id, magic, covered, &mut bytes);
    bytes
}

/// As [`sealed`], for batches: the checksum of the body comes first.
pub(crate) fn sealed_batch(id: &[u8; 16], magic: &[u8; 8], data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(BATCH_HEADER_BYTES), 0);
    let room = bytes.len() - BATCH_HEADER_BYTES;
    let claimed = u32::from_le_bytes([bytes[64], bytes[65], bytes[66], bytes[67]]) as usize;
    let body_bytes = claimed.min(room);
    let body = &bytes[BATCH_HEADER_BYTES..][..body_bytes];
    let checksum = crc32c_append(crc32c(id), body);
    bytes[64..68].copy_from_slice(&(body_bytes as u32).to_le_bytes());
    bytes[68..72].copy_from_slice(&checksum.to_le_bytes());
    seal(id, magic, BATCH_HEADER_BYTES, &mut bytes);
    bytes
}

/// `data` as a page of tiny objects with this magic: a used length within it,
/// the version, and the checksum. The rest is unchanged.
pub(crate) fn sealed_page(id: &[u8; 16], magic: &[u8; 2], data: &[u8]) -> Vec<u8> {
    let mut page = data.to_vec();
    page.resize(PAGE_BYTES, 0);
    page[4..6].copy_from_slice(magic);
    page[6..8].copy_from_slice(&TINY_VERSION.to_le_bytes());
    let claimed = usize::from(u16::from_le_bytes([page[20], page[21]]));
    let used = match claimed {
        claimed if (PAGE_HEADER_BYTES..=PAGE_BYTES).contains(&claimed) => claimed,
        _ => PAGE_BYTES,
    };
    page[20..22].copy_from_slice(&(used as u16).to_le_bytes());
    let checksum = crc32c_append(crc32c(id), &page[4..used]);
    page[..4].copy_from_slice(&checksum.to_le_bytes());
    page
}

fn seal(id: &[u8; 16], magic: &[u8; 8], covered: usize, bytes: &mut [u8]) {
    let version = match magic {
        b"FloeTin\x97" | b"FloeFen\x98" => TINY_VERSION,
        b"FloeVol\x99" | b"FloeBlg\x9a" | b"FloeBtb\x9b" => VOLUME_VERSION,
        _ => VERSION,
    };
    bytes[..8].copy_from_slice(magic);
    bytes[12..14].copy_from_slice(&version.to_le_bytes());
    bytes[16..20].copy_from_slice(&(covered as u32).to_le_bytes());
    let checksum = crc32c_append(crc32c(id), &bytes[12..covered]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
}
