//! Writes one large value, piece by piece.
//!
//! A slow source holds at most two pieces of memory, and no zone before its
//! first piece is complete. Before that the value waits for a permit, which
//! limits the reserved space. The descriptor, written last, lists the pieces
//! and a checksum per 64 KiB.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::{
    LargeDescriptor, PieceHeader, RecordFlags, Sequence, unit_bytes, unit_checksum,
};
use floe_device::{Address, IoBuf, OpFuture};

use super::LargeValues;
use super::stream_scheduler::{StreamPermit, Waited};
use crate::chunk::stats::add;
use crate::chunk::value_stream::ValueStream;
use crate::chunk::write_buffer::{BufferRoom, WriteBuffer};
use crate::chunk::write_error::WriteError;
use crate::error::CacheError;
use crate::value::{PutOptions, PutOutcome, check_given, check_whole};

/// Most concurrent writes of one value's pieces.
const WINDOW: usize = 4;

/// A writer of a large value.
#[derive(Debug)]
pub(crate) struct LargeWriter {
    values: Arc<LargeValues>,
    key: Box<[u8]>,
    hash: KeyHash,
    len: u64,
    given: u64,
    expiry_unix_s: u32,
    relaxed: bool,
    /// Host GC copies the value: then it is neither scheduled nor counted as a put.
    is_copy: bool,
    /// The sequence in its pieces, drawn at the start.
    sequence: Sequence,
    stream: ValueStream,
    /// Memory for its pieces.
    buffer: Arc<WriteBuffer>,
    permit: Option<StreamPermit>,
    /// The piece that is being filled: header, then payload.
    fill: Option<Fill>,
    in_flight: VecDeque<InFlight>,
    piece_blocks: Vec<u32>,
    unit_checksums: Vec<u32>,
    failed: bool,
    finished: bool,
}

#[derive(Debug)]
struct Fill {
    buf: IoBuf,
    payload_bytes: usize,
    room: BufferRoom,
}

#[derive(Debug)]
struct InFlight {
    write: OpFuture<Address>,
    bytes: u64,
    _room: BufferRoom,
}

impl LargeWriter {
    /// Starts a value of `len` bytes, without reserving space.
    pub(crate) fn new(
        values: &Arc<LargeValues>,
        key: &[u8],
        len: u64,
        options: PutOptions,
    ) -> Self {
        let env = &values.env;
        let footprint_bytes = env.plan.large_footprint(key.len(), len);
        LargeWriter {
            key: key.into(),
            hash: env.hash(key),
            len,
            given: 0,
            expiry_unix_s: env.expiry(options),
            relaxed: options.relaxed,
            is_copy: false,
            sequence: env.draw_sequence(),
            stream: values.placement.stream(footprint_bytes),
            buffer: Arc::clone(&values.buffer),
            permit: None,
            fill: None,
            in_flight: VecDeque::new(),
            piece_blocks: Vec::new(),
            unit_checksums: Vec::new(),
            failed: false,
            finished: false,
            values: Arc::clone(values),
        }
    }

    /// Starts to copy the value at `from` into `stream`. Host GC has its own
    /// `buffer`, because users' writers may hold all of theirs while they wait
    /// for GC.
    pub(crate) fn copy(
        values: &Arc<LargeValues>,
        key: &[u8],
        from: Entry,
        stream: ValueStream,
        buffer: &Arc<WriteBuffer>,
    ) -> Self {
        let len = u64::from(from.len);
        let mut writer = LargeWriter::new(values, key, len, PutOptions::default());
        writer.expiry_unix_s = from.expiry_unix_s;
        writer.is_copy = true;
        writer.stream = stream;
        writer.buffer = Arc::clone(buffer);
        writer
    }

