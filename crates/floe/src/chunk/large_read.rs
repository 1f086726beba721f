//! Large values, read back in pieces: the descriptor first, then whole units of
//! what was asked for, a bounded window ahead of whoever consumes them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::{LargeDescriptor, PieceRead, ZoneLife, large_descriptor_bytes, unit_bytes};
use floe_device::{Address, IoBuf, OpFuture};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Engine;
use super::lookup::FlashValue;
use super::stats::add;
use super::zone_state::{Pin, ZoneStates};
use crate::store::ReadFault;

/// Parts of one value that are being read at once, or wait for their consumer.
const WINDOW: usize = 4;
/// Bytes of a part: enough for the device's bandwidth with [`WINDOW`] of them,
/// little enough for thousands of slow consumers.
const PART_BYTES: u32 = 256 << 10;
/// What all readers of an engine together may read ahead. One part each is
/// not counted, so that nobody waits for somebody else's consumer.
const READ_AHEAD_BYTES: usize = 32 << 20;
/// RAM for parsed descriptors of recently read values, per engine.
const DESCRIPTOR_CACHE_BYTES: u64 = 8 << 20;

/// Parsed descriptors of recently read large values.
pub(crate) type DescriptorCache = Cache<(KeyHash, u32), Arc<LargeDescriptor>, DescriptorWeight>;

#[derive(Clone, Debug)]
pub(crate) struct DescriptorWeight;

impl Weighter<(KeyHash, u32), Arc<LargeDescriptor>> for DescriptorWeight {
    fn weight(&self, _: &(KeyHash, u32), d: &Arc<LargeDescriptor>) -> u64 {
        (4 * (d.piece_blocks.len() + d.unit_checksums.len()) + d.key.len() + 128) as u64
    }
}

/// One permit for each part that may be read ahead.
pub(crate) fn read_ahead() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(READ_AHEAD_BYTES / PART_BYTES as usize))
}

pub(crate) fn descriptor_cache() -> DescriptorCache {
    Cache::with_weighter(4096, DESCRIPTOR_CACHE_BYTES, DescriptorWeight)
}

/// A large value, or a range of one, being read.
#[derive(Debug)]
pub(crate) struct LargeReader {
    engine: Arc<Engine>,
    hash: KeyHash,
    entry: Entry,
    life: ZoneLife,
    descriptor: Arc<LargeDescriptor>,
    range: Range<u64>,
    ahead: VecDeque<Ahead>,
    reads: VecDeque<PieceRead>,
}

/// A part that is being read, or was read and waits for its consumer.
#[derive(Debug)]
struct Ahead {
    read: PieceRead,
    pin: Pin,
    done: OpFuture<IoBuf>,
    /// None for the part that everybody may have.
    _room: Option<OwnedSemaphorePermit>,
}

impl LargeReader {
    /// Reads and checks the descriptor. `None` if it is not there any more: a miss.
    pub(crate) async fn open(
        engine: Arc<Engine>,
        key: &[u8],
        value: FlashValue<'_>,
        range: Range<u64>,
    ) -> Option<Self> {
        let FlashValue {
            hash,
            entry,
            generation,
            pin,
        } = value;
        let life = ZoneLife::new(entry.place.zone, generation);
        let descriptor = engine.large_descriptor(key, hash, entry, life).await?;
        drop(pin);
        // What is no longer than a window costs the same RAM in few parts as in many.
        let part_bytes = match range.end - range.start <= WINDOW as u64 * u64::from(PART_BYTES) {
            true => engine.plan.stream_bytes(),
            false => PART_BYTES,
        };
        let reads = descriptor
            .reads(range.clone(), engine.plan.geometry.block_size)
            .flat_map(|read| parts(read, part_bytes, descriptor.piece_bytes))
            .collect();
        Some(LargeReader {
            engine,
            hash,
            entry,
            life,
            descriptor,
            range,
            ahead: VecDeque::new(),
            reads,
        })
    }

