//! Latencies of commands, from plain queues or from a model of a whole SSD.

use floe_core::ssd::{self, CommandId, Completion, Rejection, Ssd, Statistics};
use floe_core::{Tick, ZoneId};

use super::command::Command;
use super::queues::Queues;
use crate::error::DeviceErrorKind;
use crate::sim_config::SimConfig;

/// The model that decides when commands end.
#[derive(Debug)]
pub(super) enum Model {
    /// Knows the end of a command when it begins.
    Queues(Queues),
    /// Knows the end of a command only when it ends.
    Ssd(Box<Simulated>),
}

/// The end of a command.
pub(super) enum End {
    At(Tick),
    /// [`Simulated::advance`] will report it.
    Later,
}

impl Model {
    pub(super) fn new(config: &SimConfig, ssd: Option<Ssd>) -> Self {
        match ssd {
            None => Model::Queues(Queues::new(config.clone())),
            Some(ssd) => Model::Ssd(Box::new(Simulated {
                trims: config.trim,
                handles: Vec::new(),
                is_zoned: ssd.zone(0).is_some(),
                ssd,
                pump_at: None,
            })),
        }
    }

    /// Starts a command. `now` must not be before that of an earlier call.
    pub(super) fn submit(
        &mut self,
        now: Tick,
        number: u64,
        command: Command,
    ) -> Result<End, DeviceErrorKind> {
        match self {
            Model::Queues(queues) => Ok(End::At(queues.schedule(now, command))),
            Model::Ssd(simulated) => simulated.submit(now, number, command),
        }
    }

    /// The SSD's name; none for queues.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Model::Queues(_) => None,
            Model::Ssd(simulated) => Some(&simulated.ssd.config().name),
        }
    }

    pub(super) fn is_ssd(&self) -> bool {
        matches!(self, Model::Ssd(_))
    }

    /// The model of a restarted device. An SSD is kept whole; queues are empty
    /// after a restart.
    pub(super) fn take(&mut self, config: &SimConfig) -> Model {
        let empty = || Model::Queues(Queues::new(config.clone()));
        let mut taken = std::mem::replace(self, empty());
        match &mut taken {
            Model::Queues(_) => empty(),
            Model::Ssd(simulated) => {
                simulated.pump_at = None;
                taken
            }
        }
    }

    pub(super) fn statistics(&self) -> Option<Statistics> {
        match self {
            Model::Queues(_) => None,
            Model::Ssd(simulated) => Some(simulated.ssd.statistics()),
        }
    }
}

/// A simulated SSD.
#[derive(Debug)]
pub(super) struct Simulated {
    ssd: Ssd,
    is_zoned: bool,
    trims: bool,
    /// The handle of each zone's last append, on a drive with placement
    /// handles.
    handles: Vec<Option<u16>>,
    /// Time of the next planned call of `advance`.
    pump_at: Option<Tick>,
}

impl Simulated {
    fn submit(&mut self, now: Tick, number: u64, command: Command) -> Result<End, DeviceErrorKind> {
        if let Command::Append { zone, handle, .. } = command {
            self.remember(zone, handle);
        }
        let command = match command {
            Command::Read { offset, bytes } => ssd::Command::Read { offset, bytes },
            Command::Append { zone, bytes, .. } if self.is_zoned => ssd::Command::Append {
                zone: zone.0,
                bytes,
            },
            Command::Append {
                offset,
                bytes,
                handle,
                ..
            }
            | Command::Write {
                offset,
                bytes,
                handle,
            } => ssd::Command::Write {
                offset,
                bytes,
                handle,
            },
            Command::Reset { zone, .. } if self.is_zoned => ssd::Command::Reset { zone: zone.0 },
            Command::Reset { offset, bytes, .. } if self.trims => {
                ssd::Command::Trim { offset, bytes }
            }
            Command::Finish { zone } if self.is_zoned => ssd::Command::Finish { zone: zone.0 },
            Command::Finish { zone } => match self.handle_of(zone) {
                // The handle's next zone begins in its own reclaim unit, so
                // that the two are reclaimed separately.
                Some(handle) => ssd::Command::UpdateHandle { handle },
                None => return Ok(End::At(now)),
            },
            // A region of a conventional drive has no zone state.
            Command::Reset { .. } => return Ok(End::At(now)),
            Command::Flush => ssd::Command::Flush,
        };
        let submitted = self.ssd.submit(now, CommandId(number), command);
        submitted
            .map(|()| End::Later)
            .map_err(|rejection| self.rejected(rejection, command))
    }

    fn rejected(&self, rejection: Rejection, command: ssd::Command) -> DeviceErrorKind {
        match (rejection, command) {
            (
                Rejection::ZoneFull | Rejection::ZoneBoundary,
                ssd::Command::Append { zone, bytes },
            ) => DeviceErrorKind::ZoneFull {
                wanted: bytes,
                left: self.left_in(zone),
            },
            (other, _) => DeviceErrorKind::Invalid(format!("the simulated SSD says: {other}")),
        }
    }

    /// Bytes that still fit a zone.
    fn left_in(&self, zone: u32) -> u64 {
        let capacity = self
            .ssd
            .config()
            .flash()
            .map(|flash| flash.superblock.bytes());
        match self.ssd.zone(zone) {
            Some(zone) if zone.condition != ssd::ZoneCondition::Full => {
                capacity.unwrap_or(0).saturating_sub(zone.write_pointer)
            }
            _ => 0,
        }
    }

    fn remember(&mut self, zone: ZoneId, handle: u16) {
        if self.ssd.reclaim_unit_rest(1).is_none() {
            return;
        }
        if self.handles.len() <= zone.index() {
            self.handles.resize(zone.index() + 1, None);
        }
        self.handles[zone.index()] = Some(handle);
    }

    fn handle_of(&self, zone: ZoneId) -> Option<u16> {
        self.handles.get(zone.index()).copied().flatten()
    }

    /// Advances the SSD to `now`; returns the commands that ended.
    pub(super) fn advance(&mut self, now: Tick) -> Vec<Completion> {
        let mut ended = Vec::new();
        if self.ssd.next_wakeup().is_some_and(|due| due <= now) {
            self.ssd.advance(now, &mut ended);
        }
        ended
    }

    /// Time at which `advance` must be called, if that is earlier than planned.
    pub(super) fn plan(&mut self, now: Tick) -> Option<Tick> {
        if self.pump_at.is_some_and(|planned| planned <= now) {
            self.pump_at = None;
        }
        let due = self.ssd.next_wakeup()?;
        if self.pump_at.is_some_and(|planned| planned <= due) {
            return None;
        }
        self.pump_at = Some(due);
        Some(due)
    }
}
