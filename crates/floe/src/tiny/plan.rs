//! The validated plan: settings that a device can carry out.

use floe_core::chunk::METADATA_ZONES;
use floe_core::hash::KeyHash;
use floe_core::layout::tiny::{TINY_NOTE_BYTES, TinyEngine, TinyFormatPlan, TinySuperblock};
use floe_core::placement::{Handles, Stream};
use floe_core::policy::admission::{AdmissionConfig, WriteBudgetConfig};
use floe_core::tiny::nemo::NemoPlan;
use floe_core::tiny::{Flash, Object, PAGE_BYTES, PAGE_ROOM_BYTES, PlanError, SetStorage};
use floe_core::{ByteSize, Geometry};

use super::config::{LookBeforeFence, TinyConfig, TinyDurability};
use super::engine::EnginePlan;
use super::fences::FenceLimits;
use super::journal::LOG_BYTES_MAX;
use super::sizes::TinySizes;

/// A validated configuration for a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TinyPlan {
    pub(super) geometry: Geometry,
    pub(super) durability: TinyDurability,
    pub(super) look_before_fence: LookBeforeFence,
    pub(super) instances: u32,
    /// The flash of each instance.
    pub(super) flash: Flash,
    pub(super) engine: EnginePlan,
    /// The sizes and costs of a Nemo.
    pub(super) sizes: Option<TinySizes>,
    pub(super) writes_in_place: bool,
    pub(super) format: TinyFormatPlan,
    pub(super) fences: FenceLimits,
    pub(super) ram_bytes: u64,
    pub(super) admission: AdmissionConfig,
    pub(super) object_bytes: u32,
}

/// One instance's share of the admission policy.
fn share(admission: &AdmissionConfig, instances: u32) -> AdmissionConfig {
    match admission {
        AdmissionConfig::WriteBudget(budget) => AdmissionConfig::WriteBudget(WriteBudgetConfig {
            bytes_per_day: ByteSize(budget.bytes_per_day.bytes() / u64::from(instances)),
            ..*budget
        }),
        other => other.clone(),
    }
}

/// Entries in an instance's table of fences, per set of a set-group; the table
/// takes a tenth of a set-group's memory.
const FENCES_PER_SET: u32 = 16;

/// Set-groups that a fence stays in force beyond its need: their share of all
/// on flash, and their maximum.
const FENCES_LONGER_SHARE: u32 = 16;
const FENCES_LONGER_MAX: u32 = 8;

/// Fewest fences that an instance can work with.
const FENCES_MIN: u64 = 64;

/// For engines whose objects are lost when the process ends.
const NO_FENCES: FenceLimits = FenceLimits {
    slots: 0,
    longer: 0,
    held_max: usize::MAX,
};

/// The limits on an instance's fences.
fn fence_limits(
    nemo: &NemoPlan,
    geometry: &Geometry,
    instances: u32,
) -> Result<FenceLimits, PlanError> {
    // Recovery inserts fences into memory as tombstones. Half of it must take
    // twice `held_max`, because a crash may leave as many stale fences in the
    // journal.
    let pages = u64::from(nemo.sets()) * u64::from(nemo.memory_set_groups());
    let tombstone = Object::tombstone(KeyHash(0)).stored_bytes();
    let recovered = pages * (PAGE_ROOM_BYTES / tombstone / 4) as u64;
    let journaled = journaled_fences(geometry, instances)?;
    Ok(FenceLimits {
        slots: (nemo.sets() * FENCES_PER_SET) as usize,
        longer: u64::from((nemo.extents() / FENCES_LONGER_SHARE).min(FENCES_LONGER_MAX)),
        held_max: journaled.min(recovered) as usize,
    })
}

/// Most fences of an instance in the journal: their checkpoint leaves most of a
/// metadata zone free, and twice as many still fit.
fn journaled_fences(geometry: &Geometry, instances: u32) -> Result<u64, PlanError> {
    let zone = geometry.zone_capacity.min(LOG_BYTES_MAX);
    let head = TinySuperblock::encoded_bytes(geometry.block_size) as u64;
    let room = (zone / 8 * 3).saturating_sub(head) / TINY_NOTE_BYTES as u64;
    let most = room / FENCES_MIN;
    if most == 0 {
        let least = (head + FENCES_MIN * TINY_NOTE_BYTES as u64) * 8 / 3;
        return Err(PlanError::new(
            "tiny.zone_size",
            ByteSize(zone),
            "a zone of this size has no room for the journal of overwrites",
            format!("the least is {}", ByteSize(least.next_power_of_two())),
        ));
    }
    if u64::from(instances) > most {
        return Err(PlanError::new(
            "tiny.instances",
            instances,
            format!(
                "a metadata zone of {} has room for the journal of {most}",
                ByteSize(zone)
            ),
            format!("the nearest that works is {most}, or use larger zones (tiny.zone_size)"),
        ));
    }
    Ok(room / u64::from(instances))
}

/// Zones that instances may append to at a time: those that the device can have open, without
/// those of the metadata.
fn zones_appended(geometry: &Geometry) -> u32 {
    let limits = [geometry.max_open_zones, geometry.max_active_zones];
    let most = limits.into_iter().flatten().min();
    most.map_or(u32::MAX, |most| most.saturating_sub(METADATA_ZONES).max(1))
}

