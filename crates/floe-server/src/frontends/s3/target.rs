//! The target of a request: bucket and key, from host name and path.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;
use s3s::host::{S3Host, VirtualHost};
use s3s::path::{ParseS3PathError, S3Path, parse_path_style, parse_virtual_hosted_style};
use s3s::{S3ErrorCode, S3Result};

use super::error::with;

/// The domains whose subdomains are buckets. Every other host name, with or
/// without port, is path style, since clients reach a cache under many names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Domains(Vec<String>);

/// The target of a request.
pub(crate) struct Target {
    pub(crate) bucket: Option<String>,
    /// The decoded key.
    pub(crate) key: Option<String>,
}

impl Domains {
    pub(crate) fn new(domains: &[String]) -> Self {
        Domains(domains.iter().map(|d| d.to_ascii_lowercase()).collect())
    }

    fn bucket<'a>(&self, host: &'a str) -> Option<&'a str> {
        // As in the library.
        if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let name = without_port(host);
        self.0.iter().find_map(|domain| {
            let split = name.len().checked_sub(domain.len() + 1)?;
            let (bucket, rest) = name.split_at_checked(split)?;
            let below = rest.strip_prefix('.')?.eq_ignore_ascii_case(domain);
            (below && !bucket.is_empty()).then_some(bucket)
        })
    }

    /// True if a host name selects a bucket.
    pub(crate) fn names_bucket(&self, host: &str) -> bool {
        self.bucket(host).is_some()
    }

    /// The target of a request as it came.
    pub(crate) fn target(&self, uri: &Uri, headers: &HeaderMap) -> Option<Target> {
        let host = host(uri, headers)?;
        let raw = uri.path().strip_prefix('/')?;
        let decoded = |text: &str| {
            percent_decode_str(text)
                .decode_utf8()
                .ok()
                .map(String::from)
        };
        let (bucket, path) = match self.bucket(host) {
            Some(bucket) => (bucket.to_ascii_lowercase(), uri.path()),
            None => {
                let end = raw.find('/').unwrap_or(raw.len());
                (decoded(&raw[..end])?, &raw[end..])
            }
        };
        let key = decoded(path.strip_prefix('/').unwrap_or_default())?;
        Some(Target {
            bucket: Some(bucket).filter(|bucket| !bucket.is_empty()),
            key: Some(key).filter(|key| !key.is_empty()),
        })
    }

    /// The target of a request that has one meaning for all readers.
    pub(crate) fn certain_target(&self, uri: &Uri, headers: &HeaderMap) -> Option<Target> {
        let target = self.target(uri, headers)?;
        let path = self.named(uri, headers)?.ok()?;
        let named = match &path {
            S3Path::Root => (None, None),
            S3Path::Bucket { bucket } => (Some(&**bucket), None),
            S3Path::Object { bucket, key } => (Some(&**bucket), Some(&**key)),
        };
        let is_certain = named == (target.bucket.as_deref(), target.key.as_deref());
        is_certain.then_some(target)
    }

    /// The bucket and key of a request, if it names an object.
    pub(crate) fn object(&self, uri: &Uri, headers: &HeaderMap) -> Option<(String, String)> {
        match self.named(uri, headers)?.ok()? {
            S3Path::Object { bucket, key } => Some((bucket.into(), key.into())),
            S3Path::Root | S3Path::Bucket { .. } => None,
        }
    }

    /// Rejects an invalid bucket name, with an error that describes valid ones;
    /// the library's error does not.
    pub(crate) fn require_bucket_name(&self, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
        match self.named(uri, headers) {
            Some(Err(ParseS3PathError::InvalidBucketName)) => Err(with(
                S3ErrorCode::InvalidBucketName,
                "The specified bucket is not valid: its name must be 3 to 63 lower-case letters, \
                 digits, dots and hyphens, with a letter or digit at both ends"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    fn named(&self, uri: &Uri, headers: &HeaderMap) -> Option<Result<S3Path, ParseS3PathError>> {
        let host = host(uri, headers)?;
        let path = percent_decode_str(uri.path()).decode_utf8().ok()?;
        let bucket = self.bucket(host).map(str::to_ascii_lowercase);
        Some(match &bucket {
            Some(bucket) => parse_virtual_hosted_style(Some(bucket), &path),
            None => parse_path_style(&path),
        })
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(without_port(host));
        Ok(match self.bucket(host) {
            Some(bucket) => virtual_host.with_bucket(bucket.to_ascii_lowercase()),
            None => virtual_host,
        })
    }
}

pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match headers.get(http::header::HOST) {
        Some(value) => value.to_str().ok(),
        None => Some(uri.authority().map_or("", |authority| authority.as_str())),
    }
}

pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests;
