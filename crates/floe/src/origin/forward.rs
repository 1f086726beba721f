//! A client's own request on its way to an S3 origin, and the origin's own answer.

use std::sync::Arc;

use http::header::{CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::error::OriginError;
use super::stats::OriginOperation;
use super::turn::UploadTurn;
use super::types::{OriginBody, UploadBody, debug_fields};

/// Headers of a connection (RFC 9110 §7.6.1).
const OF_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// A request that an S3 origin receives as its client wrote it, with the origin's signature or
/// the client's own.
pub struct ForwardRequest {
    /// All but the body.
    pub head: ForwardHead,
    /// The body; `None` sends none.
    pub body: Option<ForwardBody>,
}

debug_fields!(ForwardRequest: head);

/// The head of a [`ForwardRequest`].
#[derive(Clone)]
pub struct ForwardHead {
    /// The method.
    pub method: Method,
    /// The bucket as clients name it; `None` addresses the service.
    pub bucket: Option<String>,
    /// The key, decoded; `None` addresses the bucket.
    pub key: Option<String>,
    /// The URL's query as it came, without credentials.
    pub query: Option<String>,
    /// The headers, without credentials and without those of the client's connection.
    pub headers: HeaderMap,
    /// The hash of the body that the signature covers.
    pub payload: PayloadHash,
    /// Whose signature the origin sees.
    pub signing: Signing,
}

/// Whose signature a request has at the origin.
#[derive(Clone, Debug, Default)]
pub enum Signing {
    /// That of the origin's settings.
    #[default]
    Origin,
    /// One by these keys of the origin.
    Keys(Arc<OriginKeys>),
    /// The client's own, for this target. The request is sent with all its headers, and the
    /// client gets every answer, those about credentials included.
    Client(SignedTarget),
}

/// A pair of keys of an S3 origin.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginKeys {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret_key: String,
}

// Not the secret.
debug_fields!(OriginKeys: access_key);

// Not the headers and the query: they may have signatures.
debug_fields!(ForwardHead: method, bucket, key);

/// The parts of a request's target as the client signed them.
#[derive(Clone)]
pub struct SignedTarget {
    /// The host, with the port if the client wrote it.
    pub host: String,
    /// The path and the query.
    pub path_and_query: String,
}

debug_fields!(SignedTarget: host);

/// A signed statement of a body's bytes (`x-amz-content-sha256`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadHash {
    /// The SHA-256 of the body in hexadecimal, as the client announced it.
    Sha256(String),
    /// The body is not signed.
    Unsigned,
    /// The body has chunks and a trailer (`aws-chunked`), which are not signed.
    UnsignedTrailer,
}

impl PayloadHash {
    /// The SHA-256 of no bytes.
    pub const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// The header's value.
    pub fn as_str(&self) -> &str {
        match self {
            PayloadHash::Sha256(hash) => hash,
            PayloadHash::Unsigned => "UNSIGNED-PAYLOAD",
            PayloadHash::UnsignedTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        }
    }
}

/// The body of a [`ForwardRequest`].
pub struct ForwardBody {
    /// Its bytes, if known; sent in chunks of HTTP otherwise.
    pub length: Option<u64>,
    /// The bytes.
    pub pieces: UploadBody,
    /// Its turn, if the caller has waited for one.
    pub turn: Option<UploadTurn>,
}

debug_fields!(ForwardBody: length);

impl ForwardHead {
    /// True if it changes nothing, so that it may be sent again.
    pub(super) fn is_safe(&self) -> bool {
        self.method.is_safe()
    }

    /// The counters that it belongs to.
    pub(super) fn operation(&self) -> OriginOperation {
        let query = self.query.as_deref().unwrap_or_default();
        let has = |name: &str| {
            let mut pairs = query.split('&');
            pairs.any(|pair| pair.split('=').next() == Some(name))
        };
        let has_key = self.key.is_some();
        match self.method {
            _ if has("uploadId") || has("uploads") => OriginOperation::Multipart,
            Method::HEAD => OriginOperation::Head,
            Method::GET if has_key => OriginOperation::Get,
            Method::GET => OriginOperation::List,
            Method::DELETE => OriginOperation::Delete,
            Method::POST if has("delete") => OriginOperation::Delete,
            _ => OriginOperation::Put,
        }
    }
}

/// The origin's answer to a [`ForwardRequest`], errors included.
pub struct ForwardAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers, without those of the origin's connection.
    pub headers: HeaderMap,
    /// The bytes.
    pub body: OriginBody,
}

debug_fields!(ForwardAnswer: status);

impl ForwardAnswer {
    /// The error that the counters of requests take the answer for.
    pub(super) fn counts_as(&self) -> Option<OriginError> {
        let status = self.status.as_u16();
        let message = String::new;
        match status {
            ..400 => None,
            404 | 410 => Some(OriginError::NotFound(message())),
            412 => Some(OriginError::PreconditionFailed),
            408 | 429 | 500.. => Some(OriginError::Server {
                status,
                message: message(),
            }),
            _ => Some(OriginError::Rejected {
                status,
                message: message(),
            }),
        }
    }
}

/// Removes the headers that concern a connection only, and those that `Connection` names.
pub fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}
