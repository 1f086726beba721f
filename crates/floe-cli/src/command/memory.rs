//! The memory that a server may take, by part.

use std::collections::BTreeMap;

use floe::Cache;
use floe_core::ByteSize;
use floe_device::DeviceConfig;
use floe_device::block::file::FileBlocksConfig;
use floe_device::config::DeviceKind;
use floe_server::nbd::ExportKind;
use serde::Serialize;

use crate::output;
use crate::settings::Plan;

/// The most memory of a server, by the settings that limit it. What depends on the lengths of
/// values is estimated: tiny objects and the index. Volumes, connections and the heap's own losses
/// come on top, and engines for tiny objects other than `nemo`.
#[derive(Serialize)]
pub(super) struct Memory {
    total_bytes: u64,
    parts: BTreeMap<&'static str, u64>,
}

impl Memory {
    /// That of a server whose cache is open, and that took `program_bytes` before.
    pub(super) fn of(plan: &Plan, cache: &Cache, program_bytes: u64) -> Self {
        let server = &plan.server;
        let serves_objects = server.s3.is_some() || server.oxcache.is_some();
        let fetches = plan.objects(cache.store().value_bytes_max()).fetch_memory;
        let size = |size: Option<ByteSize>| size.unwrap_or_default().bytes();
        let tiny = cache.tiny().and_then(|tiny| tiny.sizes());
        let tiny_device = plan.tiny.as_ref().map(|tier| &tier.device);
        let devices = || [&plan.device].into_iter().chain(tiny_device);
        let parts = [
            ("tiny", tiny.map_or(0, |sizes| sizes.memory_bytes())),
            ("ram.size", plan.ram.size.bytes()),
            ("index", index_bytes(plan, cache)),
            ("chunk.write_buffer", plan.chunk.write_buffer.bytes()),
            ("chunk.read_ahead", plan.chunk.read_ahead.bytes()),
            (
                "object.fetch_memory",
                size(serves_objects.then_some(fetches)),
            ),
            (
                "memcached.memory",
                server
                    .memcached
                    .as_ref()
                    .map_or(0, |it| it.memory_bytes_max()),
            ),
            (
                "oxcache.read_ahead",
                size(server.oxcache.as_ref().map(|it| it.read_ahead)),
            ),
            ("nbd.memory", size(server.nbd.as_ref().map(|it| it.memory))),
            (
                "registered_buffers",
                devices().map(buffer_bytes).sum::<u64>() + volume_buffer_bytes(plan),
            ),
            (
                "devices in memory",
                devices().map(content_bytes).sum::<u64>() + export_bytes(plan),
            ),
            ("program", program_bytes),
        ];
        let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
        let parts: BTreeMap<_, _> = parts.collect();
        Memory {
            total_bytes: parts.values().sum(),
            parts,
        }
    }

    /// A line for people, the largest parts first.
    pub(super) fn text(&self) -> String {
        let mut parts: Vec<_> = self.parts.iter().collect();
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let text = |(name, bytes): (&&str, &u64)| format!("{} {}", whole(*bytes), name);
        let parts: Vec<String> = parts.into_iter().map(text).collect();
        format!(
            "up to about {}: {}",
            whole(self.total_bytes),
            parts.join(", ")
        )
    }
}

/// Bytes in whole MiB, as people read them.
fn whole(bytes: u64) -> String {
    let mib = 1 << 20;
    output::size(bytes.next_multiple_of(mib))
}

/// The index of a device full of typical values.
fn index_bytes(plan: &Plan, cache: &Cache) -> u64 {
    /// An entry of the index and the slot of a table that names it.
    const VALUE_BYTES: u64 = 32;
    let capacity = cache.store().device().geometry().total_capacity();
    capacity / plan.chunk.size.bytes().max(1) * VALUE_BYTES
}

/// Buffers that are registered with the kernel, of each drive.
fn buffer_bytes(device: &DeviceConfig) -> u64 {
    match device.kind {
        DeviceKind::Memory | DeviceKind::Sim => 0,
        _ => device.registered_buffers.bytes() * device.all_paths().count().max(1) as u64,
    }
}

/// The same of volumes: of their cache and of what is behind each.
fn volume_buffer_bytes(plan: &Plan) -> u64 {
    let volumes = &plan.volumes;
    let devices = volumes.path.iter().count() + volumes.attach.len();
    FileBlocksConfig::new("").registered_buffers.bytes() * devices as u64
}

/// The content of a device in memory.
fn content_bytes(device: &DeviceConfig) -> u64 {
    match device.kind {
        DeviceKind::Memory | DeviceKind::Sim => device.size.map_or(0, ByteSize::bytes),
        _ => 0,
    }
}

/// The content of NBD exports in memory.
fn export_bytes(plan: &Plan) -> u64 {
    let exports = plan.server.nbd.iter().flat_map(|nbd| &nbd.exports);
    let exports = exports.filter(|export| export.kind == ExportKind::Memory);
    exports.map(|export| export.size.bytes()).sum()
}
