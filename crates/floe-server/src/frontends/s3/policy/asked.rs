//! The rights that a request needs. Everything that is not known to need less needs the right to
//! write the whole bucket.

use http::{HeaderMap, Method, Uri};
use s3s::S3Result;
use s3s::dto::CopySource;

use super::{KeyAccess, Rights};
use crate::frontends::s3::kept::is_everywhere;
use crate::frontends::s3::passable::names_other_buckets;
use crate::frontends::s3::query::Query;
use crate::frontends::s3::target::Domains;

/// Parameters of listings of objects, versions and uploads.
const OF_LISTINGS: [&str; 16] = [
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-uploads",
    "prefix",
    "start-after",
    "upload-id-marker",
    "uploads",
    "version-id-marker",
    "versions",
    "x-id",
];

/// Parameters of a change of the object that the URL names.
const OF_CHANGES: [&str; 9] = [
    "acl",
    "legal-hold",
    "partNumber",
    "retention",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "x-id",
];

pub(crate) const COPY_SOURCE: &str = "x-amz-copy-source";

impl Rights {
    /// Checks a request by its head. The keys in the document of a `DeleteObjects`, and the
    /// buckets in the answer to `ListBuckets`, are left to be checked.
    ///
    /// # Errors
    /// No policy allows it.
    pub(crate) fn admit(
        &self,
        domains: &Domains,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> S3Result<()> {
        if !self.is_restricted() {
            return Ok(());
        }
        let Some(target) = domains.certain_target(uri, headers) else {
            return Err(self.deny("send a URL that readers could understand differently"));
        };
        // Some servers take it for the end of a parameter.
        if uri.query().is_some_and(|query| query.contains(';')) {
            return Err(self.deny("send a `;` in a query, except as %3B"));
        }
        let query = Query::of(uri);
        match (&target.bucket, &target.key) {
            (None, _) => self.require(method.is_safe(), || "change the service".into()),
            (Some(bucket), None) => self.admit_to_bucket(method, bucket, &query),
            (Some(bucket), Some(key)) => {
                self.admit_to_object(method, bucket, key, &query)?;
                self.admit_sources(&query, headers)
            }
        }
    }

    fn admit_to_bucket(&self, method: &Method, bucket: &str, query: &Query) -> S3Result<()> {
        let only = |known: &[&str]| {
            let mut names = query.iter().map(|(name, _)| name);
            names.all(|name| known.contains(&name) || is_everywhere(&name.to_ascii_lowercase()))
        };
        let has_no_body = *method == Method::HEAD || *method == Method::OPTIONS;
        if (has_no_body && only(&["x-id"]))
            || (*method == Method::GET && query.has("location") && only(&["location", "x-id"]))
        {
            return self.require(self.has_bucket(bucket), || format!("use {bucket}"));
        }
        if *method == Method::GET && only(&OF_LISTINGS) {
            // A repeated one could count as none.
            let prefix = query.only("prefix").unwrap_or_default();
            return self.require_object(KeyAccess::Read, bucket, prefix);
        }
        if *method == Method::POST && query.has("delete") && only(&["delete", "x-id"]) {
            let deletes =
                |rule: &super::KeyPolicy| rule.access == KeyAccess::Write && rule.names(bucket);
            return self.require(self.any(deletes), || format!("delete from {bucket}"));
        }
        self.require_whole(method, bucket, query)
    }

    fn admit_to_object(
        &self,
        method: &Method,
        bucket: &str,
        key: &str,
        query: &Query,
    ) -> S3Result<()> {
        if method.is_safe() {
            return self.require_object(KeyAccess::Read, bucket, key);
        }
        self.require_object(KeyAccess::Write, bucket, key)?;
        let is_of_object = query.iter().all(|(name, _)| {
            // Parameters of S3's own names are headers in a presigned URL.
            OF_CHANGES.contains(&name) || name.to_ascii_lowercase().starts_with("x-amz-")
        });
        match is_of_object {
            true => Ok(()),
            // It may change, or read, other objects.
            false => self.require_whole(method, bucket, query),
        }
    }

    fn require_whole(&self, method: &Method, bucket: &str, query: &Query) -> S3Result<()> {
        let everywhere = !method.is_safe() && names_other_buckets(query);
        let is_allowed = self.any(|rule| {
            rule.is_whole(KeyAccess::Write)
                && match everywhere {
                    true => rule.buckets.iter().any(|name| name == super::ALL_BUCKETS),
                    false => rule.names(bucket),
                }
        });
        self.require(is_allowed, || match everywhere {
            true => "name other buckets in settings".into(),
            false => format!("change the bucket {bucket} or see its settings"),
        })
    }

    /// The sources of copies, in headers and in parameters that a presigned URL has for them.
    fn admit_sources(&self, query: &Query, headers: &HeaderMap) -> S3Result<()> {
        for value in headers.get_all(COPY_SOURCE) {
            self.admit_source(value.to_str().ok())?;
        }
        for (name, value) in query.iter() {
            if name.eq_ignore_ascii_case(COPY_SOURCE) {
                self.admit_source(Some(value))?;
            }
        }
        Ok(())
    }

    fn admit_source(&self, source: Option<&str>) -> S3Result<()> {
        let (bucket, key) = source
            .and_then(certain_source)
            .ok_or_else(|| self.deny("copy from a source that is no encoded bucket and key"))?;
        self.require_object(KeyAccess::Read, &bucket, &key)
    }
}

/// Bucket and key of a source that every server finds there: some end it at a `?` or a `#`, and
/// some take a `+` for a space.
fn certain_source(source: &str) -> Option<(String, String)> {
    let (path, _) = source.split_once("?versionId=").unwrap_or((source, ""));
    if path.contains(['?', '#', '+']) {
        return None;
    }
    match CopySource::parse(source).ok()? {
        CopySource::Bucket { bucket, key, .. } => Some((bucket.into(), key.into())),
        _ => None,
    }
}
