//! S3's error codes for errors of the cache and its origin.

use floe::CacheError;
use floe::object::ObjectError;
use floe::origin::OriginError;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use s3s::{Body, S3Error, S3ErrorCode};

/// The S3 response to an error of the cache or its origin. The message names
/// the cause. A fault of the origin is a 503, which clients may retry, never a
/// 500.
pub(crate) fn s3_error(error: ObjectError) -> S3Error {
    let message = error.to_string();
    match &error {
        ObjectError::Origin(error) => origin_error(error, message),
        ObjectError::Cache(error) => match &**error {
            CacheError::KeyTooLong { .. } => with(S3ErrorCode::KeyTooLongError, message),
            _ => unavailable(message),
        },
        ObjectError::RangeNotSatisfiable { size } => range_not_satisfiable(Some(*size)),
        ObjectError::Changed => unavailable(message),
        _ => unavailable(message),
    }
}

fn origin_error(error: &OriginError, message: String) -> S3Error {
    match error {
        OriginError::NotFound(_) => with(
            S3ErrorCode::NoSuchKey,
            "The specified key does not exist.".into(),
        ),
        OriginError::NoSuchBucket(_) => with(
            S3ErrorCode::NoSuchBucket,
            "The specified bucket does not exist.".into(),
        ),
        OriginError::BucketExists(_) => with(
            S3ErrorCode::BucketAlreadyOwnedByYou,
            "Your previous request to create the named bucket succeeded and you already own it."
                .into(),
        ),
        OriginError::BucketNotEmpty(_) => with(
            S3ErrorCode::BucketNotEmpty,
            "The bucket you tried to delete is not empty.".into(),
        ),
        OriginError::InvalidBucketName(_) => with(S3ErrorCode::InvalidBucketName, message),
        OriginError::NoSuchUpload(_) => with(
            S3ErrorCode::NoSuchUpload,
            "The specified upload does not exist. It may have been aborted or completed.".into(),
        ),
        OriginError::InvalidPartOrder => with(S3ErrorCode::InvalidPartOrder, message),
        OriginError::InvalidPart(_) => with(S3ErrorCode::InvalidPart, message),
        OriginError::NotModified => with(S3ErrorCode::NotModified, message),
        OriginError::PreconditionFailed => precondition_failed(),
        OriginError::RangeNotSatisfiable { size } => range_not_satisfiable(*size),
        OriginError::AccessDenied(_) => with(S3ErrorCode::AccessDenied, message),
        OriginError::InvalidKey { .. } => with(S3ErrorCode::InvalidArgument, message),
        OriginError::Rejected { status: 411, .. } => {
            with(S3ErrorCode::MissingContentLength, message)
        }
        OriginError::Rejected { status: 413, .. } => with(S3ErrorCode::EntityTooLarge, message),
        OriginError::Rejected { .. } => with(S3ErrorCode::InvalidRequest, message),
        OriginError::Unsupported(_) => with(S3ErrorCode::NotImplemented, message),
        OriginError::BadUpload(_) => with(S3ErrorCode::IncompleteBody, message),
        OriginError::Overloaded(_) => retriable(S3ErrorCode::SlowDown, message),
        _ => unavailable(message),
    }
}

/// 412.
pub(crate) fn precondition_failed() -> S3Error {
    with(
        S3ErrorCode::PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold".into(),
    )
}

/// 416 with the object's size.
pub(crate) fn range_not_satisfiable(size: Option<u64>) -> S3Error {
    let mut error = with(
        S3ErrorCode::InvalidRange,
        "The requested range is not satisfiable".into(),
    );
    if let Some(value) =
        size.and_then(|size| HeaderValue::from_str(&format!("bytes */{size}")).ok())
    {
        error.set_headers(HeaderMap::from_iter([(http::header::CONTENT_RANGE, value)]));
    }
    error
}

/// 501 that names the missing feature.
pub(crate) fn not_implemented(what: &str) -> S3Error {
    with(
        S3ErrorCode::NotImplemented,
        format!("This cache does not implement {what}"),
    )
}

/// 403.
pub(crate) fn denied(reason: &str) -> S3Error {
    with(
        S3ErrorCode::AccessDenied,
        format!("Access Denied: {reason}"),
    )
}

/// 400.
pub(crate) fn invalid_argument(message: impl Into<String>) -> S3Error {
    with(S3ErrorCode::InvalidArgument, message.into())
}

/// 400 for a target that has no one meaning.
pub(crate) fn unreadable_uri() -> S3Error {
    with(
        S3ErrorCode::InvalidURI,
        "Couldn't parse the specified URI.".into(),
    )
}

/// 400 with a code that the library does not define.
pub(crate) fn custom(code: &'static str, status: StatusCode, message: &'static str) -> S3Error {
    let mut error = with(S3ErrorCode::Custom(code.into()), message.into());
    error.set_status_code(status);
    error
}

fn unavailable(message: String) -> S3Error {
    retriable(S3ErrorCode::ServiceUnavailable, message)
}

pub(super) fn retriable(code: S3ErrorCode, message: String) -> S3Error {
    let mut error = with(code, message);
    error.set_headers(HeaderMap::from_iter([(
        http::header::RETRY_AFTER,
        HeaderValue::from_static("1"),
    )]));
    error
}

pub(crate) fn with(code: S3ErrorCode, message: String) -> S3Error {
    S3Error::with_message(code, message)
}

/// Adds to the document of an error what S3's have besides code and message: names, and the
/// request's sole condition if it failed. `None` if it is no such document.
pub(super) fn completed(
    document: &[u8],
    (status, condition): (StatusCode, Option<&str>),
    resource: &str,
    request_id: &str,
) -> Option<Vec<u8>> {
    const END: &[u8] = b"</Error>";
    let head = document.strip_suffix(END)?;
    let condition = match condition {
        Some(name) if status == StatusCode::PRECONDITION_FAILED => {
            format!("<Condition>{name}</Condition>")
        }
        _ => String::new(),
    };
    let resource = quick_xml::escape::escape(resource);
    let more =
        format!("{condition}<Resource>{resource}</Resource><RequestId>{request_id}</RequestId>");
    Some([head, more.as_bytes(), END].concat())
}

/// The response to a request that failed.
pub(super) fn error_response(error: S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}
