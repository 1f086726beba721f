//! Runs the fuzz targets of the readers without a fuzzer.

use std::process::ExitCode;

fn main() -> ExitCode {
    floe_fuzz_readers::READERS.command_line()
}
