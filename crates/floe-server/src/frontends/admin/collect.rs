//! Metrics of the process, the cache, its origin and its device.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use floe::Store;
use floe::admission::AdmissionStatistics;
use floe::object::ObjectCache;
use floe::origin::{LATENCY_BOUNDS_MS, OperationStats, OriginOperation, OriginReason, OriginStats};
use floe_device::metered::{self, MEASURED, Meters};
use floe_device::upkeep::DriveHealth;

use crate::metrics::{HistogramSnapshot, Samples, drives};

/// Adds the samples of the object cache, its origin and its store.
pub(crate) fn cache(samples: &mut Samples, cache: &ObjectCache) {
    objects(samples, cache);
    origin(samples, cache);
    store(samples, cache.store());
}

/// Most zones with their own samples.
const ZONES_MAX: usize = 10_000;

/// Counters of the object cache that become one metric with a label.
struct Group {
    metric: &'static str,
    help: &'static str,
    label: &'static str,
    /// Names of counters, and the label's value of each.
    members: &'static [(&'static str, &'static str)],
}

const OBJECT_GROUPS: [Group; 4] = [
    Group {
        metric: "floe_object_reads",
        help: "Reads of objects, by the source of their bytes",
        label: "result",
        members: &[
            ("reads_hit", "hit"),
            ("reads_partial", "partial"),
            ("reads_miss", "miss"),
            ("reads_failed", "failed"),
        ],
    },
    Group {
        metric: "floe_object_chunk_lookups",
        help: "Lookups of chunks by reads; joined: another read was fetching the chunk already",
        label: "result",
        members: &[
            ("chunks_ram", "ram"),
            ("chunks_buffer", "buffer"),
            ("chunks_flash", "flash"),
            ("chunks_missed", "miss"),
            ("chunks_joined", "joined"),
        ],
    },
    Group {
        metric: "floe_object_chunk_puts",
        help: "Fetched chunks that were put into the cache, by the outcome",
        label: "outcome",
        members: &[
            ("chunks_stored", "stored"),
            ("chunks_declined", "ram_only"),
            ("chunks_dropped", "dropped"),
        ],
    },
    Group {
        metric: "floe_object_sent_bytes",
        help: "Bytes of objects served; bypass: from the origin past the cache",
        label: "source",
        members: &[
            ("bytes_ram", "ram"),
            ("bytes_buffer", "buffer"),
            ("bytes_flash", "flash"),
            ("bytes_fetched", "fetch"),
            ("bytes_bypass", "bypass"),
        ],
    },
];

fn objects(samples: &mut Samples, cache: &ObjectCache) {
    let (mut grouped, mut single) = (Vec::new(), Vec::new());
    for count in cache.stats().named() {
        let member = OBJECT_GROUPS.iter().find_map(|group| {
            let member = group.members.iter().find(|(name, _)| *name == count.0)?;
            Some((group, member.1))
        });
        match member {
            Some((group, label)) => grouped.push((group, label, count.2)),
            None => single.push(count),
        }
    }
    for (group, label, value) in grouped {
        samples.counter(group.metric, group.help, &[(group.label, label)], value);
    }
    table(samples, "floe_object_", single);
    samples.gauge(
        "floe_pinned_bytes",
        "Bytes of pinned objects that would have been evicted, and are kept",
        &[],
        cache.pinned_bytes() as f64,
    );
    cache_only(samples, cache);
}

fn cache_only(samples: &mut Samples, cache: &ObjectCache) {
    for (bucket, size) in cache.cache_only_sizes() {
        let labels = [("bucket", &*bucket)];
        for (name, help, value) in [
            (
                "floe_cache_only_objects",
                "Names in the cache-only bucket",
                size.objects,
            ),
            (
                "floe_cache_only_bytes",
                "Bytes of the objects in the cache-only bucket",
                size.bytes,
            ),
        ] {
            samples.gauge(name, help, &labels, value as f64);
        }
    }
}

