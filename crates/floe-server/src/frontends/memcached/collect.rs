//! The metrics of the memcached frontend.

use super::frontend::MemcachedFrontend;
use super::latency::GET_RESULTS;
use crate::frontend::Frontend;
use crate::metrics::{Collect, ConnectionCounts, Samples, collect_tiny};

impl Collect for MemcachedFrontend {
    /// Adds the samples of the frontend and of the tiny engine.
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
            let help = "Keys in commands of the memcached frontend, by result";
            samples.counter("floe_memcached_keys", help, &labels, value);
        }
        for (result, name) in GET_RESULTS {
            samples.histogram(
                "floe_memcached_get_duration_seconds",
                "Time from the arrival of a get until its response is ready, by result",
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
            let help = "Commands of the memcached frontend that look up no key";
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
            let help = "Requests that the memcached frontend could not carry out";
            samples.counter("floe_memcached_errors", help, &[("reason", reason)], value);
        }
    }

    fn connections(&self, samples: &mut Samples) {
        let totals = self.totals();
        ConnectionCounts {
            opened: totals.opened,
            open: u64::from(self.open_connections()),
            rejected: totals.rejected,
            accept_errors: totals.accept_errors,
            failed: &[
                ("aborted", totals.cut_off),
                ("broken", totals.broken),
                ("idle", totals.idle_kicks),
                ("memory", totals.evicted),
                ("slow", totals.slow),
                ("stalled", totals.stalled),
            ],
            ..ConnectionCounts::default()
        }
        .collect(samples, Self::NAME);
        for (name, help, value) in [
            (
                "floe_memcached_received_bytes",
                "Bytes received over connections of the memcached frontend",
                totals.read_bytes,
            ),
            (
                "floe_memcached_sent_bytes",
                "Bytes sent over connections of the memcached frontend",
                totals.written_bytes,
            ),
            (
                "floe_memcached_memory_waits",
                "Times that a request waited for memory of the memcached frontend",
                self.memory.waits(),
            ),
        ] {
            samples.counter(name, help, &[], value);
        }
        samples.gauge(
            "floe_memcached_memory_bytes",
            "Memory held by values that the memcached frontend receives or sends",
            &[],
            self.memory.used_bytes() as f64,
        );
    }
}
