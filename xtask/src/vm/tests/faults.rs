//! Drives that fail under load and come back.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::load::{self, Load, fill_all, judge_all, under_load};
use super::power::{ALL, PLACEMENT, ZONED};
use super::service::Service;
use super::stage::Stage;
use crate::vm::agent::NAME_DISKS;

const PATIENCE: Duration = Duration::from_secs(120);

/// The controllers of [`ZONED`] and [`PLACEMENT`].
const REMOVED: [&str; 3] = ["zns-a", "zns-b", "fdp"];

/// Resets every controller again and again: commands in flight fail, later ones succeed.
pub(super) fn controller_resets(stage: &Stage) -> Result<()> {
    const RESETS: u64 = 8;
    let (loads, services) = load::start(stage, &ALL, true)?;
    fill_all(stage, &loads)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(stage.seed);
    let reset = "for reset in /sys/class/nvme/nvme*/reset_controller; do echo 1 > $reset; done";
    under_load(stage, &loads, stage.seed, Duration::from_secs(1), || {
        for _ in 0..RESETS {
            stage.machine.guest().shell(reset, PATIENCE)?;
            thread::sleep(Duration::from_millis(random.random_range(100..1_500)));
        }
        Ok(())
    })?;
    judge_running(stage, &loads, &services)?;
    fill_all(stage, &loads).context("the running servers store everything again")?;
    restart(stage, &loads, services)?;
    println!(
        "vm:   each controller reset {RESETS} times; {}",
        load::totals(&loads)
    );
    Ok(())
}

/// Removes drives. Their servers go on without them, and are warm when the drives are back
/// and the servers are started again.
pub(super) fn removal(stage: &Stage) -> Result<()> {
    let (loads, services) = load::start(stage, &[ZONED, PLACEMENT], true)?;
    fill_all(stage, &loads)?;
    let guest = stage.machine.guest();
    under_load(stage, &loads, stage.seed, Duration::from_secs(2), || {
        for serial in REMOVED {
            stage.machine.remove_drive(serial)?;
        }
        let gone =
            "while cat /sys/class/nvme/nvme*/serial | grep -q -e zns -e fdp; do sleep 0.1; done";
        guest
            .shell(gone, PATIENCE)
            .context("a drive is still there")?;
        thread::sleep(Duration::from_secs(3));
        Ok(())
    })?;
    judge_running(stage, &loads, &services)?;
    for serial in REMOVED {
        stage.machine.insert_drive(serial)?;
    }
    let disks = "DISKS=zns-a-1,zns-b-1,fdp-1,fdp-2";
    guest.shell(
        &format!("rm /dev/vm/zns* /dev/vm/fdp*\n{disks}{NAME_DISKS}"),
        PATIENCE,
    )?;
    restart(stage, &loads, services)?;
    println!(
        "vm:   {} drives removed; {}",
        REMOVED.len(),
        load::totals(&loads)
    );
    Ok(())
}

/// The servers still run and answer, and what they answer is true.
fn judge_running(stage: &Stage, loads: &[Load], services: &[Service]) -> Result<()> {
    ensure!(
        services.iter().all(|service| !service.has_ended()),
        "a server has ended"
    );
    for load in loads {
        let (status, _) = load.site.admin(&stage.machine, "/health")?;
        ensure!(
            status == 200,
            "{}: /health returns {status}",
            load.site.name
        );
    }
    let hits = judge_all(stage, loads, 0.0)?;
    println!("vm:   shares of fixed items found by the running servers: {hits:.3?}");
    Ok(())
}

/// Kills the servers and starts them again.
fn restart(stage: &Stage, loads: &[Load], services: Vec<Service>) -> Result<()> {
    for service in services {
        service.kill(&stage.machine)?;
    }
    let sites: Vec<_> = loads.iter().map(|load| load.site).collect();
    let services = Service::start_all(stage, &sites)?;
    let hits = judge_all(stage, loads, 0.0)?;
    println!("vm:   after a restart: {hits:.3?}");
    fill_all(stage, loads).context("a restarted server stores everything")?;
    for service in services {
        service.stop(&stage.machine)?;
    }
    Ok(())
}
