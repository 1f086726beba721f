//! The lock of the single-flight kernel, apart so that a model checker can put
//! its own in place.

pub(super) use parking_lot::Mutex;
