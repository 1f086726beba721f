//! The zones of a namespace, the commands of its operations, and the effects of commands
//! that have ended.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use floe_core::{Address, Geometry, ZoneId};

use super::command::{Command, RANGE_BYTES, ZoneAction, deallocated_range};
use super::status::Fault;
use super::zone_report;
use crate::buffer::{IoBuf, IoData};
use crate::contract::{Completer, Placement, ZoneState};
use crate::counters::Counters;
use crate::error::{DeviceErrorKind, Operation};
use crate::file::owner::{OpenFile, Owner};
use crate::file::request::{
    Aftermath, Job, Passthrough, PassthroughData, Request, Transfer, ZonedJob,
};
use crate::file::states::{AfterWriter, Waiting, ZoneStates};

/// Bytes of the report of one zone. Some drives reject a buffer for less than a page.
const INSPECTION_BYTES: usize = 4096;

/// The state of a namespace, and its operations' effects on it.
pub(super) struct Operations {
    pub(super) geometry: Geometry,
    pub(super) limits: Limits,
    /// Resets deallocate; cleared if the drive cannot. Zoned namespaces ignore it.
    pub(super) deallocates: AtomicBool,
    /// One block of zeros.
    pub(super) zeros: IoData,
    pub(super) zones: ZoneStates,
    pub(super) open: OpenFile,
}

/// The place of a write's data when the write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// At least in the drive's cache.
    Cached,
    /// On stable media.
    Through,
}

/// The facts of a namespace on which its commands depend.
pub(super) struct Limits {
    pub(super) namespace: u32,
    /// Bytes of the drive's own blocks.
    pub(super) block_bytes: u64,
    /// Most bytes of one command.
    pub(super) part_bytes: usize,
    pub(super) is_zoned: bool,
    /// The placement identifiers of writes.
    pub(super) placements: Vec<u16>,
    /// The endurance group, with data placement.
    pub(super) group: Option<u16>,
    pub(super) has_write_cache: bool,
    /// The drive returns zeros for blocks that were not written since the last reset.
    pub(super) unwritten_reads_zero: bool,
}

impl Owner for Operations {
    fn open_file(&self) -> &OpenFile {
        &self.open
    }

    fn finished(&self, request: Request, result: Result<(), DeviceErrorKind>) -> Aftermath {
        let position = request.position;
        let (Job::Zoned(job), Transfer::Passthrough(ended)) = (request.job, request.transfer)
        else {
            unreachable!("a namespace starts commands on zones");
        };
        let (ended, zone) = (*ended, self.zone_at(position));
        if let Err(DeviceErrorKind::Nvme(status)) = &result
            && status.fault().is_of_zone()
        {
            Counters::add(&self.open.counters.zone_errors, 1);
        }
        match job {
            ZonedJob::Read(_) | ZonedJob::Append(..) | ZonedJob::Write(..)
                if result.is_ok() && ended.part.end < ended.data.len() =>
            {
                let next = self.rest(position, ended, job);
                Aftermath {
                    waker: None,
                    next: Some(next),
                }
            }
            ZonedJob::Read(completer) => {
                let bytes = ended.bytes(&result);
                let PassthroughData::Read(buf) = ended.data else {
                    unreachable!("a read has a buffer");
                };
                let read = result.map(|()| buf);
                let open = &self.open;
                let waker = open.end_transfer(Operation::Read, zone, bytes, read, completer);
                Aftermath { waker, next: None }
            }
            ZonedJob::Append(reserved, completer) => {
                let bytes = ended.bytes(&result);
                let appended = self.appended(reserved, &ended, result);
                let (next, open) = (self.writer_done(zone), &self.open);
                let waker = open.end_transfer(Operation::Append, zone, bytes, appended, completer);
                Aftermath { waker, next }
            }
            ZonedJob::Write(zone, completer) => {
                let bytes = ended.bytes(&result);
                let (next, open) = (self.writer_done(zone), &self.open);
                let waker = open.end_transfer(Operation::Write, zone, bytes, result, completer);
                Aftermath { waker, next }
            }
            ZonedJob::Reset(zone, completer) => {
                self.reset_step(zone, &ended.command, result, completer)
            }
            ZonedJob::Finish(zone, completer) => {
                self.zones.lock().finish_done(zone, result.is_ok());
                let next = self.writer_done(zone);
                let finishes = &self.open.counters.finishes;
                let result = self.open.count(result, finishes, Operation::Finish, zone);
                let waker = completer.complete_quietly(result);
                Aftermath { waker, next }
            }
            ZonedJob::Flush(completer) => {
                let waker = self.open.end_flush(result, completer);
                Aftermath { waker, next: None }
            }
            ZonedJob::Inspect(zone) => {
                self.inspected(zone, &ended, result);
                let next = self.writer_done(zone);
                Aftermath { waker: None, next }
            }
            ZonedJob::Recheck(_) | ZonedJob::Realign(_) | ZonedJob::Repeat(..) => {
                unreachable!("the drive itself gives the place of an append")
            }
        }
    }
}

