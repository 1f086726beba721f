//! Large values: streamed onto flash in pieces, read back in pieces.
//!
//! A value's room is promised in one zone when its first piece is written, so
//! a slow source holds neither a zone nor more than two pieces of RAM; before
//! that it waits for a permit, so that little is promised at a time. Its
//! pieces lie wherever their appends landed; the descriptor written last says
//! where, and what every 64 KiB sum to.

mod publish;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::{
    PieceHeader, Sequence, ZoneLife, encode_piece_header, unit_bytes, unit_checksum,
};
use floe_device::{Address, IoBuf, OpFuture};
use tokio::sync::OwnedSemaphorePermit;

use super::host_gc::Relocation;
use super::place::{Placement, Purpose};
use super::slots::{LargeValue, SlotHold};
use super::space::Space;
use super::stats::add;
use super::stream_scheduler::{StreamPermit, Waited};
use super::write::WriteError;
use super::{Engine, room_units};
use crate::error::CacheError;
use crate::value::{PutOptions, PutOutcome, check_given, check_whole};

/// Pieces of one value that are being written at once.
const WINDOW: usize = 4;

/// A large value being written.
#[derive(Debug)]
pub(crate) struct LargeWriter {
    engine: Arc<Engine>,
    key: Box<[u8]>,
    hash: KeyHash,
    len: u64,
    given: u64,
    expiry_unix_s: u32,
    relaxed: bool,
    /// Set when host GC moves a value.
    moving: Option<Moving>,
    /// The sequence it was started with, which its pieces carry.
    stream: Sequence,
    /// The piece being filled: one header block, then payload.
    fill: Option<Fill>,
    placement: Option<Placement>,
    /// Leave to stream in; host GC needs none.
    permit: Option<StreamPermit>,
    /// Instead of a placement, over slots.
    slot: Option<SlotHold>,
    in_flight: VecDeque<InFlight>,
    piece_blocks: Vec<u32>,
    unit_checksums: Vec<u32>,
    failed: bool,
    finished: bool,
}

/// A value that host GC moves.
#[derive(Debug)]
struct Moving {
    from: Entry,
    /// The value's own.
    sequence: Sequence,
    relocation: Arc<Relocation>,
}

#[derive(Debug)]
struct Fill {
    buf: IoBuf,
    payload_bytes: usize,
    room: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct InFlight {
    landed: OpFuture<Address>,
    bytes: u64,
    _room: OwnedSemaphorePermit,
}

impl LargeWriter {
    /// Starts a value of `len` bytes; nothing is placed yet.
    pub(crate) fn new(engine: Arc<Engine>, key: &[u8], len: u64, options: PutOptions) -> Self {
        let hash = engine.hash(key);
        let stream = engine.next_sequence();
        LargeWriter {
            expiry_unix_s: engine.expiry(options),
            relaxed: options.relaxed,
            moving: None,
            engine,
            key: key.into(),
            hash,
            len,
            given: 0,
            stream,
            fill: None,
            placement: None,
            permit: None,
            slot: None,
            in_flight: VecDeque::new(),
            piece_blocks: Vec::new(),
            unit_checksums: Vec::new(),
            failed: false,
            finished: false,
        }
    }

    /// Starts to copy the value at `from`, of sequence `sequence`, elsewhere.
    pub(super) fn relocation(
        relocation: Arc<Relocation>,
        key: &[u8],
        from: Entry,
        sequence: Sequence,
    ) -> Self {
        let len = u64::from(from.len);
        let mut writer = LargeWriter::new(relocation.engine(), key, len, PutOptions::default());
        writer.expiry_unix_s = from.expiry_unix_s;
        writer.moving = Some(Moving {
            from,
            sequence,
            relocation,
        });
        writer
    }

    /// Adds the next bytes; waits while the write buffer is full.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<(), CacheError> {
        self.permit.iter().for_each(StreamPermit::busy);
        let result = self.take(bytes).await;
        if let Some(permit) = &self.permit {
            permit.idle(self.engine.clock.now());
        }
        result
    }

    async fn take(&mut self, mut bytes: Bytes) -> Result<(), CacheError> {
        self.given = check_given(self.len, self.given + bytes.len() as u64)?;
        while !bytes.is_empty() && !self.failed {
            let header = self.header_bytes();
            let want = self.next_piece_bytes();
            if self.fill.is_none() {
                // A permit and a slot first: room in the write buffer must not wait for them.
                if !self.has_permit().await || !self.has_slot().await {
                    self.failed = true;
                    break;
                }
                self.fill = Some(self.start_fill(want).await?);
            }
            let Some(fill) = &mut self.fill else { continue };
            let part = bytes.split_to(bytes.len().min(want - fill.payload_bytes));
            let at = header + fill.payload_bytes;
            fill.buf[at..at + part.len()].copy_from_slice(&part);
            fill.payload_bytes += part.len();
            if fill.payload_bytes == want {
                self.send_piece().await?;
            }
        }
        Ok(())
    }

