//! Metrics of the tiny engine.

use floe::tiny::TinyStats;
use floe::{Cache, Tiny};
use floe_core::tiny::Cause;

use super::{Samples, drives};

/// Adds the samples of the tiny engine of `cache`.
pub(crate) fn collect_tiny(samples: &mut Samples, cache: &Cache) {
    samples.gauge(
        "floe_tiny_unavailable",
        "1 if the engine for tiny objects is configured but could not be opened, else 0",
        &[],
        f64::from(u8::from(cache.tiny_is_missing())),
    );
    if let Some(tiny) = cache.tiny() {
        engine(samples, tiny);
    }
}

fn engine(samples: &mut Samples, tiny: &Tiny) {
    let stats = tiny.stats();
    samples.gauge(
        "floe_tiny_engine_info",
        "Engine that keeps tiny objects",
        &[("engine", tiny.engine().name())],
        1.0,
    );
    drives(samples, "floe_tiny_drives", &tiny.device().drives());
    writes(samples, &stats);
    searches(samples, &stats);
    memory(samples, &stats);
}

fn writes(samples: &mut Samples, stats: &TinyStats) {
    let engine = &stats.engine;
    samples.counter(
        "floe_tiny_accepted_bytes",
        "Bytes of keys and values that the engine for tiny objects accepted",
        &[],
        engine.bytes_in,
    );
    for cause in Cause::ALL {
        let help = "Bytes that the engine for tiny objects wrote to flash, by cause";
        let labels = [("cause", cause.name())];
        samples.counter(
            "floe_tiny_written_bytes",
            help,
            &labels,
            engine.written_for(cause),
        );
    }
    for (event, value) in [
        ("accepted", engine.objects_in),
        ("deleted", engine.deletes_in),
        ("dropped", engine.dropped_early),
        ("evicted", engine.evicted),
        ("written_back", engine.written_back),
    ] {
        let help = "Tiny objects accepted, deleted, dropped before they were on flash, evicted from flash, and written back";
        samples.counter("floe_tiny_objects", help, &[("event", event)], value);
    }
    for (decision, value) in [
        ("admitted", stats.admission.admitted),
        ("rejected", stats.admission.rejected),
    ] {
        let help = "Tiny objects that the admission policy decided on";
        let labels = [("decision", decision)];
        samples.counter("floe_tiny_admission_objects", help, &labels, value);
    }
    for (result, value) in [("written", stats.fences), ("covered", stats.fences_spared)] {
        let help = "Overwrites and deletes of keys that may be on flash: written made a fence durable, covered were protected by an earlier fence";
        samples.counter("floe_tiny_fences", help, &[("result", result)], value);
    }
    samples.counter(
        "floe_tiny_fence_waits",
        "Times that a write waited because too many fences held",
        &[],
        stats.fences_delays,
    );
    samples.counter(
        "floe_tiny_fence_lookups",
        "Lookups before a write that showed whether the key needs a fence",
        &[],
        stats.fences_lookups,
    );
    samples.gauge(
        "floe_tiny_zones_unwritable",
        "Zones for tiny objects that the drive has made read-only or offline",
        &[],
        stats.zones_unwritable as f64,
    );
}

fn searches(samples: &mut Samples, stats: &TinyStats) {
    let engine = &stats.engine;
    for (tier, value) in [("ram", stats.ram_hits), ("flash", engine.searches)] {
        let help = "Searches for tiny objects, by the tier that decided: RAM or flash";
        samples.counter("floe_tiny_searches", help, &[("tier", tier)], value);
    }
    for (purpose, value) in [
        ("objects", engine.pages_searched),
        ("index", engine.index_pages_searched),
        ("maintenance", engine.pages_maintained),
    ] {
        let help = "Pages of 4 KiB that the engine for tiny objects read, by purpose";
        samples.counter("floe_tiny_read_pages", help, &[("purpose", purpose)], value);
    }
    for (name, help, value) in [
        (
            "floe_tiny_index_searches",
            "Searches of flash that read index pages",
            engine.index_searches,
        ),
        (
            "floe_tiny_truncated_searches",
            "Searches of flash that found nothing in the newest candidates and left older ones unread",
            engine.searches_cut,
        ),
        (
            "floe_tiny_false_positive_pages",
            "Pages read because of a filter's false positive",
            engine.false_positives,
        ),
    ] {
        samples.counter(name, help, &[], value);
    }
}

fn memory(samples: &mut Samples, stats: &TinyStats) {
    let memory = &stats.memory;
    samples.gauge(
        "floe_tiny_live_objects",
        "Tiny objects that a get finds; an estimate within 10 % of the most at one time",
        &[],
        stats.live.objects as f64,
    );
    samples.gauge(
        "floe_tiny_live_bytes",
        "Bytes of keys and values of the tiny objects that a get finds; an estimate as of the objects",
        &[],
        stats.live.bytes as f64,
    );
    samples.gauge(
        "floe_tiny_copies_on_flash",
        "Copies of tiny objects on flash, replaced and deleted ones included",
        &[],
        memory.objects_on_flash as f64,
    );
    for (part, bytes) in [
        ("index", memory.index_bytes),
        ("hotness", memory.hotness_bytes),
        ("buffer", memory.buffer_bytes),
        ("payload", memory.payload_bytes),
        ("index_buffer", memory.index_buffer_bytes),
        ("other", memory.other_bytes),
        ("ram_tier", stats.ram_bytes),
        ("fences", stats.fences_bytes),
    ] {
        let help = "Memory that the engine for tiny objects holds, by part";
        samples.gauge(
            "floe_tiny_memory_bytes",
            help,
            &[("part", part)],
            bytes as f64,
        );
    }
}