impl Operations {
    pub(super) fn read(&self, at: Address, buf: IoBuf, completer: Completer<IoBuf>) -> Request {
        let command = Command::read(self.limits.namespace, 0, 1);
        let job = ZonedJob::Read(completer);
        self.transfer(
            command,
            PassthroughData::Read(buf),
            self.position(at),
            0,
            job,
        )
    }

    /// An append for which `at` was reserved, by `store`. The drive of a zoned namespace
    /// chooses the place itself.
    pub(super) fn append(
        &self,
        at: Address,
        data: IoData,
        placement: Placement,
        store: Store,
        completer: Completer<Address>,
    ) -> Request {
        let namespace = self.limits.namespace;
        let (command, place) = match self.limits.is_zoned {
            true => (Command::append(namespace, 0, 1), Address::new(at.zone, 0)),
            false => (
                Command::write(namespace, 0, 1, self.placement(placement)),
                at,
            ),
        };
        let command = match store {
            Store::Through if self.limits.has_write_cache => command.through(),
            Store::Through | Store::Cached => command,
        };
        let job = ZonedJob::Append(at, completer);
        let data = PassthroughData::Write(data);
        self.transfer(command, data, self.position(place), 0, job)
    }

    pub(super) fn write(
        &self,
        at: Address,
        data: IoData,
        placement: Placement,
        completer: Completer<()>,
    ) -> Request {
        let namespace = self.limits.namespace;
        let command = Command::write(namespace, 0, 1, self.placement(placement));
        let job = ZonedJob::Write(at.zone, completer);
        let data = PassthroughData::Write(data);
        self.transfer(command, data, self.position(at), 0, job)
    }

    pub(super) fn flush(&self, completer: Completer<()>) -> Request {
        let command = Command::flush(self.limits.namespace);
        self.bare(command, ZoneId(0), ZonedJob::Flush(completer))
    }

    /// Finishes or resets the zone of a zoned namespace. Otherwise it is reset: deallocated
    /// if that is configured and possible, or zeros are written to its first block.
    pub(super) fn change(&self, zone: ZoneId, job: ZonedJob) -> Request {
        let start = self.block(self.position(Address::new(zone, 0)));
        if self.limits.is_zoned {
            let action = match &job {
                ZonedJob::Finish(..) => ZoneAction::Finish,
                _ => ZoneAction::Reset,
            };
            let command = Command::manage_zone(self.limits.namespace, Some(start), action);
            return self.bare(command, zone, job);
        }
        let blocks = u32::try_from(self.geometry.zone_size / self.limits.block_bytes);
        match blocks {
            Ok(blocks) if self.deallocates.load(Relaxed) => {
                let range = deallocated_range(start, blocks);
                let data = IoBuf::copy_of(&range, RANGE_BYTES).freeze();
                let command = Command::deallocate(self.limits.namespace);
                let data = PassthroughData::Write(data);
                self.request(command, data, 0..RANGE_BYTES, zone, job)
            }
            _ => self.zero_first_block(zone, job),
        }
    }

