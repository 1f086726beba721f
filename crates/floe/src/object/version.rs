//! Versions of objects, and the store's keys of their records.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use xxhash_rust::xxh3::Xxh3;

use super::conditional::is_weak;
use super::rules::Policy;
use crate::origin::{GetRequest, ObjectKey, ObjectMeta};
use crate::store::epoch::Epoch;

/// Identifies one version of one object: a hash of its name, entity tag, size,
/// modification time, chunk size and last purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Version(u128);

impl Version {
    /// `instance` distinguishes versions without a validator; 0 if there is one.
    pub(super) fn new(
        key: &ObjectKey,
        meta: &ObjectMeta,
        chunk_size: u64,
        instance: u128,
        purge: u64,
    ) -> Self {
        let mut hasher = Xxh3::new();
        // Each text follows its length, so different fields never give the same bytes.
        let mut text = |text: Option<&str>| {
            let length = text.map_or(u64::MAX, |t| t.len() as u64);
            hasher.update(&length.to_le_bytes());
            hasher.update(text.unwrap_or_default().as_bytes());
        };
        text(Some(key.bucket()));
        text(Some(key.key()));
        text(meta.etag.as_deref());
        let modified = meta
            .last_modified
            .map_or(i128::MAX, super::record::unix_nanoseconds);
        hasher.update(&modified.to_le_bytes());
        hasher.update(&meta.size.to_le_bytes());
        hasher.update(&chunk_size.to_le_bytes());
        hasher.update(&instance.to_le_bytes());
        if purge > 0 {
            hasher.update(&purge.to_le_bytes());
        }
        Version(hasher.digest128())
    }

    /// The store's key of a chunk: `c`, the version, the chunk's number, then the object's name.
    pub(super) fn chunk_key(self, name: &ObjectKey, chunk: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(26 + name.bucket().len() + name.key().len());
        key.push(b'c');
        key.extend_from_slice(&self.0.to_be_bytes());
        key.extend_from_slice(&chunk.to_be_bytes());
        push_name(&mut key, name);
        key
    }

    fn shard_hash(self) -> u64 {
        self.0 as u64
    }
}

/// The state of an object from before the origin was asked: what may make a later answer
/// wrong, and how the object is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Moment {
    /// The object's write epoch.
    pub(super) epoch: Epoch,
    /// The number of the object's last purge; 0 if there was none.
    pub(super) purge: u64,
    pub(super) policy: Policy,
}

/// One version of an object, as a request reads it.
#[derive(Clone, Debug)]
pub(super) struct ObjectVersion {
    pub(super) key: ObjectKey,
    pub(super) meta: ObjectMeta,
    pub(super) version: Version,
    pub(super) instance: u128,
    /// When its metadata was requested.
    pub(super) moment: Moment,
    /// Records of this version may be stored.
    pub(super) cacheable: bool,
    /// Peers lack it.
    pub(super) lacked: Lacked,
}

impl ObjectVersion {
    pub(super) fn chunk_size(&self) -> u64 {
        self.moment.policy.chunk_size
    }

    pub(super) fn chunk_of(&self, offset: u64) -> u64 {
        offset / self.chunk_size()
    }

    /// Offset of a chunk in the object, which must have that chunk.
    pub(super) fn chunk_start(&self, chunk: u64) -> u64 {
        chunk * self.chunk_size()
    }

    pub(super) fn chunk_len(&self, chunk: u64) -> u64 {
        self.chunk_size()
            .min(self.meta.size - self.chunk_start(chunk))
    }

    /// Offset in the object of a chunk's end.
    pub(super) fn end_of(&self, chunk: u64) -> u64 {
        self.chunk_start(chunk) + self.chunk_len(chunk)
    }

    pub(super) fn chunk_id(&self, chunk: u64) -> ChunkId {
        ChunkId {
            version: self.version,
            chunk,
        }
    }

    pub(super) fn chunk_key(&self, chunk: u64) -> Vec<u8> {
        self.version.chunk_key(&self.key, chunk)
    }

    /// A request for a range of this version.
    pub(super) fn request(&self, range: std::ops::Range<u64>, if_match: bool) -> GetRequest {
        GetRequest {
            range: Some(range),
            // `If-Match` compares strongly: a weak tag never matches.
            if_match: self
                .meta
                .etag
                .clone()
                .filter(|etag| if_match && !is_weak(etag)),
            ..GetRequest::default()
        }
    }

    /// True if metadata matches this version.
    pub(super) fn is_same(&self, meta: &ObjectMeta) -> bool {
        meta.size == self.meta.size
            && meta.etag == self.meta.etag
            && meta.last_modified == self.meta.last_modified
    }
}

/// Set once peers have been found to lack a version, by one of the fetches of a read.
#[derive(Debug, Default)]
pub(super) struct Lacked(AtomicBool);

impl Lacked {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

impl Clone for Lacked {
    fn clone(&self) -> Self {
        Lacked(AtomicBool::new(self.is_set()))
    }
}

/// A chunk of a version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkId {
    pub(super) version: Version,
    pub(super) chunk: u64,
}

impl ChunkId {
    pub(super) fn shard(self, shards: usize) -> usize {
        floe_core::hash::fast_range(
            self.version
                .shard_hash()
                .wrapping_add(self.chunk)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15),
            shards,
        )
    }
}

/// The bucket and the key of the object of one of the store's keys, and the version if it
/// is that of a chunk. `None` for other users' keys.
pub(super) fn parse_key(key: &[u8]) -> Option<(&str, &str, Option<Version>)> {
    let (name, version) = match key.split_first()? {
        (b'm', name) => (name, None),
        (b'c', rest) => {
            let (version, rest) = rest.split_first_chunk()?;
            let (_chunk, name) = rest.split_first_chunk::<8>()?;
            (name, Some(Version(u128::from_be_bytes(*version))))
        }
        _ => return None,
    };
    let (bucket, name) = std::str::from_utf8(name).ok()?.split_once('\0')?;
    Some((bucket, name, version))
}

/// `m`, then the object's name.
pub(super) fn metadata_key(key: &ObjectKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + key.bucket().len() + key.key().len());
    bytes.push(b'm');
    push_name(&mut bytes, key);
    bytes
}

/// A bucket name has no NUL, so the first NUL ends it.
fn push_name(bytes: &mut Vec<u8>, key: &ObjectKey) {
    bytes.extend_from_slice(key.bucket().as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(key.key().as_bytes());
}

/// Spreads objects over shards and stripes.
pub(super) fn name_hash(key: &ObjectKey) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(key.bucket().as_bytes());
    hasher.update(&[0]);
    hasher.update(key.key().as_bytes());
    hasher.digest()
}
