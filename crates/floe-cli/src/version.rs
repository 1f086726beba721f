//! The version of this build.

/// The version, with the commit where it is known.
pub const VERSION: &str = env!("BUILD_VERSION");

/// The commit of this build; empty where it is not known.
pub const COMMIT: &str = env!("BUILD_COMMIT");
