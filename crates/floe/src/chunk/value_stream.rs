//! A large value on its way to flash, in a log or in a slot.

use floe_core::layout::{LargeDescriptor, PieceHeader, ZoneLife};
use floe_device::{Address, IoBuf, OpFuture};

use super::flash_value::Published;
use super::log::LogStream;
use super::slots::SlotStream;
use super::write_error::WriteError;
use crate::error::CacheError;

/// The receiver of a large value's pieces.
#[derive(Debug)]
pub(crate) enum ValueStream {
    Log(LogStream),
    Slot(SlotStream),
}

impl ValueStream {
    /// Waits for what must be held before room in the write buffer is. False if
    /// there will never be any.
    pub(crate) async fn prepare(&mut self) -> bool {
        match self {
            ValueStream::Log(_) => true,
            ValueStream::Slot(stream) => stream.reserve().await.is_some(),
        }
    }

    /// The life that the value lies in; waits for room on the first call. `None`
    /// if there will never be any.
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

    /// Starts to write a piece, whose payload is at `offset` of the value, and in
    /// `buf` behind the header.
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

    /// A piece could not be written: the value is not stored, and its place takes
    /// no more.
    pub(crate) fn fail(&mut self, error: &WriteError) {
        match self {
            ValueStream::Log(stream) => stream.fail(error),
            ValueStream::Slot(stream) => stream.fail(error),
        }
    }

    /// Writes the descriptor, enters the value into the index, and waits for the
    /// tombstones of the value that it replaced. `None` if it is not stored.
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

    /// The writer was dropped while `writes` are under way.
    pub(crate) fn abandon(&mut self, writes: Vec<OpFuture<Address>>) {
        if let ValueStream::Slot(stream) = self {
            stream.abandon(writes);
        }
    }
}
