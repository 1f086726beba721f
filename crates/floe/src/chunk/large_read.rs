//! Large values, read back in pieces: the descriptor first, then whole units of
//! what was asked for, a bounded window ahead of whoever consumes them.
//!
//! Whoever reads what somebody else is reading shares his read: readers of a
//! hot value that began together stay together and read it once. Parts that lie
//! together are read together, so that flash pages that two of them share are
//! read once.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::{Entry, LargeReads, Plan};
use floe_core::hash::KeyHash;
use floe_core::layout::{LargeDescriptor, PieceRead, ZoneLife, large_descriptor_bytes, unit_bytes};
use floe_device::{Address, DeviceError, IoBuf};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Engine;
use super::lookup::FlashValue;
use super::stats::add;
use super::zone_state::{Pin, ZoneStates};
use crate::value::ReadFault;

/// Parts of one value that are being read at once, or wait for their consumer.
const WINDOW: u32 = 8;
/// Most parts that are read in one go.
const PARTS_TOGETHER: u32 = 4;
/// Bytes of a part: enough for the device's bandwidth with [`WINDOW`] of them,
/// little enough for thousands of slow consumers.
const PART_BYTES: u32 = 256 << 10;
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

/// One permit for each part that all readers together may read ahead. One part
/// each is not counted, so that nobody waits for somebody else's consumer.
pub(crate) fn read_ahead(plan: &Plan) -> Arc<Semaphore> {
    let parts = plan.read_ahead_bytes / u64::from(PART_BYTES);
    let parts = usize::try_from(parts).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(parts.min(Semaphore::MAX_PERMITS)))
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

/// Parts that are being read together, or were read and wait for their consumer.
#[derive(Debug)]
struct Ahead {
    read: PieceRead,
    parts: u32,
    bytes: SharedBytes,
    /// For the part that the read itself has no room for, where its reader has
    /// another such part before it.
    _room: Option<OwnedSemaphorePermit>,
}

/// A read that several readers may wait for.
#[derive(Clone, Debug)]
struct SharedBytes {
    len: u32,
    done: Shared<BoxFuture<'static, Result<Bytes, ReadError>>>,
    /// The slowest of the readers keeps the bytes, and with them the room.
    room: Arc<Room>,
}

/// Room for what is read.
#[derive(Debug)]
struct Room {
    /// For one part there is none: everybody may have one.
    lacks_one: bool,
    _permits: Option<OwnedSemaphorePermit>,
}

/// Why bytes are not there.
#[derive(Clone, Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Device(Arc<DeviceError>),
    #[error("the runtime has ended")]
    Ended,
}

/// Which bytes of which value.
type ReadKey = (Address, u32);

/// Reads of large values that are in the device.
#[derive(Debug, Default)]
pub(crate) struct Reading(Mutex<HashMap<ReadKey, SharedBytes>>);

impl Reading {
    /// The read that begins there, if one is under way.
    fn find(&self, key: ReadKey) -> Option<SharedBytes> {
        self.0.lock().get(&key).cloned()
    }

    /// Reads `len` bytes. The pin goes as soon as they are there.
    fn start(engine: &Arc<Engine>, key: ReadKey, len: u32, room: Room, pin: Pin) -> SharedBytes {
        let padded = engine.plan.geometry.round_up(u64::from(len)) as usize;
        let buf = engine.device.allocate(padded);
        let read = engine.device.read(key.0, buf);
        let (tell, told) = oneshot::channel();
        let done = async move {
            let read: Result<_, DeviceError> = told.await.map_err(|_| ReadError::Ended)?;
            read.map_err(|error| ReadError::Device(Arc::new(error)))
        };
        let bytes = SharedBytes {
            len,
            done: done.boxed().shared(),
            room: Arc::new(room),
        };
        engine.reading.0.lock().insert(key, bytes.clone());
        let listed = Listed {
            engine: Arc::clone(engine),
            key,
        };
        tokio::spawn(async move {
            let read = read.await;
            drop(listed);
            drop(pin);
            // Not an error: all who wanted it may have gone.
            let _ = tell.send(read.map(IoBuf::into_bytes));
        });
        bytes
    }
}

