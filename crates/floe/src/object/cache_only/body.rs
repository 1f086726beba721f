//! The bytes of an object in a cache-only bucket, to the store and back.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use md5::{Digest, Md5};

use super::commit::Change;
use super::row::Row;
use super::shared::Shared;
use crate::error::CacheError;
use crate::origin::{BoxError, ObjectKey, OriginError, digest};
use crate::store::Store;
use crate::value::{PutOptions, PutOutcome};

/// Chunks that no name has yet. Dropping it removes them, unless they have one since.
pub(super) struct Written {
    shared: Arc<Shared>,
    name: ObjectKey,
    row: Row,
    /// No other row has these chunks.
    is_sole: bool,
}

impl Written {
    /// Chunks that another row has, too.
    pub(super) fn adopted(shared: &Arc<Shared>, name: &ObjectKey, row: Row) -> Self {
        Written {
            shared: Arc::clone(shared),
            name: name.clone(),
            row,
            is_sole: false,
        }
    }

    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    pub(super) fn set_content_etag(&mut self, etag: Option<String>) {
        self.row.meta.content_etag = etag;
    }

    pub(super) fn add_headers(&mut self, headers: impl IntoIterator<Item = (String, String)>) {
        self.row.meta.attributes.headers.extend(headers);
    }

    /// Waits for the change that gives them a name, and removes them if it fails. If the caller
    /// leaves meanwhile, they stay, because the change may have been made.
    pub(super) async fn keep_if(
        mut self,
        change: impl Future<Output = Result<(), OriginError>>,
    ) -> Result<(), OriginError> {
        let is_sole = std::mem::replace(&mut self.is_sole, false);
        let changed = change.await;
        self.is_sole = is_sole && changed.is_err();
        changed
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.is_sole {
            self.shared.names.change_later(Change::Discard {
                name: self.name.clone(),
                row: Box::new(self.row.clone()),
            });
        }
    }
}

/// Stores the bytes of a row that has no name yet, and computes their entity tag.
///
/// # Errors
/// Other than the row's number of bytes arrive; the store fails or has no room.
pub(super) async fn write<E: Into<BoxError>>(
    shared: &Arc<Shared>,
    name: &ObjectKey,
    row: Row,
    mut bytes: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<Written, OriginError> {
    let lifetime_s = match row.expires_unix_s {
        0 => None,
        expires => Some(expires.saturating_sub(shared.clock.unix_seconds()).max(1)),
    };
    let options = PutOptions {
        ttl: lifetime_s.map(Duration::from_secs),
        // The version is new: there is no older value.
        relaxed: true,
    };
    let size = row.meta.size;
    let mut written = Written {
        shared: Arc::clone(shared),
        name: name.clone(),
        row,
        is_sole: true,
    };
    let mut keys = written.row.chunk_keys(name, 0);
    let mut next = Bytes::new();
    let (mut received, mut md5) = (0, Md5::new());
    for chunk in 0..written.row.chunks() {
        let len = written.row.chunk_len(chunk);
        let key = keys.next().unwrap_or_default();
        let writer = shared.store.writer_unasked(&key, len, options);
        let mut writer = writer.map_err(of_store)?;
        let mut left = len;
        while left > 0 {
            if next.is_empty() {
                next = match bytes.next().await {
                    Some(piece) => piece.map_err(bad_upload)?,
                    None => return Err(wrong_length(size, received)),
                };
                received += next.len() as u64;
                continue;
            }
            // At most the piece's length, which is a usize.
            let part = next.split_to(left.min(next.len() as u64) as usize);
            md5.update(&part);
            left -= part.len() as u64;
            writer.write(part).await.map_err(of_store)?;
        }
        match writer.finish().await.map_err(of_store)? {
            PutOutcome::Stored => {}
            PutOutcome::RamOnly | PutOutcome::Dropped => {
                return Err(OriginError::Server {
                    status: 503,
                    message: "the cache device takes no writes".into(),
                });
            }
        }
    }
    while let Some(piece) = bytes.next().await {
        received += piece.map_err(bad_upload)?.len() as u64;
        if received > size {
            break;
        }
    }
    if received != size {
        return Err(wrong_length(size, received));
    }
    written.set_content_etag(Some(digest::of_bytes(md5)));
    Ok(written)
}

/// Reads a range of a row's bytes, which ends with `lost` at a chunk that is gone.
pub(super) fn read(
    store: &Store,
    name: &ObjectKey,
    row: &Row,
    range: Range<u64>,
    lost: OriginError,
) -> impl Stream<Item = Result<Bytes, OriginError>> + Send + use<> {
    let (store, row) = (store.clone(), row.clone());
    let chunks = range.start / row.chunk_size..range.end.div_ceil(row.chunk_size);
    let keys = row.chunk_keys(name, chunks.start);
    futures::stream::iter(chunks.zip(keys)).then(move |(chunk, key)| {
        let (store, lost, len) = (store.clone(), lost.clone(), row.chunk_len(chunk));
        let start = chunk * row.chunk_size;
        let part = range.start.max(start) - start..range.end.min(start + len) - start;
        async move {
            let value = store.get(&key).await.map_err(of_store)?;
            let value = value.filter(|value| value.bytes.len() as u64 == len);
            // The part is within the chunk, which is in memory.
            let part = part.start as usize..part.end as usize;
            Ok(value.ok_or(lost)?.bytes.slice(part))
        }
    })
}

fn bad_upload(error: impl Into<BoxError>) -> OriginError {
    let error: BoxError = error.into();
    match error.downcast::<OriginError>() {
        Ok(error) => *error,
        Err(error) => OriginError::BadUpload(error.to_string()),
    }
}

fn wrong_length(size: u64, received: u64) -> OriginError {
    OriginError::BadUpload(format!("{size} bytes were announced and {received} came"))
}

fn of_store(error: CacheError) -> OriginError {
    match error {
        error @ CacheError::ValueTooLarge { .. } | error @ CacheError::KeyTooLong { .. } => {
            OriginError::Rejected {
                status: 400,
                message: error.to_string(),
            }
        }
        error => OriginError::Server {
            status: 503,
            message: error.to_string(),
        },
    }
}