    /// Makes the value visible. `Refused` if the device took it nowhere.
    pub(crate) async fn finish(mut self) -> Result<PutOutcome, CacheError> {
        check_whole(self.len, self.given)?;
        self.permit.iter().for_each(StreamPermit::busy);
        while !self.in_flight.is_empty() && !self.failed {
            self.reap().await;
        }
        let admission = if self.failed {
            None
        } else {
            self.publish().await?
        };
        self.finished = true;
        let bytes = self.key.len() as u64 + self.len;
        match admission {
            Some(()) if self.moving.is_some() => Ok(PutOutcome::Stored),
            None if self.moving.is_some() => Ok(PutOutcome::Dropped),
            Some(()) => {
                add(&self.engine.counters.puts, 1);
                add(&self.engine.counters.put_bytes, bytes);
                Ok(PutOutcome::Stored)
            }
            None => {
                add(&self.engine.counters.puts_dropped, 1);
                add(&self.engine.counters.put_bytes_dropped, bytes);
                // What was there before is replaced by nothing, as promised.
                let (deaths, _) = self.invalidate();
                self.engine.settle(deaths).await?;
                Ok(PutOutcome::Dropped)
            }
        }
    }

    /// Waits until this value may stream in. False if it never may.
    async fn has_permit(&mut self) -> bool {
        if self.permit.is_some() || self.moving.is_some() {
            return true;
        }
        let engine = Arc::clone(&self.engine);
        let Some((permit, Waited(waited))) = engine.streams.wait(&engine.clock, self.len).await
        else {
            return false;
        };
        add(&engine.counters.stream_waits, u64::from(waited));
        self.permit = Some(permit);
        true
    }

    /// Over slots, holds one from now on. False if none will ever be free.
    async fn has_slot(&mut self) -> bool {
        if self.engine.slots().is_some() && self.slot.is_none() {
            self.slot = self.engine.hold_slot().await;
            return self.slot.is_some();
        }
        true
    }

    /// Bytes before a piece's payload; none in a slot.
    fn header_bytes(&self) -> usize {
        match self.engine.slots() {
            None => self.engine.plan.geometry.block_size as usize,
            Some(_) => 0,
        }
    }

    /// Payload bytes of the piece being filled.
    fn next_piece_bytes(&self) -> usize {
        let sent = self.unit_bytes_sent();
        (self.len - sent).min(u64::from(self.engine.plan.stream_bytes())) as usize
    }

    fn unit_bytes_sent(&self) -> u64 {
        (self.piece_blocks.len() + self.in_flight.len()) as u64
            * u64::from(self.engine.plan.stream_bytes())
    }

    async fn start_fill(&mut self, payload_bytes: usize) -> Result<Fill, CacheError> {
        let bytes =
            self.header_bytes() + self.engine.plan.geometry.round_up(payload_bytes as u64) as usize;
        let room = self.reserve_buffer(bytes as u64).await?;
        Ok(Fill {
            buf: self.engine.device.allocate(bytes),
            payload_bytes: 0,
            room,
        })
    }

    async fn reserve_buffer(&mut self, bytes: u64) -> Result<OwnedSemaphorePermit, CacheError> {
        // Host GC has room of its own: users' writers may hold all of theirs while they wait for GC.
        let pool = match &self.engine.placement {
            Space::Log(log) if self.moving.is_some() => &log.gc_room,
            _ => &self.engine.room,
        };
        let pool = Arc::clone(pool);
        let units = room_units(bytes.min(self.engine.plan.write_buffer_bytes));
        if let Ok(room) = Arc::clone(&pool).try_acquire_many_owned(units) {
            return Ok(room);
        }
        // Nobody waits for room while holding some, or all could wait for each other.
        while !self.in_flight.is_empty() {
            self.reap().await;
        }
        pool.acquire_many_owned(units)
            .await
            .map_err(|_| CacheError::Closed)
    }

