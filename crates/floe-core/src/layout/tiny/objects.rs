//! Objects in a page, without gaps.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bits 0–7 key length, 8–19 value length, 20 has an expiry, 21 is a tombstone, 22–24 prediction, 25–31 zero |
//! | 4 | 4 | expiry, if it has one |
//! | | key length | key |
//! | | value length | value |
//!
//! A tombstone has no expiry, key or value. It has 8 bytes: the dead key hash.
//! In memory an object's bytes are its [`record`]: one byte of key length, key,
//! value.

use super::page::{open_expected, seal_page};
use super::page_id::{PageId, PageKind};
use crate::hash::{HashSeed, KeyHash};
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::layout::wire::first_mut;
use crate::tiny::object::{
    Expiry, OBJECT_HEADER_BYTES, Object, PAGE_BYTES, PAGE_HEADER_BYTES, PREDICTION_MAX,
};

/// Longest key.
pub const KEY_BYTES_MAX: usize = 255;

const VALUE_LENGTH_AT: u32 = 8;
const VALUE_LENGTH_MAX: u32 = 0xfff;
const HAS_EXPIRY: u32 = 1 << 20;
const IS_TOMBSTONE: u32 = 1 << 21;
const PREDICTION_AT: u32 = 22;
const SPARE_AT: u32 = 25;

/// The bytes of an object in memory ([`Object::record`]).
///
/// A key above [`KEY_BYTES_MAX`] has no record: the box is empty, and
/// [`encode_objects`] rejects an object with it.
pub fn record(key: &[u8], value: &[u8]) -> Box<[u8]> {
    record_of(key, &[value])
}

/// As [`record`], of a value in parts.
pub fn record_of(key: &[u8], value: &[&[u8]]) -> Box<[u8]> {
    let Ok(key_bytes) = u8::try_from(key.len()) else {
        return Box::default();
    };
    let len: usize = value.iter().map(|part| part.len()).sum();
    let mut record = Vec::with_capacity(1 + key.len() + len);
    record.push(key_bytes);
    record.extend_from_slice(key);
    for part in value {
        record.extend_from_slice(part);
    }
    record.into_boxed_slice()
}

/// The key and the value of a record, or `None` for bytes that are not a
/// record.
pub fn split_record(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&key_bytes, rest) = record.split_first()?;
    rest.split_at_checked(usize::from(key_bytes))
}

/// Writes a page of objects, each of which takes [`Object::stored_bytes`].
///
/// A tombstone's expiry is dropped: a dead hash stays dead.
///
/// # Errors
/// [`LayoutError::TooShort`] if `out` is shorter than a page;
/// [`LayoutError::Malformed`] if the objects do not fit, one of them lacks its
/// bytes, or `id` is not of a page of objects. No decoder accepts the page
/// then.
pub fn encode_objects(
    cache: CacheId,
    id: PageId,
    objects: &[Object],
    out: &mut [u8],
) -> Result<(), LayoutError> {
    let page = first_mut::<PAGE_BYTES>(out)?;
    page.fill(0);
    if id.kind != PageKind::Objects {
        return Err(LayoutError::Malformed("not the id of a page of objects"));
    }
    let mut used = PAGE_HEADER_BYTES;
    for object in objects {
        let end = used.saturating_add(object.stored_bytes());
        let room = page
            .get_mut(used..end)
            .ok_or(LayoutError::Malformed("more objects than a page holds"))?;
        put_object(object, room)?;
        used = end;
    }
    // An object takes at least four bytes of the page, so the count fits.
    let count = objects.len() as u16;
    seal_page(cache, id, count, used, page)
}

/// Writes an object over `room`, which has exactly its length.
fn put_object(object: &Object, room: &mut [u8]) -> Result<(), LayoutError> {
    let prediction = u32::from(object.prediction.min(PREDICTION_MAX)) << PREDICTION_AT;
    if object.tombstone {
        let header = IS_TOMBSTONE | prediction;
        put_parts([&header.to_le_bytes(), &object.hash.0.to_le_bytes()], room);
        return Ok(());
    }
    let (key, value) = split_record(&object.record)
        .filter(|(key, value)| key.len() + value.len() == object.bytes as usize)
        .ok_or(LayoutError::Malformed("an object without its bytes"))?;
    // The value is shorter than a page, so the cast is exact.
    let mut header = key.len() as u32 | (value.len() as u32) << VALUE_LENGTH_AT | prediction;
    let expires = object.expires.0.to_le_bytes();
    let mut expiry: &[u8] = &[];
    if object.expires != Expiry::NEVER {
        header |= HAS_EXPIRY;
        expiry = &expires;
    }
    put_parts([&header.to_le_bytes(), expiry, key, value], room);
    Ok(())
}

fn put_parts<const N: usize>(parts: [&[u8]; N], mut room: &mut [u8]) {
    for part in parts {
        // The room has the length of all parts.
        if let Some(here) = room.split_off_mut(..part.len()) {
            here.copy_from_slice(part);
        }
    }
}

/// Reads the objects of a page; their hashes are computed from their keys.
///
/// # Errors
/// As [`ObjectsPage::open`].
pub fn decode_objects(
    cache: CacheId,
    expected: PageId,
    bytes: &[u8],
    seed: HashSeed,
) -> Result<Vec<Object>, LayoutError> {
    let page = ObjectsPage::open(cache, expected, bytes)?;
    let mut objects = Vec::with_capacity(page.len());
    objects.extend(page.objects().map(|object| object.to_object(seed)));
    Ok(objects)
}

