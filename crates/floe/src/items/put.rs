//! Puts that need no wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::envelope;
use super::inner::{Inner, ItemError, KEY_HEAD_BYTES, Turn, Write, options};
use super::item::{HEAD_BYTES_MAX, NewItem};
use crate::cache::CachePut;

/// The result of [`ItemCache::put_now`](super::ItemCache::put_now).
#[derive(Debug)]
#[must_use]
pub enum PutNow {
    /// The item is stored, with this version.
    Stored(u64),
    /// The item has this version. It is stored if the future ends without an error.
    Begun(u64, PutEnd),
    /// Nothing was stored: [`ItemCache::put`](super::ItemCache::put) would have to wait first, or
    /// always does for such an item.
    WouldWait,
}

/// The rest of a put.
///
/// Until it ends or is dropped, other updates of the key wait, and so do those of keys that share
/// a lock with it. So poll or drop it before waiting for another update. Reads may find the item
/// before the future ends, and also if it fails or is dropped.
#[must_use]
pub struct PutEnd(Pin<Box<dyn Future<Output = Result<(), ItemError>> + Send>>);

impl fmt::Debug for PutEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutEnd").finish_non_exhaustive()
    }
}

impl Future for PutEnd {
    type Output = Result<(), ItemError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

/// See [`ItemCache::put_now`](super::ItemCache::put_now).
pub(super) fn put_now(
    inner: &Arc<Inner>,
    key: &[u8],
    item: &NewItem<&[u8]>,
) -> Result<PutNow, ItemError> {
    let stored_bytes = item.value.len() + HEAD_BYTES_MAX;
    if !inner
        .cache
        .begins_put(KEY_HEAD_BYTES + key.len(), stored_bytes)
    {
        return Ok(PutNow::WouldWait);
    }
    let now = inner.now_unix_s();
    let Some((write, turn)) = inner.try_begin_write(key)? else {
        return Ok(PutNow::WouldWait);
    };
    inner.check_len(item.value.len())?;
    let Some(expiry_unix_s) = item.expiry.ahead_of(now) else {
        return Ok(PutNow::WouldWait);
    };
    let Some(version) = inner.versions.issue(now) else {
        return Ok(PutNow::WouldWait);
    };
    // A key that is gained later counts from a higher version than this one.
    inner.check(&write)?;
    let head = envelope::encode_head(item, version, expiry_unix_s);
    let value = [head.as_slice(), item.value];
    let options = options(expiry_unix_s, now);
    let cache = &inner.cache;
    Ok(
        match cache.begin_put(write.stored.as_slice(), &value, options)? {
            None => PutNow::WouldWait,
            Some(CachePut::Done) if inner.is_admitted(&write) => PutNow::Stored(version),
            Some(put) => PutNow::Begun(version, end(inner, (write, turn), put)),
        },
    )
}

/// The rest of a put.
fn end(inner: &Arc<Inner>, (write, turn): (Write, Turn<'_>), put: CachePut) -> PutEnd {
    let turn = turn.kept(Arc::clone(inner));
    let inner = Arc::clone(inner);
    PutEnd(Box::pin(async move {
        inner.cache.finish_put(put, write.stored.as_slice()).await?;
        let acknowledged = inner.acknowledge(&write).await;
        drop(turn);
        acknowledged
    }))
}
