//! The version of this build.

/// The version, with the commit if it is known.
pub const VERSION: &str = env!("BUILD_VERSION");

/// The commit of this build; empty if unknown.
pub const COMMIT: &str = env!("BUILD_COMMIT");
