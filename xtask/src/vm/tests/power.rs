//! Power cuts under load, and what is left after the next boot; and kills of servers, whose
//! machine lives on.
//!
//! A cut of the machine's power cuts that of all its drives, so that a boot judges the
//! servers of several drives.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::load::{self, KEPT_MIN, Load, fill_all, judge_all, totals, under_load};
use super::service::{Service, Site, Volume};
use super::stage::Stage;
use crate::vm::machine::{Cut, Machine};

/// Both engines by passthrough on zoned namespaces.
pub(super) const ZONED: Site = Site {
    name: "ZNS",
    number: 0,
    cache: "zns-a-1.serial",
    tiny: Some("zns-b-1.serial"),
    volume: None,
    is_user: false,
};

/// Both engines on zoned block devices.
const ZONED_BLOCK: Site = Site {
    name: "zoned block devices",
    cache: "zns-a-1",
    tiny: Some("zns-b-1"),
    ..ZONED
};

/// Both engines by passthrough on namespaces with data placement.
pub(super) const PLACEMENT: Site = Site {
    name: "FDP",
    number: 1,
    cache: "fdp-1.char",
    tiny: Some("fdp-2.char"),
    volume: None,
    is_user: false,
};

/// Both engines by passthrough on conventional namespaces, and a write-back volume with its
/// cache on another.
const CONVENTIONAL: Site = Site {
    name: "conventional",
    number: 2,
    cache: "conv-1.char",
    tiny: Some("conv-4.char"),
    volume: Some(Volume::new("conv-2.char", "conv-3")),
    is_user: false,
};

/// The chunk engine on a zoned block device whose zones are files.
const ZONE_FILES: Site = Site {
    name: "zones in files",
    number: 1,
    cache: "zloop",
    tiny: None,
    ..ZONED
};

/// All kinds of drives, by passthrough.
pub(super) const ALL: [Site; 3] = [ZONED, PLACEMENT, CONVENTIONAL];

/// Boots of a short run, none of which is cut again.
const FEW: u64 = 3;

/// An end of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Power(Cut),
    /// SIGKILL.
    Kill,
}

impl Crash {
    /// Ends the servers, and leaves a machine that runs.
    fn run(self, machine: &Machine, services: Vec<Service>) -> Result<()> {
        match self {
            Crash::Power(cut) => {
                machine.cut_power(cut)?;
                drop(services);
                machine.restart(cut)
            }
            Crash::Kill => services
                .into_iter()
                .try_for_each(|service| service.kill(machine)),
        }
    }
}

/// A few cuts of each kind of drive.
pub(super) fn few(stage: &Stage) -> Result<()> {
    crashes(stage, &ALL, Crash::Power(Cut::Reset), FEW)
}

/// Cuts of each kind of drive by resets.
pub(super) fn resets(stage: &Stage) -> Result<()> {
    crashes(stage, &ALL, Crash::Power(Cut::Reset), 12)
}

/// Cuts of zoned block devices by resets, beside those of other drives.
pub(super) fn zoned_block_resets(stage: &Stage) -> Result<()> {
    crashes(
        stage,
        &[ZONED_BLOCK, PLACEMENT, CONVENTIONAL],
        Crash::Power(Cut::Reset),
        5,
    )
}

/// Cuts by killing QEMU, which zoned drives do not survive.
pub(super) fn kills(stage: &Stage) -> Result<()> {
    let how = Crash::Power(Cut::Kill);
    crashes(stage, &[PLACEMENT, CONVENTIONAL], how, 8)
}

/// Kills of the servers, whose requests in flight the kernel still ends.
pub(super) fn servers(stage: &Stage) -> Result<()> {
    crashes(stage, &[ZONED, ZONE_FILES, CONVENTIONAL], Crash::Kill, 20)
}

/// Ends the servers `crashes` times on the same caches.
fn crashes(stage: &Stage, sites: &[Site], how: Crash, crashes: u64) -> Result<()> {
    let (loads, mut services) = load::start(stage, sites, false)?;
    let mut twice = 0;
    for crash in 1..=crashes {
        let seed = stage.seed.wrapping_mul(1_000_003).wrapping_add(crash);
        let began = Instant::now();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let again = crashes > FEW && random.random_ratio(1, 5);
        let ended = one_crash(stage, &loads, services, how, again, &mut random);
        let (restarted, line) = ended
            .with_context(|| format!("{how:?} {crash}; repeat it with --seed {}", stage.seed))?;
        services = restarted;
        twice += u64::from(again);
        println!(
            "vm:   {how:?} {crash} of {crashes}: {line} ({:.1} s)",
            began.elapsed().as_secs_f64()
        );
    }
    for service in services {
        service.stop(&stage.machine)?;
    }
    println!(
        "vm:   {how:?}: {} ends of servers on {} drives ({} crashes, {twice} of them during \
         recovery), {}; seed {}",
        (crashes + twice) * sites.len() as u64,
        sites
            .iter()
            .map(|site| site.name)
            .collect::<Vec<_>>()
            .join(", "),
        crashes + twice,
        totals(&loads),
        stage.seed
    );
    Ok(())
}

/// A crash under load, the restart and the judgement; crashes `again` during recovery. Returns
/// the servers, and what to print.
fn one_crash(
    stage: &Stage,
    loads: &[Load],
    services: Vec<Service>,
    how: Crash,
    again: bool,
    random: &mut Xoshiro256PlusPlus,
) -> Result<(Vec<Service>, String)> {
    let sites: Vec<Site> = loads.iter().map(|load| load.site).collect();
    fill_all(stage, loads)?;
    let moment = Duration::from_millis(random.random_range(500..6_000));
    let recovery = Duration::from_millis(random.random_range(200..3_000));
    let restarted = under_load(stage, loads, random.random(), moment, || {
        how.run(&stage.machine, services)?;
        if again {
            let spawned = sites.iter().map(|site| Service::spawn(stage, *site));
            let spawned = spawned.collect::<Result<Vec<_>>>()?;
            thread::sleep(recovery);
            how.run(&stage.machine, spawned)?;
        }
        Service::start_all(stage, &sites)
    });
    let restarted = restarted.with_context(|| format!("after {moment:?} of load"))?;
    if how != Crash::Kill {
        loads.iter().for_each(Load::lose_power);
    }
    let kept = judge_all(stage, loads, KEPT_MIN)
        .with_context(|| format!("{how:?} after {moment:?}, again: {again}"))?;
    let kept = sites.iter().zip(kept);
    let kept: Vec<_> = kept
        .map(|(site, kept)| format!("{} {:.0} %", site.name, kept * 100.0))
        .collect();
    let recovery = if again { ", again during recovery" } else { "" };
    let line = format!("after {moment:?}{recovery}; kept {}", kept.join(", "));
    Ok((restarted, line))
}
