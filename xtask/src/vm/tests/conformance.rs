//! The devices' conformance suites on real drives.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::vm::machine::Machine;
use crate::vm::programs::Programs;

const PATIENCE: Duration = Duration::from_secs(400);

/// Devices with zones, and block devices, over a conventional drive.
pub(super) fn conventional(machine: &mut Machine, programs: &Programs) -> Result<()> {
    for test in ["conformance", "block_conformance"] {
        run(machine, programs, test, "FLOE_TEST_BLOCK_DEVICE", "conv-2")?;
    }
    Ok(())
}

/// A zoned disk in memory, with conventional zones at its start.
const NULL_BLK: &str = "
modprobe null_blk nr_devices=0
cd /sys/kernel/config/nullb
[ -d zoned ] || mkdir zoned
cd zoned
echo 0 > power
echo 1 > memory_backed
echo 96 > size
echo 4096 > blocksize
echo 1 > zoned
echo 4 > zone_size
echo 3 > zone_capacity
echo 2 > zone_nr_conv
echo 4 > zone_max_open
echo 6 > zone_max_active
echo 1 > power
disk=/dev/zoned; [ -b $disk ] || disk=/dev/nullb$(cat index)
ln -sf $disk /dev/vm/null-1
";

/// Zoned block devices: ZNS drives of two geometries, and the kernel's own.
pub(super) fn zoned(machine: &mut Machine, programs: &Programs) -> Result<()> {
    machine.guest().shell(NULL_BLK, PATIENCE)?;
    for disk in ["null-1", "zns-b-1", "zns-a-1"] {
        run(machine, programs, "zoned", "FLOE_TEST_ZONED_DEVICE", disk)?;
    }
    Ok(())
}

/// Namespaces by passthrough, of every kind that Floe drives.
pub(super) fn passthrough(machine: &mut Machine, programs: &Programs) -> Result<()> {
    let disks = ["zns-a-1", "zns-b-1", "fdp-1", "conv-2"];
    let disks = disks.map(|disk| format!("/dev/vm/{disk}.char"));
    let words = [
        "env",
        &format!("FLOE_NVME_DEVICES={}", disks.join(",")),
        programs.word("nvme")?,
        "--test-threads=1",
    ];
    machine.guest().run(&words, PATIENCE).map(drop)
}

/// Runs the ignored tests of `test`, which find the disk in `variable`.
fn run(
    machine: &Machine,
    programs: &Programs,
    test: &str,
    variable: &str,
    disk: &str,
) -> Result<()> {
    let words = [
        "env",
        &format!("{variable}=/dev/vm/{disk}"),
        programs.word(test)?,
        "--ignored",
        "--test-threads=1",
    ];
    let output = machine.guest().run(&words, PATIENCE)?;
    ensure!(
        !output.contains("running 0 tests"),
        "{test} has no such tests"
    );
    Ok(())
}
