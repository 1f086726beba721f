//! Checksums that are stored with an object: the headers in which origins keep them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum_combine};
use floe::origin::Headers;
use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3ErrorCode, S3Result};

use super::error::{not_implemented, with};
use super::kept::stored_header;

pub(super) const CRC32: &str = "x-amz-checksum-crc32";
pub(super) const CRC32C: &str = "x-amz-checksum-crc32c";
pub(super) const CRC64NVME: &str = "x-amz-checksum-crc64nvme";
pub(super) const SHA1: &str = "x-amz-checksum-sha1";
pub(super) const SHA256: &str = "x-amz-checksum-sha256";
const COMPOSITE: &str = "COMPOSITE";
/// True of all bytes, or made of the checksums of parts.
const TYPE: &str = "x-amz-checksum-type";
/// Of the checksum that an upload's object is to get.
const ALGORITHM: &str = "x-amz-checksum-algorithm";

/// The headers of a whole object's or a part's checksums.
pub(super) fn headers(checksums: &Checksum) -> Headers {
    let mut headers: Headers = named(checksums)
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
        .collect();
    if !headers.is_empty() {
        let kind = ChecksumType::FULL_OBJECT.to_owned();
        headers.push((TYPE.to_owned(), kind));
    }
    headers
}

/// The checksums, with the names of their headers.
fn named(checksums: &Checksum) -> [(&'static str, &Option<String>); 5] {
    [
        (CRC32, &checksums.checksum_crc32),
        (CRC32C, &checksums.checksum_crc32c),
        (CRC64NVME, &checksums.checksum_crc64nvme),
        (SHA1, &checksums.checksum_sha1),
        (SHA256, &checksums.checksum_sha256),
    ]
}

/// The checksums in an object's or a part's headers, if there are any.
pub(super) fn of(headers: &Headers) -> Option<Checksum> {
    let value = |name| value(headers, name);
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

/// The checksum that an upload's object is to get, to store with the upload.
///
/// # Errors
/// The algorithm and the kind do not fit, as in S3.
pub(super) fn asked(headers: &HeaderMap) -> S3Result<Headers> {
    let refused = |message: String| Err(with(S3ErrorCode::InvalidRequest, message));
    let kind = stored_header(headers, TYPE)?;
    let Some(algorithm) = stored_header(headers, ALGORITHM)? else {
        return match kind {
            None => Ok(Headers::new()),
            Some(_) => refused(format!("{TYPE} needs {ALGORITHM}")),
        };
    };
    let algorithm = algorithm.to_ascii_uppercase();
    let kinds: &[&str] = match &*algorithm {
        "CRC32" | "CRC32C" => &[COMPOSITE, ChecksumType::FULL_OBJECT],
        "CRC64NVME" => &[ChecksumType::FULL_OBJECT],
        "SHA1" | "SHA256" => &[COMPOSITE],
        _ => {
            let what = format!("{ALGORITHM} other than CRC32, CRC32C, CRC64NVME, SHA1 or SHA256");
            return Err(not_implemented(&what));
        }
    };
    let kind = kind.unwrap_or_else(|| kinds[0].to_owned());
    if !kinds.contains(&&*kind) {
        return refused(format!(
            "The {kind} checksum type cannot be used with the {algorithm} checksum algorithm"
        ));
    }
    Ok(vec![
        (ALGORITHM.to_owned(), algorithm),
        (TYPE.to_owned(), kind),
    ])
}

/// The algorithm and the kind that [`asked`] has stored with an upload.
pub(super) fn promised(headers: &Headers) -> (Option<ChecksumAlgorithm>, Option<ChecksumType>) {
    (
        value(headers, ALGORITHM).map(ChecksumAlgorithm::from),
        value(headers, TYPE).map(ChecksumType::from),
    )
}

fn value(headers: &Headers, name: &str) -> Option<String> {
    let found = headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.clone())
}

/// A part's checksums, and its bytes.
pub(super) type PartSums = (Checksum, u64);

/// The checksums of an object made of parts, from those that all parts have.
pub(super) fn of_parts(parts: &[PartSums], kind: Option<&ChecksumType>) -> Headers {
    match kind.map(ChecksumType::as_str) {
        Some(ChecksumType::FULL_OBJECT) => headers(&of_bytes(parts)),
        Some(_) => composite(parts),
        // S3 has none of this kind that is made of others.
        None if parts
            .iter()
            .any(|(sums, _)| sums.checksum_crc64nvme.is_some()) =>
        {
            headers(&of_bytes(parts))
        }
        None => composite(parts),
    }
}

/// The checksums of all bytes, which cyclic redundancy checks of the parts imply.
fn of_bytes(parts: &[PartSums]) -> Checksum {
    let combined = |algorithm, bytes: usize, of: fn(&Checksum) -> &Option<String>| {
        let mut whole = 0;
        for (sums, size) in parts {
            let sum = STANDARD.decode(of(sums).as_ref()?).ok()?;
            let sum = (sum.len() == bytes)
                .then(|| sum.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))?;
            whole = checksum_combine(algorithm, whole, sum, *size);
        }
        Some(STANDARD.encode(&whole.to_be_bytes()[8 - bytes..]))
    };
    Checksum {
        checksum_crc32: combined(CrcAlgorithm::Crc32IsoHdlc, 4, |sums| &sums.checksum_crc32),
        checksum_crc32c: combined(CrcAlgorithm::Crc32Iscsi, 4, |sums| &sums.checksum_crc32c),
        checksum_crc64nvme: combined(CrcAlgorithm::Crc64Nvme, 8, |sums| &sums.checksum_crc64nvme),
        ..Checksum::default()
    }
}

/// The checksums of the parts' checksums.
fn composite(parts: &[PartSums]) -> Headers {
    let mut all = ChecksumHasher {
        crc32: Some(Crc32::new()),
        crc32c: Some(Crc32c::new()),
        sha1: Some(Sha1::new()),
        sha256: Some(Sha256::new()),
        crc64nvme: None,
    };
    for (part, _) in parts {
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

/// Compares the checksums that a client announces of an object with those of its parts.
///
/// # Errors
/// One differs or is unknown, or they are of another kind.
pub(super) fn compare(found: &Headers, announced: &Checksum) -> S3Result<()> {
    let refused = |message: String| Err(with(S3ErrorCode::InvalidRequest, message));
    for (name, announced) in named(announced) {
        let Some(announced) = announced else {
            continue;
        };
        // S3 takes one that is made of others without the number of parts, too.
        match value(found, name) {
            None => {
                return refused(format!(
                    "{name}: the parts were not uploaded with checksums of which it is made"
                ));
            }
            Some(value)
                if value != *announced
                    && value
                        .split_once('-')
                        .is_none_or(|(sum, _)| sum != announced) =>
            {
                return Err(with(
                    S3ErrorCode::BadDigest,
                    format!("{name} does not match the checksum of the parts"),
                ));
            }
            Some(_) => {}
        }
    }
    match (&announced.checksum_type, value(found, TYPE)) {
        (Some(announced), Some(kind)) if announced.as_str() != kind => refused(format!(
            "{TYPE} is {}, and the upload's is {kind}",
            announced.as_str()
        )),
        _ => Ok(()),
    }
}

/// True for checksums that [`of_parts`] made.
pub(super) fn are_of_parts(headers: &Headers) -> bool {
    let mut headers = headers.iter();
    headers.any(|(name, value)| name == TYPE && value == COMPOSITE)
}

/// Keeps only the checksums of the bytes.
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
