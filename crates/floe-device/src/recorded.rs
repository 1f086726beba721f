//! A wrapper that records operations, for tests of order and determinism.

use std::collections::VecDeque;
use std::sync::Arc;

use floe_core::{Address, Tick, ZoneId};
use parking_lot::Mutex;

use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::contract::{Device, OpFuture, Placement, SharedDevice, ZoneReport, answered_below};
use crate::error::{DeviceError, Operation};

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, in order of starting.
    pub number: u64,
    /// The kind of operation.
    pub operation: Operation,
    /// The zone, if the operation has one.
    pub zone: Option<ZoneId>,
    /// The offset in the zone; for an append, the one that the device chose.
    pub offset: Option<u64>,
    /// Bytes to transfer.
    pub bytes: u64,
    /// Time of the start.
    pub started: Tick,
    /// Its result.
    pub outcome: Outcome,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation has not ended, or its future was not polled since.
    Pending,
    /// The operation succeeded.
    Done(Tick),
    /// The operation failed with this error.
    Failed(Tick, String),
    /// The future was dropped before the result.
    Abandoned(Tick),
}

/// A device that records the newest operations on the one below it, up to a
/// bound.
#[derive(Debug)]
pub struct Recorded {
    below: SharedDevice,
    clock: Clock,
    log: Arc<Log>,
}

#[derive(Debug)]
struct Log {
    entries: Mutex<Entries>,
    entries_max: usize,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<Entry>,
    /// The number of the first recorded operation.
    first: u64,
}

impl Recorded {
    /// Records the last `entries_max` operations on `below`.
    pub fn new(below: SharedDevice, clock: Clock, entries_max: usize) -> Self {
        let log = Log {
            entries: Mutex::default(),
            entries_max: entries_max.max(1),
        };
        Recorded {
            below,
            clock,
            log: Arc::new(log),
        }
    }

    /// The recorded operations, in order of starting.
    pub fn entries(&self) -> Vec<Entry> {
        self.log.entries.lock().kept.iter().cloned().collect()
    }

    /// Number of operations started so far, including those no longer recorded.
    pub fn started(&self) -> u64 {
        let entries = self.log.entries.lock();
        entries.first + entries.kept.len() as u64
    }

    /// Drops all records. Numbering continues.
    pub fn clear(&self) {
        let mut entries = self.log.entries.lock();
        entries.first += entries.kept.len() as u64;
        entries.kept.clear();
    }

    fn record<T: Send + 'static>(
        &self,
        operation: Operation,
        place: (Option<ZoneId>, Option<u64>),
        bytes: usize,
        start: impl FnOnce() -> OpFuture<T>,
        landed: impl FnOnce(&T) -> Option<u64> + Send + 'static,
    ) -> OpFuture<T> {
        let mut witness = Witness {
            log: Arc::clone(&self.log),
            clock: self.clock.clone(),
            number: self.log.begin(operation, place, bytes, self.clock.now()),
            is_over: false,
        };
        let future = start();
        OpFuture::new(async move {
            let result = future.await;
            witness.end(&result, landed);
            result
        })
    }
}

impl Log {
    fn begin(
        &self,
        operation: Operation,
        (zone, offset): (Option<ZoneId>, Option<u64>),
        bytes: usize,
        started: Tick,
    ) -> u64 {
        let mut entries = self.entries.lock();
        if entries.kept.len() == self.entries_max {
            entries.kept.pop_front();
            entries.first += 1;
        }
        let number = entries.first + entries.kept.len() as u64;
        entries.kept.push_back(Entry {
            number,
            operation,
            zone,
            offset,
            bytes: bytes as u64,
            started,
            outcome: Outcome::Pending,
        });
        number
    }

    fn update(&self, number: u64, update: impl FnOnce(&mut Entry)) {
        let mut entries = self.entries.lock();
        let index = number.checked_sub(entries.first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        // The entry may have been dropped to make room.
        if let Some(entry) = index.and_then(|index| entries.kept.get_mut(index)) {
            update(entry);
        }
    }
}

/// Records the end of an operation.
struct Witness {
    log: Arc<Log>,
    clock: Clock,
    number: u64,
    is_over: bool,
}

impl Witness {
    fn end<T>(&mut self, result: &Result<T, DeviceError>, landed: impl FnOnce(&T) -> Option<u64>) {
        self.is_over = true;
        let now = self.clock.now();
        self.log.update(self.number, |entry| match result {
            Ok(value) => {
                entry.offset = landed(value).or(entry.offset);
                entry.outcome = Outcome::Done(now);
            }
            Err(error) => entry.outcome = Outcome::Failed(now, error.to_string()),
        });
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !self.is_over {
            let now = self.clock.now();
            self.log
                .update(self.number, |entry| entry.outcome = Outcome::Abandoned(now));
        }
    }
}

impl Device for Recorded {
    answered_below!("recorded");

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        let place = (Some(at.zone), Some(at.offset));
        let len = buf.len();
        let start = || self.below.read(at, buf);
        self.record(Operation::Read, place, len, start, |_| None)
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        let len = data.len();
        let start = || self.below.append(zone, data, placement);
        self.record(Operation::Append, (Some(zone), None), len, start, |at| {
            Some(at.offset)
        })
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let place = (Some(at.zone), Some(at.offset));
        let len = data.len();
        let start = || self.below.write(at, data, placement);
        self.record(Operation::Write, place, len, start, |()| None)
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        let start = || self.below.reset(zone);
        self.record(Operation::Reset, (Some(zone), None), 0, start, |()| None)
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        self.below.reserve(zone, bytes)
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        let start = || self.below.finish(zone);
        self.record(Operation::Finish, (Some(zone), None), 0, start, |()| None)
    }

    fn flush(&self) -> OpFuture<()> {
        let start = || self.below.flush();
        self.record(Operation::Flush, (None, None), 0, start, |()| None)
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        let start = || self.below.report();
        self.record(Operation::Report, (None, None), 0, start, |_| None)
    }
}
