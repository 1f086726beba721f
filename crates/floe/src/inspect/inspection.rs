//! One inspection: its device, its scope, and the findings so far.

use std::future::Future;

use floe_core::ZoneId;
use floe_core::layout::LayoutError;
use floe_device::{Address, DeviceError, IoBuf, SharedDevice};

use super::finding::{Finding, Totals};

/// The scope of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Only this zone, and the metadata.
    pub zone: Option<ZoneId>,
    /// Verify values, too; otherwise read only metadata.
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

    pub(super) fn includes(self, zone: ZoneId) -> bool {
        self.zone.is_none_or(|wanted| wanted == zone)
    }
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
    /// Neither copy of the superblock of a cache of volumes is sound.
    #[error("the device holds no cache of volumes: first copy: {first}; second copy: {second}")]
    NoVolumes {
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

/// Reads the device, passes findings on and counts them.
pub(super) struct Inspection<'a> {
    pub(super) device: &'a SharedDevice,
    pub(super) scope: Scope,
    visit: &'a mut (dyn FnMut(&Finding) + Send),
    totals: Totals,
}

impl<'a> Inspection<'a> {
    pub(super) fn new(
        device: &'a SharedDevice,
        scope: Scope,
        visit: &'a mut (dyn FnMut(&Finding) + Send),
    ) -> Self {
        Inspection {
            device,
            scope,
            visit,
            totals: Totals::default(),
        }
    }

    pub(super) fn totals(self) -> Totals {
        self.totals
    }

    pub(super) fn emit(&mut self, finding: Finding) {
        self.totals.count(&finding);
        (self.visit)(&finding);
    }

    pub(super) fn damage(&mut self, zone: ZoneId, offset: u64, what: &str, why: impl ToString) {
        self.emit(Finding::Damage {
            zone: zone.0,
            offset,
            what: what.to_owned(),
            why: why.to_string(),
        });
    }

    /// Reads `len` bytes, widened to whole blocks; the caller has checked that
    /// they are inside the zone.
    pub(super) fn read(
        &self,
        zone: ZoneId,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<IoBuf, DeviceError>> + Send + use<'a> {
        let device = self.device;
        async move {
            let len = device.geometry().round_up(len);
            let buffer = device.allocate(usize::try_from(len).unwrap_or(usize::MAX));
            device.read(Address::new(zone, offset), buffer).await
        }
    }
}

pub(super) fn read_failure(error: &DeviceError) -> String {
    format!("cannot be read: {error}")
}
