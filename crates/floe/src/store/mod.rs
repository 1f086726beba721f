//! Keys to values: the RAM tier over an engine on flash.
//!
//! What it refuses to know: objects, origins, versions, protocols.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::error::CacheError;

/// Where a value was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// In the RAM tier.
    Ram,
    /// In a write buffer on its way to flash.
    Buffer,
    /// On flash.
    Flash,
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub struct Value {
    /// The bytes.
    pub bytes: Bytes,
    /// Where they were found.
    pub tier: Tier,
}

/// How to store a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// Forget the value after this long; `None` keeps it until evicted.
    pub ttl: Option<Duration>,
    /// The previous value of this key may reappear after a crash. Saves the
    /// durable note that an overwrite otherwise costs; right for values that
    /// are equivalent or re-validated before use, such as refreshed metadata.
    pub relaxed: bool,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The value is in the cache.
    Admitted,
    /// The cache had no room to buffer it, or no zone to put it in; counted in
    /// the statistics. Any older value of the key is gone all the same.
    Refused,
}

/// A stored range, read piece by piece.
pub struct ValueReader {
    len: u64,
    tier: Tier,
    rest: Option<Bytes>,
}

/// A read that failed after it began; the caller fetches the rest elsewhere.
/// The value has been quarantined: the next lookup misses.
#[derive(Debug, thiserror::Error)]
#[error("the value could not be read back from flash")]
pub struct ReadFault;

impl ValueReader {
    /// Bytes of the whole value (not of the range).
    pub fn value_len(&self) -> u64 {
        self.len
    }
    /// Where the value was found.
    pub fn tier(&self) -> Tier {
        self.tier
    }
    /// The next piece of the range in order, or `None` at its end.
    pub async fn next(&mut self) -> Option<Result<Bytes, ReadFault>> {
        self.rest.take().map(Ok)
    }
}

/// A value being written piece by piece. Dropping it without
/// [`finish`](ValueWriter::finish) forgets what was written.
pub struct ValueWriter {
    store: Store,
    key: Vec<u8>,
    len: u64,
    buf: BytesMut,
}

impl ValueWriter {
    /// Adds the next bytes. Waits while the write buffers are full.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), CacheError> {
        self.buf.extend_from_slice(&bytes);
        Ok(())
    }
    /// Makes the value visible.
    pub async fn finish(self) -> Result<Admission, CacheError> {
        if self.buf.len() as u64 != self.len {
            return Err(CacheError::WrongLength {
                announced: self.len,
                given: self.buf.len() as u64,
            });
        }
        let ValueWriter {
            store, key, buf, ..
        } = self;
        store.put(&key, buf.freeze(), PutOptions::default()).await
    }
}

/// Keys to values, newest acknowledged value or a miss. Cheap to clone.
#[derive(Clone, Default)]
pub struct Store {
    map: Arc<Mutex<HashMap<Vec<u8>, Bytes>>>,
}

impl Store {
    /// The whole value of `key`.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, CacheError> {
        Ok(self.map.lock().get(key).cloned().map(|bytes| Value {
            bytes,
            tier: Tier::Ram,
        }))
    }
    /// The bytes `range` of the value of `key` (clipped to its length), streamed.
    pub async fn read(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<Option<ValueReader>, CacheError> {
        Ok(self.get(key).await?.map(|v| {
            let len = v.bytes.len() as u64;
            let end = range.end.min(len);
            let start = range.start.min(end);
            ValueReader {
                len,
                tier: v.tier,
                rest: Some(v.bytes.slice(start as usize..end as usize)),
            }
        }))
    }
    /// Stores `value`, replacing what `key` had.
    pub async fn put(
        &self,
        key: &[u8],
        value: Bytes,
        _options: PutOptions,
    ) -> Result<Admission, CacheError> {
        self.map.lock().insert(key.to_vec(), value);
        Ok(Admission::Admitted)
    }
    /// Starts to store a value of `len` bytes that arrives piece by piece.
    /// Nothing is held on the device until the first bytes are written.
    pub async fn writer(
        &self,
        key: &[u8],
        len: u64,
        _options: PutOptions,
    ) -> Result<ValueWriter, CacheError> {
        Ok(ValueWriter {
            store: self.clone(),
            key: key.to_vec(),
            len,
            buf: BytesMut::new(),
        })
    }
    /// Forgets `key`; says whether it was there. When it returns, no crash brings the value back.
    pub async fn delete(&self, key: &[u8]) -> Result<bool, CacheError> {
        Ok(self.map.lock().remove(key).is_some())
    }
}
