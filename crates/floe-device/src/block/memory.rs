//! A block device in memory.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use floe_core::ByteSize;
use parking_lot::{Mutex, RwLock};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::pages::{Pages, Part, REGION_BYTES, regions};
use super::{BlockDevice, check_range, check_shape};
use crate::arena::Arena;
use crate::buffer::{IoBuf, IoData};
use crate::config::OpenDeviceError;
use crate::contract::OpFuture;
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::outage::{PowerState, keep_some_blocks};

/// A sparse block device in memory. Every operation has ended when its method
/// returns. Writes allocate pages of 4 KiB, writes of zeros and discards free them.
pub struct MemoryBlocks {
    medium: Arc<Medium>,
    counters: Counters,
    /// `None` if the power cannot fail.
    outlet: Option<Arc<Outlet>>,
}

/// Buffers of all block devices in memory, which are reused without zeroing them.
static BUFFERS: LazyLock<Option<Arc<Arena>>> =
    LazyLock::new(|| Arena::new(BUFFER_BYTES).ok().map(Arc::new));
const BUFFER_BYTES: usize = 64 << 20;

impl MemoryBlocks {
    /// A device of zeros, of `size` bytes in blocks of `block_bytes`.
    ///
    /// # Errors
    /// If the size is not a positive multiple of the block size, or that is not a power
    /// of two from 512 to 4096.
    pub fn new(size: ByteSize, block_bytes: u32) -> Result<Self, OpenDeviceError> {
        let medium = Medium::new(size, block_bytes, false)?;
        Ok(MemoryBlocks::over(Arc::new(medium), None))
    }

    /// A device that holds `base`. Its size and block size were checked.
    pub(crate) fn on(base: Arc<Pages>, size: ByteSize, block_bytes: u32) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(Pages::over(Arc::clone(&base))));
        let medium = Medium {
            size: size.bytes(),
            block_bytes,
            shards: shards.collect(),
            unflushed: None,
        };
        MemoryBlocks::over(Arc::new(medium), None)
    }

    pub(crate) fn over(medium: Arc<Medium>, outlet: Option<Arc<Outlet>>) -> Self {
        MemoryBlocks {
            medium,
            counters: Counters::default(),
            outlet,
        }
    }

    /// Executes an operation, unless the power is off or fails during it.
    fn answer<T: Send + 'static>(
        &self,
        operation: Operation,
        carry_out: impl FnOnce(&Medium, bool) -> Result<T, DeviceErrorKind>,
    ) -> OpFuture<T> {
        let carry_out = |fails| carry_out(&self.medium, fails);
        let result = match &self.outlet {
            None => carry_out(false),
            Some(outlet) => outlet.power.operate(carry_out, |seed| outlet.crash(seed)),
        };
        OpFuture::ready(result.map_err(|kind| {
            Counters::add(&self.counters.errors, 1);
            DeviceError::new(operation, None, kind)
        }))
    }
}

impl MemoryBlocks {
    /// A write by `put`, unless the power fails during it.
    fn write_so(&self, at: u64, data: &[u8], put: fn(&Medium, Range<u64>, &[u8])) -> OpFuture<()> {
        self.answer(Operation::Write, |medium, fails| {
            let range = check_range(self, at, data.len())?;
            match fails {
                true => medium.write(range, data),
                false => put(medium, range, data),
            }
            Counters::add(&self.counters.writes, 1);
            Counters::add(&self.counters.write_bytes, data.len() as u64);
            Ok(())
        })
    }
}

impl BlockDevice for MemoryBlocks {
    fn size_bytes(&self) -> u64 {
        self.medium.size
    }

