//! The machine of a run of tests.

use crate::vm::machine::Machine;
use crate::vm::programs::Programs;

/// The machine and the programs that tests use.
pub(in crate::vm) struct Stage {
    pub(in crate::vm) machine: Machine,
    pub(in crate::vm) programs: Programs,
    /// Of loads, and of the moments of faults.
    pub(in crate::vm) seed: u64,
}
