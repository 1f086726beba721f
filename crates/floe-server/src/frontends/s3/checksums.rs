//! Checksums that are stored with an object: the headers in which origins keep them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use floe::origin::Headers;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumType};

pub(super) const CRC32: &str = "x-amz-checksum-crc32";
pub(super) const CRC32C: &str = "x-amz-checksum-crc32c";
pub(super) const CRC64NVME: &str = "x-amz-checksum-crc64nvme";
pub(super) const SHA1: &str = "x-amz-checksum-sha1";
pub(super) const SHA256: &str = "x-amz-checksum-sha256";
const COMPOSITE: &str = "COMPOSITE";
/// True of all bytes, or made of the checksums of parts.
const TYPE: &str = "x-amz-checksum-type";

/// The headers of a whole object's or a part's checksums.
pub(super) fn headers(checksums: &Checksum) -> Headers {
    let values = [
        (CRC32, &checksums.checksum_crc32),
        (CRC32C, &checksums.checksum_crc32c),
        (CRC64NVME, &checksums.checksum_crc64nvme),
        (SHA1, &checksums.checksum_sha1),
        (SHA256, &checksums.checksum_sha256),
    ];
    let mut headers: Headers = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
        .collect();
    if !headers.is_empty() {
        let kind = ChecksumType::FULL_OBJECT.to_owned();
        headers.push((TYPE.to_owned(), kind));
    }
    headers
}

/// The checksums in an object's or a part's headers, if there are any.
pub(super) fn of(headers: &Headers) -> Option<Checksum> {
    let value = |name: &str| {
        let found = headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone())
    };
    let checksums = Checksum {
        checksum_crc32: value(CRC32),
        checksum_crc32c: value(CRC32C),
        checksum_crc64nvme: value(CRC64NVME),
        checksum_sha1: value(SHA1),
        checksum_sha256: value(SHA256),
        checksum_type: value(TYPE).map(ChecksumType::from),
    };
    (checksums != Checksum::default()).then_some(checksums)
}

/// The checksums of an object made of parts, from those that all parts have.
pub(super) fn of_parts(parts: &[Checksum]) -> Headers {
    let mut all = ChecksumHasher {
        crc32: Some(Crc32::new()),
        crc32c: Some(Crc32c::new()),
        sha1: Some(Sha1::new()),
        sha256: Some(Sha256::new()),
        // S3 has none of this kind that is made of others.
        crc64nvme: None,
    };
    for part in parts {
        add(&mut all.crc32, &part.checksum_crc32);
        add(&mut all.crc32c, &part.checksum_crc32c);
        add(&mut all.sha1, &part.checksum_sha1);
        add(&mut all.sha256, &part.checksum_sha256);
    }
    let mut headers = headers(&all.finalize());
    for (name, value) in &mut headers {
        match &**name {
            TYPE => COMPOSITE.clone_into(value),
            _ => *value = format!("{value}-{}", parts.len()),
        }
    }
    headers
}

/// Adds a part's checksum. A part without one leaves the whole without one.
fn add<H: s3s::crypto::Checksum>(hasher: &mut Option<H>, part: &Option<String>) {
    let bytes = part.as_ref().and_then(|text| STANDARD.decode(text).ok());
    match (hasher.as_mut(), bytes) {
        (Some(hasher), Some(bytes)) => hasher.update(&bytes),
        _ => *hasher = None,
    }
}

/// True for checksums that [`of_parts`] made.
pub(super) fn are_of_parts(headers: &Headers) -> bool {
    let mut headers = headers.iter();
    headers.any(|(name, value)| name == TYPE && value == COMPOSITE)
}

/// Keeps only the checksums.
pub(super) fn only(headers: &Headers) -> Headers {
    let mut kept = headers.clone();
    kept.retain(|(name, _)| is_checksum(name));
    kept
}

/// Removes all checksums.
pub(super) fn remove(headers: &mut Headers) {
    headers.retain(|(name, _)| !is_checksum(name));
}

fn is_checksum(name: &str) -> bool {
    name.starts_with("x-amz-checksum-")
}
