//! Backing devices of volumes.
//!
//! Must not depend on: the cache in front of them.

mod emulated;

pub use emulated::{Emulated, EmulatedConfig, EmulatedError, EmulatedPreset};
