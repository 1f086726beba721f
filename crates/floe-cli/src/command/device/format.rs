//! `floe device format`: empties a device.

use std::time::Instant;

use floe_device::nvme::Drive;

use super::seen::{Seen, cannot_open};
use crate::args::DeviceFormatArgs;
use crate::failure::Failure;
use crate::output;

/// Empties a blank device, or any device with `--force`.
pub(super) fn run(args: &DeviceFormatArgs, json: bool) -> Result<(), Failure> {
    let mut seen = Seen::open(&args.device)?;
    seen.require_empty(args.force)?;
    if !json {
        let text = format!("{} held {}\n", seen.text(), seen.contents_text());
        output::print(&text)?;
    }
    let began = Instant::now();
    if let Some(format) = args.lba_format {
        seen.claimed = seen.claimed.format_blocks(format).map_err(cannot_open)?;
    }
    let emptied = seen.empty()?;
    let seconds = began.elapsed().as_secs_f64();
    let block_bytes = seen.claimed.drive().map(Drive::namespace);
    let block_bytes = block_bytes.map(|namespace| namespace.block_bytes);
    if json {
        return output::print_json(&serde_json::json!({
            "device": seen.facts,
            "held": seen.contents,
            "emptied": emptied.name(),
            "block_bytes": block_bytes,
            "seconds": seconds,
        }));
    }
    output::print(&format!("it is empty now: {emptied} in {seconds:.1} s\n"))
}
