//! Commands in flight on a simulated SSD, and their completion.

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_core::{Address, ZoneId};
use parking_lot::{Mutex, MutexGuard};

use super::command::Command;
use super::model::{End, Model};
use crate::arena::Arena;
use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::contract::Completer;
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
use crate::sim_config::SimConfig;
use crate::sim_media::{Interrupted, SimMedia};

pub(super) struct Inner {
    pub(super) media: SimMedia,
    pub(super) clock: Clock,
    pub(super) config: SimConfig,
    pub(super) description: String,
    /// An append gets its address when it ends, not when it starts.
    pub(super) places_late: bool,
    /// Buffers for reuse, because allocating pages costs more than the rest of
    /// a simulated read.
    pub(super) arena: Option<Arc<Arena>>,
    pub(super) controller: Mutex<Controller>,
}

/// The commands in flight.
pub(super) struct Controller {
    pub(super) model: Model,
    /// In the order of starting.
    pub(super) in_flight: BTreeMap<u64, Work>,
    pub(super) started: u64,
    /// Resets that wait for earlier writes, oldest first.
    pub(super) waiting_resets: Vec<WaitingReset>,
}

pub(super) type WaitingReset = (ZoneId, Completer<()>);

pub(super) enum Work {
    Read(Address, IoBuf, Completer<IoBuf>),
    /// The offset is known unless the device chooses it.
    Append(ZoneId, Option<u64>, IoData, Completer<Address>),
    Write(Address, IoData, Completer<()>),
    Reset(ZoneId, Completer<()>),
    Finish(ZoneId, Completer<()>),
    /// Makes changes up to this one durable.
    Flush(u64, Completer<()>),
}

impl Inner {
    pub(super) fn begin(self: &Arc<Self>, command: Command, work: Work) {
        // Due commands end first, because the model needs events in order of
        // time.
        self.pump();
        let mut controller = self.controller.lock();
        // No command may begin once the power is off: see `crash`.
        if self.media.power.is_off() {
            return;
        }
        let number = controller.started;
        controller.started += 1;
        let now = self.clock.now();
        let end = match controller.model.submit(now, number, command) {
            Ok(end) => end,
            Err(kind) => return self.reject(controller, work, kind),
        };
        controller.in_flight.insert(number, work);
        let inner = Arc::clone(self);
        match end {
            End::At(end) => {
                drop(controller);
                self.clock.at(end, move || inner.end(number));
            }
            End::Later => self.plan_pump(controller),
        }
    }

    /// Ends the commands that the simulated SSD has finished.
    fn pump(self: &Arc<Self>) {
        let mut controller = self.controller.lock();
        let Model::Ssd(ssd) = &mut controller.model else {
            return;
        };
        let ended = ssd.advance(self.clock.now());
        self.plan_pump(controller);
        for completion in ended {
            self.end(completion.id.0);
        }
    }

    fn plan_pump(self: &Arc<Self>, mut controller: MutexGuard<'_, Controller>) {
        let Model::Ssd(ssd) = &mut controller.model else {
            return;
        };
        let planned = ssd.plan(self.clock.now());
        drop(controller);
        if let Some(at) = planned {
            let inner = Arc::clone(self);
            self.clock.at(at, move || inner.pump());
        }
    }

    pub(super) fn reset_of(&self, zone: ZoneId) -> Command {
        Command::Reset {
            zone,
            offset: self.media.position(zone, 0),
            bytes: self.media.geometry.zone_capacity,
        }
    }

    /// Fails a command that the simulated SSD rejects: an append to a zone that
    /// is being finished.
    fn reject(
        self: &Arc<Self>,
        controller: MutexGuard<'_, Controller>,
        work: Work,
        kind: DeviceErrorKind,
    ) {
        Counters::add(&self.media.counters.errors, 1);
        let failed = |operation, zone| DeviceError::new(operation, zone, kind);
        match work {
            Work::Read(at, _, completer) => {
                drop(controller);
                completer.complete(Err(failed(Operation::Read, Some(at.zone))));
            }
            Work::Append(zone, _, _, completer) => {
                self.writer_done(controller, zone);
                completer.complete(Err(failed(Operation::Append, Some(zone))));
            }
            Work::Write(at, _, completer) => {
                self.writer_done(controller, at.zone);
                completer.complete(Err(failed(Operation::Write, Some(at.zone))));
            }
            Work::Reset(zone, completer) => {
                let another = self.media.zones.lock().reset_done(zone, false);
                self.run_waiting_reset(controller, zone, another);
                completer.complete(Err(failed(Operation::Reset, Some(zone))));
            }
            Work::Finish(zone, completer) => {
                drop(controller);
                completer.complete(Err(failed(Operation::Finish, Some(zone))));
            }
            Work::Flush(_, completer) => {
                drop(controller);
                completer.complete(Err(failed(Operation::Flush, None)));
            }
        }
    }

