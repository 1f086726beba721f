//! `floe device prepare`: checks a drive, and brings it into the state that a measurement needs.

use std::fmt::Write as _;

use floe_device::upkeep::{Condition, Conditioned, Conditioning, condition};
use floe_device::{ByteSize, Clock, DeviceConfig};

use super::checks::{Check, checks};
use super::progress::Progress;
use super::seen::{Seen, cannot_open, cannot_open_emptied, settings_of};
use crate::args::DevicePrepareArgs;
use crate::command::runtime::small_runtime;
use crate::failure::Failure;
use crate::output::{self, size};
use crate::style::Style;

/// Most passes, which is days of writes.
const PASSES_MAX: u32 = 100;

/// Checks the device, empties it and writes what the state asks for.
pub(super) fn run(args: &DevicePrepareArgs, json: bool) -> Result<(), Failure> {
    if !(args.share > 0.0 && args.share <= 1.0) {
        return Err(Failure::usage(format!("a share of {} is none", args.share))
            .cure("write a share above 0 and up to 1"));
    }
    let passes = args.passes.unwrap_or(match args.state {
        Condition::Fresh => 0,
        Condition::Sequential => 1,
        Condition::Random => 2,
    });
    let least = u32::from(args.state != Condition::Fresh);
    if !(least..=PASSES_MAX).contains(&passes) {
        let most = format!("write a number from {least} to {PASSES_MAX}");
        return Err(Failure::usage(format!("{passes} passes are too few or too many")).cure(most));
    }
    let seen = match args.dry_run {
        true => Seen::look(&args.device)?,
        false => Seen::open(&args.device)?,
    };
    let checks = checks(&seen.facts);
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
    let config = settings_of(&args.device);
    seen.claimed.check_fit(&config).map_err(cannot_open)?;
    seen.warn_of_loss();
    seen.empty()?;
    let contents = seen.contents.clone();
    let released = seen.release()?;
    drop(released.claim_again()?);
    let how = Conditioning {
        condition: args.state,
        passes,
        share: args.share,
        seed: args.seed,
    };
    let done = precondition(&config, &how)?;
    if json {
        return output::print_json(&serde_json::json!({
            "device": released.facts, "checks": checks, "held": contents, "done": true,
            "state": args.state.name(), "passes": passes, "share": args.share, "written": done,
        }));
    }
    let steady = match done.is_steady {
        None => "",
        Some(true) => "; the speed of random writes is steady",
        Some(false) => "; the speed of random writes is NOT steady yet: give more --passes",
    };
    output::print(&format!(
        "it is {} now: {} written in {:.1} s{steady}{}\n",
        args.state,
        size(done.written_bytes),
        done.seconds,
        match done.withdrawn_zones {
            0 => String::new(),
            zones => format!("; {zones} zones take no writes and were left out"),
        }
    ))
}

fn precondition(config: &DeviceConfig, how: &Conditioning) -> Result<Conditioned, Failure> {
    let runtime = small_runtime()?;
    let mut progress = Progress::new("writing");
    runtime.block_on(async {
        let clock = Clock::real();
        let device = floe_device::open(config, &clock).map_err(cannot_open_emptied)?;
        let show = |done, all| progress.show(done, all);
        let done = condition(&device, &clock, how, show).await;
        done.map_err(|error| {
            let what = "the device was emptied, and holds random data in part";
            Failure::environment(what).because(error)
        })
    })
}

/// The loss and the writes to come, for people.
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