    /// The next bytes of the range.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, ReadFault>> {
        self.fill_window();
        let Some(Ahead {
            read, pin, done, ..
        }) = self.ahead.pop_front()
        else {
            return if self.reads.is_empty() {
                None
            } else {
                Some(Err(self.fault()))
            };
        };
        let buf = match done.await {
            Ok(buf) => buf,
            Err(error) => {
                tracing::warn!(%error, "a piece could not be read; its value is now a miss");
                add(&self.engine.counters.read_errors, 1);
                return Some(Err(self.fault()));
            }
        };
        drop(pin);
        let mut bytes = buf.into_bytes();
        bytes.truncate(read.bytes as usize);
        if !self
            .descriptor
            .verify_read(self.life.generation, &read, &bytes)
        {
            if self.engine.was_reused(self.hash, self.entry) {
                return Some(Err(self.fault()));
            }
            tracing::warn!(zone = %self.life.zone, "a piece read back wrong; its value is now a miss");
            add(&self.engine.counters.checksum_errors, 1);
            return Some(Err(self.fault()));
        }
        add(&self.engine.counters.flash_hit_bytes, bytes.len() as u64);
        // Reads are widened to whole units; hand out only what was asked for.
        let start = self.range.start.saturating_sub(read.value_offset) as usize;
        let end = (self.range.end - read.value_offset).min(u64::from(read.bytes)) as usize;
        Some(Ok(bytes.slice(start.min(end)..end)))
    }

    /// The whole range in one buffer.
    pub(crate) async fn collect(mut self) -> Option<Bytes> {
        let mut all = Vec::with_capacity((self.range.end - self.range.start) as usize);
        while let Some(part) = self.next().await {
            all.extend_from_slice(&part.ok()?);
        }
        Some(Bytes::from(all))
    }

    fn fill_window(&mut self) {
        while self.ahead.len() < WINDOW {
            let Some(read) = self.reads.front().copied() else {
                return;
            };
            let room = if self.ahead.is_empty() {
                None
            } else {
                match Arc::clone(&self.engine.read_ahead).try_acquire_owned() {
                    Ok(room) => Some(room),
                    Err(_) => return,
                }
            };
            // Pinned read by read, so that a slow consumer never holds up an eviction.
            let states = Arc::clone(&self.engine.states);
            let Some(pin) = ZoneStates::pin(states, self.life.zone, self.life.generation) else {
                return;
            };
            let bytes = self.engine.plan.geometry.round_up(u64::from(read.bytes));
            if read.zone_offset.saturating_add(bytes) > self.engine.plan.geometry.zone_capacity {
                return;
            }
            self.reads.pop_front();
            let buf = self.engine.device.allocate(bytes as usize);
            let done = self
                .engine
                .device
                .read(Address::new(self.life.zone, read.zone_offset), buf);
            self.ahead.push_back(Ahead {
                read,
                pin,
                done,
                _room: room,
            });
        }
    }

    fn fault(&mut self) -> ReadFault {
        self.ahead.clear();
        self.reads.clear();
        self.engine.quarantine(self.hash, self.entry);
        ReadFault
    }
}

/// A read of whole units in parts of at most `most` bytes, which are whole units, too.
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

impl Engine {
    async fn large_descriptor(
        &self,
        key: &[u8],
        hash: KeyHash,
        entry: Entry,
        life: ZoneLife,
    ) -> Option<Arc<LargeDescriptor>> {
        if let Some(known) = self.descriptors.get(&(hash, entry.checksum))
            && *known.key == *key
        {
            return Some(known);
        }
        let block_size = self.plan.geometry.block_size;
        let bytes = large_descriptor_bytes(
            key.len(),
            u64::from(entry.len),
            self.plan.piece_bytes,
            block_size,
        );
        let buf = match self
            .device
            .read(entry.place, self.device.allocate(bytes))
            .await
        {
            Ok(buf) => buf,
            Err(error) => {
                tracing::warn!(%error, "a large value's descriptor could not be read; it is now a miss");
                add(&self.counters.read_errors, 1);
                self.quarantine(hash, entry);
                return None;
            }
        };
        match LargeDescriptor::decode(self.id, life, block_size, &buf) {
            Ok((descriptor, checksum)) if checksum == entry.checksum && *descriptor.key == *key => {
                let descriptor = Arc::new(descriptor);
                self.descriptors
                    .insert((hash, checksum), Arc::clone(&descriptor));
                Some(descriptor)
            }
            _ if self.was_reused(hash, entry) => None,
            _ => {
                tracing::warn!(place = %entry.place, "a large value's descriptor read back wrong; it is now a miss");
                add(&self.counters.checksum_errors, 1);
                self.quarantine(hash, entry);
                None
            }
        }
    }
}