/// A checked page of objects, for lookups.
#[derive(Clone, Copy, Debug)]
pub struct ObjectsPage<'a> {
    count: u16,
    body: &'a [u8],
}

impl<'a> ObjectsPage<'a> {
    /// Checks a page, all its objects included.
    ///
    /// # Errors
    /// [`LayoutError::Misplaced`] if it is another page;
    /// [`LayoutError::Malformed`] if its objects are invalid; otherwise as
    /// [`read_page_id`](super::read_page_id).
    pub fn open(cache: CacheId, expected: PageId, bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let opened = open_expected(cache, expected, bytes)?;
        if expected.kind != PageKind::Objects {
            return Err(LayoutError::Malformed("not a page of objects"));
        }
        let mut rest = opened.body;
        for _ in 0..opened.count {
            (_, rest) = take_object(rest)?;
        }
        if !rest.is_empty() {
            return Err(LayoutError::Malformed("the page's objects are miscounted"));
        }
        Ok(ObjectsPage {
            count: opened.count,
            body: opened.body,
        })
    }

    /// Number of objects, tombstones included.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// True if the page has no object.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The objects, in the order of their slots.
    pub fn objects(&self) -> impl Iterator<Item = ObjectRef<'a>> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            // Every object was checked when the page was opened.
            let (object, behind) = take_object(rest).ok()?;
            rest = behind;
            Some(object)
        })
    }

    /// True if any object or tombstone has this hash. Keys are not compared.
    pub fn knows(&self, hash: KeyHash, seed: HashSeed) -> bool {
        self.objects().any(|object| match object.content {
            Content::Tombstone(dead) => dead == hash,
            Content::Object { key, .. } => KeyHash::of(seed, key) == hash,
        })
    }

    /// The first object with this key, or tombstone of this hash.
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Hit<'a>> {
        self.objects().enumerate().find_map(|(slot, object)| {
            let (tombstone, value): (bool, &[u8]) = match object.content {
                Content::Tombstone(dead) if dead == hash => (true, &[]),
                Content::Object { key: found, value } if found == key => (false, value),
                _ => return None,
            };
            Some(Hit {
                slot,
                expires: object.expires,
                tombstone,
                value,
            })
        })
    }
}

/// An object found in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// The object's number in the page.
    pub slot: usize,
    /// The object's expiry.
    pub expires: Expiry,
    /// It is a tombstone.
    pub tombstone: bool,
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
}

/// An object in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRef<'a> {
    /// Its expiry; never for a tombstone.
    pub expires: Expiry,
    /// See [`Object::prediction`].
    pub prediction: u8,
    /// Its contents.
    pub content: Content<'a>,
}

/// The contents of an object in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Older objects of this hash are dead.
    Tombstone(KeyHash),
    /// An object.
    Object {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
}

impl ObjectRef<'_> {
    /// The hash of its key.
    pub fn hash(&self, seed: HashSeed) -> KeyHash {
        match self.content {
            Content::Tombstone(hash) => hash,
            Content::Object { key, .. } => KeyHash::of(seed, key),
        }
    }

    /// The object in the engines' representation.
    pub fn to_object(&self, seed: HashSeed) -> Object {
        let hash = self.hash(seed);
        let object = match self.content {
            Content::Tombstone(_) => Object::tombstone(hash),
            Content::Object { key, value } => Object {
                record: record(key, value),
                // Both lengths fit: key and value are in one page.
                ..Object::sized(hash, (key.len() + value.len()) as u32)
            },
        };
        Object {
            expires: self.expires,
            prediction: self.prediction,
            ..object
        }
    }
}

/// Splits the first object off `bytes`.
fn take_object(bytes: &[u8]) -> Result<(ObjectRef<'_>, &[u8]), LayoutError> {
    const ENDS_EARLY: LayoutError = LayoutError::Malformed("an object ends beyond the page");
    let (header, rest) = bytes
        .split_first_chunk::<OBJECT_HEADER_BYTES>()
        .ok_or(ENDS_EARLY)?;
    let header = u32::from_le_bytes(*header);
    let key_bytes = (header & 0xff) as usize;
    let value_bytes = (header >> VALUE_LENGTH_AT & VALUE_LENGTH_MAX) as usize;
    let prediction = (header >> PREDICTION_AT) as u8 & PREDICTION_MAX;
    let has_expiry = header & HAS_EXPIRY != 0;
    if header >> SPARE_AT != 0 {
        return Err(LayoutError::Malformed("an object with unknown flags"));
    }
    if header & IS_TOMBSTONE != 0 {
        if has_expiry || key_bytes + value_bytes != 0 {
            return Err(LayoutError::Malformed("a tombstone with an object"));
        }
        let (hash, rest) = rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        let object = ObjectRef {
            expires: Expiry::NEVER,
            prediction,
            content: Content::Tombstone(KeyHash(u64::from_le_bytes(*hash))),
        };
        return Ok((object, rest));
    }
    let (expires, rest) = if has_expiry {
        let (expiry, rest) = rest.split_first_chunk().ok_or(ENDS_EARLY)?;
        (Expiry(u32::from_le_bytes(*expiry)), rest)
    } else {
        (Expiry::NEVER, rest)
    };
    if has_expiry && expires == Expiry::NEVER {
        return Err(LayoutError::Malformed("an expiry of zero"));
    }
    let (key, rest) = rest.split_at_checked(key_bytes).ok_or(ENDS_EARLY)?;
    let (value, rest) = rest.split_at_checked(value_bytes).ok_or(ENDS_EARLY)?;
    let object = ObjectRef {
        expires,
        prediction,
        content: Content::Object { key, value },
    };
    Ok((object, rest))
}
