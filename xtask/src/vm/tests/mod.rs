//! The tests of the virtual machine.

mod conformance;
mod drives;
mod experiments;
mod faults;
mod load;
mod mirror;
mod power;
mod reservation;
mod service;
mod stage;
mod tcp;
mod user;
mod volume;
mod writes;

use anyhow::Result;

pub(super) use self::stage::Stage;
use super::machine::RigKind::{self, Qemu, Uml};

/// A test. It may reset or replace the machine.
pub(super) struct Test {
    pub(super) name: &'static str,
    /// Short enough for every run.
    pub(super) is_quick: bool,
    /// The rigs that have what it needs.
    pub(super) rigs: &'static [RigKind],
    pub(super) run: fn(&Stage) -> Result<()>,
}

/// All tests, the cheapest first.
pub(super) const TESTS: &[Test] = &[
    Test {
        name: "conformance of a conventional drive",
        is_quick: false,
        rigs: &[Uml],
        run: conformance::conventional,
    },
    Test {
        name: "conformance of zoned block devices",
        is_quick: true,
        rigs: &[Qemu, Uml],
        run: conformance::zoned,
    },
    Test {
        name: "NVMe passthrough: zoned, data placement and conventional drives",
        is_quick: false,
        rigs: &[Qemu],
        run: conformance::passthrough,
    },
    Test {
        name: "drives are formatted, prepared and measured",
        is_quick: false,
        rigs: &[Qemu],
        run: drives::commands,
    },
    Test {
        name: "floe bench counts what the drives count",
        is_quick: false,
        rigs: &[Qemu],
        run: drives::bench,
    },
    Test {
        name: "a file system on a volume, through the kernel's NBD client",
        is_quick: true,
        rigs: &[Qemu, Uml],
        run: volume::file_system,
    },
    Test {
        name: "a file system on a volume over NVMe/TCP",
        is_quick: false,
        rigs: &[Uml],
        run: tcp::file_system,
    },
    Test {
        name: "two machines before one reserved device",
        is_quick: false,
        rigs: &[Uml],
        run: reservation::two_machines,
    },
    Test {
        name: "oracles of the engines on each kind of drive",
        is_quick: false,
        rigs: &[Qemu, Uml],
        run: conformance::oracles,
    },
    Test {
        name: "servers are killed under load",
        is_quick: false,
        rigs: &[Uml],
        run: power::servers,
    },
    Test {
        name: "crashes between any two writes, from the kernel's log of them",
        is_quick: false,
        rigs: &[Uml],
        run: writes::replays,
    },
    Test {
        name: "experiments on each kind of drive, and on the simulated one",
        is_quick: false,
        rigs: &[Qemu, Uml],
        run: experiments::drives,
    },
    Test {
        name: "a server without root",
        is_quick: false,
        rigs: &[Qemu],
        run: user::serves,
    },
    Test {
        name: "the systemd unit",
        is_quick: false,
        rigs: &[Qemu],
        run: user::unit,
    },
    Test {
        name: "power cuts by reset, each kind of drive, a few",
        is_quick: true,
        rigs: &[Qemu],
        run: power::few,
    },
    Test {
        name: "resets of controllers under load",
        is_quick: false,
        rigs: &[Qemu],
        run: faults::controller_resets,
    },
    Test {
        name: "hot removal of drives under load",
        is_quick: false,
        rigs: &[Qemu],
        run: faults::removal,
    },
    Test {
        name: "a volume's cache on mirrored drives that fail",
        is_quick: false,
        rigs: &[Qemu],
        run: mirror::drives_fail,
    },
    Test {
        name: "power cut while files on a volume are synced",
        is_quick: false,
        rigs: &[Qemu],
        run: volume::synced_files,
    },
    Test {
        name: "power cuts by killing QEMU",
        is_quick: false,
        rigs: &[Qemu],
        run: power::kills,
    },
    Test {
        name: "power cuts by reset, zoned block devices and other drives",
        is_quick: false,
        rigs: &[Qemu],
        run: power::zoned_block_resets,
    },
    Test {
        name: "power cuts by reset, each kind of drive",
        is_quick: false,
        rigs: &[Qemu],
        run: power::resets,
    },
];
