//! Writes a value piece by piece.

use bytes::Bytes;

use super::tiny_tier::TinyTier;
use crate::error::CacheError;
use crate::store::ValueWriter;
use crate::value::PutOutcome;

/// Writes a value piece by piece. Dropping it without
/// [`finish`](CacheWriter::finish) discards the pieces.
#[derive(Debug)]
pub struct CacheWriter {
    tiny: Option<TinyTier>,
    key: Box<[u8]>,
    writer: ValueWriter,
}

impl CacheWriter {
    pub(super) fn new(tiny: Option<TinyTier>, key: &[u8], writer: ValueWriter) -> Self {
        CacheWriter {
            tiny,
            key: key.into(),
            writer,
        }
    }

    /// Appends the next bytes. Waits while the write buffers are full.
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
    pub async fn finish(self) -> Result<PutOutcome, CacheError> {
        let admission = self.writer.finish().await?;
        if let Some(tiny) = &self.tiny {
            tiny.forget(&self.key).await?;
        }
        Ok(admission)
    }
}
