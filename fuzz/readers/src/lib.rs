//! Fuzz targets for untrusted input: from clients, origins, files and foreign
//! devices.
//!
//! They need more of Floe than its core, so they are not in the crate of the
//! layouts' targets. This crate is a member of the main workspace, so its
//! dependencies are already built.

mod device;
mod frames;
mod headers;
mod memcached;
mod metadata;
mod nbd;
mod nbd_client;
mod traces;
mod volumes;

use floe_fuzz_targets::{Collection, Target};

/// The readers of devices, frames, headers, messages, metadata and traces.
pub const READERS: Collection = Collection {
    crate_name: "floe_fuzz_readers",
    program: "cargo run --package floe-fuzz-readers",
    targets: &[
        Target {
            name: "device_contents",
            run: device::device_contents,
            seeds: device::seeds,
        },
        Target {
            name: "volume_contents",
            run: volumes::volume_contents,
            seeds: volumes::seeds,
        },
        Target {
            name: "oxcache_frames",
            run: frames::oxcache_frames,
            seeds: frames::seeds,
        },
        Target {
            name: "memcached_lines",
            run: memcached::memcached_lines,
            seeds: memcached::seeds,
        },
        Target {
            name: "nbd_messages",
            run: nbd::nbd_messages,
            seeds: nbd::seeds,
        },
        Target {
            name: "nbd_replies",
            run: nbd_client::nbd_replies,
            seeds: nbd_client::seeds,
        },
        Target {
            name: "s3_headers",
            run: headers::s3_headers,
            seeds: headers::seeds,
        },
        Target {
            name: "object_metadata",
            run: metadata::object_metadata,
            seeds: metadata::seeds,
        },
        Target {
            name: "trace_readers",
            run: traces::trace_readers,
            seeds: traces::seeds,
        },
    ],
};

/// Runs the target of this name once.
///
/// # Panics
/// If there is no such target, or if it found a fault.
pub fn run(name: &str, data: &[u8]) {
    READERS.run(name, data);
}
