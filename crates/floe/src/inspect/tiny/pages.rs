//! Inspects caches of volatile tiny engines. Their pages are never recovered,
//! so none can be damaged: pages are only counted.

use floe_core::ZoneId;
use floe_core::chunk::METADATA_ZONES;
use floe_core::layout::tiny::{
    Content, ObjectsPage, PageId, PageKind, TinySuperblock, read_page_id,
};
use floe_core::tiny::PAGE_BYTES;

use super::super::finding::{Finding, key_text};
use super::super::inspection::{Inspection, read_failure};

/// Bytes of one read.
const WINDOW_BYTES: u64 = 1 << 20;

/// The life of the cache is above these bits of a page's sequence.
const LIFE_SHIFT: u32 = 32;

/// Counts the pages in the zones of objects, if pages are to be read.
pub(super) async fn walk(superblock: &TinySuperblock, inspection: &mut Inspection<'_>) {
    let scope = inspection.scope;
    if !scope.payloads {
        return;
    }
    let plan = &superblock.plan;
    let zones_of_instance = (plan.zone_count - METADATA_ZONES) / plan.instances;
    let zone_pages = plan.zone_capacity / PAGE_BYTES as u64;
    for number in 0..zones_of_instance * plan.instances {
        let zone = ZoneId(METADATA_ZONES + number);
        if !scope.includes(zone) {
            continue;
        }
        let first_page = u64::from(number % zones_of_instance) * zone_pages;
        let mut count = Count::default();
        for offset in (0..zone_pages * PAGE_BYTES as u64).step_by(WINDOW_BYTES as usize) {
            let len = WINDOW_BYTES.min(zone_pages * PAGE_BYTES as u64 - offset);
            let bytes = match inspection.read(zone, offset, len).await {
                Ok(bytes) => bytes,
                Err(error) => {
                    inspection.damage(zone, offset, "pages of objects", read_failure(&error));
                    continue;
                }
            };
            for (at, page) in (0..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                let at: u64 = offset + at * PAGE_BYTES as u64;
                let place = Place {
                    zone,
                    offset: at,
                    // Pages of an instance have 32-bit numbers.
                    number: (first_page + at / PAGE_BYTES as u64) as u32,
                };
                count.page(superblock, place, page, inspection);
            }
        }
        inspection.emit(match count.pages + count.other_pages {
            0 => Finding::EmptyZone { zone: zone.0 },
            _ => Finding::TinyPages {
                zone: zone.0,
                pages: count.pages,
                objects: count.objects,
                tombstones: count.tombstones,
                value_bytes: count.value_bytes,
                other_pages: count.other_pages,
            },
        });
    }
}

/// The address of a page.
#[derive(Clone, Copy)]
struct Place {
    zone: ZoneId,
    offset: u64,
    number: u32,
}

/// The counts of a zone.
#[derive(Default)]
struct Count {
    pages: u64,
    objects: u64,
    tombstones: u64,
    value_bytes: u64,
    other_pages: u64,
}

impl Count {
    fn page(
        &mut self,
        superblock: &TinySuperblock,
        place: Place,
        bytes: &[u8],
        inspection: &mut Inspection<'_>,
    ) {
        if bytes.iter().all(|byte| *byte == 0) {
            return;
        }
        let Some((id, page)) = sound(superblock, place, bytes) else {
            self.other_pages += 1;
            return;
        };
        self.pages += 1;
        for (slot, object) in (0..).zip(page.objects()) {
            let (tombstone, key, bytes) = match object.content {
                Content::Tombstone(_) => (true, String::new(), 0),
                Content::Object { key, value } => (false, key_text(key), value.len() as u64),
            };
            self.objects += u64::from(!tombstone);
            self.tombstones += u64::from(tombstone);
            self.value_bytes += bytes;
            inspection.emit(Finding::Object {
                zone: place.zone.0,
                offset: place.offset,
                slot,
                key,
                hash: object.hash(superblock.seed).0,
                sequence: id.sequence,
                value_bytes: bytes,
                expiry_unix_s: match u64::from(object.expires.0) {
                    0 => 0,
                    after => superblock.formatted_at.saturating_add(after),
                },
                tombstone,
            });
        }
    }
}

/// Decodes a page of this life of the cache, in its place.
fn sound<'a>(
    superblock: &TinySuperblock,
    place: Place,
    bytes: &'a [u8],
) -> Option<(PageId, ObjectsPage<'a>)> {
    let id = read_page_id(superblock.cache_id, bytes).ok()?;
    let belongs = id.kind == PageKind::Objects
        && id.number == place.number
        && id.sequence >> LIFE_SHIFT == superblock.epoch;
    let page = ObjectsPage::open(superblock.cache_id, id, bytes).ok()?;
    belongs.then_some((id, page))
}
