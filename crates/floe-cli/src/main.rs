//! The `floe` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Calls of the system's allocator may take tens of milliseconds where millions of small values
/// are freed in between, and would do so under locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    floe_cli::main()
}
