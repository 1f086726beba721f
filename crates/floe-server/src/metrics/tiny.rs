//! The numbers of the engine for tiny objects.

use floe::tiny::TinyStats;
use floe::{Cache, Tiny};
use floe_core::tiny::Cause;

use super::Samples;

/// Adds the samples of the engine for tiny objects of `cache`.
pub(crate) fn collect_tiny(samples: &mut Samples, cache: &Cache) {
    samples.gauge(
        "floe_tiny_unavailable",
        "1 where the engine for tiny objects is configured and could not be opened, else 0",
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
        "Which engine keeps tiny objects",
        &[("engine", tiny.engine().name())],
        1.0,
    );
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
    for (fate, value) in [
        ("accepted", engine.objects_in),
        ("deleted", engine.deletes_in),
        ("dropped_early", engine.dropped_early),
        ("evicted", engine.evicted),
        ("written_back", engine.written_back),
        ("admitted", stats.admission.admitted),
        ("not_admitted", stats.admission.rejected),
    ] {
        let help = "Tiny objects, by what became of them";
        samples.counter("floe_tiny_objects", help, &[("fate", fate)], value);
    }
    for (kind, value) in [
        ("written", stats.fences),
        ("spared", stats.fences_spared),
        ("delayed", stats.fences_delays),
        ("looked_up", stats.fences_lookups),
    ] {
        let help = "Overwrites and deletes of what is on flash: those that made a fence durable, those that an earlier one covers; delayed: waits of any write until fewer hold";
        samples.counter("floe_tiny_fences", help, &[("kind", kind)], value);
    }
}

fn searches(samples: &mut Samples, stats: &TinyStats) {
    let engine = &stats.engine;
    for (kind, value) in [
        ("ram_hit", stats.ram_hits),
        ("flash", engine.searches),
        ("index_read", engine.index_searches),
        ("cut", engine.searches_cut),
    ] {
        let help = "Searches for tiny objects, by where they went; cut: found nothing in the newest candidates, and left older ones unread";
        samples.counter("floe_tiny_searches", help, &[("kind", kind)], value);
    }
    for (of, value) in [
        ("objects", engine.pages_searched),
        ("index", engine.index_pages_searched),
        ("maintenance", engine.pages_maintained),
        ("in_vain", engine.false_positives),
    ] {
        let help = "Pages of 4 KiB that the engine for tiny objects read";
        samples.counter("floe_tiny_pages_read", help, &[("of", of)], value);
    }
}

fn memory(samples: &mut Samples, stats: &TinyStats) {
    let memory = &stats.memory;
    samples.gauge(
        "floe_tiny_live_objects",
        "Tiny objects that a get finds; an estimate within 10 % of the most that there were at once",
        &[],
        stats.living.objects as f64,
    );
    samples.gauge(
        "floe_tiny_live_bytes",
        "Bytes of keys and values of the tiny objects that a get finds, estimated as these are",
        &[],
        stats.living.bytes as f64,
    );
    samples.gauge(
        "floe_tiny_copies_on_flash",
        "Copies of tiny objects on flash, those included that were replaced or deleted",
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
        let help = "Memory that the engine for tiny objects holds, by what for";
        samples.gauge(
            "floe_tiny_memory_bytes",
            help,
            &[("part", part)],
            bytes as f64,
        );
    }
}