fn store(samples: &mut Samples, store: &Store) {
    let stats = store.stats();
    let engine = &stats.engine;
    table(samples, "floe_chunk_", engine.counts.named());
    table(samples, "floe_device_", stats.device.named());
    drives(samples, "floe_device_drives", &store.device().drives());
    for (name, help, value) in [
        (
            "floe_chunk_live_records",
            "Values served from flash",
            engine.live_records,
        ),
        (
            "floe_chunk_index_entries",
            "Entries of the index, those of evicted zones included until their reset",
            engine.index_entries,
        ),
        (
            "floe_chunk_index_bytes",
            "Memory held by the index",
            engine.index_bytes,
        ),
        (
            "floe_chunk_ram_bytes",
            "Memory held by the RAM tier",
            engine.ram_bytes,
        ),
        (
            "floe_chunk_ram_values",
            "Values in the RAM tier",
            engine.ram_values,
        ),
        (
            "floe_chunk_pending_records",
            "Values in write buffers",
            engine.pending_records,
        ),
    ] {
        samples.gauge(name, help, &[], value as f64);
    }
    for (state, value) in [
        ("free", engine.zones_free),
        ("full", engine.zones_full),
        ("retired", engine.zones_retired),
        (
            "other",
            engine
                .zones_total
                .saturating_sub(engine.zones_free + engine.zones_full + engine.zones_retired),
        ),
    ] {
        let help = "Zones of the device by state; other: open, being evicted or for metadata";
        samples.gauge("floe_chunk_zones", help, &[("state", state)], value as f64);
    }
    for (state, value) in [
        ("free", engine.slots_free),
        ("withdrawn", engine.slots_withdrawn),
        (
            "used",
            engine
                .slots_total
                .saturating_sub(engine.slots_free + engine.slots_withdrawn),
        ),
    ] {
        let help = "Slots by state; all zero unless CLRU writes chunks in place";
        samples.gauge("floe_chunk_slots", help, &[("state", state)], value as f64);
    }
    let AdmissionStatistics {
        admitted,
        admitted_bytes,
        rejected,
        rejected_bytes,
    } = engine.admission;
    for (decision, values, bytes) in [
        ("admitted", admitted, admitted_bytes),
        ("rejected", rejected, rejected_bytes),
    ] {
        let labels = [("decision", decision)];
        let help = "Values that the admission policy of chunks decided on";
        samples.counter("floe_chunk_admission_values", help, &labels, values);
        let help = "Bytes on flash of the values that the admission policy of chunks decided on";
        samples.counter("floe_chunk_admission_bytes", help, &labels, bytes);
    }
    if let Some(alwa) = stats.alwa() {
        let help = "Bytes written to the device per byte of keys and values accepted";
        samples.gauge("floe_chunk_write_amplification", help, &[], alwa);
    }
}

/// Upper bounds of the buckets of device latencies, in microseconds; the last
/// bucket is unbounded.
const DEVICE_BOUNDS_US: [u32; 18] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000,
];

/// Adds the health of drives.
pub(crate) fn health(samples: &mut Samples, drives: &[DriveHealth]) {
    for DriveHealth { name, health } in drives {
        let drive = ("drive", name.as_str());
        for (metric, help, value) in [
            (
                "floe_device_temperature_celsius",
                "Temperature of a drive",
                f64::from(health.temperature_celsius),
            ),
            (
                "floe_device_life_used_ratio",
                "Estimate of the life of a drive that is used; may exceed 1",
                f64::from(health.percentage_used) / 100.0,
            ),
            (
                "floe_device_available_spare_ratio",
                "Spare capacity of a drive that is left",
                f64::from(health.available_spare_percent) / 100.0,
            ),
            (
                "floe_device_critical_warning",
                "Bits of what needs attention on a drive; zero if nothing does",
                health.critical_warning.into(),
            ),
        ] {
            samples.gauge(metric, help, &[drive], value);
        }
        samples.counter(
            "floe_device_media_errors",
            "Errors of the medium of a drive that were not recovered",
            &[drive],
            health.media_errors,
        );
        let by_log = |log| [drive, ("log", log)];
        let mut written = vec![("health", health.host_written_bytes, None)];
        if let Some(media) = &health.media {
            let log = media.log.as_str();
            written.push((
                log,
                media.host_written_bytes,
                Some(media.media_written_bytes),
            ));
        }
        for (log, host, media) in written {
            samples.counter(
                "floe_device_host_written_bytes",
                "Bytes that hosts wrote to a drive, by one of its logs",
                &by_log(log),
                host,
            );
            if let Some(media) = media {
                samples.counter(
                    "floe_device_media_written_bytes",
                    "Bytes that a drive wrote to its medium; comparable with those of hosts by the same log",
                    &by_log(log),
                    media,
                );
            }
        }
    }
}

