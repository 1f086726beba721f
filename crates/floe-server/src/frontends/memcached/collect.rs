//! The metrics of the memcached frontend.

use super::MemcachedFrontend;
use super::latency::GET_RESULTS;
use crate::metrics::{Collect, Samples, collect_tiny};

impl Collect for MemcachedFrontend {
    /// Adds the samples of the frontend, and of the engine that keeps its tiny items.
    fn collect(&self, samples: &mut Samples) {
        self.keys(samples);
        self.commands(samples);
        self.connections(samples);
        collect_tiny(samples, self.items.cache());
    }
}

impl MemcachedFrontend {
    fn keys(&self, samples: &mut Samples) {
        let totals = self.totals();
        for (command, result, value) in [
            ("get", "hit_memory", totals.get_hits_memory),
            ("get", "hit_flash", totals.get_hits_flash),
            ("get", "miss", totals.get_misses),
            ("touch", "hit", totals.touch_hits),
            (
                "touch",
                "miss",
                totals.touches.saturating_sub(totals.touch_hits),
            ),
            ("delete", "hit", totals.delete_hits),
            ("delete", "miss", totals.delete_misses),
            ("incr", "hit", totals.incr_hits),
            ("incr", "miss", totals.incr_misses),
            ("decr", "hit", totals.decr_hits),
            ("decr", "miss", totals.decr_misses),
            ("cas", "hit", totals.cas_hits),
            ("cas", "miss", totals.cas_misses),
            ("cas", "mismatch", totals.cas_badval),
        ] {
            let labels = [("command", command), ("result", result)];
            let help = "Keys that commands of the memcached frontend named, by what was found";
            samples.counter("floe_memcached_keys", help, &labels, value);
        }
        for (result, name) in GET_RESULTS {
            samples.histogram(
                "floe_memcached_get_seconds",
                "Time from the arrival of a get until its answer is ready, by what was found",
                &[("result", name)],
                self.get_latency(result),
            );
        }
    }

    fn commands(&self, samples: &mut Samples) {
        let totals = self.totals();
        for (command, value) in [
            ("store", totals.sets),
            ("meta", totals.metas),
            ("flush_all", totals.flushes),
            ("auth", totals.auths),
        ] {
            let help = "Commands of the memcached frontend that name no key to find";
            samples.counter(
                "floe_memcached_commands",
                help,
                &[("command", command)],
                value,
            );
        }
        for (reason, value) in [
            ("too_large", totals.too_large),
            ("no_memory", totals.no_memory),
            ("device", totals.failures),
            ("auth", totals.auth_errors),
        ] {
            let help = "Requests of the memcached frontend that were refused";
            samples.counter("floe_memcached_refused", help, &[("reason", reason)], value);
        }
    }

    fn connections(&self, samples: &mut Samples) {
        let totals = self.totals();
        for (event, value) in [
            ("opened", totals.opened),
            ("closed", totals.closed),
            ("rejected", totals.rejected),
            ("idle", totals.idle_kicks),
            ("stalled", totals.stalled),
            ("slow", totals.slow),
            ("evicted", totals.evicted),
            ("cut_off", totals.cut_off),
            ("broken", totals.broken),
            ("accept_error", totals.accept_errors),
        ] {
            let help = "What happened to connections of the memcached frontend";
            samples.counter(
                "floe_memcached_connections",
                help,
                &[("event", event)],
                value,
            );
        }
        for (direction, value) in [
            ("read", totals.read_bytes),
            ("written", totals.written_bytes),
        ] {
            let help = "Bytes over connections of the memcached frontend";
            samples.counter(
                "floe_memcached_bytes",
                help,
                &[("direction", direction)],
                value,
            );
        }
        samples.counter(
            "floe_memcached_memory_waits",
            "Times that a request waited for memory of the memcached frontend",
            &[],
            self.memory.waits(),
        );
        samples.gauge(
            "floe_memcached_memory_bytes",
            "Memory of values on their way in or out of the memcached frontend",
            &[],
            self.memory.used_bytes() as f64,
        );
        samples.gauge(
            "floe_memcached_connections_open",
            "Connections of the memcached frontend that are open",
            &[],
            f64::from(self.open_connections()),
        );
    }
}
