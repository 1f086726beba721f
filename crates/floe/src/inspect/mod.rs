//! Offline inspection of a cache: the content of flash, and whether it is
//! intact.
//!
//! [`inspect`] reads a device that no engine has open, from the superblocks
//! over the journal to every zone, batch and record. It passes each [`Finding`]
//! to the caller at once, so that memory is bounded by one zone. It never
//! writes. It terminates on any bytes: offsets and lengths from flash are
//! checked before use.
//!
//! | file | content |
//! |---|---|
//! | `format.rs` | the contract of a kind of cache on flash |
//! | `chunk/`, `tiny/` | the kinds, in the table `FORMATS` |
//! | `volume.rs` | caches of volumes, whose devices have no zones |
//! | `metadata.rs` | the metadata zones of every kind |
//! | `inspection.rs`, `finding.rs` | reading the device, and reporting |
//!
//! Must not depend on which of several records of a key is the newest.

mod chunk;
mod finding;
mod format;
mod inspection;
mod metadata;
mod tiny;
mod volume;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_tiny;
#[cfg(test)]
mod tests_volume;

use std::marker::PhantomData;

use floe_core::layout::tiny::TinySuperblock;
use floe_core::layout::{LayoutError, Superblock};
use floe_device::SharedDevice;
use futures::future::BoxFuture;

pub use finding::{Finding, RecordState, Totals, ZoneState, key_text};
use format::Format;
pub use format::Shape;
use inspection::Inspection;
pub use inspection::{InspectError, Scope};
pub use volume::{VolumeFinding, VolumeTotals, inspect_volumes, is_cache_of_volumes};

use crate::metadata_log::METADATA;

/// The kinds of caches on flash, in the order in which they are tried. Another
/// kind is a line here.
const FORMATS: [&dyn Kind; 2] = [&PhantomData::<Superblock>, &PhantomData::<TinySuperblock>];

/// A [`Format`] as an entry of the table.
trait Kind: Sync {
    /// The geometry in the superblock at the start of `head`.
    fn shape(&self, head: &[u8]) -> Result<Shape, LayoutError>;

    /// Inspects a cache, whose metadata zones start with `heads`.
    fn inspect<'a>(
        &self,
        heads: [&'a [u8]; 2],
        inspection: &'a mut Inspection<'_>,
    ) -> BoxFuture<'a, Result<(), InspectError>>;
}

impl<F: Format> Kind for PhantomData<F> {
    fn shape(&self, head: &[u8]) -> Result<Shape, LayoutError> {
        Ok(F::decode(head)?.shape())
    }

    fn inspect<'a>(
        &self,
        heads: [&'a [u8]; 2],
        inspection: &'a mut Inspection<'_>,
    ) -> BoxFuture<'a, Result<(), InspectError>> {
        Box::pin(async move {
            let (superblock, contents) = metadata::current::<F>(heads, inspection).await?;
            superblock.shape().check(inspection.device.geometry())?;
            superblock.walk(contents, inspection).await;
            Ok(())
        })
    }
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
    visit: impl FnMut(&Finding) + Send,
) -> Result<Totals, InspectError> {
    let mut visit = visit;
    let mut inspection = Inspection::new(device, scope, &mut visit);
    let block = u64::from(device.geometry().block_size);
    let first = inspection.read(METADATA[0], 0, block).await?;
    let second = inspection.read(METADATA[1], 0, block).await?;
    let heads: [&[u8]; 2] = [&first, &second];
    let recognises = |kind: &&&dyn Kind| heads.iter().any(|head| kind.shape(head).is_ok());
    // If none recognises the device, the first reports the metadata zones.
    let kind = FORMATS.iter().find(recognises).unwrap_or(&FORMATS[0]);
    kind.inspect(heads, &mut inspection).await?;
    Ok(inspection.totals())
}

/// The geometry in the superblock of any kind of cache, which starts with
/// `head`, the first 512 bytes or more of a metadata zone.
///
/// # Errors
/// The bytes start with no sound superblock.
pub fn shape(head: &[u8]) -> Result<Shape, LayoutError> {
    let [first, others @ ..] = FORMATS;
    others
        .into_iter()
        .fold(first.shape(head), |found, kind| match found {
            Err(LayoutError::Unexpected(_)) => kind.shape(head),
            found => found,
        })
}
