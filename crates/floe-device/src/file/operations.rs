//! The zones of a file, and the effects on them of requests that have ended.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;

use super::owner::{OpenFile, Owner};
use super::request::{Aftermath, Job, Request, Transfer, ZonedJob, is_unsupported};
use super::states::{Waiting, ZoneStates};
use crate::buffer::IoData;
use crate::contract::Completer;
use crate::error::{DeviceErrorKind, Operation};

/// The state of a file or block device, and its operations' effects on it.
pub(super) struct Operations {
    pub(super) geometry: Geometry,
    /// Resets deallocate; cleared if the medium cannot.
    pub(super) discard: AtomicBool,
    /// Resets begin to free space when there is no more. A file keeps it by default, and on a full
    /// disk another zone may need it.
    pub(super) discards_when_full: AtomicBool,
    /// Zones whose space stays allocated when they are reset.
    pub(super) kept: Mutex<Vec<ZoneId>>,
    /// One block of zeros.
    pub(super) zeros: IoData,
    pub(super) zones: ZoneStates,
    pub(super) open: OpenFile,
}

impl Owner for Operations {
    fn open_file(&self) -> &OpenFile {
        &self.open
    }

    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        let bytes = request.done as u64;
        let Job::Zoned(job) = request.job else {
            unreachable!("a device with zones starts operations on zones");
        };
        match (job, request.transfer) {
            (ZonedJob::Read(completer), Transfer::Read(buf)) => {
                let zone = self.zone_at(request.position);
                let read = result.map(|()| buf);
                let open = &self.open;
                let waker = open.end_transfer(Operation::Read, zone, bytes, read, completer);
                Aftermath { waker, next: None }
            }
            (ZonedJob::Append(at, completer), transfer) => {
                self.note_shortage(&result);
                self.open.note_durable_write(&transfer, &result);
                let next = self.writer_done(at.zone);
                let (zone, appended, open) = (at.zone, result.map(|()| at), &self.open);
                let waker = open.end_transfer(Operation::Append, zone, bytes, appended, completer);
                Aftermath { waker, next }
            }
            (ZonedJob::Write(zone, completer), _) => {
                self.note_shortage(&result);
                let next = self.writer_done(zone);
                let open = &self.open;
                let waker = open.end_transfer(Operation::Write, zone, bytes, result, completer);
                Aftermath { waker, next }
            }
            (ZonedJob::Reset(zone, completer), transfer) => {
                self.reset_step(zone, &transfer, result, completer)
            }
            (ZonedJob::Flush(completer), _) => {
                let waker = self.open.end_flush(result, completer);
                Aftermath { waker, next: None }
            }
            (
                ZonedJob::Read(_)
                | ZonedJob::Finish(..)
                | ZonedJob::Inspect(_)
                | ZonedJob::Recheck(_)
                | ZonedJob::Realign(_)
                | ZonedJob::Repeat(..),
                _,
            ) => {
                unreachable!("a file's reads are reads, and its zone states are in memory")
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
        let waiting = self.zones.writer_done(zone)?;
        Some(self.waiting_reset(waiting))
    }

    /// Has resets free space from now on if `result` of a write shows that it lacks.
    fn note_shortage(&self, result: &Result<(), DeviceErrorKind>) {
        if !matches!(result, Err(DeviceErrorKind::NoSpace))
            || !self.discards_when_full.load(Relaxed)
        {
            return;
        }
        // Before the other flag: who finds that one cleared finds this one set.
        self.discard.store(true, SeqCst);
        if self.discards_when_full.swap(false, SeqCst) {
            tracing::warn!(
                device = %self.open.path.display(),
                "the file system is full: resets free the space of their zones from now on"
            );
        }
    }

    fn waiting_reset(&self, waiting: Waiting) -> Request {
        Request {
            home: waiting.home,
            ..self.start_of_reset(waiting.zone, waiting.job)
        }
    }

    /// Deallocates the zone if configured and possible, otherwise overwrites
    /// its first block.
    pub(super) fn start_of_reset(&self, zone: ZoneId, reset: ZonedJob) -> Request {
        let position = self.position(Address::new(zone, 0));
        Request::new(self.start_transfer(zone), position, Job::Zoned(reset))
    }

    /// The first transfer of a reset: it frees the space of the zone, or zeroes its first block.
    fn start_transfer(&self, zone: ZoneId) -> Transfer {
        let len = self.geometry.zone_size;
        let discards = self.discard.load(SeqCst) && !self.kept.lock().contains(&zone);
        match (discards, self.open.is_block_device) {
            (false, _) => Transfer::Write(self.zeros.clone()),
            (true, false) => Transfer::Punch(len),
            (true, true) => Transfer::Discard(len),
        }
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
        if let (Transfer::Write(_), Err(DeviceErrorKind::NoSpace)) = (transfer, &result) {
            self.note_shortage(&result);
            if let punch @ Transfer::Punch(_) = self.start_transfer(zone) {
                let position = self.position(Address::new(zone, 0));
                let job = Job::Zoned(ZonedJob::Reset(zone, completer));
                let next = Some(Request::new(punch, position, job));
                return Aftermath { waker: None, next };
            }
        }
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
        let another = self.zones.reset_done(zone, result.is_ok());
        let waker = completer.complete_quietly(result);
        let next = another.map(|reset| self.waiting_reset(reset));
        Aftermath { waker, next }
    }
}
