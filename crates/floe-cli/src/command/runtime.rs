//! The runtime of commands without concurrency.

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// A runtime on the current thread.
pub(super) fn small_runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::environment("cannot start the runtime").because(error))
}
