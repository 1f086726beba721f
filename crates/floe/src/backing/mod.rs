//! Backing devices of volumes.
//!
//! Must not depend on: the cache in front of them.

mod address;
mod emulated;
pub mod nbd;

pub use address::{BackingAddress, BackingAddressError, BackingTarget};
pub use emulated::{Emulated, EmulatedConfig, EmulatedError, EmulatedPreset};
pub use nbd::{NbdAddress, NbdBlocks, NbdConfig};
