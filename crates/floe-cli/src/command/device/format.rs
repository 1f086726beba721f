//! `floe device format`: empties a device.

use std::time::Instant;

use floe_device::nvme::Drive;

use super::seen::{Seen, cannot_open};
use crate::args::DeviceFormatArgs;
use crate::failure::Failure;
use crate::output;

/// Empties a device. One that is empty stays as it is.
pub(super) fn run(args: &DeviceFormatArgs, json: bool) -> Result<(), Failure> {
    let mut seen = Seen::open(&args.device)?;
    seen.require_empty(args.force)?;
    let held = seen.contents.clone();
    let began = Instant::now();
    let emptied = match args.force {
        false => None,
        true => {
            seen.warn_of_loss();
            if let Some(format) = args.lba_format {
                let claimed = seen.claimed.format_blocks(format).map_err(cannot_open)?;
                seen = Seen::of(&args.device, claimed);
            }
            Some(seen.empty()?)
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    if json {
        let block_bytes = seen.claimed.drive().map(Drive::namespace);
        return output::print_json(&serde_json::json!({
            "device": seen.facts,
            "held": held,
            "emptied": emptied.map(|how| how.name()),
            "withdrawn_zones": seen.claimed.withdrawn_zones().map_err(cannot_open)?,
            "block_bytes": block_bytes.map(|namespace| namespace.block_bytes),
            "seconds": seconds,
        }));
    }
    let withdrawn = seen.withdrawn_text()?;
    output::print(&match emptied {
        Some(emptied) => format!("it is empty now: {emptied} in {seconds:.1} s{withdrawn}\n"),
        None => format!(
            "{} holds {}; nothing was done{withdrawn}\n",
            seen.text(),
            seen.contents_text()
        ),
    })
}
