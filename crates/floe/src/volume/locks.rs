//! Range locks: requests on the same bytes of a volume take turns.
//!
//! A lock lies within a region, which no block crosses. Waiting locks are granted in
//! their order, so that no request waits for ever. The owner keeps the locks of a
//! shard behind the mutex that guards the shard's blocks: a decision and the locks
//! that it needs are one step.

use std::collections::{HashMap, VecDeque};

use floe_core::hash::{ByKeyHash, KeyHash};
use floe_core::volume::{ByteRange, Extent, VolumeId};
use tokio::sync::oneshot;

/// What a lock keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Reads the bytes: no other request writes them or removes their blocks.
    Shared,
    /// Changes the bytes or their blocks: no other request touches them.
    Exclusive,
    /// Keeps the blocks: they may be read and written, and must not leave.
    Pin,
}

impl Hold {
    fn conflicts(self, other: Hold) -> bool {
        match (self, other) {
            (Hold::Pin, _) | (_, Hold::Pin) => false,
            (Hold::Exclusive, _) | (_, Hold::Exclusive) => true,
            (Hold::Shared, Hold::Shared) => false,
        }
    }
}

/// A lock that is held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockId {
    region: u64,
    number: u64,
}

/// A moment in the order of locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockNumber(u64);

#[derive(Debug)]
struct Lock {
    number: u64,
    volume: VolumeId,
    range: ByteRange,
    hold: Hold,
}

/// The locks of one region.
#[derive(Debug, Default)]
struct Region {
    held: Vec<Lock>,
    waiting: VecDeque<(Lock, oneshot::Sender<()>)>,
}

/// The locks of a shard.
#[derive(Debug)]
pub(super) struct RangeLocks {
    region_bytes: u64,
    regions: HashMap<KeyHash, Region, ByKeyHash>,
    /// Regions without locks, whose memory the next ones get.
    spare: Vec<Region>,
    next: u64,
}

impl RangeLocks {
    /// No locks. No lock crosses a multiple of `region_bytes`.
    pub(super) fn new(region_bytes: u64) -> Self {
        RangeLocks {
            region_bytes,
            regions: HashMap::default(),
            spare: Vec::new(),
            next: 0,
        }
    }

    /// Takes the lock if no other conflicts with it.
    pub(super) fn try_lock(&mut self, extent: Extent, hold: Hold) -> Option<LockId> {
        let key = self.key(extent);
        if let Some(region) = self.regions.get(&key)
            && !region.admits(extent.range, hold, region.waiting.len())
        {
            return None;
        }
        let id = self.new_id(key);
        let spare = &mut self.spare;
        let region = self
            .regions
            .entry(key)
            .or_insert_with(|| spare.pop().unwrap_or_default());
        region.held.push(Lock {
            number: id.number,
            volume: extent.volume,
            range: extent.range,
            hold,
        });
        Some(id)
    }

    /// Takes the lock, or waits in line: then the receiver tells when it is held.
    pub(super) fn lock(
        &mut self,
        extent: Extent,
        hold: Hold,
    ) -> (LockId, Option<oneshot::Receiver<()>>) {
        if let Some(id) = self.try_lock(extent, hold) {
            return (id, None);
        }
        let key = self.key(extent);
        let id = self.new_id(key);
        let (granted, receiver) = oneshot::channel();
        let lock = Lock {
            number: id.number,
            volume: extent.volume,
            range: extent.range,
            hold,
        };
        let region = self.regions.entry(key).or_default();
        region.waiting.push_back((lock, granted));
        (id, Some(receiver))
    }

    /// Lets a lock that is held keep others from less.
    pub(super) fn downgrade(&mut self, id: LockId, to: Hold) {
        if let Some(region) = self.regions.get_mut(&KeyHash(id.region)) {
            let mut held = region.held.iter_mut();
            if let Some(lock) = held.find(|lock| lock.number == id.number) {
                lock.hold = to;
            }
            region.grant();
        }
    }

