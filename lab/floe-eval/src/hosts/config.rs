//! The behaviour of a host, setting by setting, and the two papers' hosts.

use std::path::PathBuf;
use std::time::Duration;

use floe_core::ByteSize;
use floe_core::ssd::{Interface, SsdConfig};
use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::workload::Distribution;

/// A run of a host on a simulated device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostConfig {
    /// The name of the run in results.
    pub name: String,
    /// How the host works.
    pub host: HostBehaviour,
    /// The device.
    pub device: DeviceChoice,
    /// How the device is when the run begins.
    #[serde(default)]
    pub start: StartState,
    /// A file that keeps this state, for other runs on the same device: read if
    /// it is there, otherwise written.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// The unit of caching.
    pub chunk: ByteSize,
    /// How many zones the cache has; their capacity is that of the device's
    /// superblocks, on a conventional device too.
    pub zones: u32,
    /// Keys per chunk of the cache.
    pub ratio: f64,
    /// The size that a zone counts as when there are `ratio` keys per chunk: 1 GiB
    /// in the papers' generator.
    #[serde(default = "default_zone_unit")]
    pub zone_unit: ByteSize,
    /// The distribution of keys.
    pub distribution: Distribution,
    /// The latency of a fetch from the remote store.
    pub remote: Remote,
    /// Bytes asked for in all; a run of as many whole chunks.
    pub io: ByteSize,
    /// Length of a bin of the time plots, in seconds.
    #[serde(default = "default_bin_s")]
    pub bin_s: f64,
}

/// A device by its preset, and how it differs from that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceChoice {
    /// One of [`SsdConfig::PRESETS`] that has superblocks.
    pub preset: String,
    /// Another number of dies with the same bandwidth; it must divide the
    /// preset's.
    #[serde(default)]
    pub dies: Option<u32>,
    /// Another number of superblocks: another capacity.
    #[serde(default)]
    pub superblocks: Option<u32>,
    /// Superblocks, and with them zones and capacity, so many times smaller.
    #[serde(default)]
    pub shrunk: Option<u32>,
    /// Another mapping unit of a conventional device.
    #[serde(default)]
    pub mapping_unit: Option<ByteSize>,
    /// Keys of [`FlashConfig`](floe_core::ssd::FlashConfig) that replace the
    /// preset's, tables within tables included. `superblocks` given here
    /// changes the over-provisioning, since the capacity that the device shows
    /// stays.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub flash: toml::Table,
}

/// How the device is when a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartState {
    /// Filled once, in random order. Zoned devices are empty.
    #[default]
    Preconditioned,
    /// All trimmed.
    Trimmed,
}

/// A remote store that takes the same time for every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Remote {
    /// The mean, in microseconds.
    pub latency_us: u64,
    /// How far from it a fetch may be, as a share: uniform. With none at all
    /// threads march in step, which no real host's do.
    #[serde(default = "default_jitter")]
    pub jitter: f64,
}

/// How a host works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostBehaviour {
    /// Clients, each with one request at a time.
    pub threads: u32,
    /// How a miss gets its place, and for how long it has it.
    pub placement: Placement,
    /// The order in which threads that wait for a zone get it.
    pub waiters: Waiters,
    /// Most zones that are written at once on a zoned device.
    pub active_zones_zoned: u32,
    /// The same on a conventional device; unlimited if absent.
    #[serde(default)]
    pub active_zones_conventional: Option<u32>,
    /// Threads that write, beside the clients; none if the clients write.
    #[serde(default)]
    pub writers: Option<u32>,
    /// Threads that read, likewise.
    #[serde(default)]
    pub readers: Option<u32>,
    /// Bytes of a call of reading or writing on a zoned device; the whole
    /// chunk if absent. Calls of a chunk follow each other.
    #[serde(default)]
    pub io_zoned: Option<ByteSize>,
    /// The same on a conventional device.
    #[serde(default)]
    pub io_conventional: Option<ByteSize>,
    /// Bytes per second at which a client copies a fetched chunk before it is
    /// written; it does not if absent.
    #[serde(default)]
    pub copy_bytes_per_s: Option<u64>,
    /// Bytes per second at which all clients together copy what they are
    /// given; no limit if absent.
    #[serde(default)]
    pub copies_bytes_per_s: Option<u64>,
    /// Further time of a miss, in microseconds.
    pub miss_overhead_us: u64,
    /// Further time of a hit, in microseconds.
    pub hit_overhead_us: u64,
    /// How long a request holds the host's one lock, in nanoseconds, for every
    /// client that is not waiting for the remote store: those that wait for the
    /// lock slow its holder down, as spinning and bouncing cache lines do. The
    /// papers suspect contention and measure none: 0 in both hosts.
    #[serde(default)]
    pub contention_ns: u64,
    /// The eviction policy.
    #[serde(default)]
    pub policy: EvictionPolicy,
    /// With so few zones left, zones are evicted; with CLRU on a zoned device,
    /// garbage is collected.
    pub evict_at: u32,
    /// Until so many are left.
    pub evict_to: u32,
    /// With room for so few chunks left, CLRU evicts chunks.
    #[serde(default = "default_evict_chunks_at")]
    pub evict_chunks_at: u32,
    /// Until there is room for so many.
    #[serde(default = "default_evict_chunks_to")]
    pub evict_chunks_to: u32,
    /// How often it is looked whether to evict, in milliseconds; beside that
    /// only when there is no place left. Absent: at every change.
    #[serde(default)]
    pub evict_interval_ms: Option<u64>,
    /// The zones that are left.
    pub left: Left,
    /// Whether a conventional device is told that an evicted zone is unused.
    #[serde(default)]
    pub trims: bool,
    /// Whether each open zone has a reclaim-unit handle of its own, on a
    /// device that has handles.
    #[serde(default = "default_true")]
    pub handle_per_zone: bool,
}

