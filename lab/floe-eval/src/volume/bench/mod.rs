//! Driving a cache of volumes: the code that serves, in virtual time on modelled
//! devices, or in real time on memory and files.
//!
//! | file | has |
//! |---|---|
//! | `drive.rs` | one run: opening, warming up, measuring |
//! | `spec.rs` | a bench as an experiment describes it |
//! | `devices.rs` | its devices |
//! | `load.rs` | its requests: drawn, or those of a trace |
//! | `clients.rs` | the clients that send them, and what they measure |
//! | `figures.rs` | the figures of a run |
//!
//! In virtual time, processing takes none: a figure has the devices' time only.

mod clients;
mod devices;
mod drive;
mod figures;
mod load;
mod spec;
#[cfg(test)]
mod tests;

pub use drive::drive_volumes;
pub use spec::VolumeBench;