    /// Gives a lock up, whether it is held or waited for.
    pub(super) fn release(&mut self, id: LockId) {
        let key = KeyHash(id.region);
        let Some(region) = self.regions.get_mut(&key) else {
            return;
        };
        match region.held.iter().position(|lock| lock.number == id.number) {
            Some(at) => {
                region.held.swap_remove(at);
            }
            None => region.waiting.retain(|(lock, _)| lock.number != id.number),
        }
        region.grant();
        if region.held.is_empty()
            && region.waiting.is_empty()
            && let Some(region) = self.regions.remove(&key)
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(region);
        }
    }

    /// True if no lock is held or waited for on a byte of `extent`.
    pub(super) fn is_free(&self, extent: Extent) -> bool {
        self.is_free_up_to(self.latest(), extent)
    }

    /// The last lock so far, to tell earlier ones from later ones.
    pub(super) fn latest(&self) -> LockNumber {
        LockNumber(self.next)
    }

    /// True if no lock up to `latest` is held or waited for on a byte of `extent`.
    pub(super) fn is_free_up_to(&self, latest: LockNumber, extent: Extent) -> bool {
        let region = self.regions.get(&self.key(extent));
        let mut locks = region.into_iter().flat_map(Region::locks);
        locks.all(|lock| lock.number > latest.0 || lock.range.intersection(extent.range).is_empty())
    }

    /// True if a block with bytes of `extent` is pinned.
    pub(super) fn is_pinned(&self, extent: Extent) -> bool {
        let region = self.regions.get(&self.key(extent));
        let mut held = region.into_iter().flat_map(|region| &region.held);
        held.any(|lock| lock.hold == Hold::Pin && !lock.range.intersection(extent.range).is_empty())
    }

    /// True if a lock of `volume` is held or waited for.
    pub(super) fn has_any_of(&self, volume: VolumeId) -> bool {
        self.regions.values().any(|region| {
            let waiting = region.waiting.iter().map(|(lock, _)| lock);
            let mut locks = region.held.iter().chain(waiting);
            locks.any(|lock| lock.volume == volume)
        })
    }

    fn new_id(&mut self, key: KeyHash) -> LockId {
        self.next += 1;
        LockId {
            region: key.0,
            number: self.next,
        }
    }

    /// The key of a region: an odd factor keeps different regions different.
    fn key(&self, extent: Extent) -> KeyHash {
        debug_assert!(
            extent.range.is_empty()
                || extent.range.start / self.region_bytes
                    == (extent.range.end - 1) / self.region_bytes,
            "a lock lies within a region"
        );
        let number = extent.range.start / self.region_bytes;
        let bits = u64::from(extent.volume.0) << 48 | number;
        KeyHash(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Regions whose memory is kept.
const SPARE_MAX: usize = 64;

impl Region {
    /// The locks that are held or waited for.
    fn locks(&self) -> impl Iterator<Item = &Lock> {
        let waiting = self.waiting.iter().map(|(lock, _)| lock);
        self.held.iter().chain(waiting)
    }

    /// True if `range` can be held: no lock that is held, and none of the first
    /// `before` that wait, conflicts with it.
    fn admits(&self, range: ByteRange, hold: Hold, before: usize) -> bool {
        let waiting = self.waiting.iter().take(before).map(|(lock, _)| lock);
        let mut locks = self.held.iter().chain(waiting);
        locks.all(|lock| !hold.conflicts(lock.hold) || lock.range.intersection(range).is_empty())
    }

    /// Grants what can be granted, in the order of waiting.
    fn grant(&mut self) {
        let mut at = 0;
        while let Some((lock, _)) = self.waiting.get(at) {
            if !self.admits(lock.range, lock.hold, at) {
                at += 1;
                continue;
            }
            if let Some((lock, granted)) = self.waiting.remove(at) {
                self.held.push(lock);
                // A waiter that has gone gives the lock up itself.
                let _ = granted.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent {
            volume: VolumeId(1),
            range: ByteRange { start, end },
        }
    }

    #[test]
    fn locks_on_other_bytes_do_not_wait() {
        let mut locks = RangeLocks::new(1024);
        assert!(locks.try_lock(extent(0, 512), Hold::Exclusive).is_some());
        assert!(locks.try_lock(extent(512, 1024), Hold::Exclusive).is_some());
        assert!(
            locks
                .try_lock(extent(1024, 2048), Hold::Exclusive)
                .is_some()
        );
        assert!(locks.try_lock(extent(511, 512), Hold::Shared).is_none());
        assert!(!locks.is_free(extent(0, 1)) && locks.is_free(extent(2048, 2049)));
    }

    #[test]
    fn writers_are_not_passed_by_readers_that_come_later() {
        let mut locks = RangeLocks::new(1024);
        let (reader, _) = locks.lock(extent(0, 100), Hold::Shared);
        let (writer, mut granted) = locks.lock(extent(50, 60), Hold::Exclusive);
        assert!(locks.try_lock(extent(55, 56), Hold::Shared).is_none());
        assert!(locks.try_lock(extent(0, 10), Hold::Shared).is_some());
        locks.release(reader);
        assert_eq!(granted.as_mut().expect("it waits").try_recv(), Ok(()));
        locks.release(writer);
        assert!(locks.try_lock(extent(55, 56), Hold::Shared).is_some());
    }

    #[test]
    fn a_waiter_that_goes_leaves_nothing_behind() {
        let mut locks = RangeLocks::new(1024);
        let (first, _) = locks.lock(extent(0, 100), Hold::Exclusive);
        let (second, granted) = locks.lock(extent(0, 100), Hold::Exclusive);
        let (third, mut third_granted) = locks.lock(extent(0, 100), Hold::Exclusive);
        drop(granted);
        locks.release(second);
        locks.release(first);
        assert_eq!(third_granted.as_mut().expect("it waits").try_recv(), Ok(()));
        locks.release(third);
        assert!(!locks.has_any_of(VolumeId(1)));
    }

    #[test]
    fn locks_that_come_later_are_told_from_earlier_ones() {
        let mut locks = RangeLocks::new(1024);
        let (reader, _) = locks.lock(extent(0, 100), Hold::Shared);
        let (writer, _granted) = locks.lock(extent(0, 10), Hold::Exclusive);
        let latest = locks.latest();
        let (_later, _also_waits) = locks.lock(extent(0, 100), Hold::Exclusive);
        assert!(!locks.is_free_up_to(latest, extent(50, 60)));
        locks.release(reader);
        assert!(locks.is_free_up_to(latest, extent(50, 60)));
        assert!(!locks.is_free_up_to(latest, extent(0, 60)));
        locks.release(writer);
        assert!(locks.is_free_up_to(latest, extent(0, 60)) && !locks.is_free(extent(0, 60)));
    }

    #[test]
    fn a_pin_keeps_blocks_and_stops_no_request() {
        let mut locks = RangeLocks::new(1024);
        let (cleaning, _) = locks.lock(extent(0, 100), Hold::Shared);
        let (writer, mut granted) = locks.lock(extent(0, 100), Hold::Exclusive);
        locks.downgrade(cleaning, Hold::Pin);
        assert_eq!(granted.as_mut().expect("it waits").try_recv(), Ok(()));
        locks.release(writer);
        assert!(!locks.is_free(extent(0, 100)));
    }
}
