//! The settings of one cache of volumes.

use std::str::FromStr;

use floe::config::VolumesProfile;
use floe_core::ByteSize;
use floe_core::volume::{Config, ConfigError, Plan};

use super::working_set::BLOCK_BYTES;

/// The largest block of the caches that are compared. Capacities as a share of the
/// distinct bytes, and advised ones, are whole multiples, so that caches of all block
/// sizes have equal room.
pub(crate) const UNIT_BYTES: u64 = 256 << 10;

/// The room of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// So many bytes.
    Bytes(ByteSize),
    /// A share of the distinct bytes of the trace, rounded down.
    WorkingSet(f64),
}

/// One cache, such as `sizes=32KiB..256KiB,capacity=10%,promotion=nhit-2`.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeCase {
    /// The text that it was read from, for reports.
    pub name: String,
    /// Its room.
    pub capacity: Capacity,
    /// All else.
    pub config: Config,
}

/// The keys and the form of their values, for errors and the manual.
const KEYS: &str = "preset=floe|adacache, sizes=32KiB..256KiB (or 4KiB, or 4KiB+64KiB), capacity=10% (of the distinct bytes, or 1GiB), \
    mode=write-back|write-through|write-around|write-invalidate|write-only|pass-through, \
    promotion=always|nhit|nhit-N|smq|smq-adaptive|sketch|sketch-N, cleaning=none|lazy|alru|acp|acp-N, \
    when-dirty=evict|bypass, cut-off=never|full|always, fill=fetch|sector, read-miss=fetch|sector, write-miss=fetch|sector, \
    level=both|block|group, \
    replacement=lru|lfu|sieve|clock (or clock/lru, of blocks and of groups), shards=N, profile=hdd|ssd|ultra-fast";

impl VolumeCase {
    /// The plan of the cache, if the trace has `working_set_bytes` distinct bytes.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn plan(&self, working_set_bytes: u64) -> Result<Plan, ConfigError> {
        let capacity = match self.capacity {
            Capacity::Bytes(bytes) => bytes,
            Capacity::WorkingSet(share) => {
                let bytes = (working_set_bytes as f64 * share) as u64;
                let unit = match bytes < UNIT_BYTES {
                    true => BLOCK_BYTES,
                    false => UNIT_BYTES,
                };
                let least = self.config.sizes.largest().bytes();
                ByteSize((bytes - bytes % unit).max(least))
            }
        };
        Plan::new(&Config {
            capacity,
            ..self.config.clone()
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let config = &mut self.config;
        let invalid = |error: &dyn std::fmt::Display| format!("{key}: {error}");
        macro_rules! parsed {
            () => {
                value.parse().map_err(|error| invalid(&error))?
            };
        }
        match key {
            "preset" => {
                *config = match value {
                    "floe" => Config::default(),
                    "adacache" => Config::adacache(Config::default().capacity),
                    _ => return Err(invalid(&format!("`{value}` is neither floe nor adacache"))),
                };
            }
            "sizes" => {
                let list = value.replace('+', ",");
                config.sizes = list.parse().map_err(|error| invalid(&error))?;
            }
            "capacity" => self.capacity = capacity(value).map_err(|error| invalid(&error))?,
            "mode" => config.mode = parsed!(),
            "promotion" => config.promotion = parsed!(),
            "cleaning" => config.cleaning = parsed!(),
            "when-dirty" => config.when_dirty = parsed!(),
            "cut-off" => config.sequential.cut_off = parsed!(),
            "fill" => {
                config.read_miss = parsed!();
                config.write_miss = config.read_miss;
            }
            "read-miss" => config.read_miss = parsed!(),
            "write-miss" => config.write_miss = parsed!(),
            "level" => config.level = parsed!(),
            "replacement" => {
                let (blocks, groups) = value.split_once('/').unwrap_or((value, value));
                config.block_replacement = blocks.parse().map_err(|error| invalid(&error))?;
                config.group_replacement = groups.parse().map_err(|error| invalid(&error))?;
            }
            "shards" => config.shards = parsed!(),
            "profile" => {
                let word = toml::Value::String(value.to_owned());
                let profile: VolumesProfile = word.try_into().map_err(|error| invalid(&error))?;
                let cache = profile.settings();
                config.sizes = cache.sizes;
                config.promotion = cache.promotion;
                config.cleaning = cache.cleaning;
            }
            _ => {
                return Err(format!(
                    "`{key}` is no setting of a volume; there are {KEYS}"
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for VolumeCase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut case = VolumeCase {
            name: text.to_owned(),
            capacity: Capacity::WorkingSet(0.1),
            config: Config::default(),
        };
        let settings = text.split(',').map(str::trim);
        let mut settings: Vec<&str> = settings.filter(|setting| !setting.is_empty()).collect();
        // A profile changes what a preset sets, and others what both set.
        let is_general = |setting: &&str| {
            ["preset", "profile"]
                .iter()
                .any(|key| setting.starts_with(key))
        };
        settings.sort_by_key(|setting| (!is_general(setting), setting.starts_with("profile")));
        for setting in settings {
            let (key, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("`{setting}` has no value; write key=value of {KEYS}"))?;
            case.set(key.trim(), value.trim())?;
        }
        Ok(case)
    }
}

/// A share such as `10%`, or bytes.
fn capacity(text: &str) -> Result<Capacity, String> {
    let Some(percent) = text.strip_suffix('%') else {
        let bytes: ByteSize = text
            .parse()
            .map_err(|error| format!("{error}, or a share of the distinct bytes such as 10%"))?;
        return Ok(Capacity::Bytes(bytes));
    };
    match percent.trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => {
            Ok(Capacity::WorkingSet(percent / 100.0))
        }
        _ => Err(format!("`{text}` is no share between 0% and 100%")),
    }
}
