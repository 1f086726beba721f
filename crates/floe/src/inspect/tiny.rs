//! Caches of tiny objects: superblocks, fences, extents, pages.

use floe_core::layout::tiny::{
    Content, IndexHead, ObjectsPage, PageId, PageKind, TinyEngine, TinyNote, TinySuperblock,
    decode_trailer, decode_trailer_head, open_index, read_page_id,
};
use floe_core::layout::{LayoutError, Superblock};
use floe_core::tiny::PAGE_BYTES;
use floe_core::{Geometry, ZoneId};
use floe_device::{DeviceError, IoBuf, SharedDevice};

use super::finding::{Finding, key_text};
use super::metadata::{LogExtent, log};
use super::{Emitter, InspectError, Scope, check_shape, read, read_failure, tiny_pages};
use crate::metadata_log::{METADATA, other};

/// The metadata zones, which come before those for objects.
const METADATA_ZONES: u32 = 2;

/// Most bytes of one set-group's filters that are held to be checked.
const FILTERS_MAX: u64 = 64 << 20;

/// The superblock that holds, if this is a cache of tiny objects and of
/// nothing else.
pub(super) async fn find<V: FnMut(&Finding)>(
    device: &SharedDevice,
    emitter: &mut Emitter<V>,
) -> Result<Option<TinySuperblock>, InspectError> {
    let mut found = Vec::new();
    for zone in METADATA {
        let block = u64::from(device.geometry().block_size);
        let bytes = read(device, zone, 0, block).await?;
        if Superblock::decode(&bytes).is_ok() {
            return Ok(None);
        }
        found.push((zone, TinySuperblock::decode(&bytes)));
    }
    if found.iter().all(|(_, superblock)| superblock.is_err()) {
        return Ok(None);
    }
    let mut candidates = Vec::new();
    for (zone, superblock) in found {
        match superblock {
            Ok(superblock) => {
                let fences = fences(device, zone, &superblock, emitter).await;
                candidates.push((zone, superblock, fences));
            }
            // The copy in the other zone is written last.
            Err(LayoutError::Blank) => {}
            Err(error) => emitter.damage(zone, 0, "tiny superblock", error),
        }
    }
    if let [
        (
            zone,
            superblock,
            (
                LogExtent {
                    complete: false, ..
                },
                _,
            ),
        ),
    ] = candidates[..]
    {
        // Perhaps the copy of a damaged one.
        let zone = other(zone);
        let fences = fences(device, zone, &superblock, emitter).await;
        if fences.0.complete {
            candidates.push((zone, superblock, fences));
        }
    }
    let current = candidates
        .iter()
        .map(|(_, superblock, (log, _))| (log.complete, superblock.epoch))
        .max();
    let epoch_max = candidates
        .iter()
        .map(|(_, superblock, _)| superblock.epoch)
        .max();
    let mut holds = None;
    for (zone, superblock, (log, fences)) in candidates {
        let is_current = current == Some((log.complete, superblock.epoch));
        emitter.emit(describe(zone, &superblock, is_current));
        // A copy has no fences of its own.
        let is_copy = !is_current && !log.complete && Some(superblock.epoch) == epoch_max;
        if !is_copy {
            emitter.emit(Finding::Fences {
                zone: zone.0,
                epoch: superblock.epoch,
                blocks: log.blocks,
                fences,
                complete: log.complete,
                end_offset: log.end_offset,
            });
        }
        if is_current {
            holds = Some(superblock);
        }
    }
    Ok(holds)
}

fn describe(zone: ZoneId, superblock: &TinySuperblock, current: bool) -> Finding {
    let plan = &superblock.plan;
    Finding::TinySuperblock {
        zone: zone.0,
        current,
        cache_id: superblock.cache_id.to_string(),
        created_unix_s: superblock.formatted_at,
        epoch: superblock.epoch,
        engine: plan.engine.to_string(),
        block_size: plan.block_size,
        zone_count: plan.zone_count,
        zone_size: plan.zone_size,
        zone_capacity: plan.zone_capacity,
        set_group_pages: plan.set_group_pages,
        sets: plan.sets,
        candidates: plan.candidates,
        instances: plan.instances,
    }
}

/// The log of one metadata zone, with the number of fences among its notes.
type Fences = (LogExtent, u64);

async fn fences<V: FnMut(&Finding)>(
    device: &SharedDevice,
    zone: ZoneId,
    superblock: &TinySuperblock,
    emitter: &mut Emitter<V>,
) -> Fences {
    let mut fences = 0;
    let log = log(device, zone, superblock, emitter, |note| {
        fences += u64::from(matches!(note, TinyNote::Fence(_)));
    })
    .await;
    (log, fences)
}

