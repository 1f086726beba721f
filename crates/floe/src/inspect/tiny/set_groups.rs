//! Inspects the set-groups and index groups of Nemo.

use std::future::Future;

use floe_core::chunk::METADATA_ZONES;
use floe_core::layout::LayoutError;
use floe_core::layout::tiny::{
    Content, IndexHead, ObjectsPage, PageId, PageKind, TinySuperblock, decode_trailer,
    decode_trailer_head, open_index, read_page_id,
};
use floe_core::tiny::PAGE_BYTES;
use floe_core::{Geometry, ZoneId};
use floe_device::{DeviceError, IoBuf};

use super::super::finding::{Finding, key_text};
use super::super::inspection::{Inspection, read_failure};

/// Most bytes of one set-group's filters that are held to be checked.
const FILTERS_MAX: u64 = 64 << 20;

/// Walks the extents of a cache.
pub(super) async fn walk(superblock: &TinySuperblock, inspection: &mut Inspection<'_>) {
    let scope = inspection.scope;
    let places = Places::new(superblock, inspection.device.geometry());
    let mut walk = Walk {
        superblock,
        inspection,
    };
    for instance in 0..superblock.plan.instances {
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
            if scope.includes(at.0) {
                walk.extent(&places, instance, extent, head, oldest).await;
            }
        }
    }
}

/// The layout of pages in zones.
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

    /// Of the set-groups from `oldest` on, which count, those below this one can have been reset
    /// for the next ones: a zone may have several.
    fn may_be_reset_below(&self, oldest: u64) -> u64 {
        let of_zone = self.zone_pages / u64::from(self.extent_pages.max(1));
        oldest.saturating_add(RESET_EXTENTS_MAX * of_zone.max(1))
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

/// The page behind the sets of an extent.
enum Head {
    SetGroup { sequence: u64, oldest_live: u64 },
    IndexGroup(IndexHead),
    Blank,
    Other(String),
    Unreadable(String),
}

/// Most extents whose zones are reset before the next set-group names the oldest: one for it, and
/// one for an index group.
const RESET_EXTENTS_MAX: u64 = 2;

struct Walk<'a, 'd> {
    superblock: &'a TinySuperblock,
    inspection: &'a mut Inspection<'d>,
}

impl<'d> Walk<'_, 'd> {
    fn read(
        &self,
        at: (ZoneId, u64),
    ) -> impl Future<Output = Result<IoBuf, DeviceError>> + Send + use<'d> {
        self.inspection.read(at.0, at.1, PAGE_BYTES as u64)
    }

    async fn head(&mut self, places: &Places, instance: u32, extent: u32) -> Head {
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
            Head::Blank => self.inspection.emit(Finding::EmptyExtent {
                zone: zone.0,
                offset,
                what: "no filters or head: empty, or was being written".to_owned(),
            }),
            Head::Other(what) => self.inspection.emit(Finding::EmptyExtent {
                zone: zone.0,
                offset,
                what,
            }),
            Head::Unreadable(why) => self.inspection.damage(zone, offset, "extent", why),
            Head::SetGroup { sequence, .. } => {
                let may_be_reset = sequence < places.may_be_reset_below(oldest);
                if may_be_reset && self.was_reset(places, place, sequence).await {
                    return self.reset_extent(zone, offset);
                }
                let live = sequence >= oldest;
                self.set_group(places, place, sequence, live).await;
            }
            Head::IndexGroup(head) => {
                let end = head.sequence.saturating_add(u64::from(head.columns));
                let may_be_reset = end <= places.may_be_reset_below(oldest);
                if may_be_reset && self.was_reset(places, place, head.sequence).await {
                    return self.reset_extent(zone, offset);
                }
                self.index_group(places, place, &head, end > oldest).await;
            }
        }
    }

    fn reset_extent(&mut self, zone: ZoneId, offset: u64) {
        self.inspection.emit(Finding::EmptyExtent {
            zone: zone.0,
            offset,
            what: "reset since it was written".to_owned(),
        });
    }

    /// True if a zone of the extent that has `sequence` was reset since: a reset may leave all of
    /// it but the first block, and newer pages may follow.
    async fn was_reset(&mut self, places: &Places, place: (u32, u32), sequence: u64) -> bool {
        // An extent is a part of a zone, or whole zones.
        for page in (0..places.extent_pages).step_by(places.zone_pages as usize) {
            let (zone, _) = places.page(place.0, place.1, page);
            let Ok(bytes) = self.read((zone, 0)).await else {
                continue;
            };
            match read_page_id(self.superblock.cache_id, &bytes) {
                Err(LayoutError::Blank) => return true,
                Ok(id) if id.sequence > sequence => return true,
                _ => {}
            }
        }
        false
    }

    async fn set_group(&mut self, places: &Places, place: (u32, u32), sequence: u64, live: bool) {
        let (zone, offset) = places.page(place.0, place.1, 0);
        self.filters(places, place, sequence).await;
        let (mut objects, mut tombstones, mut value_bytes) = (0, 0, 0);
        let sets = if self.inspection.scope.payloads {
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
                    self.inspection.damage(at.0, at.1, "page of objects", why);
                    continue;
                }
            };
            let page = match ObjectsPage::open(self.superblock.cache_id, id, &bytes) {
                Ok(page) => page,
                Err(error) => {
                    self.inspection.damage(at.0, at.1, "page of objects", error);
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
                self.inspection.emit(Finding::Object {
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
        self.inspection.emit(Finding::SetGroup {
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
            self.inspection.damage(at.0, at.1, "filters", why);
        }
    }

    async fn check_filters(
        &mut self,
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
            self.inspection.damage(zone, offset, "head of index", why);
            return;
        }
        let pages = if self.inspection.scope.payloads {
            head.sets
        } else {
            0
        };
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
                self.inspection.damage(at.0, at.1, "page of index", why);
            }
        }
        self.inspection.emit(Finding::IndexGroup {
            zone: zone.0,
            offset,
            sequence: head.sequence,
            live,
            pages,
            columns: head.columns,
            rows: head.rows,
            probes: head.probes,
            page_filter_bytes: head.page_filter.bytes() as u32,
        });
    }
}