/// Takes a read off the list when it is over, or its runtime is.
struct Listed {
    engine: Arc<Engine>,
    key: ReadKey,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.engine.reading.0.lock().remove(&self.key);
    }
}

impl LargeReader {
    /// Waits for its turn, if reads have one, then as
    /// [`open_now`](Self::open_now).
    pub(crate) async fn open(
        engine: Arc<Engine>,
        key: &[u8],
        value: FlashValue<'_>,
        range: Range<u64>,
    ) -> Option<Self> {
        if engine.plan.large_reads == LargeReads::First {
            return LargeReader::open_now(engine, key, value, range).await;
        }
        let FlashValue {
            hash,
            entry,
            generation,
            pin,
        } = value;
        // Not pinned meanwhile: whoever comes before may wait for this zone.
        drop(pin);
        engine.streams.pass().await;
        let states = Arc::clone(&engine.states);
        let value = FlashValue {
            hash,
            entry,
            generation,
            pin: ZoneStates::pin(&*states, entry.place.zone, generation)?,
        };
        LargeReader::open_now(engine, key, value, range).await
    }

    /// Reads and checks the descriptor. `None` if it is not there any more: a miss.
    pub(super) async fn open_now(
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
        // What is no longer than one read costs the same RAM in few parts as in many.
        let part_bytes = match range.end - range.start <= u64::from(PARTS_TOGETHER * PART_BYTES) {
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
                tracing::warn!(%error, "a piece could not be read; its value is now a miss");
                add(&self.engine.counters.read_errors, 1);
                return Some(Err(self.fault()));
            }
        };
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
        while let Some(ahead) = self.read_on() {
            self.reads.drain(..ahead.parts as usize);
            self.ahead.push_back(ahead);
        }
    }

    /// What is read next: as many parts that lie together as there is room for,
    /// or what somebody else is reading there. `None` if it is enough for now.
    fn read_on(&self) -> Option<Ahead> {
        let ahead: u32 = self.ahead.iter().map(|ahead| ahead.parts).sum();
        let window = WINDOW.saturating_sub(ahead);
        let first = *self.reads.front().filter(|_| window > 0)?;
        // Pinned read by read, so that a slow consumer never holds up an eviction.
        let states = Arc::clone(&self.engine.states);
        let pin = ZoneStates::pin(states, self.life.zone, self.life.generation)?;
        let at = Address::new(self.life.zone, first.zone_offset);
        let key = (at, self.entry.checksum);
        if let Some(bytes) = self.engine.reading.find(key)
            && let Some((read, parts)) = self.together(window, |read| read.bytes < bytes.len)
            && read.bytes == bytes.len
        {
            let room = match ahead > 0 && bytes.room.lacks_one {
                true => Some(self.more_room()?),
                false => None,
            };
            return Some(Ahead {
                read,
                parts,
                bytes,
                _room: room,
            });
        }
        let mut room = match ahead {
            0 => None,
            _ => Some(self.more_room()?),
        };
        let most = window.min(PARTS_TOGETHER);
        let (read, parts) = self.together(most, |_| match (self.more_room(), &mut room) {
            (Some(more), Some(room)) => {
                room.merge(more);
                true
            }
            (Some(more), None) => {
                room = Some(more);
                true
            }
            (None, _) => false,
        })?;
        let end = read.zone_offset.saturating_add(u64::from(read.bytes));
        if self.engine.plan.geometry.round_up(end) > self.engine.plan.geometry.zone_capacity {
            return None;
        }
        let room = Room {
            lacks_one: ahead == 0,
            _permits: room,
        };
        Some(Ahead {
            read,
            parts,
            bytes: Reading::start(&self.engine, key, read.bytes, room, pin),
            _room: None,
        })
    }

    /// The next parts as one read, `most` at most, as long as they lie together
    /// and `another` may be added.
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

    fn more_room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.engine.read_ahead).try_acquire_owned().ok()
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