/// Walks the extents of a cache.
pub(super) async fn walk<V: FnMut(&Finding)>(
    device: &SharedDevice,
    scope: Scope,
    superblock: &TinySuperblock,
    emitter: &mut Emitter<V>,
) -> Result<(), InspectError> {
    let plan = &superblock.plan;
    let shape = (
        plan.block_size,
        plan.zone_count,
        plan.zone_size,
        plan.zone_capacity,
    );
    check_shape(device.geometry(), shape)?;
    if plan.engine != TinyEngine::Nemo {
        // The others describe nothing: what lies where only their memory knows.
        tiny_pages::walk(device, scope, superblock, METADATA_ZONES, emitter).await;
        return Ok(());
    }
    let places = Places::new(superblock, device.geometry());
    let mut walk = Walk {
        device,
        scope,
        superblock,
        emitter,
    };
    for instance in 0..plan.instances {
        let mut found = Vec::new();
        let mut oldest = 0;
        for extent in 0..places.extents_of_instance {
            let head = walk.head(&places, instance, extent).await;
            oldest = oldest.max(match &head {
                Head::SetGroup { oldest_live, .. } => *oldest_live,
                Head::IndexGroup(head) => head.oldest_live,
                Head::Blank | Head::Other(_) | Head::Unreadable(_) => 0,
            });
            found.push(head);
        }
        for (extent, head) in (0..).zip(found) {
            let at = places.page(instance, extent, 0);
            if scope.zone.is_none_or(|zone| zone == at.0) {
                walk.extent(&places, instance, extent, head, oldest).await;
            }
        }
    }
    Ok(())
}

/// Where pages lie.
struct Places {
    zone_pages: u64,
    zones_of_instance: u32,
    extents_of_instance: u32,
    extent_pages: u32,
}

impl Places {
    fn new(superblock: &TinySuperblock, geometry: &Geometry) -> Self {
        let plan = &superblock.plan;
        let zone_pages = geometry.zone_capacity / PAGE_BYTES as u64;
        let zones_of_instance = (plan.zone_count - METADATA_ZONES) / plan.instances;
        let pages = zone_pages * u64::from(zones_of_instance);
        let extents = pages / u64::from(plan.set_group_pages.max(1));
        Places {
            zone_pages,
            zones_of_instance,
            extents_of_instance: u32::try_from(extents).unwrap_or(u32::MAX),
            extent_pages: plan.set_group_pages,
        }
    }

    /// The zone of an extent's page, and its offset there.
    fn page(&self, instance: u32, extent: u32, page: u32) -> (ZoneId, u64) {
        let number = u64::from(extent) * u64::from(self.extent_pages) + u64::from(page);
        let zone = METADATA_ZONES
            + instance * self.zones_of_instance
            // Less than the instance's zones.
            + (number / self.zone_pages) as u32;
        let offset = number % self.zone_pages * PAGE_BYTES as u64;
        (ZoneId(zone), offset)
    }
}

/// What the page behind an extent's sets says that it is.
enum Head {
    SetGroup { sequence: u64, oldest_live: u64 },
    IndexGroup(IndexHead),
    Blank,
    Other(String),
    Unreadable(String),
}

struct Walk<'a, V> {
    device: &'a SharedDevice,
    scope: Scope,
    superblock: &'a TinySuperblock,
    emitter: &'a mut Emitter<V>,
}

