//! Opening: formats a device, or recovers its engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};

use floe_core::ZoneId;
use floe_core::chunk::METADATA_ZONES;
use floe_core::hash::{HashSeed, KeyHash, fast_range};
use floe_core::layout::tiny::{
    Fence, IndexHead, PageKind, TinyFormatPlan, TinyNote, TinySuperblock, decode_trailer,
    decode_trailer_head, read_page_id,
};
use floe_core::layout::{CacheId, LayoutError};
use floe_core::policy::admission::{Admission, AdmissionConfig};
use floe_core::tiny::nemo::{LoggedBounds, Nemo, NemoPlan, PageFilterShape, Recovery, Survivor};
use floe_core::tiny::{
    Durability, Engine as _, Insert, Label, Object, PAGE_BYTES, Page, PageAddress, Summary,
};
use floe_device::{Clock, SharedDevice, ZoneState};
use futures::StreamExt as _;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::config::TinyConfig;
use super::engine::{AnyEngine, AnyStripe};
use super::fences::{FenceBounds, Fences};
use super::instance::{Instance, State};
use super::journal::{Entry, Journal, Live};
use super::medium::{Medium, Placements};
use super::opening::{OpenTinyError, TinyRecovery};
use super::plan::TinyPlan;
use super::ram::Ram;
use crate::metadata_log::{FindError, Found, Start, newest, other, superblocks};

/// Extents whose summaries are read concurrently.
const PARALLEL: usize = 32;

/// An opened cache.
pub(super) struct Opened {
    pub(super) instances: Arc<[Arc<Instance>]>,
    pub(super) journal: (Journal, JoinHandle<()>),
    pub(super) superblock: TinySuperblock,
    pub(super) recovery: TinyRecovery,
}

/// Opens the cache on a device, or formats a blank one.
pub(super) async fn open(
    device: SharedDevice,
    clock: &Clock,
    config: &TinyConfig,
) -> Result<(TinyPlan, Opened), OpenTinyError> {
    let superblocks = match config.format {
        true => Vec::new(),
        false => read_superblocks(&device).await?,
    };
    let on_flash = superblocks.first().map(|(_, superblock)| superblock.plan);
    let plan = &TinyPlan::new(
        &TinyConfig {
            instances: config.instances.or(on_flash.map(|plan| plan.instances)),
            ..config.clone()
        },
        device.geometry(),
    )?;
    if on_flash.is_none() {
        plan.check_new()?;
    }
    if let Some(sizes) = &plan.sizes {
        sizes.warn(config);
    }
    let found = find(&device, plan, superblocks).await?;
    let opened = match (found, plan.engine.recovery()) {
        (None, _) => format(device, clock, plan, config).await,
        (Some(found), Some(nemo)) if !found.damaged && !is_unfenced(&found) => {
            recover(device, clock, plan, nemo, found).await
        }
        (Some(found), _) => start_empty(device, clock, plan, config, &found).await,
    }?;
    for instance in &*opened.instances {
        instance.medium.say_unwritable(0);
    }
    Ok((plan.clone(), opened))
}

/// The superblocks on the device, the newest first; none if it is blank.
async fn read_superblocks(
    device: &SharedDevice,
) -> Result<Vec<(ZoneId, TinySuperblock)>, OpenTinyError> {
    let explain = |error| {
        let device = device.describe();
        match error {
            FindError::Device(error) => OpenTinyError::Device(error),
            FindError::OtherVersion(source) => OpenTinyError::OtherFormat { device, source },
            FindError::OtherKind(source) | FindError::Foreign(source) => {
                OpenTinyError::ForeignData { device, source }
            }
        }
    };
    superblocks::<TinySuperblock>(device).await.map_err(explain)
}

