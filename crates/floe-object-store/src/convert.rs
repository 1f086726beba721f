//! Converts between Floe's types and those of `object_store`.

use std::time::{SystemTime, UNIX_EPOCH};

use floe::object::{Attributes, ByteRange, ObjectError, ObjectMeta};
use floe::origin::OriginError;
use object_store::path::Path;
use object_store::{Attribute, Error, GetRange};

/// The user header in which a cached object keeps the store's version id. No
/// store accepts a header with this name.
const VERSION_HEADER: &str = "\0version";

pub(crate) fn meta_to_floe(
    meta: object_store::ObjectMeta,
    attributes: &object_store::Attributes,
) -> ObjectMeta {
    let mut attributes = attributes_to_floe(attributes);
    if let Some(version) = meta.version {
        attributes.user.push((VERSION_HEADER.to_owned(), version));
    }
    attributes.user.sort_unstable();
    let modified = SystemTime::from(meta.last_modified);
    ObjectMeta {
        size: meta.size,
        etag: meta.e_tag,
        content_etag: None,
        // Stores return 1970 for an unknown time.
        last_modified: (modified != UNIX_EPOCH).then_some(modified),
        attributes,
    }
}

pub(crate) fn meta_from_floe(
    meta: ObjectMeta,
    location: &Path,
) -> (object_store::ObjectMeta, object_store::Attributes) {
    let mut user = meta.attributes.user.iter();
    let version = user.find(|(name, _)| name == VERSION_HEADER);
    let converted = object_store::ObjectMeta {
        location: location.clone(),
        last_modified: meta.last_modified.unwrap_or(UNIX_EPOCH).into(),
        size: meta.size,
        e_tag: meta.etag,
        version: version.map(|(_, version)| version.clone()),
    };
    (converted, attributes_from_floe(meta.attributes))
}

fn attributes_to_floe(from: &object_store::Attributes) -> Attributes {
    let mut to = Attributes::default();
    for (attribute, value) in from {
        let value = value.to_string();
        match attribute {
            Attribute::ContentType => to.content_type = Some(value),
            Attribute::ContentEncoding => to.content_encoding = Some(value),
            Attribute::ContentLanguage => to.content_language = Some(value),
            Attribute::ContentDisposition => to.content_disposition = Some(value),
            Attribute::CacheControl => to.cache_control = Some(value),
            Attribute::StorageClass => to.storage_class = Some(value),
            Attribute::Metadata(name) => to.user.push((name.to_string(), value)),
            _ => {}
        }
    }
    to
}

fn attributes_from_floe(from: Attributes) -> object_store::Attributes {
    let headers = [
        (Attribute::ContentType, from.content_type),
        (Attribute::ContentEncoding, from.content_encoding),
        (Attribute::ContentLanguage, from.content_language),
        (Attribute::ContentDisposition, from.content_disposition),
        (Attribute::CacheControl, from.cache_control),
        (Attribute::StorageClass, from.storage_class),
    ];
    let headers = headers
        .into_iter()
        .filter_map(|(attribute, value)| Some((attribute, value?)));
    let user = from
        .user
        .into_iter()
        .filter(|(name, _)| name != VERSION_HEADER);
    let user = user.map(|(name, value)| (Attribute::Metadata(name.into()), value));
    headers.chain(user).collect()
}

/// The range that Floe reads for `range`, which must be valid.
pub(crate) fn byte_range(range: &GetRange) -> object_store::Result<ByteRange> {
    range.is_valid().map_err(generic)?;
    Ok(match range {
        GetRange::Bounded(range) => ByteRange::Inclusive {
            first: range.start,
            last: range.end - 1,
        },
        GetRange::Offset(first) => ByteRange::From(*first),
        GetRange::Suffix(length) => ByteRange::Suffix(*length),
    })
}

pub(crate) fn error_from_floe(error: ObjectError, location: &Path) -> Error {
    let path = location.to_string();
    let ObjectError::Origin(origin) = &error else {
        return generic(error);
    };
    match origin {
        OriginError::NotFound(_) | OriginError::NoSuchBucket(_) => Error::NotFound {
            path,
            source: error.into(),
        },
        OriginError::NotModified => Error::NotModified {
            path,
            source: error.into(),
        },
        OriginError::PreconditionFailed => Error::Precondition {
            path,
            source: error.into(),
        },
        OriginError::AccessDenied(_) => Error::PermissionDenied {
            path,
            source: error.into(),
        },
        OriginError::Unsupported(_) => Error::NotSupported {
            source: error.into(),
        },
        _ => generic(error),
    }
}

pub(crate) fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic {
        store: "Floe",
        source: source.into(),
    }
}

/// Converts an error of the store, whose client has already retried.
pub(crate) fn error_to_floe(error: Error, key: &str) -> OriginError {
    match error {
        Error::NotFound { .. } => OriginError::NotFound(key.to_owned()),
        Error::NotModified { .. } => OriginError::NotModified,
        Error::Precondition { .. } | Error::AlreadyExists { .. } => OriginError::PreconditionFailed,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            OriginError::AccessDenied(error.to_string())
        }
        Error::InvalidPath { .. } => OriginError::InvalidKey {
            key: key.to_owned(),
            reason: error.to_string(),
        },
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            OriginError::Unsupported(error.to_string())
        }
        // Network errors, timeouts and server errors are all `Generic`.
        _ => OriginError::Unreachable(error.to_string()),
    }
}
