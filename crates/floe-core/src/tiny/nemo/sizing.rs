//! The sizes of a new cache: zones, which are its set-groups, and instances.

use super::config::{NemoConfig, NemoPlan};
use crate::ByteSize;
use crate::tiny::object::{Flash, PAGE_BYTES};
use crate::tiny::plan::PAGES_MOST;

/// Chooses the sizes of a new cache from its flash and the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// The engine's settings.
    pub config: NemoConfig,
    /// Threads that run at once: more instances would not help.
    pub cores: u32,
    /// The number of instances, if it is given.
    pub given_instances: Option<u32>,
    /// Most memory of the engine.
    pub memory: ByteSize,
    /// Drives that share the cache's zones.
    pub drives: u32,
}

/// An instance gets this many set-groups or more, less those whose zones the metadata takes.
const SET_GROUPS: u64 = 384;

/// An instance with this many set-groups has its full number.
const SET_GROUPS_LEAST: u64 = 375;

/// Most set-groups of an instance that are made to save memory. A lookup then reads some two
/// pages of the index in vain.
const SET_GROUPS_MAX: u64 = 8 * SET_GROUPS;

/// Smallest set-groups while memory is not short: few of them are better on small flash, since
/// all filters are in memory then.
const SET_GROUP_MIN: ByteSize = ByteSize::mib(4);

/// Smallest set-groups that are made to save memory.
const SET_GROUP_SCARCE: ByteSize = ByteSize::mib(1);

/// A new cache gets at least this many zones, even if its set-groups are small then.
const ZONES_MIN: u64 = 64;

/// Smallest zone of a new cache.
const ZONE_MIN: ByteSize = ByteSize::kib(64);

impl Sizing {
    /// The size of the zones of a drive with `available` bytes: 2^n or 3 · 2^n bytes.
    ///
    /// Each instance gets 384 to 576 set-groups of 4 MiB or more, or 64 on small flash. If they
    /// need too much memory, they are made smaller, down to an eighth. Then a lookup reads more
    /// pages.
    pub fn zone_size(&self, available: ByteSize) -> ByteSize {
        let bytes = available.bytes().saturating_mul(u64::from(self.drives));
        if let Some(pages) = self.config.set_group_pages {
            let set_group = u64::from(pages) * PAGE_BYTES as u64;
            let zone = SET_GROUP_SCARCE.bytes().max(set_group);
            return ByteSize(zone - zone.checked_rem(set_group).unwrap_or(0));
        }
        let instances = match self.given_instances {
            Some(instances) => u64::from(instances).max(1),
            None => (bytes / SET_GROUPS / SET_GROUP_MIN.bytes())
                .clamp(1, u64::from(self.cores).max(1))
                .max(bytes.div_ceil(u64::from(PAGES_MOST) * PAGE_BYTES as u64)),
        };
        let most = rounded(bytes / ZONES_MIN / instances);
        let zone = |set_groups: u64, least: ByteSize| {
            rounded(bytes / set_groups / instances)
                .max(least.bytes().min(most))
                .max(ZONE_MIN.bytes())
        };
        let least = zone(SET_GROUPS_MAX, SET_GROUP_SCARCE);
        let mut size = zone(SET_GROUPS, SET_GROUP_MIN);
        while size > least && self.memory_of(bytes, size, instances) > self.memory.bytes() {
            size = rounded(size - 1);
        }
        ByteSize(size)
    }

    fn memory_of(&self, bytes: u64, zone: u64, instances: u64) -> u64 {
        let flash = Flash {
            zones: u32::try_from(bytes / zone / instances).unwrap_or(u32::MAX),
            zone_pages: u32::try_from(zone / PAGE_BYTES as u64).unwrap_or(u32::MAX),
            in_place: true,
        };
        // Settings that do not fit are reported when the plan is made.
        let plan = NemoPlan::new(&self.config, &flash);
        plan.map_or(0, |plan| instances * plan.costs().memory_bytes())
    }