/// Finds the cache on the device; `None` if the device is blank.
async fn find(
    device: &SharedDevice,
    plan: &TinyPlan,
    found: Vec<(ZoneId, TinySuperblock)>,
) -> Result<Option<Found<TinySuperblock>>, OpenTinyError> {
    if let Some((_, superblock)) = found.first()
        && let Some(mismatch) = superblock.mismatch(&wanted(plan, superblock))
    {
        return Err(OpenTinyError::OtherPlan {
            device: device.describe(),
            mismatch,
        });
    }
    Ok(newest(device, found).await?)
}

/// The plan that an existing cache must have. For volatile engines the number
/// of sets may differ.
fn wanted(plan: &TinyPlan, superblock: &TinySuperblock) -> TinyFormatPlan {
    let sets = match plan.engine.durability() {
        Durability::Volatile if superblock.plan.engine == plan.format.engine => {
            superblock.plan.sets
        }
        _ => plan.format.sets,
    };
    TinyFormatPlan {
        sets,
        ..plan.format
    }
}

/// Formats the metadata zones.
async fn format(
    device: SharedDevice,
    clock: &Clock,
    plan: &TinyPlan,
    config: &TinyConfig,
) -> Result<Opened, OpenTinyError> {
    let formatted_at = clock.unix_seconds();
    let superblock = TinySuperblock {
        // A new id each time, even with a configured seed: pages of an earlier
        // cache on the device must be unreadable.
        cache_id: CacheId(random(config, formatted_at).random()),
        seed: HashSeed(random(config, 0).random()),
        formatted_at,
        epoch: 1,
        plan: plan.format,
    };
    // An old superblock in the other metadata zone must not supersede this one.
    device.reset(ZoneId(1)).await?;
    let recovery = TinyRecovery {
        formatted: true,
        ..TinyRecovery::default()
    };
    begin_empty(device, clock, plan, superblock, ZoneId(0), recovery).await
}

/// True if the last life of the cache wrote without fences, and did not end in order.
fn is_unfenced(found: &Found<TinySuperblock>) -> bool {
    found.records.contains(&TinyNote::Unfenced)
}

/// Discards the objects of an existing cache: its engine is volatile, or any copy may be stale,
/// since its fences were lost or not written.
///
/// The new cache id makes every page written so far unreadable, even if the
/// device brings one back. The key hash stays, and with it the cache's
/// identity.
async fn start_empty(
    device: SharedDevice,
    clock: &Clock,
    plan: &TinyPlan,
    config: &TinyConfig,
    found: &Found<TinySuperblock>,
) -> Result<Opened, OpenTinyError> {
    let epoch = found.epoch_max + 1;
    let superblock = TinySuperblock {
        cache_id: CacheId(random(config, epoch).random()),
        epoch,
        plan: plan.format,
        ..found.superblock
    };
    let unclosed = is_unfenced(found) && plan.engine.recovery().is_some();
    if unclosed {
        tracing::warn!(
            "the cache of tiny objects was not closed, and has no fences (tiny.durability = \
             \"none\"): it starts empty"
        );
    }
    let recovery = TinyRecovery {
        cold: true,
        unclosed,
        journal_damaged: found.damaged,
        ..TinyRecovery::default()
    };
    begin_empty(device, clock, plan, superblock, other(found.zone), recovery).await
}

/// The source of ids in this life of the cache.
fn random(config: &TinyConfig, epoch: u64) -> rand::rngs::StdRng {
    match config.seed {
        Some(seed) => rand::SeedableRng::seed_from_u64(seed ^ epoch << LIFE_SHIFT),
        None => rand::make_rng(),
    }
}

/// The life's number is shifted above the bits that configured seeds usually have.
const LIFE_SHIFT: u32 = 32;

