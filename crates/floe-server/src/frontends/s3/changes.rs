//! The objects that a forwarded request may change.

use std::borrow::Cow;

use floe::object::ObjectKey;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::Event;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::error::{invalid_argument, with};
use super::passable::{aliases, is_stable};
use super::query::Query;

/// Most keys of one `DeleteObjects`, as in S3.
pub(super) const DELETES_MAX: usize = 1000;

/// The objects that a request to an object may change. Only requests that certainly change none
/// are exempt: servers differ in what they make of others.
pub(super) fn of_object(
    method: &Method,
    bucket: &str,
    key: &str,
    query: &Query,
    headers: &HeaderMap,
) -> S3Result<Vec<ObjectKey>> {
    let upload = query.only("uploadId").filter(|id| !id.is_empty());
    let part = query.only("partNumber").filter(|number| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        is_number
            && number
                .parse()
                .is_ok_and(|number| (1..=10_000).contains(&number))
    });
    let changes_none = match *method {
        // The parts of an upload before it is completed.
        Method::PUT => upload.is_some() && part.is_some(),
        Method::DELETE => upload.is_some(),
        Method::POST => {
            (query.has("uploads") && !query.has("uploadId"))
                || (query.has("select") && query.has("select-type"))
        }
        _ => method.is_safe(),
    };
    if changes_none {
        return Ok(Vec::new());
    }
    let mut changed = Vec::new();
    push(&mut changed, bucket, key);
    if let Some(source) = headers.get("x-amz-rename-source") {
        let source = source
            .to_str()
            .map_err(|_| invalid_argument("x-amz-rename-source is not text"))?;
        let source = percent_decode_str(source).decode_utf8_lossy();
        // A key of the same bucket, with or without the bucket before it.
        push(&mut changed, bucket, &source);
        let source = source.strip_prefix('/').unwrap_or(&source);
        push(&mut changed, bucket, source);
        if let Some(key) = source
            .strip_prefix(bucket)
            .and_then(|rest| rest.strip_prefix('/'))
        {
            push(&mut changed, bucket, key);
        }
    }
    Ok(changed)
}

/// Adds a key under each name that a server may take it for.
fn push(changed: &mut Vec<ObjectKey>, bucket: &str, key: &str) {
    if !is_stable(key) {
        changed.extend(aliases(key).map(|alias| ObjectKey::new(bucket, alias)));
    }
    changed.push(ObjectKey::new(bucket, key));
}

/// The objects that a `DeleteObjects` names.
///
/// # Errors
/// This reader and the origin's could find different keys in the document.
pub(super) fn of_delete_objects(bucket: &str, document: &[u8]) -> S3Result<Vec<ObjectKey>> {
    let keys = keys(document)?;
    if keys.is_empty() || keys.len() > DELETES_MAX {
        return Err(malformed(&format!(
            "name between 1 and {DELETES_MAX} objects to delete"
        )));
    }
    let mut changed = Vec::with_capacity(keys.len());
    for key in keys {
        // A parser of XML takes each line's end for a line feed, and some servers strip the
        // spaces around a key.
        let normal = key.replace("\r\n", "\n").replace('\r', "\n");
        for name in [&*key, key.trim(), &*normal, normal.trim()] {
            push(&mut changed, bucket, name);
        }
    }
    changed.sort_unstable();
    changed.dedup();
    Ok(changed)
}

/// The texts of all elements `Key`.
fn keys(document: &[u8]) -> S3Result<Vec<String>> {
    let text = std::str::from_utf8(document).map_err(|_| malformed("it is not UTF-8"))?;
    let mut reader = Reader::from_str(text);
    let (mut keys, mut open) = (Vec::new(), None::<String>);
    loop {
        let event = reader.read_event();
        let event = event.map_err(|error| malformed(&error.to_string()))?;
        match event {
            Event::Start(element) if open.is_none() && element.local_name().as_ref() == b"Key" => {
                open = Some(String::new());
            }
            Event::End(element) if element.local_name().as_ref() == b"Key" => {
                keys.extend(open.take());
            }
            Event::Start(_)
            | Event::End(_)
            | Event::Empty(_)
            | Event::Comment(_)
            | Event::PI(_)
                if open.is_some() =>
            {
                return Err(malformed("other than text within a Key"));
            }
            Event::Empty(element) if element.local_name().as_ref() == b"Key" => {
                keys.push(String::new());
            }
            Event::Text(text) => append(&mut open, &text.decode().map_err(|_| not_text())?),
            Event::CData(text) => append(&mut open, &text.decode().map_err(|_| not_text())?),
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|_| not_text())?;
                let name = reference.decode().map_err(|_| not_text())?;
                let text: Cow<'_, str> = match (character, &*name) {
                    (Some(character), _) => character.to_string().into(),
                    (None, "amp") => "&".into(),
                    (None, "lt") => "<".into(),
                    (None, "gt") => ">".into(),
                    (None, "quot") => "\"".into(),
                    (None, "apos") => "'".into(),
                    (None, _) => return Err(malformed("an entity that XML does not define")),
                };
                append(&mut open, &text);
            }
            // It could define entities, or another encoding.
            Event::DocType(_) => return Err(malformed("a document type")),
            Event::Decl(declaration) => {
                let encoding = declaration.encoding().transpose().map_err(|_| not_text())?;
                let is_utf8 = |name: Cow<'_, [u8]>| name.eq_ignore_ascii_case(b"utf-8");
                if !encoding.is_none_or(is_utf8) {
                    return Err(malformed("an encoding other than UTF-8"));
                }
                let version = declaration.xml_version().map_err(|_| not_text())?;
                if version != XmlVersion::Explicit1_0 {
                    return Err(malformed("a version of XML other than 1.0"));
                }
            }
            Event::Eof => return Ok(keys),
            _ => {}
        }
    }
}

fn append(open: &mut Option<String>, text: &str) {
    if let Some(key) = open {
        key.push_str(text);
    }
}

fn not_text() -> S3Error {
    malformed("it is not text")
}

fn malformed(reason: &str) -> S3Error {
    with(
        S3ErrorCode::MalformedXML,
        format!("The XML you provided was not well-formed or did not validate: {reason}"),
    )
}

#[cfg(test)]
mod tests;
