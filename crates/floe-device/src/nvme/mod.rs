//! NVMe namespaces by the kernel's passthrough: zoned, with data placement, and
//! conventional.
//!
//! [`command`] lays commands out; [`identify`], [`zone_report`] and [`log_page`] decode what
//! a drive returns, and [`status`] names its failures. They follow the NVMe base, NVM and
//! zoned-namespace command set specifications, and use no C library. [`Drive`] is an open
//! namespace, [`NvmeDevice`] the device over it, [`list`] finds those of this machine.

pub mod command;
mod device;
mod drive;
mod fields;
mod find;
pub mod identify;
pub(crate) mod ioctl;
pub mod log_page;
pub(crate) mod open;
mod operations;
pub mod status;
pub mod zone_report;

#[cfg(test)]
mod tests;

pub use device::NvmeDevice;
pub use drive::{Drive, DriveError, Interface, Placement, Zones};
pub use fields::DecodeError;
pub use find::{Found, block_device, is_namespace, list};
pub use ioctl::CommandError;
pub use status::{Fault, Status};