/// Creates empty engines, and a journal that begins in `metadata`.
async fn begin_empty(
    device: SharedDevice,
    clock: &Clock,
    plan: &TinyPlan,
    superblock: TinySuperblock,
    metadata: ZoneId,
    recovery: TinyRecovery,
) -> Result<Opened, OpenTinyError> {
    let zones = Zones::of(&device, plan).await?;
    for zone in zones.active() {
        // Devices that limit active zones still count these.
        device.reset(zone).await?;
    }
    let instances: Arc<[_]> = (0..plan.instances)
        .map(|at| {
            let medium = medium(&device, plan, &superblock, &zones, at);
            let fences = Fences::new(plan.fences);
            let mut engine = plan.engine.engine();
            engine.retire_zones(&|zone| zones.is_unwritable(&medium, zone));
            let stripe = engine.stripe();
            instance(plan, at, (engine, stripe), fences, medium)
        })
        .collect();
    let journal = Journal::begin(
        Start {
            device,
            clock: clock.clone(),
            durability: plan.durability.of_journal(),
            superblock,
            zone: metadata,
        },
        &[],
        fence_bounds(&instances),
    )
    .await?;
    Ok(Opened {
        instances,
        journal,
        superblock,
        recovery,
    })
}

/// Recovers the objects of Nemo.
async fn recover(
    device: SharedDevice,
    clock: &Clock,
    plan: &TinyPlan,
    nemo: &NemoPlan,
    found: Found<TinySuperblock>,
) -> Result<Opened, OpenTinyError> {
    let superblock = TinySuperblock {
        epoch: found.epoch_max + 1,
        ..found.superblock
    };
    let zones = Zones::of(&device, plan).await?;
    let mut recovery = TinyRecovery::default();
    let mut instances = Vec::new();
    let mut entries = Vec::new();
    for at in 0..plan.instances {
        let medium = medium(&device, plan, &superblock, &zones, at);
        let extents = read_summaries(nemo, &medium, &zones).await;
        let known = known(&found.records, at, &extents);
        let mut accepted = Recovery::new(extents.survivors, known);
        read_filters(nemo, &medium, &mut accepted).await;
        recovery.set_groups += accepted.set_groups() as u64;
        recovery.objects += accepted.objects();
        recovery.rejected += accepted.rejected as u64;
        for zone in (0..medium.flash.zones).filter(|zone| zones.is_active(&medium, *zone)) {
            // It is not appended to again: a device with a limit would count it until its reset.
            medium.give_up(zone).await;
        }
        // Zones that may hold a summary are reset before all others, in order:
        // a later recovery might accept it. Others are reset when written.
        let needs_reset =
            |zone| extents.may_have_summary[zone as usize] || zones.is_active(&medium, zone);
        let mut engine = Nemo::recover(nemo.clone(), &accepted, needs_reset);
        // The notes below reject what these zones hold beyond what is accepted.
        engine.retire_zones(&|zone| zones.is_unwritable(&medium, zone));
        let mut stripe = engine.stripe();
        let held = held_fences(plan, &found.records, at, engine.durable());
        for fence in &held {
            let tombstone = Object::tombstone(fence.hash);
            let Insert::Accepted(_) = engine.insert(&mut stripe, tombstone, 0) else {
                return Err(OpenTinyError::TooManyFences);
            };
        }
        recovery.fences += held.len() as u64;
        // The tombstones are in memory and reach flash with the next set-groups.
        let below = engine.durable_when(&stripe);
        let mut holding = Fences::new(plan.fences);
        holding.hold(below, held.len());
        let held = held.into_iter().map(|fence| Fence { below, ..fence });
        // The next recovery must reject what this one rejects.
        let (oldest, next) = (accepted.oldest(), engine.durable());
        let notes = [
            Entry::Note(TinyNote::Gone {
                instance: at,
                below: oldest,
            }),
            Entry::Note(TinyNote::Written {
                instance: at,
                below: next,
            }),
        ];
        let held = held.map(|fence| {
            Entry::Fence(Live {
                instance: at,
                number: 0,
                fence,
            })
        });
        entries.extend(held.chain(notes));
        let engine = AnyEngine::Nemo(Box::new(engine));
        let parts = (engine, AnyStripe::Nemo(Box::new(stripe)));
        instances.push(instance(plan, at, parts, holding, medium));
    }
    let instances: Arc<[_]> = instances.into();
    let journal = Journal::begin(
        Start {
            device,
            clock: clock.clone(),
            durability: plan.durability.of_journal(),
            superblock,
            zone: other(found.zone),
        },
        &entries,
        fence_bounds(&instances),
    )
    .await?;
    Ok(Opened {
        instances,
        journal,
        superblock,
        recovery,
    })
}

