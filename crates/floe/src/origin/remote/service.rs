//! An HTTP client for `object_store` that keeps the origin's error response, so
//! that errors keep their meaning.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};

use super::convert::is_visible;
use super::redirect::{RedirectRejected, Redirects, Shuffled};

use crate::origin::error::OriginError;

/// Most bytes to read of an error response's body.
pub(super) const ERROR_BODY_BYTES_MAX: usize = 16 * 1024;

/// Connects as `object_store` does with the options of [`client_options`],
/// limits redirects, and wraps the client in [`Explaining`].
///
/// [`client_options`]: super::open::client_options
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub(super) redirects: Redirects,
    pub(super) connect_timeout: Duration,
    pub(super) max_idle_per_host: usize,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The instance metadata services that issue credentials use HTTP.
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let client = reqwest::Client::builder()
            .user_agent(concat!("floe/", env!("CARGO_PKG_VERSION")))
            .redirect(self.redirects.clone().policy())
            .dns_resolver(Arc::new(Shuffled))
            .connect_timeout(self.connect_timeout)
            .pool_max_idle_per_host(self.max_idle_per_host)
            .http1_only()
            // A decoded body would be longer than announced.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .https_only(allow_http.as_deref() != Some("true"))
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP client",
                source: Box::new(error),
            })?;
        Ok(HttpClient::new(Explaining(HttpClient::new(client))))
    }
}

#[derive(Debug)]
struct Explaining(HttpClient);

/// A response without the requested bytes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ErrorResponse {
    /// An error status.
    #[error("{status}: {message}")]
    Status {
        status: u16,
        /// S3's code, such as `NoSuchBucket`; empty if there is none.
        code: String,
        message: String,
    },
    /// The server sent the whole object instead of a range.
    #[error("the server does not serve ranges")]
    NotPartial,
}

#[async_trait]
impl HttpService for Explaining {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_range = request.method() == "GET" && request.headers().contains_key("range");
        let mut response = self.0.execute(request).await?;
        encode_texts(response.headers_mut());
        let status = response.status().as_u16();
        if is_range && status == 200 {
            return Err(HttpError::new(
                HttpErrorKind::Decode,
                ErrorResponse::NotPartial,
            ));
        }
        if status < 400 && status != 304 {
            if let Some(is_hit) = cache_said(response.headers()) {
                response.extensions_mut().insert(FromCache(is_hit));
            }
            return Ok(response);
        }
        let mut body = BytesMut::new();
        let mut pieces = response.into_body().bytes_stream();
        while body.len() < ERROR_BODY_BYTES_MAX {
            match pieces.next().await {
                Some(Ok(piece)) => body.extend_from_slice(&piece),
                Some(Err(_)) | None => break,
            }
        }
        body.truncate(ERROR_BODY_BYTES_MAX);
        let (code, message) = error_document(&body);
        let response = ErrorResponse::Status {
            status,
            code,
            message,
        };
        Err(HttpError::new(HttpErrorKind::Decode, response))
    }
}

/// The report of an intermediate cache: true for a hit.
#[derive(Clone, Copy, Debug)]
struct FromCache(bool);

pub(super) fn cache_said(headers: &HeaderMap) -> Option<bool> {
    let value = headers.get("x-floe-cache").or(headers.get("x-cache"))?;
    let value = value.to_str().ok()?.to_ascii_lowercase();
    let is_hit = value.contains("hit");
    // `joined` means fetched for another request: not a hit.
    let is_known = is_hit || value.contains("miss") || value == "joined";
    is_known.then_some(is_hit)
}

/// True if an intermediate cache reported a hit; `None` without a report.
pub(super) fn from_cache(result: &object_store::GetResult) -> Option<bool> {
    let from_cache = result.extensions.get::<FromCache>();
    from_cache.map(|FromCache(is_hit)| *is_hit)
}