    /// The number of instances that share `flash` unless it is given: one for each core, but with
    /// enough set-groups, and not more of their buffers than fit in memory.
    pub fn instances(&self, flash: &Flash) -> u32 {
        let zone = u64::from(flash.zone_pages) * PAGE_BYTES as u64;
        let of_memory = self.memory_of(zone * u64::from(flash.zones), zone, 1);
        let plan = NemoPlan::new(&self.config, flash);
        let buffers = plan.map_or(0, |plan| plan.costs().buffer_bytes);
        let spare = self.memory.bytes().saturating_sub(of_memory);
        let affordable = 1 + spare / buffers.max(1);
        let wanted = (u64::from(flash.zones) / SET_GROUPS_LEAST)
            .min(u64::from(self.cores))
            .min(affordable);
        let fewest = flash.pages().div_ceil(u64::from(PAGES_MOST));
        u32::try_from(wanted.max(fewest).max(1)).unwrap_or(u32::MAX)
    }

    /// The settings with as large page filters, or as much of the index cached, as fit in memory,
    /// at most what they say. Each of `instances` has `flash`.
    pub fn fitted(&self, flash: &Flash, instances: u32) -> NemoConfig {
        let with = |parts: u32| {
            let share = f64::from(parts) / f64::from(PARTS);
            NemoConfig {
                page_filter_bits: self.config.page_filter_bits * share,
                index_cache_share: self.config.index_cache_share * share,
                ..self.config.clone()
            }
        };
        let fits = |parts: &u32| {
            let plan = NemoPlan::new(&with(*parts), flash);
            let memory = plan.map_or(0, |plan| plan.costs().memory_bytes());
            u64::from(instances) * memory <= self.memory.bytes()
        };
        with((1..=PARTS).rev().find(fits).unwrap_or(1))
    }
}

/// Page filters and the index cache shrink by this part at a time, to one part at least.
const PARTS: u32 = 16;

