//! Settings of the tiny engine.

use floe_core::ByteSize;
use floe_core::chunk::Durability;
use floe_core::layout::tiny::TinyEngine;
use floe_core::policy::admission::AdmissionConfig;
use floe_core::tiny::nemo::NemoConfig;
use floe_core::tiny::{FairyWrenConfig, KangarooConfig, LogConfig, SetConfig};
use serde::{Deserialize, Serialize};

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

/// The settings of a tiny store, except for its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TinyConfig {
    /// Independent engines that share the device's zones, each with a part of
    /// the keys. More of them allow more concurrent writes, and limit the
    /// set-groups per search on large devices.
    pub instances: Option<u32>,
    /// The failure that an acknowledged delete or overwrite survives.
    pub durability: Durability,
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
            durability: Durability::default(),
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
