//! Flash devices for Floe.
//!
//! A [`Device`] is an array of zones with few operations: read, append, write
//! (where the geometry allows random writes), reset, finish, flush, report.
//! The contract is documented on the trait and checked on every
//! implementation by one [`conformance`] suite.
//!
//! A [`BlockDevice`] is a flat range of blocks without zones, for volumes. It has
//! a [suite](block::conformance) of its own.
//!
//! Must not depend on keys, values and caches.

mod arena;
pub mod array;
pub mod baseline;
pub mod block;
pub mod buffer;
pub mod clock;
pub mod config;
pub mod conformance;
pub mod contract;
pub mod counters;
mod drive_zones;
pub mod error;
pub mod faulty;
pub mod file;
mod mapping;
mod medium;
pub mod memory;
pub mod metered;
pub mod nvme;
mod open;
mod outage;
pub mod power;
pub mod recorded;
pub mod sendable;
pub mod sim;
mod sim_config;
pub mod sim_media;
mod spans;
pub mod thread;
pub mod upkeep;
mod virtual_clock;
pub mod virtual_time;
mod zone_state;
pub mod zoned;
mod zones;

pub use array::Array;
pub use block::file::{FileBlocks, FileBlocksConfig};
pub use block::flat::Flat;
pub use block::memory::MemoryBlocks;
pub use block::power::PowerGroup;
pub use block::{BlockDevice, Content, Holder, Reserved, SharedBlockDevice};
pub use buffer::{IoBuf, IoData};
pub use clock::{Clock, Sleep};
pub use config::{DeviceConfig, OpenDeviceError};
pub use contract::{
    Completer, Device, OpFuture, Placement, SharedDevice, ZonePeaks, ZoneReport, ZoneState,
};
pub use counters::{CounterSnapshot, Counters};
pub use error::{DeviceError, DeviceErrorKind, Operation};
pub use faulty::{Faults, Faulty};
pub use file::FileDevice;
pub use floe_core::{Address, ByteSize, Geometry, ZoneId};
pub use medium::Keeping;
pub use memory::MemoryDevice;
pub use metered::Metered;
pub use nvme::NvmeDevice;
pub use open::{open, open_drives};
pub use power::PowerSwitch;
pub use recorded::Recorded;
pub use sendable::SendableMemory;
pub use sim::{SimConfig, SimDevice, SimModel};
pub use sim_media::WriteCache;
pub use zoned::ZonedDevice;
