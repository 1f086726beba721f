//! The engine cores of Floe: pure, synchronous, deterministic decisions.
//!
//! This crate turns values into decisions. It does no I/O, reads no clock,
//! starts no thread, has no `unsafe` code and uses no randomly seeded map. The
//! same input therefore gives the same output on a production SSD and in a
//! simulation. `cargo xtask tidy` enforces that.
//!
//! Must not depend on: devices, runtimes, origins, protocols.

#![forbid(unsafe_code)]

mod cells;
pub mod chunk;
pub mod content;
pub mod geometry;
pub mod hash;
pub mod layout;
pub mod list;
pub mod parse;
pub mod placement;
pub mod policy;
pub mod size;
pub mod slots;
pub mod ssd;
pub mod tick;
pub mod tiny;
pub mod volume;

pub use geometry::{Address, Geometry, GeometryError, ZoneId};
pub use placement::Placement;
pub use size::ByteSize;
pub use tick::Tick;
