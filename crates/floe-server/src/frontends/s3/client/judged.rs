//! The version of an object that the origin judged a request for.

use std::time::SystemTime;

use floe::object::ObjectMeta;
use http::HeaderMap;
use http::header::{ETAG, LAST_MODIFIED};

/// Longest entity tag to remember.
const ETAG_BYTES_MAX: usize = 256;

/// The version that the origin's answer was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    etag: String,
    last_modified: Option<SystemTime>,
}

/// True for a tag that names one version only, and that can be remembered.
pub(super) fn is_usable(tag: &str) -> bool {
    !tag.starts_with("W/") && tag.len() <= ETAG_BYTES_MAX
}

fn last_modified(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(LAST_MODIFIED)?.to_str().ok()?;
    httpdate::parse_http_date(text).ok()
}

impl Judged {
    /// The version of an answer with an object.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let etag = headers.get(ETAG)?.to_str().ok()?;
        is_usable(etag).then(|| Judged {
            etag: etag.to_owned(),
            last_modified: last_modified(headers),
        })
    }

    /// The cached version that a 304 was about.
    pub(super) fn not_modified(meta: &ObjectMeta, headers: &HeaderMap) -> Option<Self> {
        let etag = meta.etag.clone()?;
        let said = Judged::of(headers);
        let judged = Judged {
            etag,
            last_modified: last_modified(headers),
        };
        let is_other = said.is_some_and(|said| said.etag != judged.etag);
        // Metadata can change under the same tag: only the time tells it.
        let is_timed = judged.last_modified.is_some() || meta.last_modified.is_none();
        (!is_other && is_timed && judged.is(meta)).then_some(judged)
    }

    /// True if it is this version.
    pub(super) fn is(&self, meta: &ObjectMeta) -> bool {
        let is_time = self.last_modified.is_none() || self.last_modified == meta.last_modified;
        meta.etag.as_ref() == Some(&self.etag) && is_time
    }
}
