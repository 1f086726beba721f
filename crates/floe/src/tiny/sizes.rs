//! The sizes of a store, and their costs.

use std::fmt;
use std::ops::RangeInclusive;

use floe_core::ByteSize;
use floe_core::tiny::PAGE_BYTES;
use floe_core::tiny::nemo::{Costs, NemoPlan};
use serde::Serialize;

use super::config::TinyConfig;
use super::fences::FenceLimits;

/// The sizes of a store with [`TinyEngine::Nemo`](super::TinyEngine::Nemo), and what it is
/// expected to cost once its flash is full of objects of
/// [`object_bytes`](super::NemoConfig::object_bytes).
///
/// [`Display`](fmt::Display) makes a line of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TinySizes {
    /// Independent engines.
    pub instances: u32,
    /// Set-groups of each on flash, those of the index included.
    pub set_groups: u32,
    /// The size of a set-group.
    pub set_group: ByteSize,
    /// The memory of all engines, and the reads of one lookup.
    pub costs: Costs,
    /// Most memory of fences in force and the tables that know them.
    pub fence_bytes: u64,
    /// The size of the RAM tier.
    pub ram: ByteSize,
    /// Bits of the page filters for each object.
    pub page_filter_bits: f64,
    /// The cached share of the index, if there are no page filters.
    pub index_cache_share: f64,
    /// Most memory that the store should take, RAM tier included.
    pub memory_max: ByteSize,
}

/// Set-groups of an instance: fewer evict coarsely, more cost reads.
const SET_GROUPS_GOOD: RangeInclusive<u32> = 60..=1000;

/// No smaller set-groups are proposed.
const SET_GROUP_MIN: u64 = 1 << 20;

impl TinySizes {
    pub(super) fn of(
        plan: &NemoPlan,
        config: &TinyConfig,
        instances: u32,
        fences: &FenceLimits,
    ) -> Self {
        let one = plan.costs();
        let all = |bytes: u64| bytes * u64::from(instances);
        TinySizes {
            instances,
            set_groups: plan.extents(),
            set_group: ByteSize(u64::from(plan.extent_pages()) * PAGE_BYTES as u64),
            costs: Costs {
                buffer_bytes: all(one.buffer_bytes),
                filter_bytes: all(one.filter_bytes),
                hotness_bytes: all(one.hotness_bytes),
                ..one
            },
            fence_bytes: all(fences.memory_max()),
            ram: config.ram,
            page_filter_bits: config.nemo.page_filter_bits,
            index_cache_share: config.nemo.index_cache_share,
            memory_max: config.memory_max(),
        }
    }

    /// Bytes of memory in all.
    pub fn memory_bytes(&self) -> u64 {
        self.costs.memory_bytes() + self.fence_bytes + self.ram.bytes()
    }

    /// Bytes of flash for set-groups.
    pub fn flash_bytes(&self) -> u64 {
        u64::from(self.instances) * u64::from(self.set_groups) * self.set_group.bytes()
    }

    /// Warns of settings that contradict each other.
    pub(super) fn warn(&self, wanted: &TinyConfig) {
        let (memory, most) = (self.memory_bytes(), self.memory_max);
        if memory > most.bytes() {
            tracing::warn!(
                "{self}; that is more than tiny.memory_size = {most}: raise it, or format the \
                 cache with smaller set-groups (tiny.zone_size)"
            );
        } else if self.page_filter_bits < wanted.nemo.page_filter_bits {
            tracing::warn!(
                "tiny.memory_size = {most} has room for page filters of {:.1} bits for each \
                 object, less than tiny.nemo.page_filter_bits = {}; lookups read more pages",
                self.page_filter_bits,
                wanted.nemo.page_filter_bits
            );
        } else if self.index_cache_share < wanted.nemo.index_cache_share {
            tracing::warn!(
                "tiny.memory_size = {most} has room for {:.2} of the index, less than \
                 tiny.nemo.index_cache_share = {}; lookups read more pages",
                self.index_cache_share,
                wanted.nemo.index_cache_share
            );
        }
        let (least, most) = (*SET_GROUPS_GOOD.start(), *SET_GROUPS_GOOD.end());
        let nearest = u64::from(self.set_groups.clamp(least, most));
        let better = self.set_group.bytes() * u64::from(self.set_groups) / nearest;
        if !SET_GROUPS_GOOD.contains(&self.set_groups) && better >= SET_GROUP_MIN {
            let effect = match self.set_groups < least {
                true => "eviction is coarse",
                false => "lookups read many pages",
            };
            tracing::warn!(
                "{} set-groups of {} for each instance of tiny objects: {effect}; set-groups of \
                 about {} are better (tiny.zone_size or tiny.nemo.set_group_pages, for a new cache)",
                self.set_groups,
                self.set_group,
                Rough(better)
            );
        }
    }
}

impl fmt::Display for TinySizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = &self.costs;
        let per_byte = self.memory_bytes() as f64 / self.flash_bytes().max(1) as f64;
        write!(
            f,
            "{} × {} set-groups of {}; up to {} of memory ({} set-groups that fill, {} filters, \
             {} fences, {} hits, {} RAM tier), {} per TiB of flash; about {:.1} flash reads per hit, {:.1} \
             per miss",
            self.instances,
            self.set_groups,
            Rough(self.set_group.bytes()),
            Rough(self.memory_bytes()),
            Rough(costs.buffer_bytes),
            Rough(costs.filter_bytes),
            Rough(self.fence_bytes),
            Rough(costs.hotness_bytes),
            Rough(self.ram.bytes()),
            Rough((per_byte * (1_u64 << 40) as f64) as u64),
            costs.reads_per_hit,
            costs.reads_per_miss,
        )
    }
}

/// Bytes, rounded for people.
struct Rough(u64);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
        for (shift, unit) in units {
            if self.0 >> shift > 0 {
                let size = self.0 as f64 / (1_u64 << shift) as f64;
                let decimals = usize::from(size < 9.95);
                return write!(f, "{size:.decimals$} {unit}");
            }
        }
        write!(f, "{} KiB", self.0.div_ceil(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_for_people() {
        let shown = |bytes| Rough(bytes).to_string();
        assert_eq!(shown(1), "1 KiB");
        assert_eq!(shown(3 << 19), "1.5 MiB");
        assert_eq!(shown((10 << 30) - 1), "10 GiB");
        assert_eq!(shown(0), "0 KiB");
        assert_eq!(shown(30 << 40), "30 TiB");
    }
}
