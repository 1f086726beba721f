//! `[volumes]` and `[volume.NAME]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use floe_core::ByteSize;
use floe_core::policy::cleaning::{CleaningConfig, LazyConfig};
use floe_core::policy::promotion::{NhitConfig, PromotionConfig};
use floe_core::volume::mode::Mode;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::backing::{BackingAddress, NbdConfig};
use crate::config::{Choice, Key, Kind, Limits, Section, Setting as _};
use crate::volume::{ReservationKey, Reserve, VolumeCacheConfig, VolumeConfig};

const FILL: &[Choice] = &[
    Choice {
        word: "fetch",
        doc: "The whole block: the rest is fetched from the backing device.",
    },
    Choice {
        word: "sector",
        doc: "The sectors of the request.",
    },
];

const LEVEL: &[Choice] = &[
    Choice {
        word: "both",
        doc: "Blocks where the size is the wanted one, else groups (AdaCache).",
    },
    Choice {
        word: "block",
        doc: "The order of blocks alone.",
    },
    Choice {
        word: "group",
        doc: "The order of groups alone.",
    },
];

const LOCKS: &[Choice] = &[
    Choice {
        word: "fine",
        doc: "One shard: threads look requests up in different shards at once.",
    },
    Choice {
        word: "coarse",
        doc: "All shards, as in caches with one lock. It is slower, and there to compare.",
    },
];

const WHEN_DIRTY: &[Choice] = &[
    Choice {
        word: "evict",
        doc: "Write blocks back ahead of requests.",
    },
    Choice {
        word: "bypass",
        doc: "Go past the cache until `cleaning` has made room.",
    },
];

const ORDER: &[Choice] = &[
    Choice {
        word: "lru",
        doc: "Least recently used.",
    },
    Choice {
        word: "sieve",
        doc: "SIEVE (NSDI '24).",
    },
    Choice {
        word: "lfu",
        doc: "Least frequently used.",
    },
    Choice {
        word: "clock",
        doc: "CLOCK: as LRU within a few percent, with less memory.",
    },
];

crate::choices! {
    /// Defaults for a kind of devices. `docs/volumes.md` has their evidence.
    pub enum VolumesProfile, default Hdd {
        /// A SATA SSD in front of discs: small blocks, promotion at the second request.
        Hdd = "hdd",
        /// An NVMe SSD in front of a network volume: as `hdd`.
        Ssd = "ssd",
        /// Memory or a persistent-memory device in front of SSDs: as `hdd`, and dirty blocks are cleaned only while the cache is idle.
        UltraFast = "ultra-fast",
    }
}

impl VolumesProfile {
    /// The settings of a cache with this profile.
    pub fn settings(self) -> VolumeCacheConfig {
        let defaults = VolumeCacheConfig::default();
        VolumeCacheConfig {
            sizes: "4KiB..64KiB".parse().unwrap_or(defaults.sizes),
            promotion: PromotionConfig::Nhit(NhitConfig {
                threshold: 2,
                trigger_percent: 0,
            }),
            cleaning: match self {
                VolumesProfile::Hdd | VolumesProfile::Ssd => defaults.cleaning,
                VolumesProfile::UltraFast => CleaningConfig::Lazy(LazyConfig::default()),
            },
            ..defaults
        }
    }

    /// The settings that differ from the defaults.
    fn table(self) -> Result<Table, String> {
        let text = |error: toml::ser::Error| format!("[volumes]: {error}");
        let defaults = Table::try_from(VolumeCacheConfig::default()).map_err(text)?;
        let mut table = Table::try_from(self.settings()).map_err(text)?;
        table.retain(|name, value| defaults.get(name) != Some(value));
        Ok(table)
    }
}

