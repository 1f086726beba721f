//! Multipart uploads to cache-only buckets.
//!
//! Each part is stored like an object of its own. The completion copies the parts into the
//! object, except for an upload of one part, which becomes the object as it is.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::origin::UploadInfo;
use crate::origin::uploads::PendingUpload;

/// Age of a pending upload that counts as abandoned.
const ABANDONED_AFTER_SECONDS: u64 = 24 * 60 * 60;

pub(super) fn encode(upload: &impl Serialize) -> Vec<u8> {
    // Texts and lists of texts are always JSON.
    serde_json::to_vec(upload).unwrap_or_default()
}

pub(super) fn decode<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    serde_json::from_slice(json).ok()
}

/// A new id: the time in seconds, then random bits.
pub(super) fn new_id(unix_seconds: u64) -> String {
    format!("{unix_seconds:016x}{:016x}", rand::random::<u64>())
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
    let upload: PendingUpload = decode(json)?;
    if !upload.is_in(bucket) {
        return None;
    }
    let seconds = u64::from_str_radix(id.get(..16)?, 16).ok()?;
    Some(UploadInfo {
        key: upload.key,
        upload: id.to_owned(),
        initiated: UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
    })
}
