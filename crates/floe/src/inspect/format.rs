//! The contract of a kind of cache on flash.

use std::future::Future;

use floe_core::{Geometry, ZoneId};

use super::finding::Finding;
use super::inspection::{InspectError, Inspection};
use crate::metadata_log::LogSuperblock;

/// The device geometry that a superblock records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of zones.
    pub zone_count: u32,
    /// Bytes from one zone's start to the next.
    pub zone_size: u64,
    /// Writable bytes of a zone.
    pub zone_capacity: u64,
}

impl Shape {
    /// Compares the cache's geometry with the device's.
    pub(super) fn check(&self, device: &Geometry) -> Result<(), InspectError> {
        let facts = [
            (
                "block size",
                self.block_size.into(),
                device.block_size.into(),
            ),
            ("zone size", self.zone_size, device.zone_size),
            ("zone capacity", self.zone_capacity, device.zone_capacity),
            (
                "number of zones",
                self.zone_count.into(),
                u64::from(device.zone_count),
            ),
        ];
        match facts.into_iter().find(|(_, own, found)| own != found) {
            Some((name, own, found)) => Err(InspectError::Shape(format!(
                "its {name} is {own}, the device's is {found}"
            ))),
            None => Ok(()),
        }
    }
}

/// A kind of cache on flash, by its superblock.
pub(super) trait Format: LogSuperblock {
    /// The superblock's name in findings.
    const NAME: &'static str;

    /// The part of the metadata log that the inspection needs.
    type Contents: Default + Send + Sync;

    fn shape(&self) -> Shape;

    /// Adds a record of the metadata log to `contents`.
    fn take(contents: &mut Self::Contents, record: Self::Record);

    /// Describes the superblock of a metadata zone.
    fn describe(&self, zone: ZoneId, current: bool) -> Finding;

    /// Describes the log behind it.
    fn describe_log(&self, zone: ZoneId, log: &LogExtent, contents: &Self::Contents) -> Finding;

    /// Inspects the zones behind the metadata zones.
    fn walk(
        &self,
        contents: Self::Contents,
        inspection: &mut Inspection<'_>,
    ) -> impl Future<Output = ()> + Send;
}

/// The extent of the log of a metadata zone.
pub(super) struct LogExtent {
    /// Blocks, without their second copies.
    pub(super) blocks: u64,
    pub(super) records: u64,
    /// The checkpoint that the zone begins with is complete.
    pub(super) complete: bool,
    pub(super) end_offset: u64,
}