    /// Ends a command whose time has come.
    fn end(self: &Arc<Self>, number: u64) {
        // One command at a time, so that writes land in the order of their
        // addresses.
        let mut controller = self.controller.lock();
        // A power failure has removed it.
        let Some(work) = controller.in_flight.remove(&number) else {
            return;
        };
        let media = &self.media;
        let counters = &media.counters;
        match work {
            Work::Read(at, mut buf, completer) => {
                media.load(at.zone, at.offset, &mut buf);
                Counters::add(&counters.reads, 1);
                Counters::add(&counters.read_bytes, buf.len() as u64);
                drop(controller);
                completer.complete(Ok(buf));
            }
            Work::Append(zone, offset, data, completer) => {
                let landed = self.land(zone, offset, &data);
                self.writer_done(controller, zone);
                completer.complete(landed);
            }
            Work::Write(at, data, completer) => {
                media.store(at.zone, at.offset, &data);
                Counters::add(&counters.writes, 1);
                Counters::add(&counters.write_bytes, data.len() as u64);
                self.writer_done(controller, at.zone);
                completer.complete(Ok(()));
            }
            Work::Reset(zone, completer) => {
                media.clear(zone);
                Counters::add(&counters.resets, 1);
                let another = media.zones.lock().reset_done(zone, true);
                self.run_waiting_reset(controller, zone, another);
                completer.complete(Ok(()));
            }
            Work::Finish(zone, completer) => {
                let finished = media.zones.lock().finish(zone);
                drop(controller);
                completer.complete(self.count(
                    finished,
                    &counters.finishes,
                    Operation::Finish,
                    zone,
                ));
            }
            Work::Flush(mark, completer) => {
                media.flush(mark);
                Counters::add(&counters.flushes, 1);
                drop(controller);
                completer.complete(Ok(()));
            }
        }
    }

    fn land(
        &self,
        zone: ZoneId,
        offset: Option<u64>,
        data: &IoData,
    ) -> Result<Address, DeviceError> {
        let media = &self.media;
        let landed = match offset {
            Some(offset) => Ok(offset),
            None => media.zones.lock().land(zone, data.len() as u64),
        };
        if let Ok(offset) = landed {
            media.store(zone, offset, data);
            Counters::add(&media.counters.append_bytes, data.len() as u64);
        }
        let landed = landed.map(|offset| Address::new(zone, offset));
        self.count(landed, &media.counters.appends, Operation::Append, zone)
    }

    fn count<T>(
        &self,
        result: Result<T, DeviceErrorKind>,
        counter: &std::sync::atomic::AtomicU64,
        operation: Operation,
        zone: ZoneId,
    ) -> Result<T, DeviceError> {
        let errors = &self.media.counters.errors;
        Counters::add(if result.is_ok() { counter } else { errors }, 1);
        result.map_err(|kind| DeviceError::new(operation, zone, kind))
    }

    fn writer_done(self: &Arc<Self>, controller: MutexGuard<'_, Controller>, zone: ZoneId) {
        let start = self.media.zones.lock().writer_done(zone);
        self.run_waiting_reset(controller, zone, start);
    }

    fn run_waiting_reset(
        self: &Arc<Self>,
        mut controller: MutexGuard<'_, Controller>,
        zone: ZoneId,
        start: bool,
    ) {
        let waiting = &mut controller.waiting_resets;
        let position = waiting
            .iter()
            .position(|(waiter, _)| start && *waiter == zone);
        let next = position.map(|position| waiting.remove(position).1);
        drop(controller);
        if let Some(completer) = next {
            self.begin(self.reset_of(zone), Work::Reset(zone, completer));
        }
    }

    /// Removes all commands in flight and waiting resets. Dropping them fails
    /// the operations.
    pub(super) fn stop(&self) -> (BTreeMap<u64, Work>, Vec<WaitingReset>) {
        let mut controller = self.controller.lock();
        let in_flight = std::mem::take(&mut controller.in_flight);
        (in_flight, std::mem::take(&mut controller.waiting_resets))
    }

    pub(super) fn crash(&self, seed: u64) {
        if !self.media.power.turn_off() {
            return;
        }
        let (in_flight, waiting) = self.stop();
        let (interrupted, completers): (Vec<_>, Vec<_>) =
            in_flight.into_values().map(Work::interrupt).unzip();
        let interrupted = interrupted.into_iter().flatten().collect();
        self.media.lose_power(seed, interrupted);
        // Dropping a completer fails its operation as gone.
        drop((completers, waiting));
    }
}

/// A completer of any kind, kept only to be dropped.
type Waiter = Box<dyn std::any::Any + Send>;

impl Work {
    /// The change that a power loss may apply in part, and the waiter.
    fn interrupt(self) -> (Option<Interrupted>, Waiter) {
        match self {
            Work::Read(_, _, completer) => (None, Box::new(completer)),
            Work::Append(zone, offset, data, completer) => {
                let change = match offset {
                    Some(offset) => Interrupted::Write { zone, offset, data },
                    None => Interrupted::Append { zone, data },
                };
                (Some(change), Box::new(completer))
            }
            Work::Write(at, data, completer) => {
                let (zone, offset) = (at.zone, at.offset);
                let change = Interrupted::Write { zone, offset, data };
                (Some(change), Box::new(completer))
            }
            Work::Reset(zone, completer) => {
                (Some(Interrupted::Reset { zone }), Box::new(completer))
            }
            Work::Finish(_, completer) | Work::Flush(_, completer) => (None, Box::new(completer)),
        }
    }
}
