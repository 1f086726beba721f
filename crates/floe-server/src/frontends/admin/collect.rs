//! Which numbers there are, under which names. One line each.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use floe::Store;
use floe::admission::AdmissionStatistics;
use floe::object::ObjectCache;
use floe::origin::{LATENCY_BOUNDS_MS, OperationStats, OriginOperation};
use floe_device::metered::{self, MEASURED, Meters};

use crate::metrics::{HistogramSnapshot, Samples};

/// Everything the object cache and what is below it know.
pub(crate) fn cache(samples: &mut Samples, cache: &ObjectCache) {
    objects(samples, cache);
    origin(samples, cache);
    store(samples, cache.store());
}

/// Most zones that are told one by one.
const ZONES_MAX: usize = 10_000;

/// Groups of the object cache's counters that differ by one label; what is in
/// none of them keeps its own name.
const OBJECT_GROUPS: [(&str, &str, &str, &str); 3] = [
    (
        "reads_",
        "floe_object_reads",
        "result",
        "Reads of objects by where their bytes came from",
    ),
    (
        "chunks_",
        "floe_object_chunks",
        "event",
        "Chunks looked up, by where they were found, and stored",
    ),
    (
        "bytes_",
        "floe_object_sent_bytes",
        "source",
        "Bytes served by where they came from",
    ),
];

fn objects(samples: &mut Samples, cache: &ObjectCache) {
    for (name, value) in cache.stats().counters() {
        let group = OBJECT_GROUPS
            .iter()
            .find_map(|group| Some((group, name.strip_prefix(group.0)?)));
        match group {
            Some(((_, metric, label, help), rest)) => {
                samples.counter(metric, help, &[(label, rest)], value);
            }
            None => {
                let help = format!("Object cache: {}", name.replace('_', " "));
                samples.counter(&format!("floe_object_{name}"), &help, &[], value);
            }
        }
    }
}

fn store(samples: &mut Samples, store: &Store) {
    let stats = store.stats();
    let engine = &stats.engine;
    table(samples, "floe_store_", "Store", &engine.counts);
    table(samples, "floe_device_", "Device", &stats.device);
    for (name, help, value) in [
        (
            "floe_store_live_records",
            "Values that are served from flash",
            engine.live_records,
        ),
        (
            "floe_store_index_entries",
            "Records that cost index memory",
            engine.index_entries,
        ),
        (
            "floe_store_index_bytes",
            "Memory of the index",
            engine.index_bytes,
        ),
        (
            "floe_store_ram_bytes",
            "Memory of the RAM tier",
            engine.ram_bytes,
        ),
        (
            "floe_store_ram_values",
            "Values in the RAM tier",
            engine.ram_values,
        ),
        (
            "floe_store_pending_records",
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
        ("all", engine.zones_total),
    ] {
        let help = "Zones of the device by state; some are in none of the others";
        samples.gauge("floe_store_zones", help, &[("state", state)], value as f64);
    }
    for (state, value) in [
        ("free", engine.slots_free),
        ("withdrawn", engine.slots_withdrawn),
        ("all", engine.slots_total),
    ] {
        let help = "Slots by state, with CLRU in place; all zero otherwise";
        samples.gauge("floe_store_slots", help, &[("state", state)], value as f64);
    }
    let AdmissionStatistics {
        admitted,
        admitted_bytes,
        rejected,
        rejected_bytes,
    } = engine.admission;
    for (decision, values, bytes) in [
        ("admitted", admitted, admitted_bytes),
        ("declined", rejected, rejected_bytes),
    ] {
        let labels = [("decision", decision)];
        let help = "Values that the admission policy of chunks was asked about, by its answer";
        samples.counter("floe_store_admission_values", help, &labels, values);
        let help = "What they take on flash, or would have taken";
        samples.counter("floe_store_admission_bytes", help, &labels, bytes);
    }
    if let Some(alwa) = stats.alwa() {
        let help = "Bytes written to the device per byte of keys and values accepted";
        samples.gauge("floe_store_write_amplification", help, &[], alwa);
    }
}

/// Upper bounds of the buckets of device latencies, in microseconds; one more
/// holds what is slower.
const DEVICE_BOUNDS_US: [u32; 18] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000,
];

/// What a metered device measured, operation by operation.
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
                "floe_device_operation_abandoned",
                "Operations of the device whose result nobody waited for",
                &meter.abandoned,
            ),
        ] {
            samples.counter(metric, help, &labels, value.load(Relaxed));
        }
        samples.gauge(
            "floe_device_operations_in_flight",
            "Operations of the device under way",
            &labels,
            meter.in_flight.load(Relaxed) as f64,
        );
        samples.histogram(
            "floe_device_operation_seconds",
            "Time that operations of the device took",
            &labels,
            device_latency(&meter.latency),
        );
    }
}

