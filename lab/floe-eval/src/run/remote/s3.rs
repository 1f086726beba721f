//! S3, through Floe's client for origins.

use std::time::Duration;

use floe::origin::{
    GetRequest, ListRequest, ObjectKey, Origin, OriginConfig, OriginError, OriginKind, PutRequest,
    RequestConfig,
};
use floe_device::Clock;
use futures::StreamExt as _;

use super::address::RemoteAddress;
use super::ask::Ask;
use crate::error::EvalError;
use crate::metrics::Served;
use crate::run::response::{Failure, Response, failed, other, pieces, written};

/// More requests than any run has in flight.
const CONCURRENT_MAX: usize = 1 << 20;

/// A server, and the client's connections to it.
pub(super) struct S3(Origin);

impl S3 {
    /// Lists one key of the bucket as a test.
    ///
    /// # Errors
    /// If the server cannot be reached, or rejects the credentials or the
    /// bucket.
    pub(super) async fn open(
        address: &RemoteAddress,
        credentials: &OriginConfig,
        timeout: Duration,
        clock: &Clock,
    ) -> Result<Self, EvalError> {
        let origin = Origin::open(&config(address, credentials, timeout), clock.clone())?;
        if let RemoteAddress::S3 { bucket, .. } = address {
            let one = ListRequest {
                max_keys: 1,
                ..ListRequest::default()
            };
            let listed = origin.list(bucket, one).await;
            if let Some(reason) = listed.err().and_then(|error| rejection(&error)) {
                let server = address.to_string();
                return Err(EvalError::Server { server, reason });
            }
        }
        Ok(S3(origin))
    }

    pub(super) async fn ask(&self, name: &ObjectKey, ask: Ask) -> Result<Response, Failure> {
        match ask {
            Ask::Get {
                offset,
                length,
                whole,
                mut check,
            } => {
                let request = GetRequest {
                    range: (!whole).then(|| offset..offset + length),
                    ..GetRequest::default()
                };
                let read = self.0.get(name, request).await.map_err(unread)?;
                let mut body = read.body;
                while let Some(piece) = body.next().await {
                    check.piece(&piece.map_err(failed)?)?;
                }
                check.finish(match read.from_cache {
                    Some(true) => Served::Hit,
                    Some(false) => Served::Miss,
                    None => Served::Read,
                })
            }
            Ask::Put { content, length } => {
                let pieces = pieces(content, length).map(|piece| Ok(piece.into()));
                let request = PutRequest {
                    length: Some(length),
                    body: futures::stream::iter(pieces).boxed(),
                    ..PutRequest::from_bytes(Default::default())
                };
                self.0.put(name, request).await.map_err(failed)?;
                Ok(written(length))
            }
            Ask::Delete => {
                self.0.delete(name).await.map_err(failed)?;
                Ok(other(0))
            }
        }
    }
}

fn config(address: &RemoteAddress, credentials: &OriginConfig, timeout: Duration) -> OriginConfig {
    let RemoteAddress::S3 { endpoint, .. } = address else {
        return credentials.clone();
    };
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    OriginConfig {
        kind: OriginKind::S3,
        allow_http: endpoint.starts_with("http://"),
        endpoint: Some(endpoint.clone()),
        region: credentials.region.clone(),
        access_key: credentials.access_key.clone(),
        secret_key: credentials.secret_key.clone(),
        session_token: credentials.session_token.clone(),
        anonymous: credentials.anonymous,
        virtual_host_style: credentials.virtual_host_style,
        requests: RequestConfig {
            max_concurrent: CONCURRENT_MAX,
            max_uploads: CONCURRENT_MAX,
            response_timeout_ms: timeout_ms,
            idle_timeout_ms: timeout_ms,
            // A retry would hide a client's failures.
            max_attempts: 1,
            ..RequestConfig::default()
        },
        ..OriginConfig::default()
    }
}

/// Cause and cure, if a server cannot be driven at all. A server that only
/// rejects listing can be.
fn rejection(error: &OriginError) -> Option<String> {
    let cure = match error {
        OriginError::NoSuchBucket(_) | OriginError::NotFound(_) => {
            "create the bucket, or name another"
        }
        OriginError::AccessDenied(_) => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to keys that the server accepts, or origin.anonymous = true to send requests unsigned"
        }
        OriginError::Unreachable(_) | OriginError::Timeout(_) => {
            "start the server, or correct the address"
        }
        OriginError::Protocol(_) => "is this an S3 server, and the URL's scheme right?",
        _ => return None,
    };
    Some(format!("{error}; {cure}"))
}

fn unread(error: OriginError) -> Failure {
    match &error {
        OriginError::NotFound(_) => Failure::Failed(format!(
            "{error}: its objects must exist; --fill writes them, --key and --object-size determine their names"
        )),
        _ => failed(error),
    }
}
