//! `floe device prepare`: checks a drive, and brings it into the state that a measurement needs.

use std::fmt::Write as _;
use std::path::Path;

use floe_device::config::DeviceKind;
use floe_device::upkeep::{Condition, Conditioned, Conditioning, condition};
use floe_device::{ByteSize, Clock, DeviceConfig, SharedDevice};

use super::checks::{Check, checks};
use super::progress::Progress;
use super::seen::{Seen, cannot_open};
use crate::args::DevicePrepareArgs;
use crate::command::runtime::small_runtime;
use crate::failure::Failure;
use crate::output::{self, size};
use crate::style::Style;

/// Checks the device, empties it and writes what the state asks for.
pub(super) fn run(args: &DevicePrepareArgs, json: bool) -> Result<(), Failure> {
    if !(args.share > 0.0 && args.share <= 1.0) {
        return Err(Failure::usage(format!("a share of {} is none", args.share))
            .cure("write a share above 0 and up to 1"));
    }
    let seen = Seen::open(&args.device)?;
    let checks = checks(&seen.facts);
    let passes = args.passes.unwrap_or(match args.state {
        Condition::Fresh => 0,
        Condition::Sequential => 1,
        Condition::Random => 2,
    });
    if !json {
        let plan = plan(&seen, args, passes);
        output::print(&format!("{}{plan}", table(&checks, Style::stdout())))?;
    }
    if args.dry_run {
        return match json {
            true => output::print_json(&serde_json::json!({
                "device": seen.facts, "checks": checks, "held": seen.contents, "done": false,
            })),
            false => output::print("nothing was changed\n"),
        };
    }
    seen.require_empty(args.force)?;
    seen.empty()?;
    let Seen {
        claimed,
        facts,
        contents,
    } = seen;
    drop(claimed);
    let how = Conditioning {
        condition: args.state,
        passes,
        share: args.share,
        seed: args.seed,
    };
    let done = precondition(&args.device, &how)?;
    if json {
        return output::print_json(&serde_json::json!({
            "device": facts, "checks": checks, "held": contents, "done": true,
            "state": args.state.name(), "passes": passes, "share": args.share, "written": done,
        }));
    }
    let steady = match done.is_steady {
        None => "",
        Some(true) => "; the speed of random writes is steady",
        Some(false) => "; the speed of random writes is NOT steady yet: give more --passes",
    };
    output::print(&format!(
        "it is {} now: {} written in {:.1} s{steady}\n",
        args.state,
        size(done.written_bytes),
        done.seconds
    ))
}

fn precondition(path: &Path, how: &Conditioning) -> Result<Conditioned, Failure> {
    let runtime = small_runtime()?;
    let mut progress = Progress::new("writing");
    runtime.block_on(async {
        let clock = Clock::real();
        let device = open_empty(path, &clock)?;
        let show = |done, all| progress.show(done, all);
        let done = condition(&device, &clock, how, show).await;
        done.map_err(|error| Failure::environment("the device was prepared in part").because(error))
    })
}

/// Opens a device that was emptied.
pub(super) fn open_empty(path: &Path, clock: &Clock) -> Result<SharedDevice, Failure> {
    let config = DeviceConfig {
        kind: DeviceKind::File,
        path: Some(path.to_owned()),
        accept_foreign: true,
        fits_block_size: true,
        ..DeviceConfig::default()
    };
    floe_device::open(&config, clock).map_err(cannot_open)
}

/// What will be destroyed and written.
fn plan(seen: &Seen, args: &DevicePrepareArgs, passes: u32) -> String {
    let share = ByteSize((seen.claimed.bytes() as f64 * args.share) as u64);
    let writes = match args.state {
        Condition::Fresh => "it will be emptied".to_owned(),
        Condition::Sequential => {
            format!("it will be emptied, and {share} filled {passes} times")
        }
        Condition::Random => format!(
            "it will be emptied, {share} filled, and overwritten at random at most {passes} times"
        ),
    };
    format!("{} holds {}; {writes}\n", seen.text(), seen.contents_text())
}

fn table(checks: &[Check], style: Style) -> String {
    let mut text = String::new();
    for check in checks {
        let _ = match check.advice {
            None => writeln!(text, "{:<18}{}", check.name, check.value),
            Some(advice) => {
                let value = style.red(&check.value);
                writeln!(text, "{:<18}{value}: {advice}", check.name)
            }
        };
    }
    text
}