    fn zero_first_block(&self, zone: ZoneId, job: ZonedJob) -> Request {
        let position = self.position(Address::new(zone, 0));
        // Kernels keep a list of drives whose Write Zeroes command does not work.
        let command = Command::write(self.limits.namespace, 0, 1, None);
        let zeros = PassthroughData::Write(self.zeros.clone());
        self.transfer(command, zeros, position, 0, job)
    }

    /// Continues a reset after `command`.
    fn reset_step(
        &self,
        zone: ZoneId,
        command: &Command,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<()>,
    ) -> Aftermath {
        let deallocated = command.is_deallocate();
        if let Err(DeviceErrorKind::Nvme(status)) = &result
            && deallocated
            && status.fault() == Fault::InvalidCommand
        {
            tracing::warn!(
                device = %self.open.path.display(), %status,
                "the drive does not deallocate; zones are reset without it"
            );
            self.deallocates.store(false, Relaxed);
        } else if !(deallocated && result.is_ok()) {
            return self.reset_done(zone, result, completer);
        }
        // Deallocated blocks may have any content.
        let next = self.zero_first_block(zone, ZonedJob::Reset(zone, completer));
        Aftermath {
            waker: None,
            next: Some(next),
        }
    }

    fn reset_done(
        &self,
        zone: ZoneId,
        result: Result<(), DeviceErrorKind>,
        completer: Completer<()>,
    ) -> Aftermath {
        let resets = &self.open.counters.resets;
        let result = self.open.count(result, resets, Operation::Reset, zone);
        let another = self.zones.reset_done(zone, result.is_ok());
        let next = match another {
            Some(waiting) => Some(self.start(waiting)),
            None if result.is_err() && self.limits.is_zoned => self.inspect_idle(zone),
            None => None,
        };
        let waker = completer.complete_quietly(result);
        Aftermath { waker, next }
    }

    /// Inspects a zone after a failed reset, unless another one has begun.
    fn inspect_idle(&self, zone: ZoneId) -> Option<Request> {
        let is_idle = self.zones.suspect_idle(zone);
        is_idle.then(|| self.writer_done(zone)).flatten()
    }

    /// The address of an append that has ended. After a failure the zone's state is read
    /// from the drive.
    fn appended(
        &self,
        reserved: Address,
        ended: &Passthrough,
        result: Result<(), DeviceErrorKind>,
    ) -> Result<Address, DeviceErrorKind> {
        if !self.limits.is_zoned {
            return result.map(|()| reserved);
        }
        let zone = reserved.zone;
        let len = ended.data.len() as u64;
        let start = self.position(Address::new(zone, 0));
        let offset = ended.value.checked_mul(self.limits.block_bytes);
        let offset = offset.and_then(|position| position.checked_sub(start));
        let is_inside = |offset: u64| {
            let end = offset.checked_add(len);
            end.is_some_and(|end| end <= self.geometry.zone_capacity)
        };
        let landed = match result {
            Ok(()) => offset.filter(|offset| is_inside(*offset)).ok_or_else(|| {
                let why = "the drive returned an address outside the zone";
                DeviceErrorKind::Io(std::io::Error::other(why))
            }),
            Err(kind) => Err(self.append_failure(kind, len)),
        };
        if landed.is_err() {
            self.zones.lock().suspect(zone);
        }
        landed.map(|offset| Address::new(zone, offset))
    }

    /// The kind of failure that callers know of a status.
    fn append_failure(&self, kind: DeviceErrorKind, wanted: u64) -> DeviceErrorKind {
        let DeviceErrorKind::Nvme(status) = kind else {
            return kind;
        };
        let limit = |limit: Option<u32>| DeviceErrorKind::TooManyZones(limit.unwrap_or(u32::MAX));
        match status.fault() {
            Fault::ZoneFull => DeviceErrorKind::ZoneFull { wanted, left: 0 },
            Fault::TooManyActiveZones => limit(self.geometry.max_active_zones),
            Fault::TooManyOpenZones => limit(self.geometry.max_open_zones),
            _ => DeviceErrorKind::Nvme(status),
        }
    }

