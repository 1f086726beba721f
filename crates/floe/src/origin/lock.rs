//! The lock of `fair.rs`, in its own file so that a model checker can replace it.

pub(super) use parking_lot::Mutex;
