//! The metadata record: what the cache keeps about an object.
//!
//! ```text
//! byte 0      format, 4
//! byte 1      kind: 0 the object does not exist, 1 it does
//! bytes 2–9   when the origin confirmed it, seconds since 1970, little-endian
//! bytes 10–17 number of the last purge of the object then; 0 if there was none
//! bytes 18–25 session of notifications then, or the era
//! then, if it exists:
//!   8         size
//!   16        instance: tells versions without a validator apart
//!   1 + 12    flag; modification time: seconds (i64), nanoseconds (u32)
//!   texts     etag, content etag, content type, encoding, language, disposition,
//!             cache control, storage class: a flag byte, length (u32), UTF-8
//!   4         number of user headers, then name and value of each: length (u32), UTF-8
//!   4         number of further headers, likewise
//! ```
//!
//! All other bytes are no record. The store detects damage; this decoder must
//! accept any bytes without a panic.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::origin::{Attributes, ObjectMeta};

const FORMAT: u8 = 4;
/// S3 allows 2 KiB of user metadata; other origins a little more.
const HEADERS_MAX: usize = 1024;

/// The cached knowledge of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataRecord {
    /// When the origin confirmed it, seconds since 1970, rounded down.
    pub validated_unix_s: u64,
    /// The number of the object's last purge when the origin was asked; 0 if there was
    /// none. After a later purge the record does not count.
    pub purge: u64,
    /// The session of notifications in which the origin was asked; outside of mode `events`
    /// the era, 0 being the first.
    pub session: u64,
    /// The object, or `None` if it does not exist.
    pub object: Option<RecordedObject>,
}

/// An object that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedObject {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Tells versions without a validator apart; 0 where there is a validator.
    pub instance: u128,
}

/// Bytes that are no metadata record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no metadata record of format {FORMAT}")]
pub struct NotARecord;

impl MetadataRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(128);
        out.push(FORMAT);
        out.push(u8::from(self.object.is_some()));
        out.extend_from_slice(&self.validated_unix_s.to_le_bytes());
        out.extend_from_slice(&self.purge.to_le_bytes());
        out.extend_from_slice(&self.session.to_le_bytes());
        if let Some(object) = &self.object {
            object.encode(&mut out);
        }
        out.into()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the bytes are not exactly one record of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotARecord> {
        let mut input = Input(bytes);
        if input.byte()? != FORMAT {
            return Err(NotARecord);
        }
        let exists = input.flag()?;
        let validated_unix_s = u64::from_le_bytes(input.array()?);
        let purge = u64::from_le_bytes(input.array()?);
        let session = u64::from_le_bytes(input.array()?);
        let object = exists
            .then(|| RecordedObject::decode(&mut input))
            .transpose()?;
        if !input.0.is_empty() {
            return Err(NotARecord);
        }
        Ok(MetadataRecord {
            validated_unix_s,
            purge,
            session,
            object,
        })
    }
}

impl RecordedObject {
    fn encode(&self, out: &mut Vec<u8>) {
        let meta = &self.meta;
        out.extend_from_slice(&meta.size.to_le_bytes());
        out.extend_from_slice(&self.instance.to_le_bytes());
        let (seconds, nanoseconds) = meta.last_modified.map_or((0, 0), split_time);
        out.push(u8::from(meta.last_modified.is_some()));
        out.extend_from_slice(&seconds.to_le_bytes());
        out.extend_from_slice(&nanoseconds.to_le_bytes());
        let attributes = &meta.attributes;
        for text in [
            &meta.etag,
            &meta.content_etag,
            &attributes.content_type,
            &attributes.content_encoding,
            &attributes.content_language,
            &attributes.content_disposition,
            &attributes.cache_control,
            &attributes.storage_class,
        ] {
            out.push(u8::from(text.is_some()));
            push_text(out, text.as_deref().unwrap_or_default());
        }
        push_headers(out, &attributes.user);
        push_headers(out, &attributes.headers);
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, NotARecord> {
        let size = u64::from_le_bytes(input.array()?);
        let instance = u128::from_le_bytes(input.array()?);
        let has_time = input.flag()?;
        let seconds = i64::from_le_bytes(input.array()?);
        let nanoseconds = u32::from_le_bytes(input.array()?);
        let last_modified = match (has_time, seconds, nanoseconds) {
            (true, ..) => Some(join_time(seconds, nanoseconds).ok_or(NotARecord)?),
            (false, 0, 0) => None,
            (false, ..) => return Err(NotARecord),
        };
        let etag = input.optional_text()?;
        let content_etag = input.optional_text()?;
        let attributes = Attributes {
            content_type: input.optional_text()?,
            content_encoding: input.optional_text()?,
            content_language: input.optional_text()?,
            content_disposition: input.optional_text()?,
            cache_control: input.optional_text()?,
            storage_class: input.optional_text()?,
            user: input.headers()?,
            headers: input.headers()?,
        };
        Ok(RecordedObject {
            meta: ObjectMeta {
                size,
                etag,
                content_etag,
                last_modified,
                attributes,
            },
            instance,
        })
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], NotARecord> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(NotARecord)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotARecord> {
        self.take(N)?.try_into().map_err(|_| NotARecord)
    }

    fn byte(&mut self) -> Result<u8, NotARecord> {
        Ok(self.array::<1>()?[0])
    }

    fn flag(&mut self) -> Result<bool, NotARecord> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NotARecord),
        }
    }

    fn text(&mut self) -> Result<String, NotARecord> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| NotARecord)
    }

    fn headers(&mut self) -> Result<Vec<(String, String)>, NotARecord> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        if count > HEADERS_MAX {
            return Err(NotARecord);
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = self.text()?;
            headers.push((name, self.text()?));
        }
        Ok(headers)
    }

    fn optional_text(&mut self) -> Result<Option<String>, NotARecord> {
        let is_there = self.flag()?;
        let text = self.text()?;
        match (is_there, text.is_empty()) {
            (true, _) => Ok(Some(text)),
            (false, true) => Ok(None),
            (false, false) => Err(NotARecord),
        }
    }
}

