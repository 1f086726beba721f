//! `floe device`: the drives of this machine, and work on a whole drive.

mod bench;
mod checks;
mod format;
mod namespaces;
mod prepare;
mod progress;
mod seen;

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
