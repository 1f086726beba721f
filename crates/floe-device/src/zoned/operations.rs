//! The zones of a zoned block device, and the effects on them of requests that have ended.

use std::io;
use std::task::Waker;

use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;

use super::kernel::{Change, KernelZone};
use super::lanes::Lanes;
use crate::contract::{Completer, ZoneState};
use crate::error::{DeviceErrorKind, Operation};
use crate::file::owner::{OpenFile, Owner};
use crate::file::request::{Aftermath, Job, RefusedAppend, Request, Transfer, ZonedJob};
use crate::file::states::{AfterWriter, Waiting, ZoneStates};

/// The state of a zoned block device, and its operations' effects on it.
pub(super) struct Operations {
    pub(super) geometry: Geometry,
    /// Byte offset of zone 0, behind the drive's conventional zones.
    pub(super) start: u64,
    pub(super) zones: ZoneStates,
    /// Locked before the zones where both are. It stays locked from the end of an operation
    /// until its lane knows of that, so that no append starts beside another.
    pub(super) lanes: Mutex<Lanes<Request>>,
    pub(super) open: OpenFile,
}

impl Owner for Operations {
    fn open_file(&self) -> &OpenFile {
        &self.open
    }

    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        let (bytes, open) = (request.done as u64, &self.open);
        let Job::Zoned(job) = request.job else {
            unreachable!("a device with zones starts operations on zones");
        };
        open.note_durable_write(&request.transfer, &result);
        let (waker, next) = match (job, request.transfer) {
            (ZonedJob::Read(completer), Transfer::Read(buf)) => {
                let (zone, read) = (self.zone_at(request.position), result.map(|()| buf));
                let waker = open.end_transfer(Operation::Read, zone, bytes, read, completer);
                (waker, None)
            }
            (ZonedJob::Flush(completer), _) => (open.end_flush(result, completer), None),
            (
                ZonedJob::Append(at, completer),
                write @ (Transfer::Write(_) | Transfer::WriteDurably(_)),
            ) if bytes == 0 && is_refusal(&result) => {
                let error = result.expect_err("the append was refused");
                (None, Some(self.recheck(at, write, error, completer)))
            }
            (ZonedJob::Recheck(refused), Transfer::ReportZone(found)) => {
                self.rechecked(refused, found.filter(|_| result.is_ok()))
            }
            // If it failed, the repetition fails too.
            (ZonedJob::Realign(refused), _) => (None, Some(self.repeat(*refused))),
            (ZonedJob::Append(at, completer), _) => self.appended(at, bytes, result, completer),
            (ZonedJob::Repeat(at, completer), _) => {
                let result = result.map_err(|error| {
                    let what = format!("{error}, at the zone's write pointer, twice");
                    DeviceErrorKind::Io(io::Error::other(what))
                });
                self.appended(at, bytes, result, completer)
            }
            (ZonedJob::Finish(zone, completer), _) => {
                let mut lanes = self.lanes.lock();
                self.zones.lock().finish_done(zone, result.is_ok());
                let next = self.writer_done(&mut lanes, zone);
                drop(lanes);
                let finishes = &open.counters.finishes;
                let result = open.count(result, finishes, Operation::Finish, zone);
                (completer.complete_quietly(result), next)
            }
            (ZonedJob::Reset(zone, completer), _) => {
                let resets = &open.counters.resets;
                let result = open.count(result, resets, Operation::Reset, zone);
                let mut lanes = self.lanes.lock();
                let next = match self.zones.reset_done(zone, result.is_ok()) {
                    Some(waiting) => Some(self.start(waiting)),
                    None if result.is_err() => self.inspect_idle(&mut lanes, zone),
                    None => lanes.ended(zone),
                };
                drop(lanes);
                (completer.complete_quietly(result), next)
            }
            (ZonedJob::Inspect(zone), Transfer::ReportZone(found)) => {
                let mut lanes = self.lanes.lock();
                self.inspected(zone, found.filter(|_| result.is_ok()));
                (None, self.writer_done(&mut lanes, zone))
            }
            (
                ZonedJob::Read(_)
                | ZonedJob::Write(..)
                | ZonedJob::Inspect(_)
                | ZonedJob::Recheck(_),
                _,
            ) => {
                unreachable!("reads read, inspections report, and nothing is written in place")
            }
        };
        Aftermath { waker, next }
    }
}

impl Operations {
    pub(super) fn position(&self, at: Address) -> u64 {
        self.start + u64::from(at.zone.0) * self.geometry.zone_size + at.offset
    }

    fn zone_at(&self, position: u64) -> ZoneId {
        // The position lies inside the device, whose zones count in 32 bits.
        ZoneId(((position - self.start) / self.geometry.zone_size) as u32)
    }

    pub(super) fn write(&self, at: Address, write: Transfer, job: ZonedJob) -> Request {
        Request::new(write, self.position(at), Job::Zoned(job))
    }

    /// Looks whether the drive knows nothing of an append that failed. The kernel fails writes
    /// itself where its own write pointer of the zone went wrong (`block/blk-zoned.c`): after a
    /// write that failed a report sets that right. A zone that was reset by passthrough needs a
    /// reset by the kernel.
    fn recheck(
        &self,
        at: Address,
        write: Transfer,
        error: DeviceErrorKind,
        completer: Completer<Address>,
    ) -> Request {
        let refused = RefusedAppend {
            at,
            write,
            error,
            completer,
        };
        self.report(at.zone, ZonedJob::Recheck(Box::new(refused)))
    }

