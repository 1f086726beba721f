//! A device to work on, and what it is and holds.

use std::path::Path;

use floe_device::upkeep::{Claimed, DriveFacts, Emptied};
use floe_device::{ByteSize, OpenDeviceError};

use super::progress::Progress;
use crate::failure::Failure;

/// A device that this process alone uses, and what it is and holds.
pub(super) struct Seen {
    pub(super) claimed: Claimed,
    pub(super) facts: DriveFacts,
    pub(super) contents: Option<String>,
}

impl Seen {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let claimed = Claimed::open(path).map_err(cannot_open)?;
        Ok(Seen {
            contents: claimed.contents().map_err(cannot_open)?,
            facts: DriveFacts::of(path),
            claimed,
        })
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
        self.contents.as_deref().unwrap_or("nothing")
    }
}

/// A failure to open a device.
pub(super) fn cannot_open(error: OpenDeviceError) -> Failure {
    Failure::environment("the device cannot be used").because(error)
}
