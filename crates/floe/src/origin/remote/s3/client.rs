//! A client of S3 that sends any request: keys that `object_store` cannot name, and clients'
//! own requests.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use percent_encoding::percent_encode;

use super::pools::{Body, HttpClientBuilder, Pools};
use super::sign::{PATH, Scope, Signer, X_AMZ_CONTENT_SHA256};
use crate::origin::config::OriginConfig;
use crate::origin::config_error::OriginConfigError;
use crate::origin::error::OriginError;
use crate::origin::forward::{OriginKeys, SignedTarget};
use crate::origin::remote::open;
use crate::origin::remote::redirect::Redirects;
use crate::origin::remote::service::{ERROR_BODY_BYTES_MAX, innermost};
use crate::origin::types::OriginBody;

/// A client of an S3 service.
pub(in crate::origin::remote) struct S3Client {
    pools: Pools,
    scheme: Scheme,
    authority: Authority,
    /// The path of the endpoint, without a slash at its end.
    root: String,
    virtual_host_style: bool,
    /// Of reads; other requests follow none.
    pub(super) redirects: Redirects,
    region: String,
    /// `None` sends requests unsigned.
    credentials: Option<AwsCredentialProvider>,
}

/// The keys that sign a request.
pub(super) enum SignedBy {
    /// Those of the settings, if there are any.
    Settings,
    Keys(Arc<OriginKeys>),
    Unsigned,
}

/// The target of a request, in the origin's names.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) bucket: Option<String>,
    pub(super) key: Option<String>,
    pub(super) query: Option<String>,
}

impl Target {
    /// Bucket and key, for errors.
    pub(super) fn name(&self) -> String {
        let parts = [&self.bucket, &self.key].into_iter().flatten();
        parts.cloned().collect::<Vec<_>>().join("/")
    }
}

