//! Reads one large value: first the descriptor, then whole units of the range,
//! in a bounded window ahead of the consumer.
//!
//! A reader joins a running read of the same bytes, so readers that begin
//! together read a value once. Adjacent parts are read together, so that a
//! flash page that two of them share is read once.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::{Entry, LargeReads};
use floe_core::hash::KeyHash;
use floe_core::layout::{LargeDescriptor, PieceRead, ZoneLife, large_descriptor_bytes, unit_bytes};
use floe_device::Address;
use tokio::sync::OwnedSemaphorePermit;

use super::LargeValues;
use super::reads::{PART_BYTES, ReadError, Room, SharedBytes};
use crate::chunk::flash_value::FlashValue;
use crate::chunk::stats::add;
use crate::chunk::zone_state::ZoneStates;
use crate::value::ReadFault;

/// Most parts of one value that are being read or wait for their consumer.
const WINDOW: u32 = 8;
/// Most parts of one read.
const PARTS_TOGETHER: u32 = 4;

/// A reader of a large value or a range of it.
#[derive(Debug)]
pub(crate) struct LargeReader {
    values: Arc<LargeValues>,
    hash: KeyHash,
    entry: Entry,
    life: ZoneLife,
    descriptor: Arc<LargeDescriptor>,
    range: Range<u64>,
    ahead: VecDeque<ReadAhead>,
    reads: VecDeque<PieceRead>,
    promotes: bool,
}

/// Parts that are being read together, or wait for their consumer.
#[derive(Debug)]
struct ReadAhead {
    read: PieceRead,
    parts: u32,
    bytes: SharedBytes,
    /// Room for the part that the shared read's own room excludes, if this
    /// reader already has another such part.
    _room: Option<OwnedSemaphorePermit>,
}

impl LargeReader {
    /// Reads and verifies the descriptor, before or after the values that wait
    /// to stream in. `None` is a miss.
    pub(crate) async fn open(
        values: Arc<LargeValues>,
        key: &[u8],
        value: FlashValue<'_>,
        range: Range<u64>,
        order: LargeReads,
    ) -> Option<Self> {
        let states = Arc::clone(values.index.states());
        let (hash, entry, generation) = (value.hash, value.entry, value.generation);
        let mut pin = value.pin;
        if order == LargeReads::InTurn {
            // Not pinned during the wait: a waiting stream may need this zone.
            drop(pin);
            values.scheduler.pass().await;
            pin = ZoneStates::pin(&*states, entry.place.zone, generation)?;
        }
        let life = ZoneLife::new(entry.place.zone, generation);
        let descriptor = values.descriptor(key, hash, entry, life).await?;
        drop(pin);
        // A range no longer than one read takes the same memory in few parts as in many.
        let part_bytes = match range.end - range.start <= u64::from(PARTS_TOGETHER * PART_BYTES) {
            true => values.env.plan.stream_bytes(),
            false => PART_BYTES,
        };
        let reads = descriptor
            .reads(range.clone(), values.env.plan.geometry.block_size)
            .flat_map(|read| parts(read, part_bytes, descriptor.piece_bytes))
            .collect();
        Some(LargeReader {
            values,
            hash,
            entry,
            life,
            descriptor,
            range,
            ahead: VecDeque::new(),
            reads,
            promotes: false,
        })
    }

    /// Stores the value in the RAM tier if one read returns all of it, and the tier accepts its
    /// length. Longer values would have to be copied.
    pub(crate) fn promoting(self) -> Self {
        LargeReader {
            promotes: true,
            ..self
        }
    }

