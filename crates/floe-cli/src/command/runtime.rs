//! The runtime of commands that do one thing after another.

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// A runtime on this thread alone.
pub(super) fn small_runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::environment("cannot start the runtime").because(error))
}
