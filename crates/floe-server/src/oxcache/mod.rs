//! OxCache's Unix-socket protocol, so that its clients can be pointed here.

pub mod codec;