/// The bounds of each instance's fences.
fn fence_bounds(instances: &[Arc<Instance>]) -> Arc<[Arc<FenceBounds>]> {
    let bounds = instances.iter().map(|at| Arc::clone(&at.fence_bounds));
    bounds.collect()
}

/// What the last notes say about an instance, given the extents that were found.
fn known(notes: &[TinyNote], at: u32, extents: &Extents) -> LoggedBounds {
    let mut known = LoggedBounds { oldest: 0, next: 0 };
    for note in notes {
        match *note {
            TinyNote::Gone { instance, below } if instance == at => {
                known.oldest = known.oldest.max(below);
            }
            TinyNote::Written { instance, below } if instance == at => {
                known.next = known.next.max(below);
            }
            _ => {}
        }
    }
    // A set-group may lie, without a note that it was written, where nothing can be read
    // now: its sequence counts as used.
    let used = notes.iter().filter_map(|note| match *note {
        TinyNote::Sealing {
            instance,
            page,
            sequence,
        } if instance == at => {
            let is_lost = extents.unreadable.contains(&PageAddress(page));
            (is_lost && !extents.has_set_group(sequence)).then_some(sequence + 1)
        }
        _ => None,
    });
    known.next = used.max().unwrap_or(0).max(known.next);
    known
}

/// An instance's fences in force, given that set-groups below `durable` are on flash.
fn held_fences(plan: &TinyPlan, notes: &[TinyNote], at: u32, durable: u64) -> Vec<Fence> {
    let fence = |note: &TinyNote| match *note {
        TinyNote::Fence(fence) => Some(fence),
        _ => None,
    };
    let holds =
        |fence: &Fence| instance_of(fence.hash, plan.instances) == at && durable < fence.below;
    notes.iter().filter_map(fence).filter(holds).collect()
}

/// The instance of a key.
pub(super) fn instance_of(hash: KeyHash, instances: u32) -> u32 {
    fast_range(hash.0, instances as usize) as u32
}

fn medium(
    device: &SharedDevice,
    plan: &TinyPlan,
    superblock: &TinySuperblock,
    zones: &Zones,
    at: u32,
) -> Medium {
    let first_zone = plan.first_zone(at);
    let of_instance = first_zone..first_zone + plan.flash.zones;
    let of_device = zones.0.iter().skip(first_zone as usize);
    let here = of_device.take(plan.flash.zones as usize);
    let unwritable = here.filter(|state| state.is_unwritable()).count() as u32;
    let is_empty = |zone: u32| zones.0.get(zone as usize) == Some(&ZoneState::Empty);
    Medium {
        device: Arc::clone(device),
        id: superblock.cache_id,
        seed: superblock.seed,
        life: superblock.epoch,
        first_zone,
        flash: plan.flash,
        placements: Placements::of(&plan.handles(), at),
        unwritable: AtomicU32::new(unwritable),
        lives: of_instance
            .map(|zone| AtomicU32::new(u32::from(is_empty(zone))))
            .collect(),
        versions: (0..plan.flash.pages())
            .filter(|_| plan.writes_in_place)
            .map(|_| AtomicU16::new(0))
            .collect(),
    }
}

fn instance(
    plan: &TinyPlan,
    number: u32,
    parts: (AnyEngine, AnyStripe),
    fences: Fences,
    medium: Medium,
) -> Arc<Instance> {
    // `TinyPlan::new` has validated the policy.
    let seed = medium.seed.0 ^ u64::from(medium.first_zone);
    let admission = Admission::new(&plan.admission, seed)
        .or_else(|_| Admission::new(&AdmissionConfig::default(), seed))
        .ok();
    let ram = Ram::new(
        plan.ram_bytes / u64::from(plan.instances),
        plan.object_bytes,
        admission,
    );
    Arc::new(Instance {
        number,
        fence_bounds: Arc::new(FenceBounds::new(parts.0.durable())),
        state: Mutex::new(State::new(parts, fences)),
        ram: Mutex::new(ram),
        medium,
        durability: plan.engine.durability(),
        set_group_sets: plan.engine.set_group_sets(),
        look_before_fence: plan.look_before_fence,
        is_short: AtomicBool::new(false),
        was_held: AtomicBool::new(false),
        work: Notify::new(),
        room: Notify::new(),
        closing: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
        frozen: AtomicBool::new(false),
    })
}

