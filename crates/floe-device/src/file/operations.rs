//! The zones of a file, and the effects on them of requests that have ended.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;
use tokio::runtime;

use super::owner::{OpenFile, Owner};
use super::request::{Aftermath, Job, Request, Transfer, ZonedJob, is_unsupported};
use crate::buffer::IoData;
use crate::contract::Completer;
use crate::counters::Counters;
use crate::error::{DeviceErrorKind, Operation};
use crate::zones::ZoneTable;

/// The state of a file or block device, and its operations' effects on it.
pub(super) struct Operations {
    pub(super) geometry: Geometry,
    /// Resets deallocate; cleared if the medium cannot.
    pub(super) discard: AtomicBool,
    /// Zones whose space stays allocated when they are reset.
    pub(super) kept: Mutex<Vec<ZoneId>>,
    /// One block of zeros.
    pub(super) zeros: IoData,
    pub(super) zones: Mutex<ZoneTable>,
    /// Resets that wait for earlier writes, oldest first.
    pub(super) waiting_resets: Mutex<Vec<WaitingReset>>,
    pub(super) open: OpenFile,
}

/// A reset that waits for earlier writes.
pub(super) struct WaitingReset {
    pub(super) zone: ZoneId,
    pub(super) completer: Completer<()>,
    /// The runtime of the caller.
    pub(super) home: Option<runtime::Id>,
}

impl Owner for Operations {
    fn open_file(&self) -> &OpenFile {
        &self.open
    }

    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        let (bytes, transfer) = (request.done as u64, request.transfer);
        let counters = &self.open.counters;
        let Job::Zoned(job) = request.job else {
            unreachable!("a device with zones starts operations on zones");
        };
        match job {
            ZonedJob::Read(completer) => {
                let zone = self.zone_at(request.position);
                let result = self
                    .open
                    .count(result, &counters.reads, Operation::Read, zone);
                Counters::add(&counters.read_bytes, bytes);
                let result = result.map(|()| match transfer {
                    Transfer::Read(buf) => buf,
                    _ => unreachable!("a read's transfer is a read"),
                });
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next: None }
            }
            ZonedJob::Append(at, completer) => {
                let result = self
                    .open
                    .count(result, &counters.appends, Operation::Append, at.zone);
                Counters::add(&counters.append_bytes, bytes);
                let next = self.writer_done(at.zone);
                let waker = completer.complete_quietly(result.map(|()| at));
                Aftermath { waker, next }
            }
            ZonedJob::Write(zone, completer) => {
                let result = self
                    .open
                    .count(result, &counters.writes, Operation::Write, zone);
                Counters::add(&counters.write_bytes, bytes);
                let next = self.writer_done(zone);
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next }
            }
            ZonedJob::Reset(zone, completer) => self.reset_step(zone, &transfer, result, completer),
            ZonedJob::Flush(completer) => {
                let result = self
                    .open
                    .count(result, &counters.flushes, Operation::Flush, None);
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next: None }
            }
        }
    }
}

impl Operations {
    pub(super) fn position(&self, at: Address) -> u64 {
        u64::from(at.zone.0) * self.geometry.zone_size + at.offset
    }

    fn zone_at(&self, position: u64) -> ZoneId {
        // The position lies inside the device, whose zones count in 32 bits.
        ZoneId((position / self.geometry.zone_size) as u32)
    }

    fn writer_done(&self, zone: ZoneId) -> Option<Request> {
        let start = self.zones.lock().writer_done(zone);
        start.then(|| self.waiting_reset(zone))
    }

    fn waiting_reset(&self, zone: ZoneId) -> Request {
        let reset = {
            let mut waiting = self.waiting_resets.lock();
            let position = waiting.iter().position(|waiter| waiter.zone == zone);
            position.map(|position| waiting.remove(position))
        };
        let reset = reset.expect("every reset that the zone counts as waiting is listed");
        Request {
            home: reset.home,
            ..self.start_of_reset(zone, reset.completer)
        }
    }

    /// Deallocates the zone if configured and possible, otherwise overwrites
    /// its first block.
    pub(super) fn start_of_reset(&self, zone: ZoneId, completer: Completer<()>) -> Request {
        let position = self.position(Address::new(zone, 0));
        let len = self.geometry.zone_size;
        let discards = self.discard.load(Relaxed) && !self.kept.lock().contains(&zone);
        let transfer = match (discards, self.open.is_block_device) {
            (false, _) => Transfer::Write(self.zeros.clone()),
            (true, false) => Transfer::Punch(len),
            (true, true) => Transfer::Discard(len),
        };
        Request::new(
            transfer,
            position,
            Job::Zoned(ZonedJob::Reset(zone, completer)),
        )
    }

    /// Continues a reset after `transfer`. Only a punched hole is known to read
    /// as zeros; after any other transfer the first block is overwritten.
    fn reset_step(
        &self,
        zone: ZoneId,
        transfer: &Transfer,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<()>,
    ) -> Aftermath {
        let write_block = match (transfer, &result) {
            (Transfer::Discard(_), Ok(())) => true,
            (Transfer::Discard(_) | Transfer::Punch(_), Err(DeviceErrorKind::Io(error)))
                if is_unsupported(error) =>
            {
                tracing::warn!(
                    device = %self.open.path.display(), %error,
                    "discard is not supported here; zones are reset without it"
                );
                self.discard.store(false, Relaxed);
                true
            }
            _ => false,
        };
        if write_block {
            let position = self.position(Address::new(zone, 0));
            let transfer = Transfer::Write(self.zeros.clone());
            let job = Job::Zoned(ZonedJob::Reset(zone, completer));
            let next = Some(Request::new(transfer, position, job));
            return Aftermath { waker: None, next };
        }
        let result = self
            .open
            .count(result, &self.open.counters.resets, Operation::Reset, zone);
        let another = self.zones.lock().reset_done(zone, result.is_ok());
        let waker = completer.complete_quietly(result);
        let next = another.then(|| self.waiting_reset(zone));
        Aftermath { waker, next }
    }
}