/// Adds the samples of a device with meters, by operation.
pub(crate) fn device(samples: &mut Samples, meters: &Meters) {
    for operation in MEASURED {
        let meter = meters.of(operation);
        let name = operation.to_string();
        let labels = [("operation", name.as_str())];
        for (metric, help, value) in [
            (
                "floe_device_operation_bytes",
                "Bytes moved by operations of the device that succeeded",
                &meter.bytes,
            ),
            (
                "floe_device_operation_errors",
                "Operations of the device that failed",
                &meter.errors,
            ),
            (
                "floe_device_operations_abandoned",
                "Operations of the device whose caller went away before the result",
                &meter.abandoned,
            ),
        ] {
            samples.counter(metric, help, &labels, value.load(Relaxed));
        }
        samples.gauge(
            "floe_device_operations_in_flight",
            "Operations of the device in flight",
            &labels,
            meter.in_flight.load(Relaxed) as f64,
        );
        samples.histogram(
            "floe_device_operation_duration_seconds",
            "Duration of operations of the device",
            &labels,
            device_latency(&meter.latency),
        );
    }
}

/// Merges the fine buckets of a meter. A bucket is placed by its upper end, so
/// a latency is never reported lower, and at most an eighth higher.
fn device_latency(latency: &metered::Histogram) -> HistogramSnapshot {
    let mut counts = [0; DEVICE_BOUNDS_US.len() + 1];
    for (end, count) in latency.buckets() {
        let bucket =
            DEVICE_BOUNDS_US.partition_point(|us| Duration::from_micros(u64::from(*us)) < end);
        counts[bucket] += count;
    }
    HistogramSnapshot::of_micros(&DEVICE_BOUNDS_US, counts, latency.sum().as_secs_f64())
}

/// Adds counters under their own names, with their documentation as help.
fn table(
    samples: &mut Samples,
    prefix: &str,
    counts: impl IntoIterator<Item = (&'static str, &'static str, u64)>,
) {
    for (name, help, value) in counts {
        let help = help.trim().trim_end_matches('.');
        samples.counter(&format!("{prefix}{name}"), help, &[], value);
    }
}

/// Adds samples for each zone. Only on request, since there may be many zones.
pub(crate) fn zones(samples: &mut Samples, store: &Store) {
    for zone in store.zone_stats().iter().take(ZONES_MAX) {
        let id = zone.zone.to_string();
        let phase = format!("{:?}", zone.phase).to_lowercase();
        let labels = [("zone", id.as_str()), ("state", phase.as_str())];
        for (name, help, value) in [
            (
                "floe_zone_used_bytes",
                "Bytes of the zone written or reserved",
                zone.used_bytes,
            ),
            (
                "floe_zone_live_bytes",
                "Bytes of values served from the zone",
                zone.live_bytes,
            ),
            (
                "floe_zone_records",
                "Records written to the zone",
                u64::from(zone.records),
            ),
            (
                "floe_zone_live_records",
                "Records served from the zone",
                u64::from(zone.live_records),
            ),
            (
                "floe_zone_generation",
                "Generation of the zone, which each reset advances",
                u64::from(zone.generation),
            ),
        ] {
            samples.gauge(name, help, &labels, value as f64);
        }
    }
}