fn push_headers(out: &mut Vec<u8>, headers: &[(String, String)]) {
    let headers = &headers[..headers.len().min(HEADERS_MAX)];
    out.extend_from_slice(&(headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        push_text(out, name);
        push_text(out, value);
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    // Header values are far below 4 GiB.
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Nanoseconds since 1970, negative before.
pub(super) fn unix_nanoseconds(time: SystemTime) -> i128 {
    let (seconds, nanoseconds) = split_time(time);
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// Seconds, rounded down, and the nanoseconds after them.
fn split_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (
            i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            after.subsec_nanos(),
        ),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |s| -s);
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanoseconds => (seconds.saturating_sub(1), 1_000_000_000 - nanoseconds),
            }
        }
    }
}

fn join_time(seconds: i64, nanoseconds: u32) -> Option<SystemTime> {
    if nanoseconds >= 1_000_000_000 {
        return None;
    }
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    base?.checked_add(Duration::from_nanos(u64::from(nanoseconds)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Option<String>> {
        proptest::option::of(".{0,20}")
    }

    prop_compose! {
        fn object()(
            size: u64, instance: u128,
            time in proptest::option::of((-1_000_000_000_000i64..1_000_000_000_000, 0u32..1_000_000_000)),
            texts in proptest::collection::vec(text(), 8),
            user in proptest::collection::vec((".{0,8}", ".{0,8}"), 0..5),
            headers in proptest::collection::vec((".{0,8}", ".{0,8}"), 0..3),
        ) -> RecordedObject {
            RecordedObject {
                meta: ObjectMeta {
                    size,
                    etag: texts[0].clone(),
                    content_etag: texts[7].clone(),
                    last_modified: time.map(|(s, n)| join_time(s, n).unwrap()),
                    attributes: Attributes {
                        content_type: texts[1].clone(),
                        content_encoding: texts[2].clone(),
                        content_language: texts[3].clone(),
                        content_disposition: texts[4].clone(),
                        cache_control: texts[5].clone(),
                        storage_class: texts[6].clone(),
                        user,
                        headers,
                    },
                },
                instance,
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            validated_unix_s: u64, purge: u64, session: u64, object in proptest::option::of(object()),
        ) {
            let record = MetadataRecord { validated_unix_s, purge, session, object };
            prop_assert_eq!(MetadataRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn a_cut_or_lengthened_record_is_none(object in object(), cut in 0usize..200) {
            let bytes = MetadataRecord { validated_unix_s: 1, purge: 0, session: 0, object: Some(object) }.encode();
            if cut < bytes.len() {
                prop_assert!(MetadataRecord::decode(&bytes[..cut]).is_err());
            }
            let longer = [&bytes[..], &[0]].concat();
            prop_assert!(MetadataRecord::decode(&longer).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(record) = MetadataRecord::decode(&bytes) {
                prop_assert_eq!(MetadataRecord::decode(&record.encode()), Ok(record));
            }
        }
    }
}
