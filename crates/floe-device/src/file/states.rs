//! The zone states of a device, and finishes and resets that wait for earlier writes.

use floe_core::ZoneId;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime;

use crate::contract::{Completer, OpFuture};
use crate::error::DeviceErrorKind;
use crate::zones::{Turn, ZoneTable};

use super::request::ZonedJob;

/// The zone states of a device.
pub(crate) struct ZoneStates {
    table: Mutex<ZoneTable>,
    /// Finishes and resets that wait for earlier writes, oldest first.
    waiting: Mutex<Vec<Waiting>>,
}

/// A finish or reset that waits for earlier writes.
pub(crate) struct Waiting {
    pub(crate) zone: ZoneId,
    pub(crate) job: ZonedJob,
    /// The runtime of the caller.
    pub(crate) home: Option<runtime::Id>,
}

/// A finish or reset that was accepted: its future, and its job if it must start now.
pub(crate) type Accepted = (OpFuture<()>, Option<ZonedJob>);

/// The action that the end of a writer calls for.
pub(crate) enum AfterWriter {
    Nothing,
    /// The finish or reset must start now.
    Start(Waiting),
    /// The writer must read the zone's state, and then end once more.
    Inspect,
}

impl ZoneStates {
    pub(crate) fn new(table: ZoneTable) -> Self {
        ZoneStates {
            table: Mutex::new(table),
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ZoneTable> {
        self.table.lock()
    }

    /// Requests a reset for a caller in the runtime `home`.
    pub(crate) fn request_reset(
        &self,
        zone: ZoneId,
        home: Option<runtime::Id>,
    ) -> Result<Accepted, DeviceErrorKind> {
        let mut table = self.table.lock();
        let turn = table.reset_start(zone)?;
        Ok(self.accept(turn, zone, ZonedJob::Reset, home))
    }

    /// Requests a finish in the drive, as [`request_reset`](Self::request_reset). `None` if
    /// the zone is full already.
    pub(crate) fn request_finish(
        &self,
        zone: ZoneId,
        home: Option<runtime::Id>,
    ) -> Result<Option<Accepted>, DeviceErrorKind> {
        let mut table = self.table.lock();
        let turn = table.finish_start(zone)?;
        Ok(turn.map(|turn| self.accept(turn, zone, ZonedJob::Finish, home)))
    }

    /// Under the table's lock, so that the last writer to end finds what waits.
    fn accept(
        &self,
        turn: Turn,
        zone: ZoneId,
        job: fn(ZoneId, Completer<()>) -> ZonedJob,
        home: Option<runtime::Id>,
    ) -> Accepted {
        let (completer, future) = OpFuture::pending();
        let job = job(zone, completer);
        match turn {
            Turn::Now => (future, Some(job)),
            Turn::Later => {
                self.waiting.lock().push(Waiting { zone, job, home });
                (future, None)
            }
        }
    }

    /// Counts one writer of `zone` less; returns a finish or reset that must start now.
    pub(crate) fn writer_done(&self, zone: ZoneId) -> Option<Waiting> {
        let start = self.table.lock().writer_done(zone);
        start.then(|| self.next(zone))
    }

    /// As [`writer_done`](Self::writer_done), unless the writer must inspect the zone.
    pub(crate) fn writer_done_or_inspects(&self, zone: ZoneId) -> AfterWriter {
        let mut table = self.table.lock();
        if table.starts_inspection(zone) {
            return AfterWriter::Inspect;
        }
        match table.writer_done(zone) {
            true => AfterWriter::Start(self.next(zone)),
            false => AfterWriter::Nothing,
        }
    }

    /// Lets the caller inspect an idle zone whose reset has failed: counts it as a writer
    /// that must end. False if another reset has begun.
    pub(crate) fn suspect_idle(&self, zone: ZoneId) -> bool {
        let mut table = self.table.lock();
        let is_idle = table.writer_started(zone).is_ok();
        if is_idle {
            table.suspect(zone);
        }
        is_idle
    }

    /// Ends the running reset of `zone`; returns another one that must start now.
    pub(crate) fn reset_done(&self, zone: ZoneId, succeeded: bool) -> Option<Waiting> {
        let start = self.table.lock().reset_done(zone, succeeded);
        start.then(|| self.next(zone))
    }

    fn next(&self, zone: ZoneId) -> Waiting {
        let mut waiting = self.waiting.lock();
        let position = waiting.iter().position(|waiter| waiter.zone == zone);
        let next = position.map(|position| waiting.remove(position));
        next.expect("everything that the zone counts as waiting is listed")
    }
}
