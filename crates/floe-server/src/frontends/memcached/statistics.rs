//! `stats` and its sections, under memcached's names where Floe has the same statistic.

use std::fmt::Display;

use bytes::BufMut;
use floe::Tiny;

use super::counters::Totals;
use super::execute::Context;
use super::output::Output;
use super::words as say;
use crate::net::BACKLOG;

impl Context {
    /// Responds to `stats` with these arguments.
    pub(super) fn stats(&self, words: &[&[u8]], output: &mut Output) {
        let mut stats = Stats(output);
        match words {
            [] => self.general(&mut stats),
            [b"reset", ..] => {
                *self.frontend.reset.lock() = self.frontend.totals();
                self.frontend.prefixes.forget();
                return output.line(say::RESET);
            }
            [b"settings", ..] => self.settings(&mut stats),
            [b"items", ..] => self.items_by_class(&mut stats),
            [b"slabs", ..] => self.slabs(&mut stats),
            [b"sizes", ..] => stats.put("sizes_status", "disabled"),
            [b"conns", ..] => self.connections(&mut stats),
            [b"detail", switch @ (b"on" | b"off"), ..] => {
                self.frontend.prefixes.turn(*switch == b"on");
                return output.line(say::OK);
            }
            [b"detail", b"dump", ..] => self.prefixes(output),
            [b"detail", ..] => return output.line(say::DETAIL_USAGE),
            [b"cachedump", ..] => return output.line(say::NO_CACHEDUMP),
            [_, ..] => return output.line(say::ERROR),
        }
        output.line("END");
    }

    fn counted(&self) -> Totals {
        self.frontend.totals().since(&self.frontend.reset.lock())
    }

    fn general(&self, stats: &mut Stats<'_>) {
        let frontend = &self.frontend;
        let totals = frontend.totals();
        let counted = self.counted();
        let now = self.now_unix_s();
        let held = self.held();
        let engine = self.items().cache().store().stats().engine;
        stats.put("pid", std::process::id());
        stats.put("uptime", now.saturating_sub(frontend.started_unix_s));
        stats.put("time", now);
        stats.put("version", say::VERSION.trim_start_matches("VERSION "));
        stats.put("pointer_size", usize::BITS);
        let (user, system) = processor_time();
        stats.put("rusage_user", user);
        stats.put("rusage_system", system);
        stats.put("max_connections", frontend.config().max_connections);
        stats.put("curr_connections", frontend.open_connections());
        stats.put("total_connections", totals.opened);
        stats.put("rejected_connections", counted.rejected);
        stats.put("cmd_get", counted.gets);
        stats.put("cmd_set", counted.sets);
        stats.put("cmd_flush", counted.flushes);
        stats.put("cmd_touch", counted.touches);
        stats.put("cmd_meta", counted.metas);
        let hits = counted.get_hits_memory + counted.get_hits_flash;
        stats.put("get_hits", hits);
        stats.put("get_misses", counted.get_misses);
        // memcached's name for reads from flash.
        stats.put("get_extstore", counted.get_hits_flash);
        stats.put("get_expired", held.expired);
        // A flush takes effect at once: no get finds a flushed item.
        stats.put("get_flushed", 0);
        stats.put("delete_misses", counted.delete_misses);
        stats.put("delete_hits", counted.delete_hits);
        stats.put("incr_misses", counted.incr_misses);
        stats.put("incr_hits", counted.incr_hits);
        stats.put("decr_misses", counted.decr_misses);
        stats.put("decr_hits", counted.decr_hits);
        stats.put("cas_misses", counted.cas_misses);
        stats.put("cas_hits", counted.cas_hits);
        stats.put("cas_badval", counted.cas_badval);
        stats.put("touch_hits", counted.touch_hits);
        stats.put("touch_misses", counted.touches - counted.touch_hits);
        stats.put("store_too_large", counted.too_large);
        stats.put("store_no_memory", counted.no_memory);
        stats.put("auth_cmds", counted.auths);
        stats.put("auth_errors", counted.auth_errors);
        stats.put("idle_kicks", counted.idle_kicks);
        stats.put("bytes_read", counted.read_bytes);
        stats.put("bytes_written", counted.written_bytes);
        stats.put("limit_maxbytes", self.capacity_bytes());
        stats.put(
            "accepting_conns",
            u8::from(!frontend.draining.is_cancelled()),
        );
        // Excess connections are rejected without disabling the listener.
        stats.put("listen_disabled_num", 0);
        stats.put("time_in_listen_disabled_us", 0);
        stats.put("threads", frontend.threads.len());
        // No number of requests makes a connection yield.
        stats.put("conn_yields", 0);
        stats.put("hash_bytes", held.index_bytes);
        // A failed allocation ends the process.
        stats.put("malloc_fails", 0);
        stats.put("bytes", held.bytes);
        stats.put("curr_items", held.items);
        stats.put("total_items", counted.sets);
        stats.put("curr_items_ram", engine.ram_values);
        stats.put("bytes_ram", held.ram_bytes);
        stats.put("evictions", held.evictions);
        // No item reuses the memory of an expired one.
        stats.put("reclaimed", 0);
        stats.put("device_failures", counted.failures);
    }

    /// The capacity for values: the flash.
    fn capacity_bytes(&self) -> u64 {
        let cache = self.items().cache();
        let tiny = cache.tiny().map(Tiny::device);
        std::iter::once(cache.store().device())
            .chain(tiny)
            .map(|device| device.geometry().total_capacity())
            .sum()
    }