/// The fine buckets of a meter in fewer ones. Each goes where its upper end
/// belongs, so that no latency is told lower than it was, and at most an
/// eighth higher.
fn device_latency(latency: &metered::Histogram) -> HistogramSnapshot {
    let mut counts = [0; DEVICE_BOUNDS_US.len() + 1];
    for (end, count) in latency.buckets() {
        let bucket =
            DEVICE_BOUNDS_US.partition_point(|us| Duration::from_micros(u64::from(*us)) < end);
        counts[bucket] += count;
    }
    let bounds = DEVICE_BOUNDS_US
        .iter()
        .map(|us| f64::from(*us) / 1e6)
        .chain([f64::INFINITY]);
    HistogramSnapshot {
        buckets: bounds.zip(counts).collect(),
        sum_seconds: latency.sum().as_secs_f64(),
    }
}

/// Every field of a struct of counters under its own name.
fn table(samples: &mut Samples, prefix: &str, of: &str, counters: &impl serde::Serialize) {
    // Counters are plain numbers, which always become JSON.
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(counters) else {
        return;
    };
    for (name, value) in fields {
        let help = format!("{of}: {}", name.replace('_', " "));
        let value = value.as_u64().unwrap_or_default();
        samples.counter(&format!("{prefix}{name}"), &help, &[], value);
    }
}

/// One line for each zone and figure; asked for, because there may be many.
pub(crate) fn zones(samples: &mut Samples, store: &Store) {
    for zone in store.zone_stats().iter().take(ZONES_MAX) {
        let id = zone.zone.to_string();
        let phase = format!("{:?}", zone.phase).to_lowercase();
        let labels = [("zone", id.as_str()), ("phase", phase.as_str())];
        for (name, help, value) in [
            (
                "floe_zone_used_bytes",
                "Bytes written or promised",
                zone.used_bytes,
            ),
            (
                "floe_zone_live_bytes",
                "Bytes of values that are served",
                zone.live_bytes,
            ),
            (
                "floe_zone_records",
                "Records written",
                u64::from(zone.records),
            ),
            (
                "floe_zone_live_records",
                "Records that are served",
                u64::from(zone.live_records),
            ),
            (
                "floe_zone_generation",
                "Lives of the zone",
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
        origin_operation(samples, kind, operation, stats.operation(operation));
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
        "floe_origin_broken_bodies",
        "Bodies of the origin that broke off or stalled",
        &origin,
        stats.broken_bodies,
    );
    samples.counter(
        "floe_origin_overloaded",
        "Requests turned away because too many wait for the origin",
        &origin,
        stats.overloaded,
    );
    samples.gauge(
        "floe_origin_requests_in_flight",
        "Requests to the origin under way, other than uploads",
        &origin,
        stats.in_flight as f64,
    );
    samples.gauge(
        "floe_origin_requests_queued",
        "Requests other than uploads that wait for their turn at the origin",
        &origin,
        stats.queued as f64,
    );
    samples.gauge(
        "floe_origin_uploads_in_flight",
        "Uploads to the origin under way",
        &origin,
        stats.uploads_in_flight as f64,
    );
    samples.gauge(
        "floe_origin_uploads_queued",
        "Uploads that wait for their turn at the origin",
        &origin,
        stats.uploads_queued as f64,
    );
}

fn origin_operation(
    samples: &mut Samples,
    kind: &str,
    operation: OriginOperation,
    stats: &OperationStats,
) {
    let operation = operation.name();
    for (outcome, value) in [
        ("succeeded", stats.succeeded),
        ("negative", stats.negative),
        ("refused", stats.refused),
        ("failed", stats.failed),
    ] {
        let labels = [
            ("origin", kind),
            ("operation", operation),
            ("outcome", outcome),
        ];
        samples.counter(
            "floe_origin_requests",
            "Attempts at the origin",
            &labels,
            value,
        );
    }
    let labels = [("origin", kind), ("operation", operation)];
    samples.counter(
        "floe_origin_timeouts",
        "Attempts that the origin did not answer in time",
        &labels,
        stats.timed_out,
    );
    samples.counter(
        "floe_origin_retries",
        "Further attempts after a failed one",
        &labels,
        stats.retried,
    );
    samples.histogram(
        "floe_origin_request_seconds",
        "Time until an answer of the origin begins",
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

/// What the operating system knows about this process.
pub(crate) fn process(samples: &mut Samples) {
    samples.gauge(
        "floe_build_info",
        "The version that runs",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1.0,
    );
    if let Some(pages) = proc_field("/proc/self/statm", 1) {
        let bytes = pages * rustix::param::page_size() as u64;
        samples.gauge(
            "process_resident_memory_bytes",
            "Memory in use",
            &[],
            bytes as f64,
        );
    }
    // Fields 14 and 15, after the name in parentheses, which may hold spaces.
    if let (Some(user), Some(system)) = (
        proc_field("/proc/self/stat", 11),
        proc_field("/proc/self/stat", 12),
    ) {
        let ticks = (user + system) as f64 / rustix::param::clock_ticks_per_second() as f64;
        samples.total("process_cpu_seconds", "CPU time used", &[], ticks);
    }
}

/// A number of a line of `/proc`, counted from behind the closing parenthesis if there is one.
fn proc_field(path: &str, index: usize) -> Option<u64> {
    let line = std::fs::read_to_string(path).ok()?;
    let fields = line
        .rsplit_once(") ")
        .map_or(line.as_str(), |(_, rest)| rest);
    fields.split_ascii_whitespace().nth(index)?.parse().ok()
}
