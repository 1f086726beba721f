//! What the oracle tests share: devices whose power can be cut, what a key may
//! hold, clients that do random things, and lives that end in the middle of it.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test uses a part of it, and is compiled by itself"
)]

mod device;
mod lives;
mod oracle;

pub(crate) use device::{in_place, memory, power_switch, zoned};
pub(crate) use lives::{Lives, Subject};
pub(crate) use oracle::{Oracle, Part};
