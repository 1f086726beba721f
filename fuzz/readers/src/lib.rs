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
mod nvme;
mod traces;
mod volumes;

use floe_fuzz_targets::{Collection, Target};

/// The readers of devices, drives, frames, headers, messages, metadata and traces.
pub const READERS: Collection = Collection {
    crate_name: "floe_fuzz_readers",
    program: "cargo run --package floe-fuzz-readers",
    targets: &[
        target("device_contents", device::device_contents, device::seeds),
        target("volume_contents", volumes::volume_contents, volumes::seeds),
        target("oxcache_frames", frames::oxcache_frames, frames::seeds),
        target(
            "memcached_lines",
            memcached::memcached_lines,
            memcached::seeds,
        ),
        target("nbd_messages", nbd::nbd_messages, nbd::seeds),
        target("nbd_replies", nbd_client::nbd_replies, nbd_client::seeds),
        target("nvme_identify", nvme::identify, nvme::identify_seeds),
        target("nvme_zones", nvme::zones, nvme::zones_seeds),
        target("nvme_logs", nvme::logs, nvme::logs_seeds),
        target("s3_headers", headers::s3_headers, headers::seeds),
        target(
            "object_metadata",
            metadata::object_metadata,
            metadata::seeds,
        ),
        target("trace_readers", traces::trace_readers, traces::seeds),
    ],
};

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// Runs the target of this name once.
///
/// # Panics
/// If there is no such target, or if it found a fault.
pub fn run(name: &str, data: &[u8]) {
    READERS.run(name, data);
}