impl S3Client {
    /// # Errors
    /// The settings allow no client.
    pub(in crate::origin::remote) fn open(
        config: &OriginConfig,
    ) -> Result<Self, OriginConfigError> {
        let failed = |error: String| OriginConfigError::Open(error);
        let endpoint = open::endpoint(config);
        let uri: Uri = endpoint
            .parse()
            .map_err(|error| failed(format!("{endpoint}: {error}")))?;
        let builder = HttpClientBuilder::new(config, &uri).map_err(failed)?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(failed(format!("{endpoint}: it names no host")));
        };
        let path = parts.path_and_query;
        let root = path.as_ref().map_or("", |path| path.path());
        Ok(S3Client {
            pools: Pools::new(builder),
            scheme,
            authority,
            root: root.trim_end_matches('/').to_owned(),
            virtual_host_style: config.virtual_host_style,
            redirects: Redirects::new(&config.redirects),
            region: open::region(config),
            credentials: open::credentials(config).map_err(|error| failed(error.to_string()))?,
        })
    }

    /// The URL of a target.
    pub(super) fn uri(&self, target: &Target) -> Result<Uri, OriginError> {
        let invalid = |reason: String| OriginError::InvalidKey {
            key: target.key.clone().unwrap_or_default(),
            reason,
        };
        let bucket = target.bucket.as_deref();
        let authority = match bucket.filter(|_| self.virtual_host_style) {
            Some(bucket) => open::host_of_bucket(self.authority.as_str(), bucket)
                .parse()
                .map_err(|error: http::uri::InvalidUri| invalid(error.to_string()))?,
            None => self.authority.clone(),
        };
        let mut path = self.root.clone();
        if let Some(bucket) = bucket.filter(|_| !self.virtual_host_style) {
            path.push('/');
            path.push_str(bucket);
        }
        // Every key has one encoding here. Servers differ in what they take a plus sign for, and
        // the cache must invalidate the key that the origin changes.
        if let Some(key) = &target.key {
            path.push('/');
            path.extend(percent_encode(key.as_bytes(), PATH));
        }
        if path.is_empty() {
            path.push('/');
        }
        if let Some(query) = &target.query {
            path.push('?');
            path.push_str(query);
        }
        let path: PathAndQuery = path
            .parse()
            .map_err(|error: http::uri::InvalidUri| invalid(error.to_string()))?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(authority)
            .path_and_query(path)
            .build()
            .map_err(|error| invalid(error.to_string()))
    }

    /// The host name of the endpoint.
    ///
    /// # Errors
    /// The endpoint has a path, which no client's signature covers.
    pub(in crate::origin::remote) fn signed_host(&self) -> Result<String, OriginError> {
        match self.root.is_empty() {
            true => Ok(self.authority.host().to_ascii_lowercase()),
            false => Err(OriginError::Unsupported(
                "verify clients' own signatures below the path of origin.endpoint; name an \
                 endpoint without a path"
                    .into(),
            )),
        }
    }

    /// Sends a request that its client signed for this service.
    pub(super) async fn send_signed(
        &self,
        (method, target, mut headers): (Method, SignedTarget, HeaderMap),
        body: Body,
    ) -> Result<Response<Incoming>, OriginError> {
        let protocol = |error: http::Error| OriginError::Protocol(error.to_string());
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(target.path_and_query)
            .build()
            .map_err(protocol)?;
        let host = HeaderValue::try_from(target.host);
        headers.insert(HOST, host.map_err(|error| protocol(error.into()))?);
        require_length(&method, &mut headers, &body);
        self.request(method, uri, headers, body).await
    }

    /// Sends a request. An answer of any status is returned.
    pub(super) async fn send(
        &self,
        (method, uri, mut headers): (Method, Uri, HeaderMap),
        payload: &str,
        body: Body,
        signed_by: SignedBy,
    ) -> Result<Response<Incoming>, OriginError> {
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(host)
            .map_err(|error| OriginError::Protocol(error.to_string()))?;
        headers.insert(HOST, host);
        // Some servers require it of unsigned requests, too, if the body has a trailer.
        let hash = HeaderValue::from_str(payload)
            .map_err(|error| OriginError::Protocol(error.to_string()))?;
        headers.insert(X_AMZ_CONTENT_SHA256, hash);
        require_length(&method, &mut headers, &body);
        let credential = match (signed_by, &self.credentials) {
            (SignedBy::Keys(keys), _) => Some(Arc::new(AwsCredential {
                key_id: keys.access_key.clone(),
                secret_key: keys.secret_key.clone(),
                token: None,
            })),
            (SignedBy::Settings, Some(credentials)) => {
                let credential = credentials.get_credential().await;
                Some(credential.map_err(open::credential_error)?)
            }
            (SignedBy::Settings, None) | (SignedBy::Unsigned, _) => None,
        };
        if let Some(credential) = credential {
            let signer = Signer {
                credential: &credential,
                scope: Scope {
                    service: "s3",
                    region: &self.region,
                },
                now: SystemTime::now(),
            };
            signer.sign(&method, &uri, &mut headers, payload)?;
        }
        self.request(method, uri, headers, body).await
    }

    async fn request(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, OriginError> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        self.pools.request(request).await.map_err(unanswered)
    }
}

/// Announces that a request that usually has a body has none.
fn require_length(method: &Method, headers: &mut HeaderMap, body: &Body) {
    let takes_body = matches!(*method, Method::PUT | Method::POST | Method::PATCH);
    if takes_body && body.is_end_stream() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

pub(super) fn no_body() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// The bytes of an answer.
pub(super) fn body_of(response: Incoming) -> OriginBody {
    let pieces = response.into_data_stream();
    Box::pin(pieces.map_err(|error| broken(&error)))
}

/// The beginning of an error's body: all of it, if it is a document.
pub(super) async fn error_body(body: &mut OriginBody) -> Result<Bytes, OriginError> {
    let mut document = BytesMut::new();
    while document.len() < ERROR_BODY_BYTES_MAX {
        match body.next().await {
            Some(piece) => document.extend_from_slice(&piece?),
            None => break,
        }
    }
    Ok(document.freeze())
}

pub(super) fn unanswered(error: ClientError) -> OriginError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<hyper::Error>() {
            return broken(http);
        }
        cause = error.source();
    }
    OriginError::Unreachable(innermost(&error))
}

fn broken(error: &hyper::Error) -> OriginError {
    let text = innermost(error);
    match error.is_parse() {
        true => OriginError::Protocol(text),
        // An upload whose source failed ends here as well; its own error is known to its caller.
        false => OriginError::Unreachable(text),
    }
}
