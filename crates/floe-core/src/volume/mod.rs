//! The block cache of volumes: decisions about sectors of a slow backing device
//! that a fast cache device keeps.
//!
//! Must not depend on: drivers, devices, other engines.

pub mod mode;
pub mod sequential;
