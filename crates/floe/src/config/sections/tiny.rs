//! `[tiny]`. The tables of its engines are in `tiny_engines.rs`.

use std::path::PathBuf;

use floe_core::ByteSize;
use floe_core::layout::tiny::TinyEngine;
use floe_core::tiny::nemo::NemoConfig;
use floe_core::tiny::{FairyWrenConfig, KangarooConfig, LogConfig, SetConfig};
use floe_device::config::DeviceConfig;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::admission::AdmissionSettings;
use super::chunk::{POWER, PROCESS};
use crate::cache::TinyTierConfig;
use crate::config::{Choice, Key, Kind, Limits, Section};
use crate::tiny::{LookBeforeFence, TinyConfig, TinyDurability};

const ENGINE: &[Choice] = &[
    Choice {
        word: "nemo",
        doc: "Set-groups that fill in memory and are written at once: write amplification of 1.0 to 1.25, a few bits of memory per object, warm restart.",
    },
    Choice {
        word: "log",
        doc: "A log with an exact index: write amplification near 1, a hundred bits of memory per object. Loses its objects when the process ends.",
    },
    Choice {
        word: "set",
        doc: "Sets of 4 KiB rewritten in place: each object costs a page write. Needs a device with writes in place. Loses its objects when the process ends.",
    },
    Choice {
        word: "kangaroo",
        doc: "A small log in front of sets (Kangaroo, SOSP '21). Loses its objects when the process ends.",
    },
    Choice {
        word: "fairywren",
        doc: "A small log in front of sets in two logs (FairyWREN, OSDI '24). Loses its objects when the process ends.",
    },
];

const DURABILITY: &[Choice] = &[
    POWER,
    PROCESS,
    Choice {
        word: "none",
        doc: "No failure: there are no fences, and unless Floe was stopped in order, the engine is empty when it starts again.",
    },
];

const LOOK_BEFORE_FENCE: &[Choice] = &[
    Choice {
        word: "never",
        doc: "Never: fewest reads. At the limit of fences, set-groups are flushed before they are full.",
    },
    Choice {
        word: "many",
        doc: "When the number of fences has reached half its limit.",
    },
    Choice {
        word: "always",
        doc: "Always: fewest fences.",
    },
];

/// Bytes of a page of tiny objects, so of the largest block.
const BLOCK_SIZE_MAX: ByteSize = ByteSize::kib(4);

/// The engine for tiny objects: memcached's items up to [`max_object_size`](Self::max_object_size).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TinySettings {
    /// Keep tiny objects in their own engine.
    pub enabled: bool,
    /// The engine.
    pub engine: TinyEngine,
    /// File or block device.
    pub path: Option<PathBuf>,
    /// The drives of an array, instead of `path`.
    pub paths: Vec<PathBuf>,
    /// Size of the file; by default the whole block device.
    pub size: Option<ByteSize>,
    /// Size of a zone, and with `nemo` usually of a set-group. By default that of
    /// the cache on the device, or of a zoned drive; for a new cache it follows
    /// from the flash and the machine.
    pub zone_size: Option<ByteSize>,
    /// The smallest unit of writing, which a group of fences takes. By default
    /// the unit that the drive writes atomically.
    pub block_size: Option<ByteSize>,
    /// Most bytes of key and value together of an object that is tiny.
    pub max_object_size: ByteSize,
    /// Memory for objects recently read from flash.
    pub ram_size: ByteSize,
    /// Most memory that the engine should take, `ram_size` included.
    pub memory_size: Option<ByteSize>,
    /// The number of independent engines.
    pub instances: Option<u32>,
    /// The failure that an acknowledged delete or overwrite survives.
    pub durability: TinyDurability,
    /// When a write looks its key up on flash before it writes a fence.
    pub look_before_fence: LookBeforeFence,
    /// Admission to flash.
    #[serde(flatten)]
    pub admission: AdmissionSettings,
    /// `[tiny.nemo]`
    pub nemo: NemoConfig,
    /// `[tiny.log]`
    pub log: LogConfig,
    /// `[tiny.set]`
    pub set: SetConfig,
    /// `[tiny.kangaroo]`
    pub kangaroo: KangarooConfig,
    /// `[tiny.fairywren]`
    pub fairywren: FairyWrenConfig,
}

/// The size of a zone of the baselines unless the settings or a zoned drive have another.
const ZONE_SIZE: ByteSize = ByteSize::mib(4);

impl Default for TinySettings {
    fn default() -> Self {
        TinySettings {
            enabled: true,
            engine: TinyEngine::default(),
            path: None,
            paths: Vec::new(),
            size: None,
            zone_size: None,
            block_size: None,
            max_object_size: ByteSize::kib(2),
            ram_size: ByteSize::mib(64),
            memory_size: None,
            instances: None,
            durability: TinyDurability::default(),
            look_before_fence: LookBeforeFence::default(),
            admission: AdmissionSettings::default(),
            nemo: NemoConfig::default(),
            log: LogConfig::default(),
            set: SetConfig::default(),
            kangaroo: KangarooConfig::default(),
            fairywren: FairyWrenConfig::default(),
        }
    }
}

