//! Offline inspection of a cache: the content of flash, and whether it is
//! intact.
//!
//! [`inspect`] reads a device that no engine has open, from the superblocks
//! over the journal to every zone, batch and record. It passes each [`Finding`]
//! to the caller at once, so that memory is bounded by one zone. It never
//! writes. It terminates on any bytes: offsets and lengths from flash are
//! checked before use.
//!
//! Must not depend on which of several records of a key is the newest.

mod finding;
mod log_zone;
mod metadata;
mod slot_zone;
mod tiny;
mod tiny_pages;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_tiny;

use std::collections::HashMap;

use floe_core::layout::{
    BatchHeader, CacheId, Generation, LayoutError, SlotGeometry, Superblock, ZoneHeader,
    ZoneLayout, ZoneLife, decode_slot_block,
};
use floe_core::{Address, Geometry, ZoneId};
use floe_device::{DeviceError, IoBuf, SharedDevice};

pub use finding::{Finding, RecordState, Totals, ZoneState, key_text};
use metadata::Journal;

/// The scope of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Only this zone, and the metadata.
    pub zone: Option<ZoneId>,
    /// Whether to read and verify values; otherwise only metadata.
    pub payloads: bool,
}

impl Scope {
    /// All of the cache, byte by byte.
    pub const EVERYTHING: Scope = Scope {
        zone: None,
        payloads: true,
    };
    /// All of the cache except for values.
    pub const DESCRIPTIONS: Scope = Scope {
        zone: None,
        payloads: false,
    };
}

/// Errors that prevent an inspection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// Neither metadata zone starts with a readable superblock.
    #[error("the device holds no Floe cache: zone 0: {first}; zone 1: {second}")]
    NoCache {
        /// The error of the first.
        first: LayoutError,
        /// The error of the second.
        second: LayoutError,
    },
    /// The device's geometry differs from the cache's.
    #[error("the cache was formatted for a device with another geometry: {0}")]
    Shape(String),
    /// A necessary read failed.
    #[error("the device cannot be read")]
    Device(#[from] DeviceError),
}

/// Inspects the cache on `device` and passes findings to `visit`, in the order
/// of addresses.
///
/// # Errors
/// There is no cache, or the metadata zones are unreadable. Other damage is a
/// [`Finding::Damage`], not an error.
pub async fn inspect(
    device: &SharedDevice,
    scope: Scope,
    visit: impl FnMut(&Finding),
) -> Result<Totals, InspectError> {
    let mut emitter = Emitter {
        visit,
        totals: Totals::default(),
    };
    if let Some(superblock) = tiny::find(device, &mut emitter).await? {
        tiny::walk(device, scope, &superblock, &mut emitter).await?;
        return Ok(emitter.totals);
    }
    let (superblock, journal) = metadata::read_both(device, &mut emitter).await?;
    let mut walk = Walk {
        device,
        scope,
        superblock,
        journal,
        emitter,
    };
    let plan = &walk.superblock.plan;
    let shape = (
        plan.block_size,
        plan.zone_count,
        plan.zone_size,
        plan.zone_capacity,
    );
    check_shape(device.geometry(), shape)?;
    for zone in device.geometry().zones().skip(2) {
        if scope.zone.is_none_or(|wanted| wanted == zone) {
            walk.zone(zone).await;
        }
    }
    Ok(walk.emitter.totals)
}

/// Compares a cache's geometry (block size, number of zones, zone size, zone
/// capacity) with the device's.
fn check_shape(geometry: &Geometry, made_for: (u32, u32, u64, u64)) -> Result<(), InspectError> {
    let facts = [
        (
            "block size",
            u64::from(made_for.0),
            u64::from(geometry.block_size),
        ),
        ("zone size", made_for.2, geometry.zone_size),
        ("zone capacity", made_for.3, geometry.zone_capacity),
        (
            "number of zones",
            u64::from(made_for.1),
            u64::from(geometry.zone_count),
        ),
    ];
    for (name, made_for, found) in facts {
        if made_for != found {
            return Err(InspectError::Shape(format!(
                "its {name} is {made_for}, the device's is {found}"
            )));
        }
    }
    Ok(())
}

/// Passes findings on and counts them.
struct Emitter<V> {
    visit: V,
    totals: Totals,
}

impl<V: FnMut(&Finding)> Emitter<V> {
    fn emit(&mut self, finding: Finding) {
        self.totals.count(&finding);
        (self.visit)(&finding);
    }

