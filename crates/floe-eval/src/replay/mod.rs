//! Replaying traces: here against pure policies, in [`run`](crate::run)
//! against a cache with a device.

pub mod policy;
