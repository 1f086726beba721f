//! Flash devices for Floe.
//!
//! A [`Device`] is an array of zones with few operations: read, append, write
//! (where the geometry allows random writes), reset, finish, flush, report.
//! The contract is documented on the trait and checked on every
//! implementation by one [`conformance`] suite.
//!
//! What this crate refuses to know: keys, values, caches.

pub mod buffer;
pub mod clock;
pub mod contract;
pub mod counters;
pub mod error;

pub use buffer::{IoBuf, IoData};
pub use clock::Clock;
pub use contract::{Device, OpFuture, Placement, SharedDevice, ZoneReport, ZoneState};
pub use counters::{CounterSnapshot, Counters};
pub use error::{DeviceError, DeviceErrorKind, Operation};
pub use floe_core::{Address, Geometry, ZoneId};
