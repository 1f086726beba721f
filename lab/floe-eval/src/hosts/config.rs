//! The settings of a host's behaviour, and their values for the two papers'
//! hosts.

use std::path::PathBuf;
use std::time::Duration;

use floe_core::ByteSize;
use floe_core::ssd::{Interface, SsdConfig};
use floe_device::DeviceConfig;
use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::workload::Distribution;

/// A run of a host on a simulated device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostConfig {
    /// The name of the run in results.
    pub name: String,
    /// The host's behaviour.
    pub host: HostBehaviour,
    /// The device.
    pub device: DeviceChoice,
    /// The state of the device when the run begins.
    #[serde(default)]
    pub start: StartState,
    /// A file with this state: read if it exists, otherwise written. Other runs
    /// on the same device can share it.
    #[serde(default)]
    pub state: Option<PathBuf>,
    /// A drive with the same zones that carries out the host's commands as well.
    #[serde(default)]
    pub drive: Option<DeviceConfig>,
    /// The unit of caching.
    pub chunk: ByteSize,
    /// Number of zones of the cache. Their capacity is that of the device's
    /// superblocks, also on a conventional device.
    pub zones: u32,
    /// Keys per chunk of the cache.
    pub ratio: f64,
    /// The nominal size of a zone from which `ratio` gives the number of keys:
    /// 1 GiB in the papers' generator.
    #[serde(default = "default_zone_unit")]
    pub zone_unit: ByteSize,
    /// The distribution of keys.
    pub distribution: Distribution,
    /// The latency of a fetch from the remote store.
    pub remote: Remote,
    /// Total bytes requested: a run of that many whole chunks.
    pub io: ByteSize,
    /// Length of a bin of the time plots, in seconds.
    #[serde(default = "default_bin_s")]
    pub bin_s: f64,
}

/// A device: a preset and changes to it.
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
    /// The factor by which superblocks, and so zones and capacity, are shrunk.
    #[serde(default)]
    pub shrunk: Option<u32>,
    /// Another mapping unit of a conventional device.
    #[serde(default)]
    pub mapping_unit: Option<ByteSize>,
    /// Keys of [`FlashConfig`](floe_core::ssd::FlashConfig) that replace the
    /// preset's, including tables within tables. `superblocks` here changes the
    /// over-provisioning, because the visible capacity stays.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub flash: toml::Table,
}

/// The state of the device when a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartState {
    /// Filled once in random order. Zoned devices are empty.
    #[default]
    Preconditioned,
    /// Trimmed completely.
    Trimmed,
}

/// A remote store with the same latency for every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Remote {
    /// The mean, in microseconds.
    pub latency_us: u64,
    /// Largest deviation from the mean, as a share of it; uniform. Without
    /// jitter, threads run in lockstep, which those of a real host never do.
    #[serde(default = "default_jitter")]
    pub jitter: f64,
}

/// A host's behaviour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostBehaviour {
    /// Clients, each with one request at a time.
    pub threads: u32,
    /// When a miss gets its place, and how long it holds it.
    pub placement: Placement,
    /// The order in which threads that wait for a zone get it.
    pub waiters: Waiters,
    /// Most zones written at a time on a zoned device.
    pub active_zones_zoned: u32,
    /// Most zones written at a time on a conventional device; unlimited if
    /// absent.
    #[serde(default)]
    pub active_zones_conventional: Option<u32>,
    /// Separate writer threads; if absent, the clients write.
    #[serde(default)]
    pub writers: Option<u32>,
    /// Separate reader threads; if absent, the clients read.
    #[serde(default)]
    pub readers: Option<u32>,
    /// Bytes of a read or write call on a zoned device; the whole chunk if
    /// absent. The calls of a chunk are sequential.
    #[serde(default)]
    pub io_zoned: Option<ByteSize>,
    /// Bytes of a read or write call on a conventional device.
    #[serde(default)]
    pub io_conventional: Option<ByteSize>,
    /// Bytes per second at which a client copies a fetched chunk before it is
    /// written; no copy if absent.
    #[serde(default)]
    pub copy_bytes_per_s: Option<u64>,
    /// Bytes per second at which all clients together copy the data that they
    /// receive; no limit if absent.
    #[serde(default)]
    pub copies_bytes_per_s: Option<u64>,
    /// Additional time of a miss, in microseconds.
    pub miss_overhead_us: u64,
    /// Additional time of a hit, in microseconds.
    pub hit_overhead_us: u64,
    /// Time for which a request holds the host's global lock, in nanoseconds,
    /// multiplied by the number of clients that do not wait for the remote
    /// store: clients that wait for the lock slow its holder down, because
    /// spinning moves cache lines. The papers suspect contention but do not
    /// measure any: 0 in both hosts.
    #[serde(default)]
    pub contention_ns: u64,
    /// The eviction policy.
    #[serde(default)]
    pub policy: EvictionPolicy,
    /// Zones left at or below which zones are evicted or, with CLRU on a zoned
    /// device, garbage is collected.
    pub evict_at: u32,
    /// Zones left at which that stops.
    pub evict_to: u32,
    /// Room, in chunks, at or below which CLRU evicts chunks.
    #[serde(default = "default_evict_chunks_at")]
    pub evict_chunks_at: u32,
    /// Room, in chunks, at which that stops.
    #[serde(default = "default_evict_chunks_to")]
    pub evict_chunks_to: u32,
    /// Interval of checks for eviction, in milliseconds, besides those when no
    /// place is left. If absent, every change is checked.
    #[serde(default)]
    pub evict_interval_ms: Option<u64>,
    /// The zones that count as left.
    pub left: Left,
    /// Evicted zones are trimmed on a conventional device.
    #[serde(default)]
    pub trims: bool,
    /// Each open zone has its own reclaim-unit handle, on a device with
    /// handles.
    #[serde(default = "default_true")]
    pub handle_per_zone: bool,
}

