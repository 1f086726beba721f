//! Shared by the oracle tests: devices whose power can be cut, the possible
//! values of a key, random clients, and interrupted lives.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test uses a part of it, and is compiled by itself"
)]

mod device;
mod lives;
mod oracle;
mod subjects;
mod tiny;

pub(crate) use device::{drive, in_place, memory, power_switch, zoned};
pub(crate) use lives::{Lives, Put, Subject};
pub(crate) use oracle::{Oracle, Part};
pub(crate) use tiny::{open_tiny, tiny_config};
