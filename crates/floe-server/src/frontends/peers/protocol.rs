//! The questions of nodes: two paths, each with a question in JSON.
//!
//! ```text
//! POST /v1/holds   Holds    204 the node probably holds the byte; 404 it does not
//! POST /v1/bytes   Wanted   200 the first bytes of the range, as many as there are; 404 none
//! ```
//!
//! 403 is a wrong secret, 421 a question of the node to itself.

use std::ops::Range;
use std::time::SystemTime;

use floe::object::{ObjectKey, ObjectMeta, WantedBytes};
use http::HeaderName;
use serde::{Deserialize, Serialize};

pub(super) const HOLDS: &str = "/v1/holds";
pub(super) const BYTES: &str = "/v1/bytes";

/// A random number of the asking node, which differs from start to start.
pub(super) const X_FLOE_FROM: HeaderName = HeaderName::from_static("x-floe-from");

/// The question for an object's byte, of any version.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Holds {
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) offset: u64,
}

impl Holds {
    pub(super) fn new(key: &ObjectKey, offset: u64) -> Self {
        Holds {
            bucket: key.bucket().to_owned(),
            key: key.key().to_owned(),
            offset,
        }
    }
}

/// Bytes of one version of an object.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) bucket: String,
    pub(super) key: String,
    size: u64,
    etag: Option<String>,
    last_modified: Option<SystemTime>,
    start: u64,
    end: u64,
}

impl Wanted {
    pub(super) fn new(wanted: &WantedBytes<'_>) -> Self {
        let WantedBytes { key, meta, range } = wanted;
        Wanted {
            bucket: key.bucket().to_owned(),
            key: key.key().to_owned(),
            size: meta.size,
            etag: meta.etag.clone(),
            last_modified: meta.last_modified,
            start: range.start,
            end: range.end,
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// The version's validators and size; the rest of its metadata is not known.
    pub(super) fn meta(&self) -> ObjectMeta {
        ObjectMeta {
            size: self.size,
            etag: self.etag.clone(),
            last_modified: self.last_modified,
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn names_and_versions_of_all_kinds_survive() {
        let meta = ObjectMeta {
            size: u64::MAX,
            etag: Some("\"a\u{7f}ü\n\"".into()),
            last_modified: Some(UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789)),
            ..ObjectMeta::default()
        };
        let key = ObjectKey::new("bucket", "a/\0\u{1f980}\r\n");
        let range = 5..u64::MAX;
        let wanted = WantedBytes {
            key: &key,
            meta: &meta,
            range,
        };
        let wanted = Wanted::new(&wanted);
        let text = serde_json::to_vec(&wanted).unwrap();
        let read: Wanted = serde_json::from_slice(&text).unwrap();
        assert_eq!((read.meta(), read.range()), (meta, 5..u64::MAX));
        assert_eq!(
            (read.bucket.as_str(), read.key.as_str()),
            (key.bucket(), key.key())
        );
        let holds = serde_json::to_vec(&Holds::new(&key, 7)).unwrap();
        let holds: Holds = serde_json::from_slice(&holds).unwrap();
        assert_eq!((holds.key.as_str(), holds.offset), (key.key(), 7));
    }
}
