//! The devices' conformance suites on real drives.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::stage::Stage;
use crate::vm::machine::RigKind;

const PATIENCE: Duration = Duration::from_secs(400);

/// Devices with zones, and block devices, over a conventional drive.
pub(super) fn conventional(stage: &Stage) -> Result<()> {
    for test in ["conformance", "block_conformance"] {
        run(stage, test, &["FLOE_TEST_BLOCK_DEVICE=/dev/vm/conv-2"])?;
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

/// Zoned block devices: ZNS drives of two geometries, and the kernel's own,
/// in memory and in files.
pub(super) fn zoned(stage: &Stage) -> Result<()> {
    stage.machine.guest().shell(NULL_BLK, PATIENCE)?;
    let conditions = "FLOE_TEST_ZONED_CONDITIONS=/sys/kernel/config/nullb/zoned";
    run(
        stage,
        "zoned",
        &["FLOE_TEST_ZONED_DEVICE=/dev/vm/null-1", conditions],
    )?;
    for disk in stage.disks(&["zns-b-1", "zns-a-1", "zloop"]) {
        let device = format!("FLOE_TEST_ZONED_DEVICE=/dev/vm/{disk}");
        let namespace = format!("FLOE_TEST_ZONED_NAMESPACE=/dev/vm/{disk}.char");
        let has_namespace = usize::from(disk != "zloop");
        let variables = [device.as_str(), &namespace];
        run(stage, "zoned", &variables[..=has_namespace]).context(disk)?;
    }
    Ok(())
}

/// The engines' oracles on each kind of drive. Each test has many lives, which end as by
/// a kill.
pub(super) fn oracles(stage: &Stage) -> Result<()> {
    let disks: &[&str] = match stage.rig {
        // It takes minutes where QEMU translates code.
        RigKind::Qemu => &["zns-b-1.char", "fdp-1.char"],
        RigKind::Uml => &["zns-b-1.char", "zns-b-1", "conv-1.char", "conv-2", "zloop"],
    };
    for disk in disks {
        println!("vm:   on {disk}");
        for test in ["store_oracle", "tiny_oracle"] {
            run(stage, test, &[&format!("FLOE_TEST_DRIVE=/dev/vm/{disk}")])?;
        }
    }
    Ok(())
}

/// Namespaces by passthrough, of every kind that Floe drives, and the bytes of each handle
/// of a drive with data placement.
pub(super) fn passthrough(stage: &Stage) -> Result<()> {
    let disks = ["zns-a-1", "zns-b-1", "fdp-1", "conv-2"];
    let disks = disks.map(|disk| format!("/dev/vm/{disk}.char"));
    let words = [
        "env",
        &format!("FLOE_NVME_DEVICES={}", disks.join(",")),
        stage.test("nvme")?,
        "--test-threads=1",
    ];
    stage.machine.guest().run(&words, PATIENCE)?;
    run(stage, "placement", &["FLOE_TEST_DRIVE=/dev/vm/fdp-1.char"])
}

/// Runs the ignored tests of `test` with environment variables.
fn run(stage: &Stage, test: &str, variables: &[&str]) -> Result<()> {
    let program = stage.test(test)?;
    let words = [
        &["env"],
        variables,
        &[program, "--ignored", "--test-threads=1"],
    ]
    .concat();
    let output = stage.machine.guest().run(&words, PATIENCE)?;
    ensure!(
        !output.contains("running 0 tests"),
        "{test} has no such tests"
    );
    Ok(())
}
