//! From flash to running engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use floe_core::ZoneId;
use floe_core::hash::{HashSeed, KeyHash, fast_range};
use floe_core::layout::tiny::{
    Fence, IndexHead, PageKind, TinySuperblock, decode_trailer, decode_trailer_head, read_page_id,
};
use floe_core::layout::{CacheId, LayoutError};
use floe_core::policy::admission::{Admission, AdmissionConfig};
use floe_core::tiny::nemo::{Nemo, Recovery, Survivor};
use floe_core::tiny::{Engine as _, Insert, Object, PAGE_BYTES, PageAddress, Summary};
use floe_device::{Address, Clock, SharedDevice, ZoneState};
use futures::StreamExt as _;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::Notify;

use super::config::{TinyConfig, TinyPlan};
use super::instance::{Instance, State};
use super::journal::{JournalTask, Scan, is_gone, scan};
use super::medium::Medium;
use super::ram::Ram;
use super::{OpenTinyError, TinyRecovery};
use crate::metadata::{FOREIGN_CHECK_BYTES, other};

/// Extents whose summaries are read at once.
const PARALLEL: usize = 32;

/// What opening makes.
pub(super) struct Opened {
    pub(super) instances: Arc<[Arc<Instance>]>,
    pub(super) journal: JournalTask,
    pub(super) superblock: TinySuperblock,
    pub(super) recovery: TinyRecovery,
}

/// The newest complete metadata zone.
struct Found {
    zone: ZoneId,
    superblock: TinySuperblock,
    scan: Scan,
    epoch_max: u64,
}

pub(super) async fn open(
    device: SharedDevice,
    clock: &Clock,
    plan: &TinyPlan,
    config: &TinyConfig,
) -> Result<Opened, OpenTinyError> {
    let found = if config.format {
        None
    } else {
        find(&device, plan).await?
    };
    match found {
        Some(found) => recover(device, plan, found).await,
        None => format(device, clock, plan, config).await,
    }
}

/// Looks for the cache that the device holds; `None` if it is blank.
async fn find(device: &SharedDevice, plan: &TinyPlan) -> Result<Option<Found>, OpenTinyError> {
    let mut best: Option<Found> = None;
    let mut epoch_max = 0;
    for zone in [ZoneId(0), ZoneId(1)] {
        let len = FOREIGN_CHECK_BYTES.min(plan.geometry.zone_capacity) as usize;
        let head = device
            .read(Address::new(zone, 0), device.allocate(len))
            .await?;
        let superblock = match TinySuperblock::decode(&head) {
            Ok(superblock) => superblock,
            Err(LayoutError::Blank) if head.iter().all(|byte| *byte == 0) => continue,
            // A metadata zone that was being begun when the process died.
            Err(LayoutError::BadChecksum) => continue,
            Err(error @ LayoutError::UnsupportedVersion { .. }) => {
                return Err(OpenTinyError::OtherFormat {
                    device: device.describe(),
                    source: error,
                });
            }
            Err(error) => {
                return Err(OpenTinyError::ForeignData {
                    device: device.describe(),
                    source: error,
                });
            }
        };
        epoch_max = epoch_max.max(superblock.epoch);
        if let Some(mismatch) = superblock.mismatch(&plan.format) {
            return Err(OpenTinyError::OtherPlan {
                device: device.describe(),
                mismatch,
            });
        }
        let scan = scan(device, &superblock, zone).await?;
        let newer = best
            .as_ref()
            .is_none_or(|best| best.superblock.epoch < superblock.epoch);
        if scan.complete && newer {
            best = Some(Found {
                zone,
                superblock,
                scan,
                epoch_max,
            });
        }
    }
    Ok(best.map(|best| Found { epoch_max, ..best }))
}