/// How a miss gets its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// A zone is taken before the fetch and held, by this miss alone, until
    /// the chunk is written. Another zone is opened when all are held.
    HeldDuringFetch,
    /// The next chunk of a zone is taken when the chunk is about to be
    /// written; several may be written in a zone at once. Zones are opened as
    /// long as more are allowed, then they take turns.
    TakenForWrite,
}

/// The order in which waiting threads get a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiters {
    /// Anyone: they spin.
    Random,
    /// The thread that has waited longest.
    Fifo,
}

/// A host's eviction policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// Whole zones: the one of which no chunk was read for longest.
    #[default]
    Zplru,
    /// Chunks: the least recently used. On a zoned device the host moves what
    /// is left of the zones with most garbage, and resets them.
    Clru,
}

/// Zones that count as left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Empty ones.
    Empty,
    /// Empty ones and those with room.
    WithRoom,
}

fn default_bin_s() -> f64 {
    60.0
}

fn default_zone_unit() -> ByteSize {
    ByteSize::gib(1)
}

fn default_jitter() -> f64 {
    0.02
}

/// ZNCache's `EVICT_HIGH_THRESH_CHUNKS`.
fn default_evict_chunks_at() -> u32 {
    6
}

/// ZNCache's `EVICT_LOW_THRESH_CHUNKS`.
fn default_evict_chunks_to() -> u32 {
    12
}

fn default_true() -> bool {
    true
}

impl HostBehaviour {
    /// ZNCache's: 64 threads over at most 14 zones. A miss holds a zone while
    /// it fetches, others spin. Calls of 1.25 MiB on a conventional device
    /// (what the kernel's default makes of larger ones), of whole chunks on a
    /// zoned one.
    pub fn zncache() -> Self {
        HostBehaviour {
            threads: 64,
            placement: Placement::HeldDuringFetch,
            waiters: Waiters::Random,
            active_zones_zoned: 14,
            active_zones_conventional: Some(14),
            writers: None,
            readers: None,
            io_zoned: None,
            io_conventional: Some(ByteSize::kib(1280)),
            copy_bytes_per_s: Some(1_000_000_000),
            copies_bytes_per_s: None,
            miss_overhead_us: 0,
            hit_overhead_us: 0,
            contention_ns: 0,
            policy: EvictionPolicy::Zplru,
            evict_at: 8,
            evict_to: 16,
            evict_chunks_at: default_evict_chunks_at(),
            evict_chunks_to: default_evict_chunks_to(),
            evict_interval_ms: None,
            left: Left::Empty,
            trims: false,
            handle_per_zone: true,
        }
    }

    /// OxCache's: 64 connections, 14 writers and 14 readers, calls of 256 KiB,
    /// a connection's next request when its last is written. 13 zones at once
    /// on a zoned device, any number on a conventional one.
    pub fn oxcache() -> Self {
        HostBehaviour {
            threads: 64,
            placement: Placement::TakenForWrite,
            waiters: Waiters::Fifo,
            active_zones_zoned: 13,
            active_zones_conventional: None,
            writers: Some(14),
            readers: Some(14),
            io_zoned: Some(ByteSize::kib(256)),
            io_conventional: Some(ByteSize::kib(256)),
            copy_bytes_per_s: None,
            copies_bytes_per_s: Some(2_400_000_000),
            miss_overhead_us: 1_500,
            hit_overhead_us: 100,
            contention_ns: 0,
            policy: EvictionPolicy::Zplru,
            evict_at: 1,
            evict_to: 3,
            evict_chunks_at: default_evict_chunks_at(),
            evict_chunks_to: default_evict_chunks_to(),
            evict_interval_ms: None,
            left: Left::WithRoom,
            trims: false,
            handle_per_zone: true,
        }
    }
}

