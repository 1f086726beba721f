//! Settings of the tiny engine.

use floe_core::ByteSize;
use floe_core::chunk::Durability;
use floe_core::layout::tiny::TinyEngine;
use floe_core::policy::admission::AdmissionConfig;
use floe_core::tiny::nemo::{NemoConfig, Sizing};
use floe_core::tiny::{FairyWrenConfig, KangarooConfig, LogConfig, SetConfig};
use floe_device::config::DeviceConfig;
use serde::{Deserialize, Serialize};

use crate::machine;

/// When a write first looks its key up on flash, if flash may hold the key. A
/// key without a copy there needs no fence; the lookup reads some pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookBeforeFence {
    /// Never. At the limit of fences, set-groups are flushed before they are full.
    Never,
    /// When the number of fences in force has reached half its limit.
    #[default]
    Many,
    /// Whenever the filters in memory cannot rule the key out.
    Always,
}

floe_core::parse_by_name!(LookBeforeFence);

/// The failures that an acknowledged delete or overwrite survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TinyDurability {
    /// Power loss: fences are flushed to stable media before the acknowledgement.
    #[default]
    Power,
    /// A crash of the process, but not of the machine: fences are written before the
    /// acknowledgement, but not flushed.
    Process,
    /// None: there are no fences. Unless the store was closed, it is empty when it is opened
    /// again.
    None,
}

floe_core::parse_by_name!(TinyDurability);

impl TinyDurability {
    /// The durability of the journal. The mark of a store without fences must survive all.
    pub(super) fn of_journal(self) -> Durability {
        match self {
            TinyDurability::Power | TinyDurability::None => Durability::Power,
            TinyDurability::Process => Durability::Process,
        }
    }
}

/// The settings of a tiny store, except for its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TinyConfig {
    /// Independent engines that share the device's zones, each with a part of the keys, so that
    /// several threads write at once. `None`: those of the cache on the device. A new cache then
    /// has as many `nemo` as [`Sizing::instances`] says.
    pub instances: Option<u32>,
    /// Most memory that `nemo` and the RAM tier should take. Set-groups of a new cache are made
    /// to fit, and so are the filters in memory. `None`: a quarter of the machine's.
    pub memory: Option<ByteSize>,
    /// The failure that an acknowledged delete or overwrite survives.
    pub durability: TinyDurability,
    /// When a write first looks its key up on flash.
    pub look_before_fence: LookBeforeFence,
    /// The engine. Only `nemo` recovers its objects after a restart; the
    /// others, which it is compared with, start empty.
    pub engine: TinyEngine,
    /// Settings of `nemo`.
    pub nemo: NemoConfig,
    /// Settings of `log`.
    pub log: LogConfig,
    /// Settings of `set`.
    pub set: SetConfig,
    /// Settings of `kangaroo`.
    pub kangaroo: KangarooConfig,
    /// Settings of `fairywren`.
    pub fairywren: FairyWrenConfig,
    /// Bytes of keys, values and overhead in the RAM tier, which holds objects
    /// recently read from flash. 0 turns it off.
    pub ram: ByteSize,
    /// The admission policy: values that it declines stay in the RAM tier only.
    pub admission: AdmissionConfig,
    /// Format the device whatever it holds. Otherwise only a blank device is formatted.
    pub format: bool,
    /// Makes identity and key hash of a newly formatted cache deterministic,
    /// for simulations. Leave it `None` in production: with a known hash,
    /// clients can choose keys that collide.
    pub seed: Option<u64>,
}

impl Default for TinyConfig {
    fn default() -> Self {
        TinyConfig {
            instances: None,
            memory: None,
            durability: TinyDurability::default(),
            look_before_fence: LookBeforeFence::default(),
            engine: TinyEngine::default(),
            nemo: NemoConfig::default(),
            log: LogConfig::default(),
            set: SetConfig::default(),
            kangaroo: KangarooConfig::default(),
            fairywren: FairyWrenConfig::default(),
            ram: ByteSize::mib(64),
            admission: AdmissionConfig::default(),
            format: false,
            seed: None,
        }
    }
}

/// The share of the machine's memory that a tiny store takes by default.
const MEMORY_SHARE: u64 = 4;

/// The machine's memory if the kernel does not report it.
const MEMORY_UNKNOWN: ByteSize = ByteSize::gib(4);

impl TinyConfig {
    /// Most memory that the store should take.
    pub(super) fn memory_max(&self) -> ByteSize {
        let of_machine = || machine::memory().unwrap_or(MEMORY_UNKNOWN).bytes() / MEMORY_SHARE;
        self.memory.unwrap_or_else(|| ByteSize(of_machine()))
    }

    /// Makes zones of a default size, on a new device, set-groups that suit it and the machine.
    pub fn size_zones(&self, device: &mut DeviceConfig) {
        let drives = u32::try_from(device.paths.len().max(1)).unwrap_or(u32::MAX);
        device.zone_sizing = (self.engine == TinyEngine::Nemo).then(|| self.sizing(drives));
    }

    /// Chooses the sizes of a new cache over `drives` drives on this machine.
    pub(super) fn sizing(&self, drives: u32) -> Sizing {
        let memory = self.memory_max().bytes();
        Sizing {
            config: self.nemo.clone(),
            cores: machine::cores(),
            given_instances: self.instances,
            memory: ByteSize(memory.saturating_sub(self.ram.bytes())),
            drives,
        }
    }
}