fn origin(samples: &mut Samples, cache: &ObjectCache) {
    let kind = cache.origin().kind();
    let stats = cache.origin().stats();
    let origin = [("origin", kind)];
    for operation in OriginOperation::ALL {
        for reason in operation.reasons() {
            origin_requests(samples, kind, operation, *reason, &stats);
        }
        origin_operation(samples, kind, operation, &stats.operation(operation));
    }
    samples.counter(
        "floe_origin_received_bytes",
        "Bytes of bodies received from the origin",
        &origin,
        stats.bytes_received,
    );
    samples.counter(
        "floe_origin_sent_bytes",
        "Bytes of uploads sent to the origin",
        &origin,
        stats.bytes_sent,
    );
    samples.counter(
        "floe_origin_body_errors",
        "Bodies from the origin that broke off or stalled",
        &origin,
        stats.broken_bodies,
    );
    samples.counter(
        "floe_origin_requests_rejected",
        "Requests rejected because too many were waiting for the origin",
        &origin,
        stats.overloaded,
    );
    samples.gauge(
        "floe_origin_requests_in_flight",
        "Requests to the origin in flight, other than uploads",
        &origin,
        stats.in_flight as f64,
    );
    samples.gauge(
        "floe_origin_requests_queued",
        "Requests other than uploads that wait to be sent to the origin",
        &origin,
        stats.queued as f64,
    );
    samples.gauge(
        "floe_origin_uploads_in_flight",
        "Uploads to the origin in flight",
        &origin,
        stats.uploads_in_flight as f64,
    );
    samples.gauge(
        "floe_origin_uploads_queued",
        "Uploads that wait to be sent to the origin",
        &origin,
        stats.uploads_queued as f64,
    );
}

fn origin_requests(
    samples: &mut Samples,
    kind: &str,
    operation: OriginOperation,
    reason: OriginReason,
    stats: &OriginStats,
) {
    let stats = stats.requests(operation, reason);
    for (outcome, value) in [
        ("succeeded", stats.succeeded),
        ("negative", stats.negative),
        ("refused", stats.rejected),
        ("failed", stats.failed),
    ] {
        let labels = [
            ("origin", kind),
            ("operation", operation.name()),
            ("reason", reason.name()),
            ("outcome", outcome),
        ];
        samples.counter(
            "floe_origin_requests",
            "Requests sent to the origin, each retry included",
            &labels,
            value,
        );
    }
}

fn origin_operation(
    samples: &mut Samples,
    kind: &str,
    operation: OriginOperation,
    stats: &OperationStats,
) {
    let labels = [("origin", kind), ("operation", operation.name())];
    samples.counter(
        "floe_origin_timeouts",
        "Requests without a response from the origin in time",
        &labels,
        stats.timed_out,
    );
    samples.counter(
        "floe_origin_retries",
        "Retries of failed requests to the origin",
        &labels,
        stats.retried,
    );
    samples.histogram(
        "floe_origin_request_first_byte_seconds",
        "Time from a request to the origin until its response begins",
        &labels,
        origin_latency(stats),
    );
}

fn origin_latency(stats: &OperationStats) -> HistogramSnapshot {
    let bounds = LATENCY_BOUNDS_MS
        .iter()
        .map(|ms| *ms as f64 / 1e3)
        .chain([f64::INFINITY]);
    HistogramSnapshot {
        buckets: bounds.zip(stats.latency_buckets).collect(),
        sum_seconds: stats.latency_sum_ns as f64 / 1e9,
    }
}

/// Adds the samples of this process, from the operating system.
pub(crate) fn process(samples: &mut Samples) {
    samples.gauge(
        "floe_build_info",
        "Version of the running server",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1.0,
    );
    if let Some(bytes) = resident_bytes() {
        samples.gauge(
            "process_resident_memory_bytes",
            "Resident memory size",
            &[],
            bytes as f64,
        );
    }
    // Fields 14 and 15 follow the name in parentheses, which may contain spaces.
    if let (Some(user), Some(system)) = (
        proc_field("/proc/self/stat", 11),
        proc_field("/proc/self/stat", 12),
    ) {
        let ticks = (user + system) as f64 / rustix::param::clock_ticks_per_second() as f64;
        samples.total(
            "process_cpu_seconds",
            "CPU time of the process, user and system",
            &[],
            ticks,
        );
    }
}

/// Bytes of memory that this process has now; `None` if the operating system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let pages = proc_field("/proc/self/statm", 1)?;
    Some(pages * rustix::param::page_size() as u64)
}

/// A number in a line of `/proc`, counted from the closing parenthesis if there is one.
fn proc_field(path: &str, index: usize) -> Option<u64> {
    let line = std::fs::read_to_string(path).ok()?;
    let fields = line
        .rsplit_once(") ")
        .map_or(line.as_str(), |(_, rest)| rest);
    fields.split_ascii_whitespace().nth(index)?.parse().ok()
}
