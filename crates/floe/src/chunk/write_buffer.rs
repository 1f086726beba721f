//! Memory for values that are written to flash.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::CacheError;

/// Bytes of one unit.
const UNIT_BYTES: u64 = 1024;

/// A bounded amount of memory; writers wait while it is full.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    room: Arc<Semaphore>,
    units: u32,
}

/// Reserved memory, returned on drop.
pub(crate) type BufferRoom = OwnedSemaphorePermit;

impl WriteBuffer {
    pub(crate) fn new(bytes: u64) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let units = usize::try_from(bytes / UNIT_BYTES)
            .unwrap_or(most)
            .min(most);
        WriteBuffer {
            room: Arc::new(Semaphore::new(units)),
            units: units as u32,
        }
    }

    /// Waits for `bytes` of memory, or for all of it if that is less.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<BufferRoom, CacheError> {
        Arc::clone(&self.room)
            .acquire_many_owned(self.units_of(bytes))
            .await
            .map_err(|_| CacheError::Closed)
    }

    /// Reserves without waiting.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<BufferRoom> {
        let units = self.units_of(bytes);
        Arc::clone(&self.room).try_acquire_many_owned(units).ok()
    }

    /// Grants no further room; waiting writers get [`CacheError::Closed`].
    pub(crate) fn close(&self) {
        self.room.close();
    }

    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).map_or(self.units, |units| units.min(self.units))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_writer_waits_while_the_buffer_is_full() {
        let buffer = WriteBuffer::new(4096);
        let half = buffer.try_reserve(2048);
        assert!(half.is_some());
        assert!(buffer.try_reserve(2049).is_none());
        let mut waiting = Box::pin(buffer.reserve(2049));
        assert!((&mut waiting).now_or_never().is_none());
        drop(half);
        assert!(waiting.now_or_never().is_some_and(|room| room.is_ok()));
    }

    #[test]
    fn more_than_the_buffer_takes_all_of_it() {
        let buffer = WriteBuffer::new(4000);
        let all = buffer.try_reserve(u64::MAX);
        assert!(all.is_some());
        assert!(buffer.try_reserve(1).is_none());
    }

    #[test]
    fn a_closed_buffer_rejects_waiting_writers() {
        let buffer = WriteBuffer::new(1024);
        let _all = buffer.try_reserve(1024);
        let mut waiting = Box::pin(buffer.reserve(1));
        assert!((&mut waiting).now_or_never().is_none());
        buffer.close();
        let result = waiting.now_or_never();
        assert!(matches!(result, Some(Err(CacheError::Closed))));
    }
}
