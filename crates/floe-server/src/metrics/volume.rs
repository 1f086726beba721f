//! Metrics of the cache of volumes.

use floe::volume::{VolumeCache, VolumeCacheStats};

use super::Samples;

/// Adds the samples of the cache of volumes.
pub(crate) fn collect_volumes(samples: &mut Samples, cache: &VolumeCache) {
    let stats = cache.stats();
    requests(samples, &stats);
    traffic(samples, &stats);
    blocks(samples, &stats);
    let flag = |is: bool| f64::from(u8::from(is));
    for volume in cache.volumes() {
        let status = volume.status();
        samples.gauge(
            "floe_volume_poisoned",
            "1 if the volume refuses writes because acknowledged data could not be kept, else 0",
            &[("volume", &status.name)],
            flag(status.poisoned.is_some()),
        );
        samples.gauge(
            "floe_volume_cache_lost",
            "1 if the volume goes on without the cache device, which has failed, else 0",
            &[("volume", &status.name)],
            flag(status.cache_lost.is_some()),
        );
        samples.gauge(
            "floe_volume_taken_away",
            "1 if this machine has lost its lock of the backing device, so that every request fails, else 0",
            &[("volume", &status.name)],
            flag(status.is_taken_away),
        );
        samples.gauge(
            "floe_volume_info",
            "Mode of each volume",
            &[("volume", &status.name), ("mode", status.mode.name())],
            1.0,
        );
    }
}

fn requests(samples: &mut Samples, stats: &VolumeCacheStats) {
    let counts = &stats.counts;
    for (operation, accesses) in [("read", counts.reads), ("write", counts.writes)] {
        for (result, requests, bytes) in [
            ("hit", accesses.hits, accesses.hit_bytes),
            (
                "miss",
                accesses.requests - accesses.hits,
                accesses.bytes - accesses.hit_bytes,
            ),
        ] {
            let labels = [("operation", operation), ("result", result)];
            let help =
                "Parts of requests within one region of a volume; hit: every byte had a block";
            samples.counter("floe_volume_requests", help, &labels, requests);
            let help = "Bytes of requests, by whether they had a block";
            samples.counter("floe_volume_request_bytes", help, &labels, bytes);
        }
    }
}

fn traffic(samples: &mut Samples, stats: &VolumeCacheStats) {
    let traffic = &stats.counts.traffic;
    for (flow, io) in [
        ("cache_read", traffic.cache_hits),
        ("cache_write", traffic.cache_writes),
        ("fill", traffic.fills),
        ("write_back", traffic.write_backs),
        ("backing_read", traffic.backing_reads),
        ("backing_write", traffic.backing_writes),
    ] {
        let help = "Bytes between requests, the cache device and the backing devices; fill: backing to cache, write_back: cache to backing";
        samples.counter("floe_volume_moved_bytes", help, &[("flow", flow)], io.bytes);
    }
}

fn blocks(samples: &mut Samples, stats: &VolumeCacheStats) {
    let turnover = &stats.counts.turnover;
    for (event, value) in [
        ("promoted", turnover.promotions()),
        ("evicted", turnover.replaced + turnover.evicted),
        ("invalidated", turnover.invalidated),
        ("cleaned", turnover.cleaned),
    ] {
        let help = "Blocks that entered the cache of volumes, left it, or were cleaned by the cleaning policy";
        samples.counter("floe_volume_blocks", help, &[("event", event)], value);
    }
    samples.counter(
        "floe_volume_bypassed_bytes",
        "Missing bytes that policies, or a lack of room, kept from entering the cache of volumes",
        &[],
        turnover.bypassed_bytes,
    );
    samples.counter(
        "floe_volume_checksum_errors",
        "Reads of the cache device of volumes that found other data than was written",
        &[],
        stats.checksum_errors,
    );
    let occupancy = &stats.occupancy;
    for (name, help, value) in [
        (
            "floe_volume_capacity_bytes",
            "Bytes of blocks that fit into the cache of volumes",
            occupancy.capacity_bytes,
        ),
        (
            "floe_volume_used_bytes",
            "Bytes of the blocks in the cache of volumes",
            occupancy.bytes,
        ),
        (
            "floe_volume_unread_bytes",
            "Bytes of the cache of volumes whose blocks of an earlier run are not read yet: requests of these wait",
            stats.unread_bytes,
        ),
        (
            "floe_volume_dirty_bytes",
            "Bytes that only the cache of volumes has",
            occupancy.dirty_bytes,
        ),
        (
            "floe_volume_index_bytes",
            "Memory of the index and the states of the cache of volumes",
            stats.memory.metadata(),
        ),
        (
            "floe_volume_history_bytes",
            "Memory of the history of promotion, cleaning and sequential streams",
            stats.memory.history,
        ),
        (
            "floe_volume_checksum_bytes",
            "Memory of the checksums of cached data",
            stats.checksum_bytes,
        ),
    ] {
        samples.gauge(name, help, &[], value as f64);
    }
}