impl<V: FnMut(&Finding)> Walk<'_, V> {
    async fn read(&self, at: (ZoneId, u64)) -> Result<IoBuf, DeviceError> {
        read(self.device, at.0, at.1, PAGE_BYTES as u64).await
    }

    async fn head(&self, places: &Places, instance: u32, extent: u32) -> Head {
        let at = places.page(instance, extent, self.superblock.plan.sets);
        let bytes = match self.read(at).await {
            Ok(bytes) => bytes,
            Err(error) => return Head::Unreadable(read_failure(&error)),
        };
        let cache = self.superblock.cache_id;
        let read = match read_page_id(cache, &bytes) {
            Ok(id) if id.kind == PageKind::IndexHead => {
                IndexHead::decode(cache, &bytes).map(Head::IndexGroup)
            }
            Ok(id) => decode_trailer_head(cache, id.sequence, &bytes).map(|head| Head::SetGroup {
                sequence: head.sequence,
                oldest_live: head.oldest_live,
            }),
            Err(error) => Err(error),
        };
        match read {
            Ok(head) => head,
            Err(LayoutError::Blank) => Head::Blank,
            Err(error) => Head::Other(error.to_string()),
        }
    }

    async fn extent(
        &mut self,
        places: &Places,
        instance: u32,
        extent: u32,
        head: Head,
        oldest: u64,
    ) {
        let (zone, offset) = places.page(instance, extent, 0);
        let place = (instance, extent);
        match head {
            Head::Blank => self.emitter.emit(Finding::EmptyExtent {
                zone: zone.0,
                offset,
                what: "no filters or head: empty, or was being written".to_owned(),
            }),
            Head::Other(what) => self.emitter.emit(Finding::EmptyExtent {
                zone: zone.0,
                offset,
                what,
            }),
            Head::Unreadable(why) => self.emitter.damage(zone, offset, "extent", why),
            Head::SetGroup { sequence, .. } => {
                let live = sequence >= oldest;
                self.set_group(places, place, sequence, live).await;
            }
            Head::IndexGroup(head) => {
                let end = head.sequence.saturating_add(u64::from(head.columns));
                self.index_group(places, place, &head, end > oldest).await;
            }
        }
    }

    async fn set_group(&mut self, places: &Places, place: (u32, u32), sequence: u64, live: bool) {
        let (zone, offset) = places.page(place.0, place.1, 0);
        self.filters(places, place, sequence).await;
        let (mut objects, mut tombstones, mut value_bytes) = (0, 0, 0);
        let sets = if self.scope.payloads {
            self.superblock.plan.sets
        } else {
            0
        };
        for number in 0..sets {
            let at = places.page(place.0, place.1, number);
            let id = PageId {
                kind: PageKind::Objects,
                sequence,
                number,
            };
            let bytes = match self.read(at).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    let why = read_failure(&error);
                    self.emitter.damage(at.0, at.1, "page of objects", why);
                    continue;
                }
            };
            let page = match ObjectsPage::open(self.superblock.cache_id, id, &bytes) {
                Ok(page) => page,
                Err(error) => {
                    self.emitter.damage(at.0, at.1, "page of objects", error);
                    continue;
                }
            };
            for (slot, object) in (0..).zip(page.objects()) {
                let (tombstone, key, bytes) = match object.content {
                    Content::Tombstone(_) => (true, String::new(), 0),
                    Content::Object { key, value } => (false, key_text(key), value.len()),
                };
                objects += u64::from(!tombstone);
                tombstones += u64::from(tombstone);
                value_bytes += bytes as u64;
                let expires = u64::from(object.expires.0);
                self.emitter.emit(Finding::Object {
                    zone: at.0.0,
                    offset: at.1,
                    slot,
                    key,
                    hash: object.hash(self.superblock.seed).0,
                    sequence,
                    value_bytes: bytes as u64,
                    expiry_unix_s: match expires {
                        0 => 0,
                        after => self.superblock.formatted_at.saturating_add(after),
                    },
                    tombstone,
                });
            }
        }
        self.emitter.emit(Finding::SetGroup {
            zone: zone.0,
            offset,
            sequence,
            live,
            pages: sets,
            objects,
            tombstones,
            value_bytes,
        });
    }

    /// Verifies a set-group's filters.
    async fn filters(&mut self, places: &Places, place: (u32, u32), sequence: u64) {
        let at = places.page(place.0, place.1, self.superblock.plan.sets);
        if let Err(why) = self.check_filters(places, place, sequence).await {
            self.emitter.damage(at.0, at.1, "filters", why);
        }
    }

    async fn check_filters(
        &self,
        places: &Places,
        place: (u32, u32),
        sequence: u64,
    ) -> Result<(), String> {
        let cache = self.superblock.cache_id;
        let sets = self.superblock.plan.sets;
        let page = |number| places.page(place.0, place.1, sets + number);
        let first = self.read(page(0)).await.map_err(|e| read_failure(&e))?;
        let head = decode_trailer_head(cache, sequence, &first).map_err(|e| e.to_string())?;
        let count = head.pages();
        if head.sets != sets || count > places.extent_pages - sets {
            return Err("filters of another plan".to_owned());
        }
        if u64::from(count) * PAGE_BYTES as u64 > FILTERS_MAX {
            return Ok(());
        }
        let mut read = vec![first];
        for number in 1..count {
            let bytes = self.read(page(number)).await;
            read.push(bytes.map_err(|e| read_failure(&e))?);
        }
        let pages: Vec<&[u8]> = read.iter().map(|page| &page[..]).collect();
        decode_trailer(cache, sequence, &pages).map_err(|e| e.to_string())?;
        Ok(())
    }

    async fn index_group(
        &mut self,
        places: &Places,
        place: (u32, u32),
        head: &IndexHead,
        live: bool,
    ) {
        let (zone, offset) = places.page(place.0, place.1, 0);
        if head.sets != self.superblock.plan.sets {
            let why = "an index group of another plan";
            self.emitter.damage(zone, offset, "head of index", why);
            return;
        }
        let pages = if self.scope.payloads { head.sets } else { 0 };
        for number in 0..pages {
            let at = places.page(place.0, place.1, number);
            let id = PageId {
                kind: PageKind::Index,
                sequence: head.sequence,
                number,
            };
            let why = match self.read(at).await {
                Ok(bytes) => open_index(self.superblock.cache_id, id, &bytes)
                    .err()
                    .map(|error| error.to_string()),
                Err(error) => Some(read_failure(&error)),
            };
            if let Some(why) = why {
                self.emitter.damage(at.0, at.1, "page of index", why);
            }
        }
        self.emitter.emit(Finding::IndexGroup {
            zone: zone.0,
            offset,
            sequence: head.sequence,
            live,
            pages,
            columns: head.columns,
            rows: head.rows,
            probes: head.probes,
        });
    }
}