/// Fewest zones of an instance.
const ZONES_PER_INSTANCE_MIN: u32 = 4;

impl TinyConfig {
    /// Checks whether an engine can run with these settings on a device of this geometry.
    ///
    /// # Errors
    /// Names the setting, its limit, and a value that works.
    pub fn check(&self, geometry: &Geometry) -> Result<(), PlanError> {
        TinyPlan::new(self, geometry)?.check_new()
    }
}

impl TinyPlan {
    pub(super) fn new(config: &TinyConfig, geometry: &Geometry) -> Result<Self, PlanError> {
        let page = PAGE_BYTES as u64;
        if u64::from(geometry.block_size) > page {
            return Err(PlanError::new(
                "tiny.block_size",
                geometry.block_size,
                format!("pages of tiny objects have {page} bytes"),
                "4096 suits every device",
            ));
        }
        let zones = geometry.zone_count.saturating_sub(METADATA_ZONES);
        let most = zones / ZONES_PER_INSTANCE_MIN;
        if most == 0 {
            let least = METADATA_ZONES + ZONES_PER_INSTANCE_MIN;
            let size = ByteSize(u64::from(least) * geometry.zone_size);
            return Err(PlanError::new(
                "tiny.size",
                ByteSize(u64::from(geometry.zone_count) * geometry.zone_size),
                format!(
                    "it has {} zones of {}; {least} are needed ({METADATA_ZONES} for metadata)",
                    geometry.zone_count,
                    ByteSize(geometry.zone_size),
                ),
                format!("the least is {size}, or use smaller zones (tiny.zone_size)"),
            ));
        }
        let zone_pages = u32::try_from(geometry.zone_capacity / page).unwrap_or(u32::MAX);
        let of = |zones| Flash {
            zones,
            zone_pages,
            in_place: geometry.random_writes,
        };
        let sizing = config.sizing(1);
        let instances = match (config.instances, config.engine) {
            (Some(instances), _) => instances,
            (None, TinyEngine::Nemo) => sizing
                .instances(&of(zones))
                .min(most)
                .min(zones_appended(geometry)),
            (None, _) => 1,
        };
        if instances == 0 || instances > most {
            return Err(PlanError::new(
                "tiny.instances",
                instances,
                format!("{zones} zones are enough for 1 to {most}"),
                format!(
                    "the nearest that works is {}",
                    instances.clamp(1, most.max(1))
                ),
            ));
        }
        let flash = of(zones / instances);
        config.admission.check().map_err(|error| {
            PlanError::new(error.setting, error.value, error.limit, error.nearest)
        })?;
        // The settings as given first: an error should name them.
        EnginePlan::new(config, &flash)?;
        let fitted = TinyConfig {
            nemo: sizing.fitted(&flash, instances),
            ..config.clone()
        };
        let engine = EnginePlan::new(&fitted, &flash)?;
        let fences = match engine.recovery() {
            Some(nemo) => fence_limits(nemo, geometry, instances)?,
            None => NO_FENCES,
        };
        let nemo = engine.recovery();
        Ok(TinyPlan {
            sizes: nemo.map(|nemo| TinySizes::of(nemo, &fitted, instances, &fences)),
            durability: config.durability,
            look_before_fence: config.look_before_fence,
            fences,
            ram_bytes: config.ram.bytes(),
            admission: share(&config.admission, instances),
            object_bytes: config.nemo.object_bytes,
            instances,
            flash,
            format: engine.format(geometry, instances, config.nemo.candidates),
            engine,
            writes_in_place: match config.engine {
                TinyEngine::Set => true,
                TinyEngine::Kangaroo => config.kangaroo.set_storage == SetStorage::InPlace,
                TinyEngine::Nemo | TinyEngine::Log | TinyEngine::FairyWren => false,
            },
            geometry: geometry.clone(),
        })
    }

    /// Checks what only a new cache must fulfil: one that exists keeps its instances.
    ///
    /// # Errors
    /// If more instances append at a time than the device can have open zones.
    pub(super) fn check_new(&self) -> Result<(), PlanError> {
        let appended = zones_appended(&self.geometry);
        match self.instances <= appended {
            true => Ok(()),
            false => Err(PlanError::new(
                "tiny.instances",
                self.instances,
                format!("the device has open zones for {appended}"),
                format!("the nearest that works is {appended}"),
            )),
        }
    }

    /// The placement of each stream of writes.
    pub(super) fn handles(&self) -> Handles {
        let appends = self.format.engine != TinyEngine::Set;
        let of_instance = |at| {
            [
                appends.then_some(Stream::Appended(at)),
                self.engine.recovery().map(|_| Stream::Index(at)),
                self.writes_in_place.then_some(Stream::InPlace(at)),
            ]
        };
        let of_instances = (0..self.instances).flat_map(of_instance).flatten();
        let streams = of_instances.chain([Stream::Metadata]);
        Handles::new(self.geometry.placement_handles, streams)
    }

    /// The first zone of an instance.
    pub(super) fn first_zone(&self, instance: u32) -> u32 {
        METADATA_ZONES + instance * self.flash.zones
    }
}