    fn block_bytes(&self) -> u32 {
        self.medium.block_bytes
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    /// A member of a [`PowerGroup`](crate::PowerGroup) keeps what was flushed.
    fn is_volatile(&self) -> bool {
        self.medium.unflushed.is_none()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        let arena = BUFFERS.as_ref();
        let reused = arena.and_then(|arena| IoBuf::from_arena(arena, len));
        reused.unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn read(&self, at: u64, mut buf: IoBuf) -> OpFuture<IoBuf> {
        self.answer(Operation::Read, |medium, _| {
            let range = check_range(self, at, buf.len())?;
            medium.read(range, &mut buf);
            Counters::add(&self.counters.reads, 1);
            Counters::add(&self.counters.read_bytes, buf.len() as u64);
            Ok(buf)
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.write_so(at, &data, Medium::write)
    }

    fn write_durably(&self, at: u64, data: IoData) -> Option<OpFuture<()>> {
        Some(self.write_so(at, &data, Medium::write_durably))
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.answer(Operation::WriteZeroes, |medium, _| {
            super::check_blocks(self, &range)?;
            medium.zero(range.clone());
            Counters::add(&self.counters.writes, 1);
            Counters::add(&self.counters.write_bytes, range.end - range.start);
            Ok(())
        })
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.answer(Operation::Discard, |medium, _| {
            super::check_blocks(self, &range)?;
            medium.zero(range);
            Ok(())
        })
    }

    /// If the power fails during a flush, the flush has no effect.
    fn flush(&self) -> OpFuture<()> {
        self.answer(Operation::Flush, |medium, fails| {
            if !fails {
                medium.flush();
            }
            Counters::add(&self.counters.flushes, 1);
            Ok(())
        })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl fmt::Debug for MemoryBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBlocks({})", ByteSize(self.medium.size))
    }
}

/// The power of a group of devices from one start to the next outage.
#[derive(Default)]
pub(crate) struct Outlet {
    pub(crate) power: PowerState,
    /// The media of the group, in the order in which they joined.
    pub(crate) media: Mutex<Vec<Arc<Medium>>>,
}

impl Outlet {
    /// Cuts the power of all devices in one instant, if it is on.
    pub(crate) fn crash(&self, seed: u64) {
        if !self.power.turn_off() {
            return;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for medium in &*self.media.lock() {
            medium.lose_power(&mut random);
        }
    }
}

/// Locks of a medium, each for every so many regions.
const SHARDS: u64 = 64;
/// The unit in which a power loss tears writes: the smallest sector of a drive.
pub(crate) const SECTOR_BYTES: usize = 512;

/// The bytes of a device, which outlive its power.
pub(crate) struct Medium {
    pub(crate) size: u64,
    pub(crate) block_bytes: u32,
    shards: Box<[RwLock<Pages>]>,
    /// Completed changes that were not flushed. `None` if the power cannot fail.
    unflushed: Option<Mutex<Unflushed>>,
}

/// The former content that each change replaced, with offsets, oldest change first.
type Unflushed = Vec<Vec<(u64, Part)>>;

impl Medium {
    pub(crate) fn new(
        size: ByteSize,
        block_bytes: u32,
        can_fail: bool,
    ) -> Result<Self, OpenDeviceError> {
        check_shape("memory", size, block_bytes)?;
        Ok(Medium {
            size: size.bytes(),
            block_bytes,
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            unflushed: can_fail.then(Mutex::default),
        })
    }

    fn shard(&self, at: u64) -> &RwLock<Pages> {
        &self.shards[(at / REGION_BYTES % SHARDS) as usize]
    }

    fn read(&self, range: Range<u64>, mut buf: &mut [u8]) {
        for part in regions(range) {
            let (head, rest) = buf.split_at_mut((part.end - part.start) as usize);
            self.shard(part.start).read().read(part.start, head);
            buf = rest;
        }
    }

    fn write(&self, range: Range<u64>, data: &[u8]) {
        self.change(range.clone(), false, || self.put(range.start, data));
    }

    /// A power loss does not undo it, nor bring back anything older there.
    fn write_durably(&self, range: Range<u64>, data: &[u8]) {
        let mut unflushed = self.unflushed.as_ref().map(|unflushed| unflushed.lock());
        self.put(range.start, data);
        let changes = unflushed
            .iter_mut()
            .flat_map(|unflushed| unflushed.iter_mut());
        for (at, before) in changes.flatten() {
            before.replace(*at, range.start, data);
        }
    }

    fn put(&self, at: u64, mut data: &[u8]) {
        for part in regions(at..at + data.len() as u64) {
            let (head, rest) = data.split_at((part.end - part.start) as usize);
            self.shard(part.start).write().write(part.start, head);
            data = rest;
        }
    }

    fn zero(&self, range: Range<u64>) {
        self.change(range.clone(), true, || {
            for part in regions(range) {
                self.shard(part.start).write().zero(part);
            }
        });
    }

    /// Changes `range`, and keeps the former content if a power loss could undo that.
    /// A sparse change leaves pages alone that do not exist.
    fn change(&self, range: Range<u64>, is_sparse: bool, change: impl FnOnce()) {
        let Some(unflushed) = &self.unflushed else {
            return change();
        };
        // Locked over the change, so that the order of the log is that of the changes.
        let mut unflushed = unflushed.lock();
        let before = regions(range)
            .flat_map(|part| self.shard(part.start).read().snapshot(part, is_sparse))
            .collect();
        change();
        unflushed.push(before);
    }

    fn flush(&self) {
        if let Some(unflushed) = &self.unflushed {
            unflushed.lock().clear();
        }
    }

    /// Decides what survives of the unflushed changes.
    fn lose_power(&self, random: &mut Xoshiro256PlusPlus) {
        if let Some(unflushed) = &self.unflushed {
            let changes = std::mem::take(&mut *unflushed.lock());
            let newest_first = changes.into_iter().rev();
            keep_some_blocks(newest_first, SECTOR_BYTES, random, |at, before| {
                self.put(at, before);
            });
        }
    }
}