impl DeviceChoice {
    /// A preset as it is.
    pub fn preset(name: impl Into<String>) -> Self {
        DeviceChoice {
            preset: name.into(),
            dies: None,
            superblocks: None,
            shrunk: None,
            mapping_unit: None,
            flash: toml::Table::new(),
        }
    }

    /// The device.
    ///
    /// # Errors
    /// When there is no such preset, or the changes make no device.
    pub fn config(&self) -> Result<SsdConfig, EvalError> {
        let fail = |reason: String| EvalError::Option {
            option: "device",
            reason,
        };
        let mut config = SsdConfig::preset(&self.preset).ok_or_else(|| {
            fail(format!(
                "there is no preset `{}`; there are {}",
                self.preset,
                SsdConfig::PRESETS.join(", ")
            ))
        })?;
        if let Some(flash) = config.flash_mut() {
            *flash = overlaid(flash, &self.flash).map_err(|error| fail(error.to_string()))?;
            if let Some(dies) = self.dies {
                if dies == 0 || !flash.nand.dies.is_multiple_of(dies) {
                    return Err(fail(format!(
                        "{dies} dies do not divide the preset's {}",
                        flash.nand.dies
                    )));
                }
                flash.nand = flash.nand.clone().on_dies(dies);
            }
            if let (Some(unit), Interface::Conventional(ftl)) =
                (self.mapping_unit, &mut flash.interface)
            {
                let capacity = ftl.capacity.bytes();
                ftl.mapping_unit = unit;
                ftl.capacity = ByteSize(capacity - capacity % unit.bytes().max(1));
            }
        }
        let scaled = match self.superblocks {
            Some(superblocks) => config.scaled(superblocks),
            None => Ok(config),
        };
        scaled
            .and_then(|config| config.shrunk(self.shrunk.unwrap_or(1)))
            .map_err(|fault| fail(fault.to_string()))
    }
}

impl HostConfig {
    /// The zones of the papers' caches: 200 for chunks of 512 MiB, 40 for
    /// those of 64 KiB.
    pub const ZONES_512M: u32 = 200;
    /// See [`HostConfig::ZONES_512M`].
    pub const ZONES_64K: u32 = 40;

    /// ZNCache on a device of this preset, with chunks of 64 KiB or of 256 MiB
    /// and more, as in its parameter evaluation: 3 TiB of I/O over 200 zones
    /// with large chunks, 600 GiB over 40 zones with small ones, the remote
    /// latency of the chunk size, a preconditioned device.
    pub fn zncache(preset: &str, chunk: ByteSize, distribution: Distribution, ratio: f64) -> Self {
        let mut config =
            HostConfig::paper(HostBehaviour::zncache(), preset, chunk, distribution, ratio);
        if !is_large(chunk) {
            config.host.evict_at = 1;
            config.host.evict_to = 2;
        }
        config
    }

    /// OxCache, likewise.
    pub fn oxcache(preset: &str, chunk: ByteSize, distribution: Distribution, ratio: f64) -> Self {
        HostConfig::paper(HostBehaviour::oxcache(), preset, chunk, distribution, ratio)
    }

    fn paper(
        host: HostBehaviour,
        preset: &str,
        chunk: ByteSize,
        distribution: Distribution,
        ratio: f64,
    ) -> Self {
        let large = is_large(chunk);
        let mut device = DeviceChoice::preset(preset);
        if !large {
            device.mapping_unit = Some(ByteSize::kib(64));
        }
        HostConfig {
            name: format!("{preset}-{chunk}-{ratio}"),
            host,
            device,
            start: StartState::Preconditioned,
            state: None,
            chunk,
            zones: if large {
                HostConfig::ZONES_512M
            } else {
                HostConfig::ZONES_64K
            },
            ratio,
            zone_unit: default_zone_unit(),
            distribution,
            remote: Remote {
                latency_us: paper_latency_us(chunk),
                jitter: default_jitter(),
            },
            io: if large {
                ByteSize::gib(3 << 10)
            } else {
                ByteSize::gib(600)
            },
            bin_s: default_bin_s(),
        }
    }

    /// The papers' evaluation of garbage collection: 6 TiB over the whole,
    /// trimmed device, uniform, ratio 10.
    pub fn on_trimmed_device(mut self, zones: u32) -> Self {
        self.start = StartState::Trimmed;
        self.zones = zones;
        self.io = ByteSize::gib(6 << 10);
        self
    }

