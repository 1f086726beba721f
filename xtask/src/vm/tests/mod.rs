//! The tests of the virtual machine.

mod conformance;
mod power;
mod service;
mod volume;

use anyhow::Result;

use super::machine::Machine;
use super::programs::Programs;

/// A test. It may reset or replace the machine.
pub(super) struct Test {
    pub(super) name: &'static str,
    /// Short enough for every run.
    pub(super) is_quick: bool,
    /// It runs `floe`.
    pub(super) has_server: bool,
    pub(super) run: fn(&mut Machine, &Programs) -> Result<()>,
}

/// All tests, the cheapest first.
pub(super) const TESTS: &[Test] = &[
    Test {
        name: "conformance of a conventional drive",
        is_quick: true,
        has_server: false,
        run: conformance::conventional,
    },
    Test {
        name: "conformance of zoned block devices",
        is_quick: true,
        has_server: false,
        run: conformance::zoned,
    },
    Test {
        name: "NVMe passthrough: zoned, data placement and conventional drives",
        is_quick: false,
        has_server: false,
        run: conformance::passthrough,
    },
    Test {
        name: "a file system on a volume, through the kernel's NBD client",
        is_quick: true,
        has_server: true,
        run: volume::file_system,
    },
    Test {
        name: "power cut by reset, conventional drive",
        is_quick: true,
        has_server: true,
        run: power::conventional_reset,
    },
    Test {
        name: "power cut by reset, zoned drives",
        is_quick: true,
        has_server: true,
        run: power::zoned_reset,
    },
    Test {
        name: "power cut by killing QEMU, conventional drive",
        is_quick: false,
        has_server: true,
        run: power::conventional_kill,
    },
    Test {
        name: "power cuts by reset, zoned drives, repeated",
        is_quick: false,
        has_server: true,
        run: power::zoned_resets,
    },
];