/// When a miss gets its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// A miss takes a zone before the fetch and holds it exclusively until the
    /// chunk is written. If all zones are held, another one is opened.
    HeldDuringFetch,
    /// A miss takes the next place of a zone when its chunk is about to be
    /// written. Several chunks may be written to a zone at once. Zones are
    /// opened while more are allowed, then used in turn.
    TakenForWrite,
}

/// The order in which waiting threads get a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiters {
    /// A random one: the threads spin.
    Random,
    /// The thread that has waited longest.
    Fifo,
}

/// A host's eviction policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// Evicts the zone whose chunks were not read for the longest time.
    #[default]
    Zplru,
    /// Evicts the least recently used chunk. On a zoned device, the host moves
    /// the remaining chunks of the zones with the most garbage, and resets the
    /// zones.
    Clru,
}

/// Zones that count as left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Empty zones.
    Empty,
    /// Empty zones and zones with room.
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
    /// ZNCache's behaviour: 64 threads over at most 14 zones. A miss holds a
    /// zone during its fetch; others spin. Calls have 1.25 MiB on a
    /// conventional device (the kernel's default split of larger ones) and
    /// whole chunks on a zoned one.
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

    /// OxCache's behaviour: 64 connections, 14 writers and 14 readers, calls of
    /// 256 KiB. A connection sends its next request when its last one is
    /// written. 13 zones are written at a time on a zoned device, any number on
    /// a conventional one.
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
    /// A preset without changes.
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

    /// The device's configuration.
    ///
    /// # Errors
    /// If the preset does not exist, or the changes are invalid.
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

    /// As [`HostConfig::zncache`], for OxCache.
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
            drive: None,
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

    /// The papers' evaluation of garbage collection: 6 TiB of uniform requests
    /// over the whole, trimmed device, with ratio 10.
    pub fn on_trimmed_device(mut self, zones: u32) -> Self {
        self.start = StartState::Trimmed;
        self.zones = zones;
        self.io = ByteSize::gib(6 << 10);
        self
    }

    /// The same experiment at a smaller scale: zones, chunks, remote latency,
    /// I/O and time bins are a `part`-th, and so is the time of a run, in
    /// reality too. The numbers of zones and of chunks per zone stay, and so
    /// does the behaviour of garbage collection.
    ///
    /// # Errors
    /// If the preset is unknown or the scaled device is invalid.
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

    /// Checks the settings that do not depend on the device.
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

    /// Number of requests of the run.
    pub fn requests(&self) -> u64 {
        self.io.bytes() / self.chunk.bytes().max(1)
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        let per_zone = self.zone_unit.bytes() / self.chunk.bytes().max(1);
        let chunks = per_zone.max(1) * u64::from(self.zones);
        (self.ratio * chunks as f64).floor() as u64
    }
}

/// `settings` overlaid with the keys of `changes`.
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

/// True if a chunk counts as one of the papers' large ones.
fn is_large(chunk: ByteSize) -> bool {
    chunk.bytes() >= 16 << 20
}

/// The papers' measurements of S3 (their appendix A), interpolated.
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