pub(super) fn section() -> Result<Section, String> {
    let mut defaults =
        Table::try_from(TinySettings::default()).map_err(|error| format!("[tiny]: {error}"))?;
    // The engines have sections of their own.
    defaults.retain(|_, value| !value.is_table());
    let key = Key::new;
    let [admission, probability, bytes_per_day] = AdmissionSettings::keys();
    Section::adopt(
        "tiny",
        "The engine for tiny objects: memcached's items up to `tiny.max_object_size`. It has a file or device of its own.",
        &defaults,
        &[],
        vec![
            key(
                "enabled",
                Kind::Bool,
                "Keep tiny objects in their own engine; otherwise the chunk engine keeps them. Changing it loses memcached's items.",
            ),
            key(
                "engine",
                Kind::Choice(ENGINE),
                "The engine (docs/tiny.md). Part of the format: changing it needs a reformat.",
            ),
            key(
                "path",
                Kind::Path,
                "File or block device; without it, `tiny.floe` in the data directory.",
            ),
            key(
                "paths",
                Kind::List,
                "The drives of an array, instead of `tiny.path`, as `device.paths`.",
            ),
            key(
                "size",
                Kind::Size,
                "Size of the file; by default the whole block device.",
            ),
            key(
                "zone_size",
                Kind::Size,
                "Size of a zone, the unit of reclaim. With `nemo`, also that of a set-group, which fills in memory and is written at once (three of them are in memory). When not set: that of the cache on the device, or of a zoned drive; for a new cache a 384th to a 576th of an instance's flash, at least 4 MiB if 64 of them fit, down to 1 MiB if `tiny.memory_size` is short; 4 MiB for the other engines. Part of the format: changing it needs a reformat.",
            ),
            key(
                "block_size",
                Kind::Size,
                "The smallest unit of writing, from 512 bytes to 4 KiB. A group of fences usually takes one block. When not set: the block size of the cache on the device; for a new cache the largest of the block device's logical block, physical block and unit of atomic writes, at most 4 KiB, and 4 KiB for a file or if the kernel reports none. Set less than that only if the drive keeps acknowledged writes on a power loss. Part of the format: changing it needs a reformat.",
            ),
            key(
                "max_object_size",
                Kind::Size,
                "Most bytes of key and value together of an object that is tiny.",
            ),
            key(
                "ram_size",
                Kind::Size,
                "Memory for objects that were recently read from flash; 0 turns the tier off.",
            ),
            key(
                "memory_size",
                Kind::Size,
                "Most memory that `nemo` should take, `tiny.ram_size` included. Set-groups of a new cache are made smaller to fit, and so are page filters (`tiny.nemo.page_filter_bits`); both cost reads. When not set: a quarter of the machine's memory.",
            ),
            key(
                "instances",
                Kind::Integer,
                "Independent engines, each with a part of the keys and of the zones, and its own buffers in memory. When not set: those of the cache on the device; for a new cache with `nemo` one per core, but each with about 384 zones or more, and together within `tiny.memory_size`. Part of the format: changing it needs a reformat.",
            )
            .limits(Limits::between(1, 4096)),
            key(
                "durability",
                Kind::Choice(DURABILITY),
                "The failure that an acknowledged delete or overwrite survives. Engines that lose their objects when the process ends ignore it.",
            ),
            key(
                "look_before_fence",
                Kind::Choice(LOOK_BEFORE_FENCE),
                "When a write first looks its key up on flash, if the filters in memory cannot rule it out. A key without a copy on flash needs no fence, which takes up to a block; the lookup reads some pages.",
            ),
            admission,
            probability,
            bytes_per_day,
        ],
    )
}

impl TinySettings {
    /// The settings of the engine and its device. The device is at `path`
    /// unless the settings name another. `None` if the engine is turned off.
    pub fn tier(&self, path: PathBuf, default_size: ByteSize) -> Option<TinyTierConfig> {
        let engine = TinyConfig {
            instances: self.instances,
            memory: self.memory_size,
            durability: self.durability,
            look_before_fence: self.look_before_fence,
            ram: self.ram_size,
            admission: self.admission.config(),
            engine: self.engine,
            nemo: self.nemo.clone(),
            log: self.log.clone(),
            set: self.set.clone(),
            kangaroo: self.kangaroo.clone(),
            fairywren: self.fairywren.clone(),
            ..TinyConfig::default()
        };
        let of_baseline = (self.engine != TinyEngine::Nemo).then_some(ZONE_SIZE);
        let mut device = DeviceConfig {
            size: match self.path.is_some() || !self.paths.is_empty() {
                true => self.size,
                false => Some(self.size.unwrap_or(default_size)),
            },
            path: match self.paths.is_empty() {
                true => Some(self.path.clone().unwrap_or(path)),
                false => self.path.clone(),
            },
            paths: self.paths.clone(),
            zone_size: self.zone_size.or(of_baseline),
            fits_zone_size: self.zone_size.is_none(),
            block_size: self.block_size.unwrap_or(BLOCK_SIZE_MAX),
            fits_block_size: self.block_size.is_none(),
            ..DeviceConfig::default()
        };
        engine.size_zones(&mut device);
        self.enabled.then_some(TinyTierConfig {
            device,
            max_object_size: self.max_object_size,
            engine,
        })
    }
}