async fn format(
    device: SharedDevice,
    clock: &Clock,
    plan: &TinyPlan,
    config: &TinyConfig,
) -> Result<Opened, OpenTinyError> {
    let mut random: rand::rngs::StdRng = match config.seed {
        Some(seed) => rand::SeedableRng::seed_from_u64(seed),
        None => rand::make_rng(),
    };
    let superblock = TinySuperblock {
        cache_id: CacheId(random.random()),
        seed: HashSeed(random.random()),
        formatted_at: clock.unix_seconds(),
        epoch: 1,
        plan: plan.format,
    };
    // The other metadata zone must not be taken for a newer one.
    device.reset(ZoneId(1)).await?;
    let journal = JournalTask::begin(
        Arc::clone(&device),
        plan.durability,
        superblock,
        ZoneId(0),
        Vec::new(),
    )
    .await?;
    let empty = unwritten(&device, plan).await?;
    let instances = (0..plan.instances)
        .map(|at| {
            let none = Recovery::new(Vec::new(), 0);
            let medium = medium(&device, plan, &superblock, at);
            let written = |zone| !empty[medium.zone(zone).index()];
            instance(
                plan,
                Nemo::recover(plan.nemo.clone(), &none, written),
                medium,
            )
        })
        .collect();
    Ok(Opened {
        instances,
        journal,
        superblock,
        recovery: TinyRecovery {
            formatted: true,
            ..TinyRecovery::default()
        },
    })
}

async fn recover(
    device: SharedDevice,
    plan: &TinyPlan,
    found: Found,
) -> Result<Opened, OpenTinyError> {
    let mut recovery = TinyRecovery {
        journal_damaged: found.scan.damaged,
        ..TinyRecovery::default()
    };
    let empty = unwritten(&device, plan).await?;
    let mut instances = Vec::new();
    let mut fences = Vec::new();
    for at in 0..plan.instances {
        let medium = medium(&device, plan, &found.superblock, at);
        let survivors = if found.scan.damaged {
            // Fences are lost: anything could be outdated.
            Vec::new()
        } else {
            survivors(plan, &medium).await
        };
        let of_scan = found.scan.fences.iter();
        let gone = of_scan.filter(|fence| is_gone(fence) == Some(at));
        let oldest = gone.clone().map(|fence| fence.below).max().unwrap_or(0);
        let mut believed = Recovery::new(survivors, oldest);
        read_filters(plan, &medium, &mut believed).await;
        recovery.set_groups += believed.set_groups() as u64;
        recovery.objects += believed.objects();
        recovery.disbelieved += believed.disbelieved as u64;
        let written = |zone| !empty[medium.zone(zone).index()];
        let mut engine = Nemo::recover(plan.nemo.clone(), &believed, written);
        let durable = engine.durable();
        let held: Vec<Fence> = found
            .scan
            .fences
            .iter()
            .filter(|fence| {
                is_gone(fence).is_none()
                    && instance_of(fence.hash, plan.instances) == at
                    && durable < fence.below
            })
            .copied()
            .collect();
        for fence in &held {
            let tombstone = Object::tombstone(fence.hash);
            let Insert::Accepted(_) = engine.insert(tombstone, 0) else {
                return Err(OpenTinyError::TooManyFences);
            };
        }
        recovery.fences += held.len() as u64;
        // The tombstones are in memory, as what they stand for was.
        let below = engine.durable_when();
        fences.extend(held.into_iter().map(|fence| (at, Fence { below, ..fence })));
        fences.extend(gone.map(|fence| (at, *fence)));
        instances.push(instance(plan, engine, medium));
    }
    let superblock = TinySuperblock {
        epoch: found.epoch_max + 1,
        ..found.superblock
    };
    let journal = JournalTask::begin(
        Arc::clone(&device),
        plan.durability,
        superblock,
        other(found.zone),
        fences,
    )
    .await?;
    Ok(Opened {
        instances: instances.into(),
        journal,
        superblock,
        recovery,
    })
}

/// The instance that a key belongs to.
pub(super) fn instance_of(hash: KeyHash, instances: u32) -> u32 {
    fast_range(hash.0, instances as usize) as u32
}

fn medium(device: &SharedDevice, plan: &TinyPlan, superblock: &TinySuperblock, at: u32) -> Medium {
    Medium {
        device: Arc::clone(device),
        id: superblock.cache_id,
        seed: superblock.seed,
        first_zone: plan.first_zone(at),
        flash: plan.flash,
    }
}