    fn damage(&mut self, zone: ZoneId, offset: u64, what: &str, why: impl ToString) {
        self.emit(Finding::Damage {
            zone: zone.0,
            offset,
            what: what.to_owned(),
            why: why.to_string(),
        });
    }
}

/// The state of an inspection.
struct Walk<'a, V> {
    device: &'a SharedDevice,
    scope: Scope,
    superblock: Superblock,
    journal: Journal,
    emitter: Emitter<V>,
}

impl<V: FnMut(&Finding)> Walk<'_, V> {
    fn id(&self) -> CacheId {
        self.superblock.id
    }

    fn block(&self) -> u64 {
        u64::from(self.superblock.plan.block_size)
    }

    fn capacity(&self) -> u64 {
        self.superblock.plan.zone_capacity
    }

    async fn zone(&mut self, zone: ZoneId) {
        let head = match self.read(zone, 0, self.block()).await {
            Ok(head) => head,
            Err(error) => {
                self.emitter
                    .damage(zone, 0, "zone header", read_failure(&error));
                return;
            }
        };
        let header = match ZoneHeader::decode(self.id(), zone, &head) {
            Ok(header) => header,
            Err(LayoutError::Blank) => {
                self.emitter.emit(Finding::EmptyZone { zone: zone.0 });
                return;
            }
            Err(error) => {
                if self.is_in_use(zone).await {
                    self.emitter.damage(zone, 0, "zone header", error);
                } else {
                    self.emitter.emit(Finding::Leftover {
                        zone: zone.0,
                        what: error.to_string(),
                    });
                }
                return;
            }
        };
        match header.layout {
            ZoneLayout::Log => self.log_zone(header).await,
            ZoneLayout::Slots => self.slot_zone(header).await,
        }
    }

    /// Whether this cache wrote a zone without a valid header, according to the
    /// journal or to the bytes after the header. Otherwise its bytes are from
    /// before the cache was formatted.
    async fn is_in_use(&self, zone: ZoneId) -> bool {
        let noted = self.journal.full.keys().chain(self.journal.closed.keys());
        if noted.into_iter().any(|life| life.zone == zone) {
            return true;
        }
        let Ok(next) = self.read(zone, self.block(), self.block()).await else {
            return false;
        };
        // Batches and slot tables have zone and generation at the same offset.
        let Some((first, second)) = next
            .get(24..32)
            .and_then(|life| life.split_first_chunk::<4>())
            .and_then(|(first, rest)| Some((first, rest.first_chunk::<4>()?)))
        else {
            return false;
        };
        let life = ZoneLife::new(
            ZoneId(u32::from_le_bytes(*first)),
            Generation(u32::from_le_bytes(*second)),
        );
        let plan = &self.superblock.plan;
        let is_batch = BatchHeader::decode(self.id(), life, plan.block_size, &next).is_ok();
        let is_table = || {
            SlotGeometry::new(plan.zone_capacity, plan.block_size, plan.chunk_bytes)
                .is_some_and(|slots| decode_slot_block(self.id(), life, &slots, 0, &next).is_ok())
        };
        life.zone == zone && (is_batch || is_table())
    }

    /// Whether a tombstone in the journal covers this record.
    fn noted_dead(&self, life: ZoneLife, hash: u64, sequence: u64) -> bool {
        self.journal
            .tombstones
            .get(&(life, hash))
            .is_some_and(|dead| sequence <= *dead)
    }

    async fn read(&self, zone: ZoneId, offset: u64, len: u64) -> Result<IoBuf, DeviceError> {
        read(self.device, zone, offset, len).await
    }
}

/// Reads `len` bytes, widened to whole blocks; the caller has checked that they
/// are inside the zone.
async fn read(
    device: &SharedDevice,
    zone: ZoneId,
    offset: u64,
    len: u64,
) -> Result<IoBuf, DeviceError> {
    let len = device.geometry().round_up(len);
    let buffer = device.allocate(usize::try_from(len).unwrap_or(usize::MAX));
    device.read(Address::new(zone, offset), buffer).await
}

fn read_failure(error: &DeviceError) -> String {
    format!("cannot be read: {error}")
}

/// The highest dead sequence, by life of the zone and key hash.
type Tombstones = HashMap<(ZoneLife, u64), u64>;
