//! The lock and atomics of `combiner.rs`, in their own file so that a model checker can replace them.

pub(super) use std::sync::atomic::{AtomicBool, fence};

pub(super) use parking_lot::Mutex;