    /// The content of both engines.
    fn held(&self) -> Held {
        let cache = self.items().cache();
        let engine = cache.store().stats().engine;
        let zones = cache.store().zone_stats();
        let mut held = Held {
            items: engine.live_records + engine.pending_records,
            bytes: zones.iter().map(|zone| zone.live_bytes).sum(),
            ram_bytes: engine.ram_bytes,
            index_bytes: engine.index_bytes,
            evictions: engine.counts.records_evicted,
            expired: engine.counts.expired_lookups,
        };
        if let Some(tiny) = cache.tiny().map(Tiny::stats) {
            let (engine, memory) = (tiny.engine, tiny.memory);
            held.items += tiny.live.objects;
            held.expired += tiny.expired;
            held.bytes += tiny.live.bytes;
            held.ram_bytes += tiny.ram_bytes + memory.buffer_bytes + memory.payload_bytes;
            held.index_bytes += memory.index_bytes + memory.index_buffer_bytes;
            held.index_bytes += memory.hotness_bytes + memory.other_bytes;
            held.evictions += engine.evicted + engine.dropped_early;
        }
        held
    }

    fn settings(&self, stats: &mut Stats<'_>) {
        let config = self.frontend.config();
        stats.put("maxbytes", self.capacity_bytes());
        stats.put("maxconns", config.max_connections);
        stats.put("tcpport", config.listen.map_or(0, |address| address.port()));
        stats.put("udpport", 0);
        match config.listen {
            Some(address) => stats.put("inter", address.ip()),
            None => stats.put("inter", "NULL"),
        }
        stats.put("verbosity", 0);
        // A flush begins a new era, so there is no oldest time.
        stats.put("oldest", 0);
        stats.put("evictions", "on");
        match config.path.as_os_str().is_empty() {
            true => stats.put("domain_socket", "NULL"),
            false => stats.put("domain_socket", config.path.display()),
        }
        stats.put("shutdown_command", "no");
        stats.put("num_threads", self.frontend.threads.len());
        stats.put("num_threads_per_udp", 0);
        stats.put("stat_key_prefix", ":");
        let yes_or_no = |yes| if yes { "yes" } else { "no" };
        stats.put("detail_enabled", yes_or_no(self.frontend.prefixes.is_on()));
        stats.put("cas_enabled", "yes");
        stats.put("binding_protocol", "ascii");
        stats.put("auth_enabled_sasl", "no");
        stats.put(
            "auth_enabled_ascii",
            yes_or_no(self.frontend.users.is_some()),
        );
        stats.put("item_size_max", config.max_item_size.bytes());
        stats.put("maxconns_fast", "yes");
        for absent in ["slab_reassign", "lru_crawler", "lru_maintainer_thread"] {
            stats.put(absent, "no");
        }
        for absent in ["lru_segmented", "temp_lru", "inline_ascii_response"] {
            stats.put(absent, "no");
        }
        stats.put("slab_automove", 0);
        stats.put("hash_algorithm", "xxh3");
        stats.put("tcp_backlog", BACKLOG);
        stats.put("flush_enabled", yes_or_no(config.flush_all));
        stats.put("dump_enabled", "no");
        stats.put("idle_timeout", config.idle_timeout_seconds);
        stats.put("ssl_enabled", yes_or_no(self.frontend.tls.is_some()));
        stats.put("track_sizes", "no");
    }

    /// Items have no size classes here: all are in one.
    fn items_by_class(&self, stats: &mut Stats<'_>) {
        let held = self.held();
        stats.put("items:1:number", held.items);
        stats.put("items:1:mem_requested", held.ram_bytes);
        stats.put("items:1:evicted", held.evictions);
    }

    fn slabs(&self, stats: &mut Stats<'_>) {
        let held = self.held();
        stats.put("1:used_chunks", held.items);
        stats.put("1:mem_requested", held.ram_bytes);
        stats.put("1:get_hits", self.counted().get_hits_memory);
        stats.put("1:cmd_set", self.counted().sets);
        stats.put("active_slabs", 1);
        stats.put("total_malloced", held.ram_bytes + held.index_bytes);
    }

    /// Each socket and each connection.
    fn connections(&self, stats: &mut Stats<'_>) {
        for (id, name, value) in self.frontend.listed.lines(self.now_unix_s()) {
            stats.put(&format!("{id}:{name}"), value);
        }
    }

    /// Writes the counts by prefix.
    fn prefixes(&self, output: &mut Output) {
        for (prefix, counts) in self.frontend.prefixes.all() {
            let text = output.text();
            text.put_slice(b"PREFIX ");
            text.put_slice(&prefix);
            output.line(&format!(
                " get {} hit {} set {} del {}",
                counts.gets, counts.hits, counts.sets, counts.deletes
            ));
        }
    }
}

/// The content of the engines together.
struct Held {
    items: u64,
    bytes: u64,
    ram_bytes: u64,
    index_bytes: u64,
    evictions: u64,
    /// Lookups that found an expired item.
    expired: u64,
}

struct Stats<'a>(&'a mut Output);

impl Stats<'_> {
    fn put(&mut self, name: &str, value: impl Display) {
        self.0.line(&format!("STAT {name} {value}"));
    }
}

/// Seconds that the process has run in user mode and in the kernel.
fn processor_time() -> (String, String) {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is the name, in parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some((user, system))
    };
    let rate = rustix::param::clock_ticks_per_second().max(1);
    let seconds = |ticks: u64| {
        let micros = ticks % rate * 1_000_000 / rate;
        format!("{}.{micros:06}", ticks / rate)
    };
    let (user, system) = ticks().unwrap_or_default();
    (seconds(user), seconds(system))
}
