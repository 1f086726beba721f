//! Multipart uploads to cache-only buckets.
//!
//! Each part is stored like an object of its own. The completion copies the parts into the
//! object, except for an upload of one part, which becomes the object as it is.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::origin::{Attributes, CompleteRequest, ObjectKey, PutResponse, UploadInfo, hexadecimal};

/// Age of a pending upload that counts as abandoned.
const ABANDONED_AFTER_SECONDS: u64 = 24 * 60 * 60;

/// A pending upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Upload {
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) attributes: Attributes,
}

/// The answer of a completed upload, to a client that asks again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Completed {
    bucket: String,
    key: String,
    /// The hash of its parts' numbers and tags.
    parts: String,
    etag: Option<String>,
}

impl Upload {
    pub(super) fn encode(&self) -> Vec<u8> {
        // Texts and lists of texts are always JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub(super) fn name(&self) -> ObjectKey {
        ObjectKey::new(self.bucket.as_str(), self.key.as_str())
    }
}

impl Completed {
    pub(super) fn new(name: &ObjectKey, request: &CompleteRequest, etag: Option<String>) -> Self {
        Completed {
            bucket: name.bucket().to_owned(),
            key: name.key().to_owned(),
            parts: request.hash_of_parts(),
            etag,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The answer, if the request is the one that was completed.
    pub(super) fn answer(
        json: &[u8],
        name: &ObjectKey,
        request: &CompleteRequest,
    ) -> Option<PutResponse> {
        let known: Completed = serde_json::from_slice(json).ok()?;
        let is_same = known.bucket == name.bucket()
            && known.key == name.key()
            && known.parts == request.hash_of_parts();
        is_same.then_some(PutResponse { etag: known.etag })
    }
}

/// A new id: the time in seconds, then random bits.
pub(super) fn new_id(unix_seconds: u64) -> String {
    format!("{unix_seconds:016x}{:016x}", rand::random::<u64>())
}

/// True for the form of ids.
pub(super) fn is_id(upload: &str) -> bool {
    hexadecimal::has_digits(upload, 32)
}

/// Ids below it are those of abandoned uploads.
pub(super) fn id_of_oldest(unix_seconds: u64) -> String {
    format!(
        "{:016x}",
        unix_seconds.saturating_sub(ABANDONED_AFTER_SECONDS)
    )
}

/// Describes an upload, if it is one of the bucket.
pub(super) fn info(bucket: &str, id: &str, json: &[u8]) -> Option<UploadInfo> {
    let upload = Upload::decode(json).filter(|upload| upload.bucket == bucket)?;
    let seconds = u64::from_str_radix(id.get(..16)?, 16).ok()?;
    Some(UploadInfo {
        key: upload.key,
        upload: id.to_owned(),
        initiated: UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
    })
}