    /// Repeats an append if its zone takes it, as the drive reports.
    fn rechecked(
        &self,
        refused: Box<RefusedAppend>,
        found: Option<Box<KernelZone>>,
    ) -> (Option<Waker>, Option<Request>) {
        let RefusedAppend { at, ref error, .. } = *refused;
        let takes_it = |zone: &KernelZone| zone.takes_write_at(at.offset);
        if !found.as_deref().is_some_and(takes_it) {
            let RefusedAppend {
                at,
                error,
                completer,
                ..
            } = *refused;
            let error = not_taken(at, found.as_deref(), error);
            return self.appended(at, 0, Err(error), completer);
        }
        tracing::warn!(
            device = %self.open.path.display(), zone = %at.zone, offset = at.offset, %error,
            "an append of which nothing was written is repeated"
        );
        let is_empty = found.is_some_and(|zone| zone.state == Some(ZoneState::Empty));
        let next = match is_empty {
            true => self.change(at.zone, ZonedJob::Realign(refused)),
            false => self.repeat(*refused),
        };
        (None, Some(next))
    }

    fn repeat(&self, refused: RefusedAppend) -> Request {
        let RefusedAppend {
            at,
            write,
            completer,
            ..
        } = refused;
        self.write(at, write, ZonedJob::Repeat(at, completer))
    }

    fn report(&self, zone: ZoneId, job: ZonedJob) -> Request {
        let position = self.position(Address::new(zone, 0));
        Request::new(Transfer::ReportZone(None), position, Job::Zoned(job))
    }

    /// The end of an append.
    fn appended(
        &self,
        at: Address,
        bytes: u64,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<Address>,
    ) -> (Option<Waker>, Option<Request>) {
        if result.is_err() {
            self.fail_followers(at.zone);
        }
        let next = self.writer_done(&mut self.lanes.lock(), at.zone);
        let appended = result.map(|()| at);
        let operation = Operation::Append;
        let open = &self.open;
        let waker = open.end_transfer(operation, at.zone, bytes, appended, completer);
        (waker, next)
    }

    /// Finishes or resets the zone.
    pub(super) fn change(&self, zone: ZoneId, job: ZonedJob) -> Request {
        let change = match &job {
            ZonedJob::Finish(..) => Change::Finish,
            _ => Change::Reset,
        };
        let transfer = Transfer::ChangeZone(self.geometry.zone_size, change);
        let position = self.position(Address::new(zone, 0));
        Request::new(transfer, position, Job::Zoned(job))
    }

    fn start(&self, waiting: Waiting) -> Request {
        self.change(waiting.zone, waiting.job)
    }

    /// The next request after an append, a finish or an inspection.
    fn writer_done(&self, lanes: &mut Lanes<Request>, zone: ZoneId) -> Option<Request> {
        match self.zones.writer_done_or_inspects(zone) {
            AfterWriter::Nothing => lanes.ended(zone),
            AfterWriter::Start(waiting) => Some(self.start(waiting)),
            AfterWriter::Inspect => Some(self.report(zone, ZonedJob::Inspect(zone))),
        }
    }

    /// Inspects a zone after a failed reset, unless another one has begun.
    fn inspect_idle(&self, lanes: &mut Lanes<Request>, zone: ZoneId) -> Option<Request> {
        let is_idle = self.zones.suspect_idle(zone);
        is_idle.then(|| self.writer_done(lanes, zone)).flatten()
    }

    /// Appends behind a failed one would leave a gap, which the drive rejects.
    fn fail_followers(&self, zone: ZoneId) {
        let followers = {
            let mut lanes = self.lanes.lock();
            self.zones.lock().suspect(zone);
            lanes.drain(zone)
        };
        for follower in followers {
            let Job::Zoned(ZonedJob::Append(_, completer)) = follower.job else {
                unreachable!("appends wait in lanes");
            };
            self.zones.lock().writer_done(zone);
            let behind = DeviceErrorKind::Io(io::Error::other("an earlier append failed"));
            let failed = self.open.count(
                Err(behind),
                &self.open.counters.appends,
                Operation::Append,
                zone,
            );
            completer.complete(failed);
        }
    }

    /// Takes over the state that the drive reports. Without a report it is unknown.
    fn inspected(&self, zone: ZoneId, reported: Option<Box<KernelZone>>) {
        let found = reported.and_then(|zone| Some((zone.state?, zone.written)));
        let (state, written) = found.unwrap_or((ZoneState::Unknown, 0));
        tracing::warn!(
            device = %self.open.path.display(), %zone, ?state, written,
            "an operation failed; the zone's state was read from the drive"
        );
        let written = written.min(self.geometry.zone_capacity);
        self.zones
            .lock()
            .inspected(zone, found.map(|_| (state, written)));
    }
}

/// The error of an append that the kernel or the drive failed, with what the drive says of its
/// zone.
fn not_taken(at: Address, found: Option<&KernelZone>, error: DeviceErrorKind) -> DeviceErrorKind {
    let zone = match found {
        Some(KernelZone { state, written, .. }) => {
            format!("its zone is {state:?} and written up to {written}")
        }
        None => "its zone cannot be reported".to_owned(),
    };
    let what = format!("{error}, at offset {}; {zone}", at.offset);
    DeviceErrorKind::Io(io::Error::other(what))
}

/// True if the kernel itself may have failed the write, which it does with EIO.
fn is_refusal(result: &Result<(), DeviceErrorKind>) -> bool {
    matches!(result, Err(DeviceErrorKind::Io(error)) if error.raw_os_error() == Some(libc::EIO))
}