fn instance(plan: &TinyPlan, engine: Nemo, medium: Medium) -> Arc<Instance> {
    // The plan has checked it.
    let seed = medium.seed.0 ^ u64::from(medium.first_zone);
    let admission = Admission::new(&plan.admission, seed)
        .or_else(|_| Admission::new(&AdmissionConfig::default(), seed))
        .ok();
    let ram = Ram::new(
        plan.ram_bytes / u64::from(plan.instances),
        plan.object_bytes,
    );
    Arc::new(Instance {
        durable: AtomicU64::new(engine.durable()),
        state: Mutex::new(State {
            engine,
            ram,
            admission,
        }),
        medium,
        sets: plan.nemo.sets(),
        work: Notify::new(),
        room: Notify::new(),
        stopping: AtomicBool::new(false),
    })
}

/// Of each zone of the device, whether it says that nothing was written to it.
async fn unwritten(device: &SharedDevice, plan: &TinyPlan) -> Result<Vec<bool>, OpenTinyError> {
    let mut empty = vec![false; plan.geometry.zone_count as usize];
    for report in device.report().await? {
        if let Some(empty) = empty.get_mut(report.zone.index()) {
            *empty = report.state == ZoneState::Empty;
        }
    }
    Ok(empty)
}

/// Every extent of an instance that ends in a summary.
async fn survivors(plan: &TinyPlan, medium: &Medium) -> Vec<Survivor> {
    futures::stream::iter(0..plan.nemo.extents())
        .map(async |extent| {
            let page = PageAddress(extent * plan.nemo.extent_pages() + plan.nemo.sets());
            let bytes = medium.read(page).await.ok()?;
            let summary = summary(plan, medium, &bytes)?;
            Some(Survivor { extent, summary })
        })
        .buffered(PARALLEL)
        .filter_map(async |survivor| survivor)
        .collect()
        .await
}

/// The summary that begins in `page`, without its filters.
fn summary(plan: &TinyPlan, medium: &Medium, page: &[u8]) -> Option<Summary> {
    let id = read_page_id(medium.id, page).ok()?;
    match id.kind {
        PageKind::Filters if id.number == 0 => {
            let head = decode_trailer_head(medium.id, id.sequence, page).ok()?;
            (head.sets == plan.nemo.sets()).then(|| Summary {
                of_index: false,
                sequence: head.sequence,
                oldest: head.oldest_live,
                objects: head.objects,
                columns: head.columns,
                rows: head.rows,
                probes: head.probes,
                filters: Box::default(),
            })
        }
        PageKind::IndexHead => {
            let head = IndexHead::decode(medium.id, page).ok()?;
            (head.sets == plan.nemo.sets()).then(|| Summary {
                of_index: true,
                sequence: head.sequence,
                oldest: head.oldest_live,
                objects: 0,
                columns: head.columns,
                rows: head.rows,
                probes: head.probes,
                filters: Box::default(),
            })
        }
        PageKind::Filters | PageKind::Objects | PageKind::Index => None,
    }
}

/// Reads the filters of set-groups that no index group speaks of. Where they
/// cannot be read, the set-group's objects are only found by reading every
/// page: its filters say that everything may be there.
async fn read_filters(plan: &TinyPlan, medium: &Medium, believed: &mut Recovery) {
    for survivor in believed.unindexed() {
        let first = survivor.extent * plan.nemo.extent_pages() + plan.nemo.sets();
        let count = plan.nemo.extent_pages() - plan.nemo.sets();
        let pages: Vec<PageAddress> = (first..first + count).map(PageAddress).collect();
        let read = medium.read_all(&pages).await;
        let pages: Vec<&[u8]> = read
            .iter()
            .map_while(|page| page.as_ref().map(|page| &page[..]))
            .collect();
        let sequence = survivor.summary.sequence;
        let bits = plan.nemo.sets() as usize * survivor.summary.rows as usize;
        survivor.summary.filters = match decode_trailer(medium.id, sequence, &pages) {
            Ok((_, filters)) => filters.into(),
            Err(_) => vec![0xff; bits.div_ceil(8)].into(),
        };
    }
}

/// A page has as many bytes as the layout says.
const _: () = assert!(PAGE_BYTES == 4096);