/// The largest power of two, or one and a half of it, up to `bytes`.
fn rounded(bytes: u64) -> u64 {
    let power = 1 << bytes.max(4).ilog2();
    match power / 2 * 3 <= bytes {
        true => power / 2 * 3,
        false => power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizing(cores: u32, memory: ByteSize) -> Sizing {
        Sizing {
            config: NemoConfig::default(),
            cores,
            given_instances: None,
            memory,
            drives: 1,
        }
    }

    /// The size of zones, and the instances that they make.
    fn chosen(sizing: &Sizing, available: ByteSize) -> (ByteSize, u32) {
        let zone = sizing.zone_size(available);
        let flash = Flash {
            zones: (available.bytes() / zone.bytes()) as u32 - 2,
            zone_pages: (zone.bytes() / PAGE_BYTES as u64) as u32,
            in_place: true,
        };
        (zone, sizing.instances(&flash))
    }

    #[test]
    fn set_groups_grow_with_the_flash() {
        let (tib, mib) = (1 << 10, ByteSize::mib);
        let table = [
            (mib(32), 2, (ByteSize::kib(512), 1)),
            (mib(256), 2, (mib(4), 1)),
            (ByteSize::gib(1), 2, (mib(4), 1)),
            (ByteSize::gib(3), 2, (mib(4), 2)),
            (ByteSize::gib(100), 2, (mib(128), 2)),
            (ByteSize::gib(tib), 16, (mib(128), 16)),
            (ByteSize::gib(30 * tib), 2, (mib(16 << 10), 4)),
        ];
        for (available, cores, expected) in table {
            let sizing = sizing(cores, ByteSize::gib(tib));
            assert_eq!(chosen(&sizing, available), expected, "{available}");
        }
    }

    #[test]
    fn sizes_suit_what_is_given() {
        let ample = sizing(2, ByteSize::gib(64));
        let flash = ByteSize::gib(100);
        let many = Sizing {
            given_instances: Some(16),
            ..ample.clone()
        };
        assert_eq!(many.zone_size(flash), ByteSize::mib(16));
        for (pages, zone) in [
            (1024, 4 << 20),
            (16, 1 << 20),
            (3, 1020 << 10),
            (0, 1 << 20),
        ] {
            let divided = Sizing {
                config: NemoConfig {
                    set_group_pages: Some(pages),
                    ..NemoConfig::default()
                },
                ..ample.clone()
            };
            assert_eq!(divided.zone_size(flash), ByteSize(zone), "{pages}");
        }
        // Nothing overflows; what cannot work is refused later.
        for bytes in [0, 1, 4096, 300 << 10, u64::MAX] {
            let zone = many.zone_size(ByteSize(bytes));
            assert!(zone >= ZONE_MIN, "{bytes}: {zone}");
        }
    }

    #[test]
    fn set_groups_shrink_to_fit_in_memory() {
        let flash = ByteSize::gib(1 << 10);
        let (ample, _) = chosen(&sizing(8, ByteSize::gib(64)), flash);
        let (scarce, instances) = chosen(&sizing(8, ByteSize::gib(8)), flash);
        assert!(scarce < ample, "{scarce} {ample}");
        let memory = sizing(8, ByteSize(0)).memory_of(flash.bytes(), scarce.bytes(), 8);
        assert!(memory <= ByteSize::gib(8).bytes(), "{memory}");
        assert_eq!(instances, 8);
        let (least, _) = chosen(&sizing(8, ByteSize(0)), flash);
        assert_eq!(least.bytes(), ample.bytes() / 8);
        let small = chosen(&sizing(8, ByteSize(0)), ByteSize::gib(1));
        assert_eq!(small, (ByteSize::mib(1), 1));
    }

    #[test]
    fn the_filters_in_memory_shrink_to_fit() {
        let flash = Flash {
            zones: 2048,
            zone_pages: 16_384,
            in_place: true,
        };
        let cache = NemoConfig {
            page_filter_bits: 0.0,
            index_cache_share: 0.5,
            ..NemoConfig::default()
        };
        let fitted = |config: &NemoConfig, memory| {
            let config = config.clone();
            let sizing = Sizing {
                config,
                ..sizing(1, memory)
            };
            sizing.fitted(&flash, 1)
        };
        let default = NemoConfig::default();
        assert_eq!(fitted(&default, ByteSize::gib(4)), default);
        assert_eq!(fitted(&cache, ByteSize::gib(4)), cache);
        for config in [default, cache] {
            let part = |less: &NemoConfig| match config.page_filter_bits > 0.0 {
                true => less.page_filter_bits / config.page_filter_bits,
                false => less.index_cache_share / config.index_cache_share,
            };
            let less = part(&fitted(&config, ByteSize::mib(700)));
            assert!(less > 0.1 && less < 0.9, "{less}");
            assert_eq!(part(&fitted(&config, ByteSize::mib(16))), 1.0 / 16.0);
        }
    }

    /// A zoned drive has few large zones, so that instances would take much memory.
    #[test]
    fn instances_fit_in_memory() {
        let flash = Flash {
            zones: 904,
            zone_pages: 275_712,
            in_place: false,
        };
        assert_eq!(sizing(16, ByteSize::gib(64)).instances(&flash), 2);
        assert_eq!(sizing(16, ByteSize::gib(8)).instances(&flash), 1);
        assert_eq!(sizing(1, ByteSize::gib(64)).instances(&flash), 1);
    }

    #[test]
    fn drives_share_the_set_groups() {
        let four = Sizing {
            drives: 4,
            ..sizing(2, ByteSize::gib(64))
        };
        let zone = four.zone_size(ByteSize::gib(25));
        assert_eq!(
            zone,
            sizing(2, ByteSize::gib(64)).zone_size(ByteSize::gib(100))
        );
    }
}