    /// The next bytes of the range.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, ReadFault>> {
        self.fill_window();
        let Some(ReadAhead {
            read,
            bytes: shared,
            ..
        }) = self.ahead.pop_front()
        else {
            return if self.reads.is_empty() {
                None
            } else {
                Some(Err(self.fault()))
            };
        };
        let mut bytes = match shared.done.await {
            Ok(bytes) => bytes,
            Err(error) => {
                let zones = &self.values.zones;
                let is_noted = match &error {
                    ReadError::Device(error) => zones.note_unwritable(self.life.zone, error),
                    ReadError::Ended => false,
                };
                if !is_noted {
                    tracing::warn!(%error, "a piece could not be read; its value is now a miss");
                }
                add(&self.values.env.counters.read_errors, 1);
                return Some(Err(self.fault()));
            }
        };
        bytes.truncate(read.bytes as usize);
        if !self
            .descriptor
            .verify_read(self.life.generation, &read, &bytes)
        {
            if self.values.was_reused(self.hash, self.entry) {
                return Some(Err(self.fault()));
            }
            tracing::warn!(zone = %self.life.zone, "a piece read back with other bytes; its value is now a miss");
            add(&self.values.env.counters.checksum_errors, 1);
            return Some(Err(self.fault()));
        }
        add(
            &self.values.env.counters.flash_hit_bytes,
            bytes.len() as u64,
        );
        if self.promotes && bytes.len() as u64 == self.descriptor.value_bytes {
            let key = &self.descriptor.key;
            self.values
                .index
                .promote(self.hash, key, self.entry, &bytes);
        }
        // Reads cover whole units; returns only the requested bytes.
        let start = self.range.start.saturating_sub(read.value_offset) as usize;
        let end = (self.range.end - read.value_offset).min(u64::from(read.bytes)) as usize;
        Some(Ok(bytes.slice(start.min(end)..end)))
    }

    /// Reads the whole range into one buffer.
    pub(crate) async fn collect(mut self) -> Option<Bytes> {
        let len = (self.range.end - self.range.start) as usize;
        let mut all = Vec::new();
        while let Some(part) = self.next().await {
            let part = part.ok()?;
            if part.len() == len {
                return Some(part);
            }
            all.reserve_exact(len - all.len());
            all.extend_from_slice(&part);
        }
        Some(Bytes::from(all))
    }

    fn fill_window(&mut self) {
        while let Some(ahead) = self.next_read() {
            self.reads.drain(..ahead.parts as usize);
            self.ahead.push_back(ahead);
        }
    }

    /// Starts the next read, with as many adjacent parts as there is room for,
    /// or joins a running one. `None` if enough parts are ahead.
    fn next_read(&self) -> Option<ReadAhead> {
        let ahead: u32 = self.ahead.iter().map(|ahead| ahead.parts).sum();
        let window = WINDOW.saturating_sub(ahead);
        let first = *self.reads.front().filter(|_| window > 0)?;
        // Each read has its own pin, so a slow consumer does not delay evictions.
        let states = Arc::clone(self.values.index.states());
        let pin = ZoneStates::pin(states, self.life.zone, self.life.generation)?;
        let at = Address::new(self.life.zone, first.zone_offset);
        let key = (at, self.entry.checksum);
        if let Some(bytes) = self.values.reads.find(key)
            && let Some((read, parts)) = self.together(window, |read| read.bytes < bytes.len)
            && read.bytes == bytes.len
        {
            let room = match ahead > 0 && bytes.room.lacks_one {
                true => Some(self.values.reads.try_acquire()?),
                false => None,
            };
            return Some(ReadAhead {
                read,
                parts,
                bytes,
                _room: room,
            });
        }
        let mut room = match ahead {
            0 => None,
            _ => Some(self.values.reads.try_acquire()?),
        };
        let most = window.min(PARTS_TOGETHER);
        let (read, parts) = self.together(most, |_| {
            match (self.values.reads.try_acquire(), &mut room) {
                (Some(more), Some(room)) => {
                    room.merge(more);
                    true
                }
                (Some(more), None) => {
                    room = Some(more);
                    true
                }
                (None, _) => false,
            }
        })?;
        let end = read.zone_offset.saturating_add(u64::from(read.bytes));
        if self.values.env.plan.geometry.round_up(end) > self.values.env.plan.geometry.zone_capacity
        {
            return None;
        }
        let room = Room {
            lacks_one: ahead == 0,
            _permits: room,
        };
        Some(ReadAhead {
            read,
            parts,
            bytes: self.values.reads.start(key, read.bytes, room, pin),
            _room: None,
        })
    }

    /// The next adjacent parts as one read: at most `most`, while `another` allows more.
    fn together(
        &self,
        most: u32,
        mut another: impl FnMut(&PieceRead) -> bool,
    ) -> Option<(PieceRead, u32)> {
        let mut parts = self.reads.iter().take(most as usize);
        let mut read = *parts.next()?;
        let mut count = 1;
        for part in parts {
            let end = read.zone_offset + u64::from(read.bytes);
            if part.zone_offset != end || !another(&read) {
                break;
            }
            read.bytes += part.bytes;
            count += 1;
        }
        Some((read, count))
    }

    fn fault(&mut self) -> ReadFault {
        self.ahead.clear();
        self.reads.clear();
        self.values.quarantine(self.hash, self.entry);
        ReadFault
    }
}

/// Splits a read of whole units into parts of at most `most` bytes, which are whole units too.
fn parts(read: PieceRead, most: u32, piece_bytes: u32) -> impl Iterator<Item = PieceRead> {
    (0..read.bytes)
        .step_by(most.max(1) as usize)
        .map(move |start| PieceRead {
            zone_offset: read.zone_offset + u64::from(start),
            bytes: most.min(read.bytes - start),
            value_offset: read.value_offset + u64::from(start),
            first_unit: read.first_unit + start / unit_bytes(piece_bytes),
        })
}

impl LargeValues {
    async fn descriptor(
        &self,
        key: &[u8],
        hash: KeyHash,
        entry: Entry,
        life: ZoneLife,
    ) -> Option<Arc<LargeDescriptor>> {
        if let Some(known) = self.descriptors.get(key, hash, entry) {
            return Some(known);
        }
        let (env, block_size) = (&self.env, self.env.block_size());
        let (len, piece_bytes) = (u64::from(entry.len), env.plan.piece_bytes);
        let bytes = large_descriptor_bytes(key.len(), len, piece_bytes, block_size);
        let read = env.device.read(entry.place, env.device.allocate(bytes));
        let buf = match read.await {
            Ok(buf) => buf,
            Err(error) => {
                if !self.zones.note_unwritable(entry.place.zone, &error) {
                    tracing::warn!(%error, "a large value's descriptor could not be read; the value is now a miss");
                }
                add(&env.counters.read_errors, 1);
                self.quarantine(hash, entry);
                return None;
            }
        };
        match LargeDescriptor::decode(env.id, life, block_size, &buf) {
            Ok((descriptor, checksum)) if checksum == entry.checksum && *descriptor.key == *key => {
                let descriptor = Arc::new(descriptor);
                self.descriptors.insert(checksum, Arc::clone(&descriptor));
                Some(descriptor)
            }
            _ if self.was_reused(hash, entry) => None,
            _ => {
                tracing::warn!(place = %entry.place, "a large value's descriptor read back with other bytes; the value is now a miss");
                add(&env.counters.checksum_errors, 1);
                self.quarantine(hash, entry);
                None
            }
        }
    }

    fn was_reused(&self, hash: KeyHash, entry: Entry) -> bool {
        self.placement.was_reused(&self.index, hash, entry)
    }

    fn quarantine(&self, hash: KeyHash, entry: Entry) {
        self.placement.quarantine(&self.index, hash, entry);
    }
}
