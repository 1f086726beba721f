//! The row of an object in the table of names.
//!
//! ```text
//! bytes 0–7   xxh3 of the table's key and of all that follows, little-endian
//! bytes 8–15  when it expires, seconds since 1970; 0 never
//! bytes 16–23 its number: a later write has a higher one
//! bytes 24–31 bytes of a chunk
//! then        its metadata record
//! ```

use xxhash_rust::xxh3::Xxh3;

use crate::object::record::{MetadataRecord, NotARecord, RecordedObject};
use crate::object::version::Version;
use crate::origin::{ListedObject, ObjectKey, ObjectMeta};

/// Most chunks whose presence is looked up to tell whether an object is whole.
const LOOKED_UP_MAX: u64 = 64;

/// An object, or a part of an upload: what is known of it, and how it lies in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::object) struct Row {
    /// Its `etag` is drawn at random for each write.
    pub(in crate::object) meta: ObjectMeta,
    /// The number of the name's last purge before the write.
    pub(in crate::object) purge: u64,
    /// Seconds since 1970; 0 is never.
    pub(super) expires_unix_s: u64,
    pub(super) number: u64,
    pub(in crate::object) chunk_size: u64,
}

impl Row {
    pub(super) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let record = MetadataRecord {
            validated_unix_s: 0,
            purge: self.purge,
            session: 0,
            object: Some(RecordedObject {
                meta: self.meta.clone(),
                instance: 0,
            }),
        };
        let mut row = vec![0; 8];
        for number in [self.expires_unix_s, self.number, self.chunk_size] {
            row.extend_from_slice(&number.to_le_bytes());
        }
        row.extend_from_slice(&record.encode());
        let hash = hash(key, &row[8..]);
        row[..8].copy_from_slice(&hash.to_le_bytes());
        row
    }

    /// # Errors
    /// When the bytes are not exactly one row of this key.
    pub(super) fn decode(key: &[u8], row: &[u8]) -> Result<Self, NotARecord> {
        let (numbers, record) = row.split_at_checked(32).ok_or(NotARecord)?;
        let number = |at: usize| {
            let bytes = numbers[at..].first_chunk().copied();
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        if number(0) != hash(key, &row[8..]) || number(24) == 0 {
            return Err(NotARecord);
        }
        let record = MetadataRecord::decode(record)?;
        Ok(Row {
            meta: record.object.ok_or(NotARecord)?.meta,
            purge: record.purge,
            expires_unix_s: number(8),
            number: number(16),
            chunk_size: number(24),
        })
    }

    pub(super) fn listed(&self, key: &str) -> ListedObject {
        ListedObject {
            key: key.to_owned(),
            size: self.meta.size,
            etag: self.meta.client_etag().map(str::to_owned),
            last_modified: self.meta.last_modified,
        }
    }

    fn version(&self, name: &ObjectKey) -> Version {
        Version::new(name, &self.meta, self.chunk_size, 0, self.purge)
    }

    /// An empty object has one chunk without bytes, so that it is evicted like others.
    pub(super) fn chunks(&self) -> u64 {
        self.meta.size.div_ceil(self.chunk_size).max(1)
    }

    pub(super) fn chunk_len(&self, chunk: u64) -> u64 {
        self.chunk_size
            .min(self.meta.size - chunk * self.chunk_size)
    }

    /// The store's keys of its chunks from `first` on, in order.
    pub(super) fn chunk_keys(
        &self,
        name: &ObjectKey,
        first: u64,
    ) -> impl Iterator<Item = Vec<u8>> + use<> {
        let (version, name) = (self.version(name), name.clone());
        (first..self.chunks()).map(move |chunk| version.chunk_key(&name, chunk))
    }

    /// The store's keys of some of its chunks, among them the first and the last.
    pub(super) fn sampled_keys(&self, name: &ObjectKey) -> impl Iterator<Item = Vec<u8>> + use<> {
        let (version, name, chunks) = (self.version(name), name.clone(), self.chunks());
        let step = chunks.div_ceil(LOOKED_UP_MAX);
        let sampled = (0..chunks).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let last = (!(chunks - 1).is_multiple_of(step)).then_some(chunks - 1);
        let sampled = sampled.chain(last);
        sampled.map(move |chunk| version.chunk_key(&name, chunk))
    }
}

fn hash(key: &[u8], rest: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(rest);
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: u64) -> Row {
        Row {
            meta: ObjectMeta {
                size,
                etag: Some("\"1\"".into()),
                ..ObjectMeta::default()
            },
            purge: 7,
            expires_unix_s: 8,
            number: 9,
            chunk_size: 10,
        }
    }

    #[test]
    fn a_row_is_read_whole_and_of_its_key_or_not_at_all() {
        let bytes = row(25).encode(b"b\0k");
        assert_eq!(Row::decode(b"b\0k", &bytes).unwrap(), row(25));
        assert!(Row::decode(b"b\0j", &bytes).is_err());
        for cut in 0..bytes.len() {
            assert!(Row::decode(b"b\0k", &bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Row::decode(b"b\0k", &other).is_err(), "{at}");
        }
    }

    #[test]
    fn the_first_and_the_last_chunk_are_sampled() {
        let name = ObjectKey::new("b", "k");
        for (size, expected) in [(0, 1), (1, 1), (25, 3), (640, 64), (650, 33), (100_000, 65)] {
            let row = row(size);
            let all: Vec<_> = row.chunk_keys(&name, 0).collect();
            let sampled: Vec<_> = row.sampled_keys(&name).collect();
            assert_eq!(all.len() as u64, row.chunks());
            assert_eq!(sampled.len(), expected, "{size}");
            assert_eq!(sampled.first(), all.first());
            assert_eq!(sampled.last(), all.last());
        }
    }
}
