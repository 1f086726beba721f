//! A device to work on, and what it is and holds.

use std::path::{Path, PathBuf};

use floe_device::config::DeviceKind;
use floe_device::upkeep::{Claimed, DriveFacts, Emptied, Identity};
use floe_device::{ByteSize, DeviceConfig, OpenDeviceError};

use super::progress::Progress;
use crate::failure::Failure;

/// A device, and what it is and holds.
pub(super) struct Seen {
    pub(super) claimed: Claimed,
    pub(super) facts: DriveFacts,
    pub(super) contents: Option<String>,
}

/// A device that another part of this process may open meanwhile.
pub(super) struct Released {
    path: PathBuf,
    identity: Identity,
    pub(super) facts: DriveFacts,
}

impl Seen {
    /// Opens a device that this process alone uses.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Claimed::open(path)
            .map_err(cannot_open)
            .map(|claimed| Seen::of(path, claimed))
    }

    /// Opens a device for reading. Others may use it.
    pub(super) fn look(path: &Path) -> Result<Self, Failure> {
        Claimed::open_to_look(path)
            .map_err(cannot_open)
            .map(|claimed| Seen::of(path, claimed))
    }

    pub(super) fn of(path: &Path, claimed: Claimed) -> Self {
        // Unreadable contents may be anything.
        let contents = claimed.contents();
        let unreadable = |error| Some(format!("contents that cannot be read ({error})"));
        Seen {
            contents: contents.unwrap_or_else(unreadable),
            facts: DriveFacts::of(path),
            claimed,
        }
    }

    /// Checks that the device is empty, or may be wiped.
    pub(super) fn require_empty(&self, force: bool) -> Result<(), Failure> {
        match &self.contents {
            Some(contents) if !force => Err(Failure::environment(format!(
                "{} holds {contents}; nothing was changed",
                self.text()
            ))
            .cure("another device; or wipe this one permanently with --force")),
            _ => Ok(()),
        }
    }

    /// Empties the device, which may be wiped.
    pub(super) fn empty(&self) -> Result<Emptied, Failure> {
        let mut progress = Progress::new("emptying");
        let emptied = self.claimed.empty(|done, all| progress.show(done, all));
        emptied.map_err(|error| {
            Failure::environment("the device was not emptied, or only in part").because(error)
        })
    }

    /// Tells on standard error what will be lost, before it is.
    pub(super) fn warn_of_loss(&self) {
        eprintln!(
            "{} holds {}; it will be wiped",
            self.text(),
            self.contents_text()
        );
    }

    /// Lets the device be opened. `claim_again` tells whether it is the same one.
    pub(super) fn release(self) -> Result<Released, Failure> {
        Ok(Released {
            path: self.facts.path.clone(),
            identity: self.claimed.identity().map_err(cannot_open)?,
            facts: self.facts,
        })
    }

    /// What to say of zones that the drive has withdrawn; empty if there is none.
    pub(super) fn withdrawn_text(&self) -> Result<String, Failure> {
        Ok(match self.claimed.withdrawn_zones().map_err(cannot_open)? {
            0 => String::new(),
            zones => {
                format!("; {zones} zones that are read-only or offline stay as they are")
            }
        })
    }

    /// The device, for people.
    pub(super) fn text(&self) -> String {
        let facts = &self.facts;
        let mut text = format!(
            "`{}` ({}, {}",
            facts.path.display(),
            facts.kind,
            ByteSize(self.claimed.bytes())
        );
        for (name, value) in [("", &facts.model), ("serial …", &facts.serial_suffix)] {
            if let Some(value) = value {
                text += &format!(", {name}{value}");
            }
        }
        text + ")"
    }

    pub(super) fn contents_text(&self) -> &str {
        match &self.contents {
            Some(contents) => contents,
            None if self.claimed.is_sampled() => "nothing, by samples",
            None => "nothing",
        }
    }
}

impl Released {
    /// Claims the device again.
    ///
    /// # Errors
    /// If it is in use, or another device has its path.
    pub(super) fn claim_again(&self) -> Result<Seen, Failure> {
        let seen = Seen::open(&self.path)?;
        let told = |facts: &DriveFacts| (facts.model.clone(), facts.serial_suffix.clone());
        let is_same = seen.claimed.identity().map_err(cannot_open)? == self.identity
            && told(&seen.facts) == told(&self.facts);
        match is_same {
            true => Ok(seen),
            false => Err(Failure::environment(format!(
                "`{}` is another device than before, and stays as it is",
                self.path.display()
            ))),
        }
    }
}

/// The settings to open a device with that was emptied. What another process wrote since then
/// is refused.
pub(super) fn settings_of(path: &Path) -> DeviceConfig {
    DeviceConfig {
        kind: DeviceKind::File,
        path: Some(path.to_owned()),
        fits_block_size: true,
        ..DeviceConfig::default()
    }
}

pub(super) fn cannot_open_emptied(error: OpenDeviceError) -> Failure {
    Failure::environment("the device was emptied, and cannot be used").because(error)
}

pub(super) fn cannot_open(error: OpenDeviceError) -> Failure {
    Failure::environment("the device cannot be used").because(error)
}
