//! The message to a user after a panic.

use std::panic;

use crate::version::VERSION;

/// Installs a panic hook that explains how to report the bug.
pub(crate) fn explain() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // `println!` panics on a closed pipe, which is not a bug.
        let text = info.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to std") {
            std::process::exit(0);
        }
        previous(info);
        eprintln!(
            "\nThis is a bug in floe {}. Please report it at {}/issues with the text above, the\n\
             command line and, if you can, the output with RUST_BACKTRACE=1. Cached data is safe to\n\
             keep: everything read back is checked.",
            VERSION,
            env!("CARGO_PKG_REPOSITORY"),
        );
    }));
}