    async fn send_piece(&mut self) -> Result<(), CacheError> {
        let Some(mut fill) = self.fill.take() else {
            return Ok(());
        };
        let bytes = fill.payload_bytes as u64;
        if let Some(permit) = &self.permit {
            // Also while it waits for a zone: there is enough to write.
            permit.sent(bytes);
        }
        let Some(life) = self.place().await else {
            self.failed = true;
            return Ok(());
        };
        let number = (self.piece_blocks.len() + self.in_flight.len()) as u32;
        let header = self.header_bytes();
        let payload = &fill.buf[header..header + fill.payload_bytes];
        let unit = unit_bytes(self.engine.plan.piece_bytes) as usize;
        for bytes in payload.chunks(unit) {
            let number = self.unit_checksums.len() as u32;
            self.unit_checksums.push(unit_checksum(
                life.generation,
                self.hash,
                self.stream,
                number,
                bytes,
            ));
        }
        let end = header + fill.payload_bytes;
        fill.buf[end..].fill(0);
        if let Some(slot) = &self.slot {
            let offset = u64::from(number) * u64::from(self.engine.plan.stream_bytes());
            let landed = slot.write(offset, fill.buf);
            self.sent(landed, bytes, fill.room).await;
            return Ok(());
        }
        let piece = PieceHeader {
            hash: self.hash,
            sequence: self.stream,
            number,
            payload_bytes: fill.payload_bytes as u32,
        };
        if let Err(error) =
            encode_piece_header(self.engine.id, life, piece, header as u32, &mut fill.buf)
        {
            tracing::error!(%error, "a piece could not be encoded");
            self.failed = true;
            return Ok(());
        }
        let handle = self
            .placement
            .as_ref()
            .map_or_else(Default::default, Placement::handle);
        let landed = self
            .engine
            .device
            .append(life.zone, fill.buf.freeze(), handle);
        self.sent(landed, bytes, fill.room).await;
        Ok(())
    }

    async fn sent(&mut self, landed: OpFuture<Address>, bytes: u64, room: OwnedSemaphorePermit) {
        self.in_flight.push_back(InFlight {
            landed,
            bytes,
            _room: room,
        });
        if self.in_flight.len() >= WINDOW {
            self.reap().await;
        }
    }

    /// The zone of this value; promised on the first call.
    async fn place(&mut self) -> Option<ZoneLife> {
        if self.engine.slots().is_some() {
            return self.slot.as_ref().map(SlotHold::life);
        }
        if self.placement.is_none() {
            let bytes = self.engine.plan.large_footprint(self.key.len(), self.len);
            let purpose = if self.moving.is_some() {
                Purpose::HostGc
            } else {
                Purpose::User
            };
            self.placement = self.engine.place_for(purpose, bytes, 1).await;
            if let (Some(placement), Some(moving)) = (&self.placement, &self.moving) {
                moving.relocation.also(placement.life().zone);
            }
        }
        self.placement.as_ref().map(Placement::life)
    }

    /// Waits for the oldest piece in flight.
    async fn reap(&mut self) {
        let Some(piece) = self.in_flight.front_mut() else {
            return;
        };
        // Still listed while it is waited for: who drops the writer must know of it.
        let landed = (&mut piece.landed).await;
        let bytes = piece.bytes;
        self.in_flight.pop_front();
        if let Some(permit) = &self.permit {
            permit.landed(bytes);
        }
        match landed {
            Ok(at) => {
                let block = u64::from(self.engine.plan.geometry.block_size);
                self.piece_blocks.push((at.offset / block) as u32 + 1);
            }
            Err(error) => self.give_up_zone(&error.into()),
        }
    }

    fn give_up_zone(&mut self, error: &WriteError) {
        tracing::warn!(%error, "a large value could not be written");
        add(&self.engine.counters.write_errors, 1);
        self.failed = true;
        if let Some(placement) = self.placement.take() {
            placement.fail(error);
        }
        if let Some(slot) = self.slot.take() {
            slot.fail();
            self.engine.note_no_space(error.is_no_space());
        }
    }

    /// Writes the descriptor into the slot, and only then enters the value.
    async fn publish_in_slot(&mut self) -> Result<Option<()>, CacheError> {
        let value = LargeValue {
            hash: self.hash,
            key: self.key.to_vec(),
            len: self.len,
            expiry_unix_s: self.expiry_unix_s,
            stream: self.stream,
            unit_checksums: std::mem::take(&mut self.unit_checksums),
        };
        let Some(slot) = &self.slot else {
            return Ok(None);
        };
        let (descriptor, checksum) = match slot.describe(value).await {
            Ok(described) => described,
            Err(error) => {
                self.give_up_zone(&error);
                return Ok(None);
            }
        };
        let Some(slot) = self.slot.take() else {
            return Ok(None);
        };
        self.engine
            .descriptors
            .insert((self.hash, checksum), Arc::clone(&descriptor));
        let entered = slot.enter(&descriptor, checksum, self.relaxed).await?;
        Ok(entered.then_some(()))
    }
}

impl Drop for LargeWriter {
    fn drop(&mut self) {
        if !self.finished && (self.given > 0 || self.placement.is_some()) {
            add(&self.engine.counters.streams_aborted, 1);
        }
        if let Some(slot) = self.slot.take() {
            slot.abandon(self.in_flight.drain(..).map(|piece| piece.landed).collect());
        }
    }
}