/// The states of the device's zones.
struct Zones(Vec<ZoneState>);

impl Zones {
    async fn of(device: &SharedDevice, plan: &TinyPlan) -> Result<Self, OpenTinyError> {
        let mut zones = vec![ZoneState::Unknown; plan.geometry.zone_count as usize];
        for report in device.report().await? {
            if let Some(state) = zones.get_mut(report.zone.index()) {
                *state = report.state;
            }
        }
        Ok(Zones(zones))
    }

    /// Data zones that are open or closed, but not finished.
    fn active(&self) -> impl Iterator<Item = ZoneId> {
        let for_objects = (0..).zip(&self.0).skip(METADATA_ZONES as usize);
        for_objects
            .filter(|(_, state)| matches!(state, ZoneState::Open | ZoneState::Closed))
            .map(|(zone, _)| ZoneId(zone))
    }

    fn is_unwritable(&self, medium: &Medium, zone: u32) -> bool {
        let state = self.0.get(medium.zone(zone).index());
        state.is_some_and(|state| state.is_unwritable())
    }

    fn is_active(&self, medium: &Medium, zone: u32) -> bool {
        let state = self.0.get(medium.zone(zone).index());
        matches!(state, Some(ZoneState::Open | ZoneState::Closed))
    }
}

/// The extents of an instance, as read from flash.
struct Extents {
    /// Extents with a valid summary.
    survivors: Vec<Survivor>,
    /// For each zone: whether a page at a summary's place is not blank, or is unreadable.
    may_have_summary: Vec<bool>,
    /// Unreadable pages at the place of a summary.
    unreadable: Vec<PageAddress>,
}

impl Extents {
    fn has_set_group(&self, sequence: u64) -> bool {
        self.survivors
            .iter()
            .any(|survivor| !survivor.summary.of_index && survivor.summary.sequence == sequence)
    }
}

/// The place of an extent's summary, as read.
enum Place {
    Blank,
    Unreadable,
    Written(Option<Summary>),
}

/// Reads the first summary page of every extent, except on zones that are offline.
async fn read_summaries(plan: &NemoPlan, medium: &Medium, zones: &Zones) -> Extents {
    let page_of = |extent| PageAddress(extent * plan.extent_pages() + plan.sets());
    let read: Vec<(u32, Place)> = futures::stream::iter(0..plan.extents())
        .map(async |extent| {
            let page = page_of(extent);
            let zone = medium.zone(medium.flash.zone_of(page));
            if zones.0.get(zone.index()) == Some(&ZoneState::Offline) {
                return (extent, Place::Unreadable);
            }
            let Ok(bytes) = medium.read(page).await else {
                return (extent, Place::Unreadable);
            };
            let place = match read_page_id(medium.id, &bytes) {
                Err(LayoutError::Blank) => Place::Blank,
                _ => Place::Written(summary(plan, medium, &bytes)),
            };
            (extent, place)
        })
        .buffered(PARALLEL)
        .collect()
        .await;
    let mut extents = Extents {
        survivors: Vec::new(),
        may_have_summary: vec![false; medium.flash.zones as usize],
        unreadable: Vec::new(),
    };
    for (extent, place) in read {
        match place {
            Place::Blank => continue,
            Place::Unreadable => extents.unreadable.push(page_of(extent)),
            Place::Written(summary) => {
                let survivor = summary.map(|summary| Survivor { extent, summary });
                extents.survivors.extend(survivor);
            }
        }
        let pages = extent * plan.extent_pages()..(extent + 1) * plan.extent_pages();
        let first = medium.flash.zone_of(PageAddress(pages.start));
        let last = medium.flash.zone_of(PageAddress(pages.end - 1));
        extents.may_have_summary[first as usize..=last as usize].fill(true);
    }
    extents
}

