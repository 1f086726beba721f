//! The destination of a large value's pieces: a log or a slot.

use floe_core::layout::{LargeDescriptor, PieceHeader, ZoneLife};
use floe_device::{Address, IoBuf, OpFuture};

use super::flash_value::Published;
use super::log::LogStream;
use super::slots::SlotStream;
use super::write_error::WriteError;
use crate::error::CacheError;

/// The destination of a large value's pieces.
#[derive(Debug)]
pub(crate) enum ValueStream {
    Log(LogStream),
    Slot(SlotStream),
}

impl ValueStream {
    /// Waits for a slot, which must be held before room in the write buffer.
    /// False if there will be none.
    pub(crate) async fn prepare(&mut self) -> bool {
        match self {
            ValueStream::Log(_) => true,
            ValueStream::Slot(stream) => stream.reserve().await.is_some(),
        }
    }

    /// The life of the value's zone; the first call waits for space. `None` if
    /// there will be none.
    pub(crate) async fn reserve(&mut self) -> Option<ZoneLife> {
        match self {
            ValueStream::Log(stream) => stream.reserve().await,
            ValueStream::Slot(stream) => stream.reserve().await,
        }
    }

    /// Bytes before a piece's payload.
    pub(crate) fn header_bytes(&self) -> usize {
        match self {
            ValueStream::Log(stream) => stream.header_bytes(),
            ValueStream::Slot(_) => 0,
        }
    }

    /// Starts to write a piece: `offset` is that of its payload in the value,
    /// and `buf` has the payload after the header.
    pub(crate) fn send(
        &self,
        piece: PieceHeader,
        offset: u64,
        buf: IoBuf,
    ) -> Result<OpFuture<Address>, WriteError> {
        match self {
            ValueStream::Log(stream) => stream.send(piece, buf),
            ValueStream::Slot(stream) => stream.send(offset, buf),
        }
    }

    /// Handles a failed write: the value is not stored, and its zone or slot accepts no more.
    pub(crate) fn fail(&mut self, error: &WriteError) {
        match self {
            ValueStream::Log(stream) => stream.fail(error),
            ValueStream::Slot(stream) => stream.fail(error),
        }
    }

    /// Writes the descriptor, publishes the value, and waits for the tombstones
    /// of the value that it replaced. `None` if it is not stored.
    pub(crate) async fn publish(
        &mut self,
        descriptor: LargeDescriptor,
        relaxed: bool,
    ) -> Result<Option<Published>, CacheError> {
        match self {
            ValueStream::Log(stream) => stream.publish(descriptor, relaxed).await,
            ValueStream::Slot(stream) => stream.publish(descriptor, relaxed).await,
        }
    }

    /// Handles the drop of the writer while `writes` are running.
    pub(crate) fn abandon(&mut self, writes: Vec<OpFuture<Address>>) {
        if let ValueStream::Slot(stream) = self {
            stream.abandon(writes);
        }
    }
}
