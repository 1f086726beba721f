//! Power cuts under load, and what is left after the next boot.
//!
//! Clients on the host drive memcached and keep the ledger. In the guest, files are
//! written and synced on a volume's file system; each synced one is reported to the
//! host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::service::{Disks, Service, connect_volume};
use crate::crash::items::World;
use crate::vm::guest::Echo;
use crate::vm::machine::{Cut, Machine};
use crate::vm::programs::Programs;

const PATIENCE: Duration = Duration::from_secs(180);

const CONNECTIONS: u64 = 4;

const FIXED_ITEMS: usize = 4_000;

const CHANGING_ITEMS: usize = 1_000;

/// The share of items that a restart must still have. The three set-groups in memory
/// hold at most 16 % of the fixed items.
const KEPT_MIN: f64 = 0.8;

const CONVENTIONAL: Disks = Disks {
    cache: "conv-1",
    volume: Some(("conv-2", "conv-3")),
    tiny: Some("conv-4"),
};

/// The chunk and the tiny engine on zoned drives.
const ZONED: Disks = Disks {
    cache: "zns-a-1",
    volume: Some(("conv-2", "conv-3")),
    tiny: Some("zns-b-1"),
};

const MAKE: &str = "mkfs.ext4 -q -F /dev/nbd0";

const MOUNT: &str = "mkdir -p /tmp/mount && mount -t ext4 /dev/nbd0 /tmp/mount";

/// Writes files for ever. A line says that a file is on stable media.
const WRITE: &str = "
cd /tmp/mount
i=$(ls | grep -c file- || true)
while :; do
  i=$((i + 1))
  head -c $((i % 50 * 1000 + 500)) /dev/urandom > file-$i
  sum=$(sha256sum file-$i)
  sync file-$i .
  echo \"synced $sum\"
done
";

/// A power cut by reset.
pub(super) fn conventional_reset(machine: &mut Machine, programs: &Programs) -> Result<()> {
    rounds(machine, programs, CONVENTIONAL, Cut::Reset, 1)
}

/// A power cut by reset, with both engines on zoned drives.
pub(super) fn zoned_reset(machine: &mut Machine, programs: &Programs) -> Result<()> {
    rounds(machine, programs, ZONED, Cut::Reset, 1)
}

/// As [`zoned_reset`], with more cuts.
pub(super) fn zoned_resets(machine: &mut Machine, programs: &Programs) -> Result<()> {
    rounds(machine, programs, ZONED, Cut::Reset, 4)
}

/// Power cuts by killing QEMU.
pub(super) fn conventional_kill(machine: &mut Machine, programs: &Programs) -> Result<()> {
    rounds(machine, programs, CONVENTIONAL, Cut::Kill, 3)
}

fn rounds(
    machine: &mut Machine,
    programs: &Programs,
    disks: Disks,
    how: Cut,
    rounds: u32,
) -> Result<()> {
    disks.prepare(machine)?;
    let world = World::new(0, FIXED_ITEMS, CHANGING_ITEMS);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(how as u64);
    let mut synced = Vec::new();
    for round in 0..rounds {
        let moment = Duration::from_millis(random.random_range(3_000..12_000));
        one_round(machine, programs, disks, how, &world, moment, &mut synced)
            .with_context(|| format!("round {round}, cut after {moment:?}"))?;
    }
    let (judged, acknowledged) = world.verdicts.counts();
    println!(
        "vm:   {rounds} cuts, {judged} answers judged, {acknowledged} writes acknowledged, {} files synced",
        synced.len()
    );
    Ok(())
}

fn one_round(
    machine: &mut Machine,
    programs: &Programs,
    disks: Disks,
    how: Cut,
    world: &World,
    moment: Duration,
    synced: &mut Vec<String>,
) -> Result<()> {
    let guest = machine.guest();
    let service = Service::start(machine, programs, disks)?;
    connect_volume(machine)?;
    if synced.is_empty() {
        guest.shell(MAKE, PATIENCE)?;
    }
    guest.shell(MOUNT, PATIENCE)?;
    world.fill(machine.memcached)?;
    let before = world.hits(machine.memcached, &world.fixed)?;
    let files = guest.start(&["/bin/sh", "-ec", WRITE], PATIENCE, Echo::Keep)?;
    let stop = AtomicBool::new(false);
    let address = machine.memcached;
    thread::scope(|scope| -> Result<()> {
        for connection in 0..CONNECTIONS {
            let stop = &stop;
            scope.spawn(move || world.drive(address, connection, stop));
        }
        thread::sleep(moment);
        let cut = machine.cut_power(how);
        stop.store(true, Ordering::Relaxed);
        cut?;
        machine.restart(how)
    })?;
    drop(service);
    let lines = files.cut_off()?;
    // The last line may be torn.
    let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let sums = whole
        .lines()
        .filter_map(|line| line.strip_prefix("synced "));
    synced.extend(sums.map(str::to_owned));

    let service = Service::start(machine, programs, disks)?;
    let after = world.hits(machine.memcached, &world.fixed)?;
    world.hits(machine.memcached, &world.changing)?;
    world.verdicts.truthful()?;
    println!(
        "vm:   cut after {moment:?}: hits {:.1} % -> {:.1} %, {} files synced",
        before * 100.0,
        after * 100.0,
        synced.len()
    );
    ensure!(after >= before * KEPT_MIN, "the restart was not warm");
    compare_files(machine, synced)?;
    service.stop(machine)
}

/// The journal is replayed by a mount; then every synced file is there, and the file
/// system is whole.
fn compare_files(machine: &Machine, synced: &[String]) -> Result<()> {
    // A word of a command has at most 128 KiB.
    const COMPARED_MAX: usize = 1_000;
    let guest = machine.guest();
    connect_volume(machine)?;
    guest.shell(MOUNT, PATIENCE)?;
    let newest = &synced[synced.len().saturating_sub(COMPARED_MAX)..];
    let compare = format!(
        "cd /tmp/mount && sha256sum --quiet -c - <<'END'\n{}\nEND\n",
        newest.join("\n")
    );
    if !newest.is_empty() {
        guest
            .shell(&compare, PATIENCE)
            .context("synced files were lost")?;
    }
    guest.shell(
        "umount /tmp/mount && e2fsck -fn /dev/nbd0 && nbd-client -d /dev/nbd0",
        PATIENCE,
    )?;
    Ok(())
}