/// Decodes the summary that begins in `page`, without its filters.
fn summary(plan: &NemoPlan, medium: &Medium, page: &[u8]) -> Option<Summary> {
    let id = read_page_id(medium.id, page).ok()?;
    match id.kind {
        PageKind::Filters if id.number == 0 => {
            let head = decode_trailer_head(medium.id, id.sequence, page).ok()?;
            (head.sets == plan.sets()).then(|| Summary {
                of_index: false,
                sequence: head.sequence,
                oldest: head.oldest_live,
                objects: head.objects,
                columns: head.columns,
                rows: head.rows,
                probes: head.probes,
                page_filter: PageFilterShape::NONE,
                filters: Box::default(),
            })
        }
        PageKind::IndexHead => {
            let head = IndexHead::decode(medium.id, page).ok()?;
            (head.sets == plan.sets()).then(|| Summary {
                of_index: true,
                sequence: head.sequence,
                oldest: head.oldest_live,
                objects: 0,
                columns: head.columns,
                rows: head.rows,
                probes: head.probes,
                page_filter: head.page_filter,
                filters: Box::default(),
            })
        }
        PageKind::Filters | PageKind::Objects | PageKind::Index => None,
    }
}

/// Reads the filters of set-groups that no index group covers, or rebuilds them
/// if the summary had no room for them. Unreadable filters are set to match
/// every key, so that a search reads the page.
async fn read_filters(plan: &NemoPlan, medium: &Medium, accepted: &mut Recovery) {
    for survivor in accepted.unindexed() {
        let first = survivor.extent * plan.extent_pages() + plan.sets();
        let count = plan.extent_pages() - plan.sets();
        let pages: Vec<PageAddress> = (first..first + count).map(PageAddress).collect();
        let read = medium.read_runs(&pages).await;
        let pages: Vec<&[u8]> = read
            .iter()
            .map_while(|page| page.as_ref().map(|page| &page[..]))
            .collect();
        let sequence = survivor.summary.sequence;
        let bits = plan.sets() as usize * survivor.summary.rows as usize;
        survivor.summary.filters = match decode_trailer(medium.id, sequence, &pages) {
            Ok((head, filters)) if head.has_filters => filters.into(),
            Ok(_) => filters_of_sets(plan, medium, survivor).await,
            Err(_) => vec![0xff; bits.div_ceil(8)].into(),
        };
    }
}

/// Sets of a set-group that are read concurrently.
const SETS_AT_ONCE: usize = 64;

/// Rebuilds a set-group's filters from its sets.
async fn filters_of_sets(plan: &NemoPlan, medium: &Medium, survivor: &Survivor) -> Box<[u8]> {
    let first = survivor.extent * plan.extent_pages();
    let pages: Vec<PageAddress> = (first..first + plan.sets()).map(PageAddress).collect();
    let mut sets = Vec::with_capacity(pages.len());
    for pages in pages.chunks(SETS_AT_ONCE) {
        for (page, bytes) in pages.iter().zip(medium.read_runs(pages).await) {
            let label = Label {
                sequence: survivor.summary.sequence,
                number: page.0 - first,
            };
            sets.push(match medium.objects(label, bytes.as_deref()) {
                Some(Page::Objects(objects)) => Some(hashes_of(&objects)),
                Some(Page::Index(_)) | None => None,
            });
        }
    }
    survivor.summary.filters_of(&sets)
}

fn hashes_of(objects: &[Object]) -> Vec<KeyHash> {
    objects.iter().map(|object| object.hash).collect()
}

/// The layout fixes the page size.
const _: () = assert!(PAGE_BYTES == 4096);
