//! Converts between Floe's types and those of `object_store`.

use std::time::{SystemTime, UNIX_EPOCH};

use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange};

use crate::origin::error::OriginError;
use crate::origin::types::{Attributes, GetRequest, ObjectKey, ObjectMeta};
use crate::origin::uploads::OF_CHECKSUMS;

/// Converts a key to a path that stands for exactly this key.
pub(super) fn path(key: &ObjectKey) -> Result<Path, OriginError> {
    let invalid = |reason: String| OriginError::InvalidKey {
        key: key.key().to_owned(),
        reason,
    };
    let path = Path::parse(key.key()).map_err(|error| invalid(error.to_string()))?;
    if path.as_ref() != key.key() || key.key().is_empty() {
        return Err(invalid(
            "this origin takes no keys that are empty, or begin or end with a slash".into(),
        ));
    }
    Ok(path)
}

pub(super) fn options(request: &GetRequest, head: bool) -> GetOptions {
    GetOptions {
        if_match: request.if_match.clone(),
        if_none_match: request.if_none_match.clone(),
        // Servers ignore it if there is an If-None-Match.
        if_modified_since: request
            .if_modified_since
            .filter(|_| request.if_none_match.is_none())
            .map(Into::into),
        range: request
            .range
            .clone()
            .filter(|_| !head)
            .map(GetRange::Bounded),
        head,
        ..GetOptions::default()
    }
}

/// `object_store` returns 1970 when a server gave no modification time.
pub(super) fn last_modified(meta: &object_store::ObjectMeta) -> Option<SystemTime> {
    let time = SystemTime::from(meta.last_modified);
    (time != UNIX_EPOCH).then_some(time)
}

pub(super) fn meta(
    meta: &object_store::ObjectMeta,
    attributes: &object_store::Attributes,
) -> ObjectMeta {
    ObjectMeta {
        size: meta.size,
        etag: meta.e_tag.clone(),
        content_etag: None,
        last_modified: last_modified(meta),
        attributes: attributes_from_store(attributes),
    }
}

fn attributes_from_store(from: &object_store::Attributes) -> Attributes {
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
    to.user.sort_unstable();
    to
}

/// Converts headers to store. Non-ASCII values are rejected: some stores change
/// them or cannot return them.
pub(super) fn attributes_to_store(
    from: &Attributes,
) -> Result<object_store::Attributes, OriginError> {
    let require_ascii = |name: &str, value: &str| match value.bytes().all(is_visible) {
        true => Ok(()),
        false => Err(OriginError::Rejected {
            status: 400,
            message: format!(
                "the value of {name:?} is not ASCII, which this origin cannot keep as it is; \
                 encode it, such as by percent signs"
            ),
        }),
    };
    let mut to = object_store::Attributes::new();
    for (attribute, value) in [
        (Attribute::ContentType, &from.content_type),
        (Attribute::ContentEncoding, &from.content_encoding),
        (Attribute::ContentLanguage, &from.content_language),
        (Attribute::ContentDisposition, &from.content_disposition),
        (Attribute::CacheControl, &from.cache_control),
        (Attribute::StorageClass, &from.storage_class),
    ] {
        if let Some(value) = value {
            require_ascii(&format!("{attribute:?}"), value)?;
            to.insert(attribute, value.clone().into());
        }
    }
    // Checksums were compared when the bytes arrived, and are not kept here.
    let mut others = from.headers.iter();
    if let Some((name, _)) = others.find(|(name, _)| !name.starts_with(OF_CHECKSUMS)) {
        return Err(OriginError::Rejected {
            status: 400,
            message: format!("this origin cannot keep the header {name}"),
        });
    }
    for (name, value) in &from.user {
        require_ascii(name, value)?;
        let attribute = Attribute::Metadata(name.clone().into());
        to.insert(attribute, value.clone().into());
    }
    Ok(to)
}

/// True if `object_store` accepts this byte in a header.
pub(super) fn is_visible(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}
