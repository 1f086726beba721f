//! Every header of a request is honoured or rejected, never dropped. Lists the
//! S3 headers that each operation honours; all others, including future ones,
//! are rejected.

use http::HeaderMap;
use s3s::S3Result;

use super::error::{invalid_argument, not_implemented};
use super::query::Query;

/// Parts of the signature, and headers without an effect.
const EVERYWHERE: [&str; 9] = [
    "x-amz-api-version",
    "x-amz-cf-id",
    "x-amz-checksum-mode",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-user-agent",
];

/// Checksums of a request's bytes.
const CHECKSUMS: &[&str] = &[
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// The framing of an upload's bytes.
const FRAMES: &[&str] = &["x-amz-decoded-content-length", "x-amz-trailer"];

/// Asks to ignore locks, which no object has.
const UNLOCKS: &[&str] = &["x-amz-bypass-governance-retention"];

/// Announces the size of the object that an upload becomes.
pub(super) const OBJECT_SIZE: &str = "x-amz-mp-object-size";

const METADATA: &str = "x-amz-meta-";

const SOURCE: &[&str] = &[
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
];

/// Headers stored with an object.
const OBJECT: &[&str] = &["x-amz-acl", "x-amz-storage-class", METADATA];

/// The groups of headers that an operation honours in addition to [`EVERYWHERE`].
fn honoured(operation: &str) -> &'static [&'static [&'static str]] {
    match operation {
        "PutObject" => &[CHECKSUMS, FRAMES, OBJECT],
        "UploadPart" => &[CHECKSUMS, FRAMES],
        "CreateMultipartUpload" => &[OBJECT, &["x-amz-checksum-algorithm", "x-amz-checksum-type"]],
        "CompleteMultipartUpload" => &[CHECKSUMS, &["x-amz-checksum-type", OBJECT_SIZE]],
        "CopyObject" => &[
            SOURCE,
            OBJECT,
            &["x-amz-metadata-directive", "x-amz-tagging-directive"],
        ],
        "UploadPartCopy" => &[SOURCE, &["x-amz-copy-source-range"]],
        "CreateBucket" => &[&["x-amz-acl"]],
        // `check_document` compares the checksums.
        "DeleteObjects" => &[CHECKSUMS, UNLOCKS],
        "DeleteObject" => &[
            UNLOCKS,
            &["x-amz-if-match-last-modified-time", "x-amz-if-match-size"],
        ],
        "GetObjectAttributes" => &[&[
            "x-amz-max-parts",
            "x-amz-object-attributes",
            "x-amz-part-number-marker",
        ]],
        _ => &[],
    }
}

/// URL parameters that stand for headers in a presigned request.
const PARAMETERS: [&str; 10] = [
    "x-amz-algorithm",
    "x-amz-checksum-mode",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
    "x-amz-user-agent",
];

/// Reasons for rejection that a header's name does not explain.
const REASONS: [(&str, &str); 7] = [
    (
        "x-amz-server-side-encryption",
        "server-side encryption settings",
    ),
    ("x-amz-grant-", "access control lists"),
    ("x-amz-object-lock-", "object locks"),
    ("x-amz-bucket-object-lock-", "object locks"),
    ("x-amz-tagging", "object tags"),
    ("x-amz-website-redirect-location", "website redirects"),
    ("x-amz-expected-bucket-owner", "owners of buckets"),
];

/// Rejects headers and parameters that an operation would drop.
///
/// # Errors
/// Names the header or parameter.
pub(crate) fn reject_dropped(operation: &str, query: &Query, headers: &HeaderMap) -> S3Result<()> {
    for (name, value) in headers {
        let name = name.as_str();
        // Every bucket here is without locks.
        let is_default = operation == "CreateBucket"
            && name == "x-amz-bucket-object-lock-enabled"
            && value.as_bytes().eq_ignore_ascii_case(b"false");
        if name.starts_with("x-amz-") && !is_default && !is_honoured(operation, name) {
            let reason = REASONS.iter().find(|(prefix, _)| name.starts_with(prefix));
            let what = reason.map_or("this header for this operation", |(_, what)| what);
            return Err(not_implemented(&format!("{what} ({name})")));
        }
    }
    for (name, _) in query.iter() {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("x-amz-") && !PARAMETERS.contains(&lower.as_str()) {
            let what = format!("`{name}` as a parameter; send it as a signed header");
            return Err(not_implemented(&what));
        }
    }
    reject_access_lists(headers)?;
    reject_conditions(operation, headers)?;
    Ok(())
}

/// True for a header, or a parameter in lower case, that is part of a signature or without an
/// effect.
pub(super) fn is_everywhere(name: &str) -> bool {
    EVERYWHERE.contains(&name) || PARAMETERS.contains(&name)
}

fn is_honoured(operation: &str, name: &str) -> bool {
    let mut groups = honoured(operation).iter().copied().flatten();
    EVERYWHERE.contains(&name)
        || groups.any(|known| match known.ends_with('-') {
            true => name.starts_with(known),
            false => name == *known,
        })
}

/// Only the two values that describe a cache whose objects belong to its bucket are accepted.
fn reject_access_lists(headers: &HeaderMap) -> S3Result<()> {
    match headers.get("x-amz-acl").map(|acl| acl.as_bytes()) {
        None | Some(b"private" | b"bucket-owner-full-control") => Ok(()),
        Some(_) => Err(not_implemented("access control lists (x-amz-acl)")),
    }
}

/// Rejects conditions on the replaced object if the operation does not evaluate them.
fn reject_conditions(operation: &str, headers: &HeaderMap) -> S3Result<()> {
    let looked_at: &[&str] = match operation {
        "PutObject" | "CopyObject" | "CompleteMultipartUpload" => &["if-match", "if-none-match"],
        "DeleteObject" => &["if-match"],
        "GetObject" | "HeadObject" => &["if-match", "if-none-match", "if-unmodified-since"],
        _ => &[],
    };
    let dropped = ["if-match", "if-none-match", "if-unmodified-since"]
        .into_iter()
        .find(|name| headers.contains_key(*name) && !looked_at.contains(name));
    match dropped {
        None => Ok(()),
        Some(name) => Err(not_implemented(&format!("{operation} with {name}"))),
    }
}

/// The value of a header that is stored with an object.
///
/// # Errors
/// The header is repeated or not text, so a part of it would be lost.
pub(crate) fn stored_header(headers: &HeaderMap, name: &str) -> S3Result<Option<String>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid_argument(format!("{name} is there more than once")));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.to_owned()).filter(|text| !text.is_empty())),
        Err(_) => Err(invalid_argument(format!("{name} is not valid UTF-8"))),
    }
}
