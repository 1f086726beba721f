//! The requests that bypass the operations of `s3s`: reads of objects, and with an S3 origin
//! all others.

use floe::object::{Consistency, ObjectConfig, ObjectError};
use floe::origin::OriginError;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE, ORIGIN, RANGE};
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use s3s::route::S3Route;
use s3s::{Body, S3ErrorCode, S3Request, S3Response, S3Result};

use super::auth::Access;
use super::error::s3_error;
use super::forward::Forwards;
use super::kept::is_everywhere;
use super::passable::is_stable;
use super::query::Query;
use super::range::requested_range;
use super::read::Reads;

/// Marks a request for whose object the cache has been asked.
#[derive(Clone, Copy)]
pub(super) struct WasRead;

/// Sends each request to the cache or to the origin.
pub(crate) struct Route {
    pub(crate) access: Access,
    pub(crate) reads: Reads,
    /// If the origin speaks S3.
    pub(crate) forwards: Option<Forwards>,
}

#[async_trait::async_trait]
impl S3Route for Route {
    fn is_match(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        _: &mut Extensions,
    ) -> bool {
        match &self.forwards {
            Some(forwards) => forwards.takes(uri, headers),
            None => self.reads.is_read(method, uri, headers),
        }
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        self.access
            .decide(request.credentials.is_some(), &request.extensions)
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let Some(forwards) = &self.forwards else {
            return self.reads.call(&request).await;
        };
        if request.extensions.get::<WasRead>().is_some() || !self.is_cached(&request) {
            return forwards.call(request).await;
        }
        let has_if_range = request.headers.contains_key(IF_RANGE);
        match self.reads.answer(&request).await {
            // Servers differ in what a failed If-Range means to them.
            Ok(Ok(response)) if has_if_range && response.status == Some(StatusCode::OK) => {
                forwards.call(request).await
            }
            Ok(Err(error)) if *error.code() == S3ErrorCode::PreconditionFailed => {
                forwards.call(request).await
            }
            Ok(response) => response,
            Err(error) if is_the_origins(&error, self.reads.cache.config()) => {
                forwards.call(request).await
            }
            Err(error) => Err(s3_error(error)),
        }
    }
}

impl Route {
    /// True for a read that the cache answers as the origin would. A HEAD is validated by a
    /// HEAD, whose answer may as well go to the client.
    fn is_cached(&self, request: &S3Request<Body>) -> bool {
        let is_read = match request.method {
            Method::GET => true,
            Method::HEAD => self.reads.cache.config().consistency != Consistency::Etag,
            _ => false,
        };
        let query = Query::of(&request.uri);
        let mut names = request.headers.keys().map(|name| name.as_str());
        let object = self.reads.domains.object(&request.uri, &request.headers);
        is_read
            && object.is_some_and(|(_, key)| is_stable(&key))
            && query.iter().all(|(name, _)| is_of_any_read(name))
            && has_plain_terms(&request.headers)
            && names.all(|name| !name.starts_with("x-amz-") || is_everywhere(name))
    }
}

/// True for an error that an S3 origin words better. A cached absence is answered here.
pub(super) fn is_the_origins(error: &ObjectError, config: &ObjectConfig) -> bool {
    match error {
        ObjectError::Origin(OriginError::NotFound(_)) => config.negative_ttl_seconds == 0,
        ObjectError::Origin(error) => !error.is_outage(),
        ObjectError::RangeNotSatisfiable { .. } => true,
        _ => false,
    }
}

/// False for headers that servers understand differently, or answer by the settings of a bucket.
pub(super) fn has_plain_terms(headers: &HeaderMap) -> bool {
    let is_any = |name: HeaderName| headers.get_all(name).iter().any(|value| value == "*");
    let is_other_range = headers.contains_key(RANGE) && requested_range(headers).is_none();
    !is_other_range && !is_any(IF_MATCH) && !is_any(IF_NONE_MATCH) && !headers.contains_key(ORIGIN)
}

/// Parameters of a read that do not select what is read.
fn is_of_any_read(name: &str) -> bool {
    name == "x-id" || name.starts_with("response-") || is_everywhere(&name.to_ascii_lowercase())
}
