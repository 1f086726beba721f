//! Power cuts under load, and what is left after the next boot.
//!
//! A cut of the machine's power cuts that of all its drives, so that a boot judges the
//! servers of several drives.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::load::{self, KEPT_MIN, Load, fill_all, judge_all, totals, under_load};
use super::service::{Service, Site};
use super::stage::Stage;
use crate::vm::machine::Cut;

/// Both engines by passthrough on zoned namespaces.
pub(super) const ZONED: Site = Site {
    name: "ZNS",
    number: 0,
    cache: "zns-a-1.char",
    tiny: Some("zns-b-1.char"),
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

/// Both engines by passthrough on conventional namespaces, and a write-back volume.
const CONVENTIONAL: Site = Site {
    name: "conventional",
    number: 2,
    cache: "conv-1.char",
    tiny: Some("conv-4.char"),
    volume: Some(("conv-2", "conv-3")),
    is_user: false,
};

/// All kinds of drives, by passthrough.
pub(super) const ALL: [Site; 3] = [ZONED, PLACEMENT, CONVENTIONAL];

/// Boots of a short run, none of which is cut again.
const FEW: u64 = 3;

/// A few cuts of each kind of drive.
pub(super) fn few(stage: &Stage) -> Result<()> {
    cuts(stage, &ALL, Cut::Reset, FEW)
}

/// Cuts of each kind of drive by resets.
pub(super) fn resets(stage: &Stage) -> Result<()> {
    cuts(stage, &ALL, Cut::Reset, 12)
}

/// Cuts of zoned block devices by resets, beside those of other drives.
pub(super) fn zoned_block_resets(stage: &Stage) -> Result<()> {
    cuts(
        stage,
        &[ZONED_BLOCK, PLACEMENT, CONVENTIONAL],
        Cut::Reset,
        5,
    )
}

/// Cuts by killing QEMU, which zoned drives do not survive.
pub(super) fn kills(stage: &Stage) -> Result<()> {
    cuts(stage, &[PLACEMENT, CONVENTIONAL], Cut::Kill, 8)
}

/// Cuts the power `boots` times on the same caches.
fn cuts(stage: &Stage, sites: &[Site], how: Cut, boots: u64) -> Result<()> {
    let (loads, mut services) = load::start(stage, sites, false)?;
    let mut twice = 0;
    for boot in 1..=boots {
        let seed = stage.seed.wrapping_mul(1_000_003).wrapping_add(boot);
        let began = Instant::now();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let again = boots > FEW && random.random_ratio(1, 5);
        let cut = one_cut(stage, &loads, services, how, again, &mut random);
        let (restarted, line) =
            cut.with_context(|| format!("cut {boot}; repeat it with --seed {}", stage.seed))?;
        services = restarted;
        twice += u64::from(again);
        println!(
            "vm:   cut {boot} of {boots}: {line} ({:.1} s)",
            began.elapsed().as_secs_f64()
        );
    }
    for service in services {
        service.stop(&stage.machine)?;
    }
    println!(
        "vm:   {} power cuts of {} drives ({} boots, {twice} of them cut during recovery), \
         {}; seed {}",
        (boots + twice) * sites.len() as u64,
        sites
            .iter()
            .map(|site| site.name)
            .collect::<Vec<_>>()
            .join(", "),
        boots + twice,
        totals(&loads),
        stage.seed
    );
    Ok(())
}

/// A cut under load, the restart and the judgement; cuts `again` during recovery. Returns
/// the servers, and what to print.
fn one_cut(
    stage: &Stage,
    loads: &[Load],
    services: Vec<Service>,
    how: Cut,
    again: bool,
    random: &mut Xoshiro256PlusPlus,
) -> Result<(Vec<Service>, String)> {
    let sites: Vec<Site> = loads.iter().map(|load| load.site).collect();
    fill_all(stage, loads)?;
    let moment = Duration::from_millis(random.random_range(500..6_000));
    let recovery = Duration::from_millis(random.random_range(200..3_000));
    let restarted = under_load(stage, loads, random.random(), moment, || {
        stage.machine.cut_power(how)?;
        drop(services);
        stage.machine.restart(how)?;
        if again {
            let spawned = sites.iter().map(|site| Service::spawn(stage, *site));
            let spawned = spawned.collect::<Result<Vec<_>>>()?;
            thread::sleep(recovery);
            stage.machine.cut_power(how)?;
            drop(spawned);
            stage.machine.restart(how)?;
        }
        Service::start_all(stage, &sites)
    });
    let restarted = restarted.with_context(|| format!("after {moment:?} of load"))?;
    loads.iter().for_each(Load::lose_power);
    let kept = judge_all(stage, loads, KEPT_MIN)
        .with_context(|| format!("the power was cut after {moment:?}, again: {again}"))?;
    let kept = sites.iter().zip(kept);
    let kept: Vec<_> = kept
        .map(|(site, kept)| format!("{} {:.0} %", site.name, kept * 100.0))
        .collect();
    let recovery = if again { ", again during recovery" } else { "" };
    let line = format!("after {moment:?}{recovery}; kept {}", kept.join(", "));
    Ok((restarted, line))
}