/// The cache device of volumes, and the volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumesSettings {
    /// The kind of devices whose defaults the other settings have.
    pub profile: Option<VolumesProfile>,
    /// File, block device or NVMe namespace of the cache.
    pub path: Option<PathBuf>,
    /// Size of a new cache file.
    pub size: ByteSize,
    /// File that remembers the volumes that went on without a failed cache device.
    pub witness: Option<PathBuf>,
    /// The volumes, by name: the entries of `[volume.NAME]`.
    #[serde(skip)]
    pub attach: BTreeMap<String, VolumeSettings>,
    /// How the cache device is used.
    #[serde(flatten)]
    pub cache: VolumeCacheConfig,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSettings {
    /// The device behind the cache. It must exist, unless it is emulated.
    pub backing: BackingAddress,
    /// The cache mode.
    #[serde(default = "default_mode")]
    pub mode: Mode,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
    /// How the NBD server of the backing device is treated.
    #[serde(default)]
    pub nbd: NbdConfig,
    /// Bytes of an emulated backing device.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// Allow modes that make data dirty on a cache device that a power loss erases.
    #[serde(default)]
    pub allow_data_loss: bool,
    /// The reservation of the backing device for this machine's writes.
    #[serde(default)]
    pub reserve: Reserve,
    /// The key of the machine that loses its reservation or lock of the backing device.
    #[serde(default)]
    pub take_from: Option<ReservationKey>,
    /// The name of a lock in etcd that takes the place of a reservation.
    #[serde(default)]
    pub lock: Option<String>,
}

fn default_mode() -> Mode {
    VolumeConfig::default().mode
}

impl VolumeSettings {
    /// A volume with this backing device, and defaults otherwise.
    pub fn new(backing: BackingAddress) -> Self {
        VolumeSettings {
            backing,
            mode: default_mode(),
            read_only: false,
            allow_data_loss: false,
            reserve: Reserve::Off,
            take_from: None,
            lock: None,
            nbd: NbdConfig::default(),
            size: None,
        }
    }

    /// How the volume is cached.
    pub fn config(&self) -> VolumeConfig {
        VolumeConfig {
            mode: self.mode,
            read_only: self.read_only,
            allow_data_loss: self.allow_data_loss,
            reserve: match self.lock {
                Some(_) => Reserve::Required,
                None => self.reserve,
            },
            take_from: self.take_from,
        }
    }
}

impl Default for VolumesSettings {
    fn default() -> Self {
        VolumesSettings {
            profile: None,
            path: None,
            size: ByteSize::gib(4),
            witness: None,
            attach: BTreeMap::new(),
            cache: VolumeCacheConfig::default(),
        }
    }
}

/// The section of the volumes.
pub(super) fn volume() -> Section {
    Section::of_entries(
        "volume",
        "A volume behind the cache, by its name. `backing` is the path of a slow file or block device, which must exist, `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, or `emulated:PRESET` with its `size`. The table `nbd` has `connections` (2), `timeout_seconds` (30), `retry_seconds` (60) and `fence_seconds` (2). `mode` is write-through (the default), write-back, write-around, write-invalidate, write-only or pass-through. `read_only = true` refuses writes. `allow_data_loss = true` allows write-back and write-only on a cache device that a power loss erases. `reserve` is off (the default), auto or required: whether a block device is reserved for this machine's writes; `take_from` is the key of a machine that loses its reservation. `lock` is the name of a lock in `node.etcd`, the same on all machines, which takes the place of a reservation where the device has none. As a flag: `--volume NAME=BACKING[,mode=MODE][,read-only][,allow-data-loss][,reserve=WHEN][,lock=NAME][,take-from=KEY][,size=SIZE]`.",
    )
}

