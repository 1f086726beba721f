//! Storing a value that arrives piece by piece.

use bytes::Bytes;

use super::Cache;
use crate::error::CacheError;
use crate::store::{Admission, ValueWriter};

/// A value being written piece by piece. Dropping it without
/// [`finish`](CacheWriter::finish) forgets what was written.
#[derive(Debug)]
pub struct CacheWriter {
    cache: Cache,
    key: Box<[u8]>,
    writer: ValueWriter,
}

impl CacheWriter {
    pub(super) fn new(cache: Cache, key: &[u8], writer: ValueWriter) -> Self {
        CacheWriter {
            cache,
            key: key.into(),
            writer,
        }
    }

    /// Adds the next bytes. Waits while the write buffers are full.
    ///
    /// # Errors
    /// As [`ValueWriter::write`].
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), CacheError> {
        self.writer.write(bytes).await
    }

    /// Makes the value visible.
    ///
    /// # Errors
    /// As [`ValueWriter::finish`].
    pub async fn finish(self) -> Result<Admission, CacheError> {
        let admission = self.writer.finish().await?;
        self.cache.forget_in_tiny(&self.key).await?;
        Ok(admission)
    }
}
