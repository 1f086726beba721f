//! `floe device`: the drives of this machine, and work on a whole drive.

mod bench;
mod checks;
mod format;
mod namespaces;
mod prepare;
mod progress;

use std::path::Path;

use floe_device::upkeep::{Claimed, DriveFacts};
use floe_device::{ByteSize, OpenDeviceError};

use crate::args::DeviceAction;
use crate::failure::Failure;

/// `floe device`.
pub(crate) fn run(action: &DeviceAction, json: bool) -> Result<(), Failure> {
    match action {
        DeviceAction::List => namespaces::list(json),
        DeviceAction::Info(args) => namespaces::info(&args.namespace, json),
        DeviceAction::Zones(args) => namespaces::zones(&args.namespace, json),
        DeviceAction::Format(args) => format::run(args, json),
        DeviceAction::Prepare(args) => prepare::run(args, json),
        DeviceAction::Bench(args) => bench::run(args, json),
    }
}

/// A device that this process alone uses, and what it is and holds.
struct Seen {
    claimed: Claimed,
    facts: DriveFacts,
    contents: Option<String>,
}

impl Seen {
    fn open(path: &Path) -> Result<Self, Failure> {
        let claimed = Claimed::open(path).map_err(cannot_open)?;
        Ok(Seen {
            contents: claimed.contents().map_err(cannot_open)?,
            facts: DriveFacts::of(path),
            claimed,
        })
    }

    /// Checks that the device is empty, or may be wiped.
    fn require_empty(&self, force: bool) -> Result<(), Failure> {
        match &self.contents {
            Some(contents) if !force => Err(Failure::environment(format!(
                "{} holds {contents}; nothing was changed",
                self.text()
            ))
            .cure("another device; or wipe this one permanently with --force")),
            _ => Ok(()),
        }
    }

    /// The device, for people.
    fn text(&self) -> String {
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

    fn contents_text(&self) -> &str {
        self.contents.as_deref().unwrap_or("nothing")
    }
}

fn cannot_open(error: OpenDeviceError) -> Failure {
    Failure::environment("the device cannot be used").because(error)
}