pub(super) fn section() -> Result<Section, String> {
    let profiles = [
        VolumesProfile::Hdd,
        VolumesProfile::Ssd,
        VolumesProfile::UltraFast,
    ];
    let mut defaults = BTreeMap::new();
    for profile in profiles {
        let Some(Value::String(word)) = profile.to_toml() else {
            continue;
        };
        defaults.insert(word, profile.table()?);
    }
    Section::adopt(
        "volumes",
        "Block volumes: a cache device in front of slow files and block devices. Opened when there is a `[volume.NAME]`, or when `volumes.path` is set: then volumes can be attached later.",
        &VolumesSettings::default(),
        &[],
        vec![
            Key {
                profiles: defaults,
                ..Key::new(
                    "profile",
                    VolumesProfile::KIND,
                    "The kind of devices whose defaults `sizes`, `promotion` and `cleaning` have. When not set: their own defaults. A setting that is given, here or elsewhere, overrides the profile; so do those of a file from `floe config default`, which gives all of them.",
                )
            },
            Key::new(
                "path",
                Kind::Path,
                "File or block device of the cache, or an NVMe namespace by passthrough (`nvme:SERIAL`). When not set: `volumes.floe` in the data directory. A file that does not exist is created.",
            ),
            Key::new("size", Kind::Size, "Size of a new cache file.")
                .limits(Limits::at_least(8 << 20)),
            Key::new(
                "witness",
                Kind::Path,
                "File of 8 KiB, on another disk than the cache if possible, that remembers the volumes that went on without a cache device that had failed. The cache belongs to it until a clean stop. When not set: `volumes.witness` in the data directory.",
            ),
            Key::new(
                "sizes",
                Kind::Text,
                "The sizes of blocks: powers of two from 4KiB to 1MiB, as a range or a list. They are fixed when the cache is formatted.",
            ),
            Key::new(
                "promotion",
                Kind::Toml,
                "The policy that admits missing blocks: `{ kind = \"always\" }`, `nhit`, `smq` or `sketch`.",
            ),
            Key::new(
                "cleaning",
                Kind::Toml,
                "When dirty blocks are written back before their room is needed: `{ kind = \"alru\" }`, `acp`, `lazy` or `none`.",
            ),
            Key::new(
                "cleaning_rate",
                Kind::Size,
                "Bytes a second that the cleaning policy writes back at most; 0 does not limit it. Evictions, detaching and changes of mode do not wait for it.",
            ),
            Key::new(
                "cleaning_blocks_max",
                Kind::Integer,
                "Blocks that are written back at once.",
            )
            .limits(Limits::between(1, 1024)),
            Key::new(
                "sequential",
                Kind::Toml,
                "Long sequential streams that go past the cache.",
            ),
            Key::new(
                "read_miss",
                Kind::Choice(FILL),
                "The part of a block that a read miss brings in.",
            ),
            Key::new(
                "write_miss",
                Kind::Choice(FILL),
                "The part of a block that a write miss brings in. With `fetch`, a write waits for a read of the backing device.",
            ),
            Key::new("level", Kind::Choice(LEVEL), "The levels of replacement."),
            Key::new(
                "block_replacement",
                Kind::Choice(ORDER),
                "The order in which blocks are replaced.",
            ),
            Key::new(
                "group_replacement",
                Kind::Choice(ORDER),
                "The order in which groups of blocks are replaced.",
            ),
            Key::new(
                "when_dirty",
                Kind::Choice(WHEN_DIRTY),
                "What is done when only dirty blocks could be replaced.",
            ),
            Key::new(
                "shards",
                Kind::Integer,
                "Parts of the cache with a lock each; 0 chooses by the size of the device. They are fixed when the cache is formatted.",
            )
            .limits(Limits::between(0, 1024)),
            Key::new(
                "checksums",
                Kind::Bool,
                "Keep a checksum of each block of the cache device that has data, and compare it at each read: damage that the device does not report is then never returned. Takes 4 bytes of memory for each block of the device. Fixed when the cache is formatted.",
            ),
            Key::new(
                "locks",
                Kind::Choice(LOCKS),
                "The part of the blocks that a thread keeps other threads from while it looks a request up or notes its end. Devices work outside of these locks.",
            ),
        ],
    )
}
