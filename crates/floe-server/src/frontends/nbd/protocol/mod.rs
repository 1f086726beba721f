//! The NBD protocol's messages, without I/O: `options` are those of the
//! handshake, `request` and `reply` those of the transmission.
//!
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>

pub mod options;
pub mod reply;
pub mod request;

pub use floe::backing::nbd::wire::PAYLOAD_BYTES_MAX;

/// Errors of requests, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only.
    Perm = 1,
    /// The export failed.
    Io = 5,
    /// The request is invalid.
    Inval = 22,
    /// The range ends beyond the export, or the export is full.
    NoSpace = 28,
    /// The length is beyond the largest one.
    Overflow = 75,
    /// The zeroes cannot be written quickly.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

floe_core::names! {
    Errno {
        Perm => "eperm",
        Io => "eio",
        Inval => "einval",
        NoSpace => "enospc",
        Overflow => "eoverflow",
        NotSup => "enotsup",
        Shutdown => "eshutdown",
    }
}

/// A request that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The error.
    pub errno: Errno,
    /// The reason, for the client's user.
    pub reason: &'static str,
}

impl Rejection {
    /// An error with its reason.
    pub const fn new(errno: Errno, reason: &'static str) -> Self {
        Rejection { errno, reason }
    }
}