    fn writer_done(&self, zone: ZoneId) -> Option<Request> {
        match self.zones.writer_done_or_inspects(zone) {
            AfterWriter::Nothing => None,
            AfterWriter::Start(waiting) => Some(self.start(waiting)),
            AfterWriter::Inspect => Some(self.inspection(zone)),
        }
    }

    fn start(&self, waiting: Waiting) -> Request {
        Request {
            home: waiting.home,
            ..self.change(waiting.zone, waiting.job)
        }
    }

    fn inspection(&self, zone: ZoneId) -> Request {
        let start = self.block(self.position(Address::new(zone, 0)));
        let len = INSPECTION_BYTES;
        let command = Command::report_zones(self.limits.namespace, start, len as u32);
        let data = PassthroughData::Read(IoBuf::zeroed(len));
        self.request(command, data, 0..len, zone, ZonedJob::Inspect(zone))
    }

    fn inspected(&self, zone: ZoneId, ended: &Passthrough, result: Result<(), DeviceErrorKind>) {
        let found = match (&ended.data, result) {
            (PassthroughData::Read(buf), Ok(())) => self.found_in(zone, buf),
            _ => None,
        };
        if let Some((state, _)) = found
            && state.is_unwritable()
        {
            tracing::warn!(
                device = %self.open.path.display(), %zone, ?state,
                "the drive has withdrawn a zone"
            );
        }
        self.zones.lock().inspected(zone, found);
    }

    /// The state and write pointer of `zone` in a report that begins with it.
    fn found_in(&self, zone: ZoneId, report: &[u8]) -> Option<(ZoneState, u64)> {
        let first = *zone_report::decode(report).ok()?.first()?;
        let start = self.block(self.position(Address::new(zone, 0)));
        let written = first.written.unwrap_or(0);
        let written = written.checked_mul(self.limits.block_bytes)?;
        let is_it = first.start == start && written <= self.geometry.zone_capacity;
        is_it.then_some((first.state, written))
    }

    /// The next part of a transfer.
    fn rest(&self, position: u64, ended: Passthrough, job: ZonedJob) -> Request {
        let start = ended.part.end;
        self.transfer(ended.command, ended.data, position, start, job)
    }

    /// Transfers `data` from `start`, as far as one command can. `position` is that of
    /// its first byte.
    fn transfer(
        &self,
        command: Command,
        data: PassthroughData,
        position: u64,
        start: usize,
        job: ZonedJob,
    ) -> Request {
        let end = data.len().min(start + self.limits.part_bytes);
        let blocks = (end - start) as u64 / self.limits.block_bytes;
        let command = command.moved(self.block(position + start as u64), blocks as u32);
        let passthrough = Passthrough::new(command, data, start..end);
        Request::new(
            Transfer::Passthrough(Box::new(passthrough)),
            position,
            Job::Zoned(job),
        )
    }

    fn bare(&self, command: Command, zone: ZoneId, job: ZonedJob) -> Request {
        self.request(command, PassthroughData::None, 0..0, zone, job)
    }

    fn request(
        &self,
        command: Command,
        data: PassthroughData,
        part: std::ops::Range<usize>,
        zone: ZoneId,
        job: ZonedJob,
    ) -> Request {
        let passthrough = Passthrough::new(command, data, part);
        let position = self.position(Address::new(zone, 0));
        Request::new(
            Transfer::Passthrough(Box::new(passthrough)),
            position,
            Job::Zoned(job),
        )
    }

    fn placement(&self, placement: Placement) -> Option<u16> {
        let all = &self.limits.placements;
        let index = usize::from(placement.0).checked_rem(all.len())?;
        Some(all[index])
    }

    fn position(&self, at: Address) -> u64 {
        u64::from(at.zone.0) * self.geometry.zone_size + at.offset
    }

    fn block(&self, position: u64) -> u64 {
        position / self.limits.block_bytes
    }

    fn zone_at(&self, position: u64) -> ZoneId {
        // The position lies inside the device, whose zones count in 32 bits.
        ZoneId((position / self.geometry.zone_size) as u32)
    }
}