    /// Appends the next bytes; waits while the write buffer is full.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<(), CacheError> {
        self.permit.iter().for_each(StreamPermit::busy);
        let result = self.take(bytes).await;
        if let Some(permit) = &self.permit {
            permit.idle(self.values.env.clock.now());
        }
        result
    }

    async fn take(&mut self, mut bytes: Bytes) -> Result<(), CacheError> {
        self.given = check_given(self.len, self.given + bytes.len() as u64)?;
        while !bytes.is_empty() && !self.failed {
            let want = self.next_piece_bytes();
            if self.fill.is_none() {
                // Takes a permit and a slot before room in the write buffer,
                // which must not wait for them.
                if !self.has_permit().await || !self.stream.prepare().await {
                    self.failed = true;
                    break;
                }
                self.fill = Some(self.start_fill(want).await?);
            }
            let Some(fill) = &mut self.fill else { continue };
            let part = bytes.split_to(bytes.len().min(want - fill.payload_bytes));
            let at = self.stream.header_bytes() + fill.payload_bytes;
            fill.buf[at..at + part.len()].copy_from_slice(&part);
            fill.payload_bytes += part.len();
            if fill.payload_bytes == want {
                self.send_piece().await;
            }
        }
        Ok(())
    }

    /// Publishes the value. Returns `Dropped` if the device accepted it nowhere.
    pub(crate) async fn finish(mut self) -> Result<PutOutcome, CacheError> {
        check_whole(self.len, self.given)?;
        self.permit.iter().for_each(StreamPermit::busy);
        while !self.in_flight.is_empty() && !self.failed {
            self.wait_for_oldest().await;
        }
        let is_stored = !self.failed && self.publish().await?;
        self.finished = true;
        let outcome = match is_stored {
            true => PutOutcome::Stored,
            false => PutOutcome::Dropped,
        };
        if self.is_copy {
            return Ok(outcome);
        }
        let bytes = self.key.len() as u64 + self.len;
        let counters = &self.values.env.counters;
        if is_stored {
            add(&counters.puts, 1);
            add(&counters.put_bytes, bytes);
        } else {
            add(&counters.puts_dropped, 1);
            add(&counters.put_bytes_dropped, bytes);
            // The older value must be invalidated even though none replaces it.
            self.forget_older().await?;
        }
        Ok(outcome)
    }

    async fn publish(&mut self) -> Result<bool, CacheError> {
        let descriptor = LargeDescriptor {
            hash: self.hash,
            // Set by the stream when it publishes the value.
            sequence: Sequence::default(),
            stream: self.sequence,
            key: self.key.to_vec(),
            value_bytes: self.len,
            expiry_unix_s: self.expiry_unix_s,
            flags: RecordFlags::default(),
            piece_bytes: self.values.env.plan.piece_bytes,
            piece_blocks: std::mem::take(&mut self.piece_blocks),
            unit_checksums: std::mem::take(&mut self.unit_checksums),
        };
        let published = self.stream.publish(descriptor, self.relaxed).await?;
        let is_stored = published.is_some();
        if let Some(published) = published {
            let descriptors = &self.values.descriptors;
            descriptors.insert(published.checksum, published.descriptor);
        }
        Ok(is_stored)
    }

    async fn forget_older(&self) -> Result<(), CacheError> {
        let values = &self.values;
        let tombstones = {
            let mut shard = values.index.shard_of(self.hash).lock();
            let at = values.env.draw_sequence();
            values.placement.invalidate(&mut shard, self.hash, at).1
        };
        values.placement.settle(tombstones, false).await
    }

    /// Waits for a permit. False if there will be none.
    async fn has_permit(&mut self) -> bool {
        if self.permit.is_some() || self.is_copy {
            return true;
        }
        let (env, scheduler) = (&self.values.env, &self.values.scheduler);
        let Some((permit, Waited(waited))) = scheduler.wait(&env.clock, self.len).await else {
            return false;
        };
        add(&env.counters.stream_waits, u64::from(waited));
        self.permit = Some(permit);
        true
    }

    /// Payload bytes of the piece being filled.
    fn next_piece_bytes(&self) -> usize {
        let piece_bytes = u64::from(self.values.env.plan.stream_bytes());
        let sent = u64::from(self.pieces_sent()) * piece_bytes;
        (self.len - sent).min(piece_bytes) as usize
    }

    fn pieces_sent(&self) -> u32 {
        (self.piece_blocks.len() + self.in_flight.len()) as u32
    }

    async fn start_fill(&mut self, payload_bytes: usize) -> Result<Fill, CacheError> {
        let payload = self.values.env.plan.geometry.round_up(payload_bytes as u64);
        let bytes = self.stream.header_bytes() as u64 + payload;
        let room = match self.buffer.try_reserve(bytes) {
            Some(room) => room,
            None => {
                // A writer must not wait for room while it holds some: all
                // writers could deadlock.
                while !self.in_flight.is_empty() {
                    self.wait_for_oldest().await;
                }
                let reserved = self.buffer.reserve(bytes).await;
                reserved.map_err(|_| self.values.env.write_error())?
            }
        };
        Ok(Fill {
            buf: self.values.env.device.allocate(bytes as usize),
            payload_bytes: 0,
            room,
        })
    }

    async fn send_piece(&mut self) {
        let Some(mut fill) = self.fill.take() else {
            return;
        };
        let bytes = fill.payload_bytes as u64;
        if let Some(permit) = &self.permit {
            // Counted while it waits for a zone too, since the device has enough to write.
            permit.sent(bytes);
        }
        let Some(life) = self.stream.reserve().await else {
            self.failed = true;
            return;
        };
        let header = self.stream.header_bytes();
        let end = header + fill.payload_bytes;
        let unit = unit_bytes(self.values.env.plan.piece_bytes) as usize;
        for bytes in fill.buf[header..end].chunks(unit) {
            let number = self.unit_checksums.len() as u32;
            let checksum = unit_checksum(life.generation, self.hash, self.sequence, number, bytes);
            self.unit_checksums.push(checksum);
        }
        fill.buf[end..].fill(0);
        let piece = PieceHeader {
            hash: self.hash,
            sequence: self.sequence,
            number: self.pieces_sent(),
            payload_bytes: fill.payload_bytes as u32,
        };
        let offset = u64::from(piece.number) * u64::from(self.values.env.plan.stream_bytes());
        match self.stream.send(piece, offset, fill.buf) {
            Ok(write) => self.in_flight.push_back(InFlight {
                write,
                bytes,
                _room: fill.room,
            }),
            Err(error) => {
                tracing::error!(%error, "a piece could not be encoded");
                self.failed = true;
            }
        }
        if self.in_flight.len() >= WINDOW {
            self.wait_for_oldest().await;
        }
    }

    /// Waits for the oldest piece in flight.
    async fn wait_for_oldest(&mut self) {
        let Some(piece) = self.in_flight.front_mut() else {
            return;
        };
        // It stays in the list during the wait, so that a dropped writer still has it.
        let written = (&mut piece.write).await;
        let bytes = piece.bytes;
        self.in_flight.pop_front();
        if let Some(permit) = &self.permit {
            permit.written(bytes);
        }
        match written {
            Ok(at) => {
                let payload = at.offset + self.stream.header_bytes() as u64;
                let block = payload / u64::from(self.values.env.block_size());
                self.piece_blocks.push(block as u32);
            }
            Err(error) => {
                self.failed = true;
                self.stream.fail(&WriteError::from(error));
            }
        }
    }
}

impl Drop for LargeWriter {
    fn drop(&mut self) {
        if !self.finished && self.given > 0 {
            add(&self.values.env.counters.streams_aborted, 1);
        }
        let writes = self.in_flight.drain(..).map(|piece| piece.write);
        self.stream.abandon(writes.collect());
    }
}