/// Encodes non-ASCII values as encoded words (RFC 2047), as Amazon does.
/// Otherwise `object_store` could not read the object.
pub(super) fn encode_texts(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        if value.as_bytes().iter().copied().all(is_visible) {
            continue;
        }
        let charset = match std::str::from_utf8(value.as_bytes()) {
            Ok(_) => "UTF-8",
            Err(_) => "ISO-8859-1",
        };
        let letters: String = value
            .as_bytes()
            .iter()
            .map(|byte| match byte {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(*byte).to_string(),
                byte => format!("={byte:02X}"),
            })
            .collect();
        // The text is ASCII.
        if let Ok(encoded) = HeaderValue::try_from(format!("=?{charset}?Q?{letters}?=")) {
            *value = encoded;
        }
    }
}

/// Code and message of an error document; other text is the message.
pub(super) fn error_document(document: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(document);
    let message = element(&text, "Message");
    (
        element(&text, "Code").unwrap_or_default(),
        message.unwrap_or_else(|| text.chars().take(200).collect()),
    )
}

/// The text of an XML element without children, as in error documents.
fn element(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.to_owned())
}

/// Finds an error of type `T` in the chain of causes.
fn cause<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        current = error.source();
    }
    None
}

pub(super) fn is_not_partial(error: &object_store::Error) -> bool {
    matches!(
        cause::<ErrorResponse>(error),
        Some(ErrorResponse::NotPartial)
    )
}

/// Converts an error; `name` is the object or bucket requested.
pub(super) fn meaning(error: object_store::Error, name: &str) -> OriginError {
    if let Some(ErrorResponse::Status {
        status,
        code,
        message,
    }) = cause::<ErrorResponse>(&error)
    {
        return status_meaning(*status, code, message, name);
    }
    if let Some(rejected) = cause::<RedirectRejected>(&error) {
        return OriginError::Protocol(rejected.to_string());
    }
    if let Some(http) = cause::<HttpError>(&error) {
        let text = innermost(http);
        return match http.kind() {
            HttpErrorKind::Timeout => OriginError::Timeout(Duration::ZERO),
            HttpErrorKind::Decode => OriginError::Protocol(text),
            _ => OriginError::Unreachable(text),
        };
    }
    match error {
        object_store::Error::NotFound { .. } => OriginError::NotFound(name.to_owned()),
        object_store::Error::NotModified { .. } => OriginError::NotModified,
        object_store::Error::Precondition { .. } | object_store::Error::AlreadyExists { .. } => {
            OriginError::PreconditionFailed
        }
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => {
            OriginError::AccessDenied(innermost(&error))
        }
        object_store::Error::InvalidPath { .. } => OriginError::InvalidKey {
            key: name.to_owned(),
            reason: innermost(&error),
        },
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            OriginError::Unsupported(error.to_string())
        }
        other => OriginError::Protocol(format!("{other}: {}", innermost(&other))),
    }
}

pub(super) fn status_meaning(status: u16, code: &str, message: &str, name: &str) -> OriginError {
    let message = || match (code, message) {
        ("", "") => format!("HTTP {status}"),
        ("", message) => message.to_owned(),
        (code, message) => format!("{code}: {message}"),
    };
    match (status, code) {
        (404, "NoSuchBucket") => {
            OriginError::NoSuchBucket(name.split('/').next().unwrap_or_default().to_owned())
        }
        (404, "NoSuchUpload") => OriginError::NoSuchUpload(name.to_owned()),
        (404 | 410, _) => OriginError::NotFound(name.to_owned()),
        (304, _) => OriginError::NotModified,
        // S3 reports conflicting conditional writes as 409.
        (412, _) | (409, "ConditionalRequestConflict") => OriginError::PreconditionFailed,
        (416, _) => OriginError::RangeNotSatisfiable { size: None },
        (401 | 403, _) => OriginError::AccessDenied(message()),
        (400, "InvalidPartOrder") => OriginError::InvalidPartOrder,
        (400, "InvalidPart" | "EntityTooSmall") => OriginError::InvalidPart(message()),
        (408 | 429 | 500.., _) => OriginError::Server {
            status,
            message: message(),
        },
        _ => OriginError::Rejected {
            status,
            message: message(),
        },
    }
}

/// The innermost cause is the most specific, and contains no URL.
pub(super) fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
