//! Runs the fuzz targets of the layouts without a fuzzer.

use std::process::ExitCode;

fn main() -> ExitCode {
    floe_fuzz_targets::LAYOUTS.command_line()
}