    /// The same experiment in small: zones, chunks, remote latency, I/O and
    /// time bins are a `part`-th of what they were, so that a run takes a
    /// `part`-th of the time, in reality too. Numbers of zones and of chunks
    /// in them stay, and so does what garbage collection does.
    ///
    /// # Errors
    /// When the preset is unknown or so small a part makes no device.
    pub fn scaled_down(mut self, part: u32) -> Result<Self, EvalError> {
        let part = part.max(1);
        self.device.shrunk = Some(self.device.shrunk.unwrap_or(1).saturating_mul(part));
        let shrink = |size: ByteSize| ByteSize(size.bytes() / u64::from(part));
        let block = self.device.config()?.block.bytes();
        let chunk = shrink(self.chunk).bytes();
        self.zone_unit = shrink(self.zone_unit);
        self.chunk = ByteSize((chunk - chunk % block).max(block));
        self.io = shrink(self.io);
        self.remote.latency_us /= u64::from(part);
        self.bin_s /= f64::from(part);
        Ok(self)
    }

    /// Checks what does not depend on the device's shape.
    pub(super) fn check_behaviour(&self, active_max: Option<u32>) -> Result<(), EvalError> {
        let fail = |option, reason: &str| {
            Err(EvalError::Option {
                option,
                reason: reason.to_owned(),
            })
        };
        let host = &self.host;
        if !(1..=65_536).contains(&host.threads) {
            return fail("threads", "there must be between 1 and 65536");
        }
        if host.writers == Some(0) || host.readers == Some(0) {
            return fail("writers", "with no writers or readers nothing moves");
        }
        if host.active_zones_zoned == 0 || host.active_zones_conventional == Some(0) {
            return fail("active_zones", "at least one zone must be written");
        }
        if active_max.is_some_and(|limit| host.active_zones_zoned > limit) {
            return fail(
                "active_zones_zoned",
                "more zones than the device allows active",
            );
        }
        if host.evict_to <= host.evict_at || host.evict_at >= self.zones {
            return fail(
                "evict_to",
                "must be above evict_at, and that below the number of zones",
            );
        }
        if host.copy_bytes_per_s == Some(0) || host.copies_bytes_per_s == Some(0) {
            return fail("copy_bytes_per_s", "must be above 0");
        }
        if !(0.0..=1.0).contains(&self.remote.jitter) || self.remote.latency_us > 1 << 32 {
            return fail(
                "remote",
                "the jitter must lie between 0 and 1, the latency below an hour",
            );
        }
        if !(self.ratio > 0.0 && self.ratio.is_finite()) {
            return fail("ratio", "must be above 0");
        }
        Ok(())
    }

    /// Length of a bin.
    pub fn bin(&self) -> Duration {
        Duration::from_secs_f64(self.bin_s.clamp(1e-3, 1e6))
    }

    /// How many requests the run makes.
    pub fn requests(&self) -> u64 {
        self.io.bytes() / self.chunk.bytes().max(1)
    }

    /// How many keys there are.
    pub fn keys(&self) -> u64 {
        let per_zone = self.zone_unit.bytes() / self.chunk.bytes().max(1);
        let chunks = per_zone.max(1) * u64::from(self.zones);
        (self.ratio * chunks as f64).floor() as u64
    }
}

/// `settings` with the keys of `changes` in the place of its own.
pub(crate) fn overlaid<T: Serialize + serde::de::DeserializeOwned>(
    settings: &T,
    changes: &toml::Table,
) -> Result<T, toml::de::Error> {
    fn overlay(table: &mut toml::Table, changes: &toml::Table) {
        for (key, value) in changes {
            match (table.get_mut(key), value) {
                (Some(toml::Value::Table(own)), toml::Value::Table(value)) => overlay(own, value),
                _ => drop(table.insert(key.clone(), value.clone())),
            }
        }
    }
    let mut table = toml::Table::try_from(settings).map_err(serde::de::Error::custom)?;
    overlay(&mut table, changes);
    table.try_into()
}

/// Above this, a chunk is one of the papers' large ones.
fn is_large(chunk: ByteSize) -> bool {
    chunk.bytes() >= 16 << 20
}

/// The papers' measurements of S3 (their appendix A), interpolated between.
fn paper_latency_us(chunk: ByteSize) -> u64 {
    const MEASURED: [(u64, u64); 4] = [
        (64 << 10, 40_632),
        (256 << 20, 3_209_583),
        (512 << 20, 5_413_781),
        (1 << 30, 11_524_248),
    ];
    let bytes = chunk.bytes();
    let above = MEASURED.iter().position(|&(size, _)| size >= bytes);
    match above {
        Some(0) => MEASURED[0].1,
        None => MEASURED[3].1,
        Some(above) => {
            let (from, to) = (MEASURED[above - 1], MEASURED[above]);
            let share = (bytes - from.0) as f64 / (to.0 - from.0) as f64;
            from.1 + (share * (to.1 - from.1) as f64).round() as u64
        }
    }
}
