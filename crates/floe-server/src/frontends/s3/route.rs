//! The requests that bypass the operations of `s3s`: reads of objects, and with an S3 origin
//! all others.

use http::{Extensions, HeaderMap, Method, Uri};
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result};

use super::answer::Unread;
use super::attributes::ObjectAttributes;
use super::auth::Access;
use super::forward::Forwards;
use super::query::Query;
use super::read::{Reads, asks_for_bytes};

/// Marks a request for whose object the cache has been asked.
#[derive(Clone, Copy)]
pub(super) struct WasRead;

/// Sends each request to the cache or to the origin.
pub(crate) struct Route {
    pub(crate) access: Access,
    pub(crate) reads: Reads,
    pub(crate) attributes: ObjectAttributes,
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
        self.forwards(uri, headers).is_some()
            || self.reads.is_read(method, uri, headers)
            || self.attributes.is_asked(method, uri, headers)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        let head = (&request.method, &request.uri, &request.headers);
        let (verified, extensions) = (request.credentials.as_ref(), &mut request.extensions);
        let rights = self.access.decide(verified, head, extensions)?;
        let target = self.access.domains.target(&request.uri, &request.headers);
        let is_of_service = target.is_some_and(|target| target.bucket.is_none());
        match is_of_service && rights.is_restricted() {
            // A reload has brought the first policy since `is_match`.
            true => Err(rights.deny("see the answer of the origin itself")),
            false => Ok(()),
        }
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let (method, uri, headers) = (&request.method, &request.uri, &request.headers);
        let Some(forwards) = self.forwards(uri, headers) else {
            return match self.attributes.is_asked(method, uri, headers) {
                true => self.attributes.call(&request).await,
                false => self.reads.call(&request).await,
            };
        };
        if request.extensions.get::<WasRead>().is_some() || !self.is_cached(&request) {
            return forwards.call(request).await;
        }
        match self.reads.answer(&request).await {
            Ok(response) => Ok(response),
            Err(Unread::Refused(error)) => Err(error),
            Err(Unread::OfOrigin { .. }) => forwards.call(request).await,
        }
    }
}

impl Route {
    /// The way to the origin, if it answers the request itself.
    fn forwards(&self, uri: &Uri, headers: &HeaderMap) -> Option<&Forwards> {
        let forwards = self.forwards.as_ref();
        forwards.filter(|forwards| forwards.takes(uri, headers))
    }

    /// True for a read without parameters or headers of S3 that the cache lacks.
    fn is_cached(&self, request: &S3Request<Body>) -> bool {
        let is_read = request.method == Method::GET || request.method == Method::HEAD;
        let object = self.reads.domains.object(&request.uri, &request.headers);
        is_read && object.is_some() && asks_for_bytes(&Query::of(&request.uri), &request.headers)
    }
}
