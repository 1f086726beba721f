//! Clients' own requests, and the origin's answers as they are.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::StreamExt;
use http::header::LOCATION;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;

use super::client::{S3Client, SignedBy, Target, body_of, error_body, no_body};
use super::pools::Body;
use crate::origin::error::OriginError;
use crate::origin::forward::{
    ForwardAnswer, ForwardBody, ForwardHead, Signing, remove_connection_headers,
};
use crate::origin::remote::service::error_document;
use crate::origin::types::{BoxError, UploadBody};

/// Errors that concern the origin's credentials, not the client's.
const OF_CREDENTIALS: [&str; 8] = [
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

impl S3Client {
    /// Sends a client's request; `bucket` is the origin's name of its bucket.
    pub(in crate::origin::remote) async fn forward(
        &self,
        head: ForwardHead,
        bucket: Option<String>,
        body: Option<ForwardBody>,
    ) -> Result<ForwardAnswer, OriginError> {
        let body = body.map_or_else(no_body, sent);
        let is_clients = matches!(head.signing, Signing::Client(_));
        let signed_by = match &head.signing {
            Signing::Keys(keys) => SignedBy::Keys(Arc::clone(keys)),
            Signing::Origin | Signing::Client(_) => SignedBy::Settings,
        };
        let answer = match head.signing {
            Signing::Client(target) => {
                self.send_signed((head.method, target, head.headers), body)
                    .await?
            }
            Signing::Origin | Signing::Keys(_) => {
                let target = Target {
                    bucket,
                    key: head.key,
                    query: head.query,
                };
                let request = (head.method, self.uri(&target)?, head.headers);
                self.send(request, head.payload.as_str(), body, signed_by)
                    .await?
            }
        };
        let (mut parts, body) = answer.into_parts();
        remove_connection_headers(&mut parts.headers);
        if matches!(parts.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            // A client that followed it would write past the cache. S3 itself names a region where
            // others name a location.
            let to = [LOCATION.as_str(), "x-amz-bucket-region"]
                .iter()
                .find_map(|name| parts.headers.get(*name)?.to_str().ok());
            // The query may have a signature.
            let to = to.and_then(|to| to.split('?').next());
            let to = to.unwrap_or("another place");
            return Err(OriginError::Protocol(format!(
                "it redirects to {to}; name the bucket's own endpoint and region in origin.endpoint \
                 and origin.region"
            )));
        }
        let mut body = body_of(body);
        if matches!(parts.status.as_u16(), 400 | 403) && !is_clients {
            let document = error_body(&mut body).await?;
            let (code, message) = error_document(&document);
            if OF_CREDENTIALS.contains(&code.as_str()) {
                return Err(OriginError::AccessDenied(format!("{code}: {message}")));
            }
            body = futures::stream::once(async { Ok(document) })
                .chain(body)
                .boxed();
        }
        Ok(ForwardAnswer {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }
}

fn sent(body: ForwardBody) -> Body {
    Sized {
        pieces: body.pieces,
        remaining: body.length,
        last: None,
    }
    .boxed_unsync()
}

/// A body whose length, if it is known, stands in the request's head.
struct Sized {
    pieces: UploadBody,
    /// Bytes that are still to be passed on.
    remaining: Option<u64>,
    /// The piece that completes the length. It is held back until the source has ended, and so
    /// has compared what came with what was announced.
    last: Option<Bytes>,
}

impl HttpBody for Sized {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let piece = match ready!(self.pieces.poll_next_unpin(context)) {
                Some(Ok(piece)) if piece.is_empty() => continue,
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let last = self.last.take();
                    self.remaining = last.is_some().then_some(0).or(self.remaining);
                    return Poll::Ready(last.map(|piece| Ok(Frame::data(piece))));
                }
            };
            let Some(remaining) = self.remaining else {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            };
            match remaining.checked_sub(piece.len() as u64) {
                Some(0) if self.last.is_none() => self.last = Some(piece),
                Some(rest @ 1..) if self.last.is_none() => {
                    self.remaining = Some(rest);
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                _ => {
                    let error = BoxError::from("more bytes came than were announced");
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Some(remaining) => SizeHint::with_exact(remaining),
            None => SizeHint::default(),
        }
    }
}
