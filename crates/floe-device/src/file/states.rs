//! The zone states of a device, and resets that wait for earlier writes.

use floe_core::ZoneId;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime;

use crate::contract::{Completer, OpFuture};
use crate::error::DeviceErrorKind;
use crate::zones::{ResetTurn, ZoneTable};

/// The zone states of a device.
pub(crate) struct ZoneStates {
    table: Mutex<ZoneTable>,
    /// Resets that wait for earlier writes, oldest first.
    waiting: Mutex<Vec<WaitingReset>>,
}

/// A reset that waits for earlier writes.
pub(crate) struct WaitingReset {
    pub(crate) zone: ZoneId,
    pub(crate) completer: Completer<()>,
    /// The runtime of the caller.
    pub(crate) home: Option<runtime::Id>,
}

/// The action that the end of a writer calls for.
pub(crate) enum AfterWriter {
    Nothing,
    /// The reset must start now.
    Reset(WaitingReset),
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

    /// Requests a reset for a caller in the runtime `home`. Returns its future, and its
    /// completer if it must start now.
    pub(crate) fn request_reset(
        &self,
        zone: ZoneId,
        home: Option<runtime::Id>,
    ) -> Result<(OpFuture<()>, Option<Completer<()>>), DeviceErrorKind> {
        let (completer, future) = OpFuture::pending();
        let mut table = self.table.lock();
        match table.reset_start(zone)? {
            ResetTurn::Now => Ok((future, Some(completer))),
            ResetTurn::Later => {
                // Under the table's lock, so that the last writer to end finds this reset.
                self.waiting.lock().push(WaitingReset {
                    zone,
                    completer,
                    home,
                });
                Ok((future, None))
            }
        }
    }

    /// Counts one writer of `zone` less; returns a reset that must start now.
    pub(crate) fn writer_done(&self, zone: ZoneId) -> Option<WaitingReset> {
        let start = self.table.lock().writer_done(zone);
        start.then(|| self.next_reset(zone))
    }

    /// As [`writer_done`](Self::writer_done), unless the writer must inspect the zone.
    pub(crate) fn writer_done_or_inspects(&self, zone: ZoneId) -> AfterWriter {
        let mut table = self.table.lock();
        if table.starts_inspection(zone) {
            return AfterWriter::Inspect;
        }
        match table.writer_done(zone) {
            true => AfterWriter::Reset(self.next_reset(zone)),
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
    pub(crate) fn reset_done(&self, zone: ZoneId, succeeded: bool) -> Option<WaitingReset> {
        let start = self.table.lock().reset_done(zone, succeeded);
        start.then(|| self.next_reset(zone))
    }

    fn next_reset(&self, zone: ZoneId) -> WaitingReset {
        let mut waiting = self.waiting.lock();
        let position = waiting.iter().position(|waiter| waiter.zone == zone);
        let reset = position.map(|position| waiting.remove(position));
        reset.expect("every reset that the zone counts as waiting is listed")
    }
}
