//! Labels: reading those of a drive, choosing the newest of an array, writing a new one.

use floe_core::ZoneId;
use floe_core::layout::{ArrayLabel, LayoutError};

use super::shape::{LABEL_ZONES, LABELS_MAX};
use crate::Address;
use crate::contract::{Placement, SharedDevice};
use crate::error::DeviceError;

/// The content of a drive, as far as its zones of labels say.
#[derive(Debug)]
pub(super) enum Content {
    /// Nothing, or no label that can be read.
    Blank,
    /// It belongs to an array, or did. The zone has the newest label.
    Labelled(ArrayLabel, ZoneId),
    /// Anything else.
    Other(LayoutError),
}

/// Reads the labels of a drive.
pub(super) async fn read(device: &SharedDevice) -> Result<Content, DeviceError> {
    let (mut newest, mut other) = (None::<(ArrayLabel, ZoneId)>, None);
    for zone in LABEL_ZONES {
        match last_of(device, zone).await? {
            Ok(label) => {
                let is_newer = |(newest, _): &(ArrayLabel, _)| newest.sequence < label.sequence;
                if newest.as_ref().is_none_or(is_newer) {
                    newest = Some((label, zone));
                }
            }
            // A crash while it was written.
            Err(LayoutError::Blank | LayoutError::BadChecksum | LayoutError::Malformed(_)) => {}
            Err(error) => other = other.or(Some(error)),
        }
    }
    Ok(match (newest, other) {
        (_, Some(error @ LayoutError::UnsupportedVersion { .. })) => Content::Other(error),
        (Some((label, zone)), _) => Content::Labelled(label, zone),
        (None, Some(error)) => Content::Other(error),
        (None, None) => Content::Blank,
    })
}

/// The last of the labels from the start of a zone. What follows them may be of an earlier
/// life of the zone.
async fn last_of(
    device: &SharedDevice,
    zone: ZoneId,
) -> Result<Result<ArrayLabel, LayoutError>, DeviceError> {
    let block = device.geometry().block_size;
    let mut last = None::<ArrayLabel>;
    for number in 0..LABELS_MAX {
        let at = Address::new(zone, number * u64::from(block));
        let read = device.read(at, device.allocate(block as usize)).await?;
        match (ArrayLabel::decode(&read), &last) {
            (Ok(label), None) => last = Some(label),
            (Ok(label), Some(before))
                if label.array == before.array && label.sequence > before.sequence =>
            {
                last = Some(label);
            }
            (Err(error), None) => return Ok(Err(error)),
            (_, Some(_)) => break,
        }
    }
    Ok(last.ok_or(LayoutError::Blank))
}

/// The place of a drive's next label.
#[derive(Clone, Copy, Debug)]
pub(super) enum NextLabel {
    /// At the start of this zone, once it is reset. The other zone may have the newest.
    Begin(ZoneId),
    /// Behind the labels of this zone.
    Behind(ZoneId),
}

impl NextLabel {
    /// For a drive whose newest label lies in `newest`.
    pub(super) fn after(newest: Option<ZoneId>) -> Self {
        NextLabel::Begin(match newest {
            Some(zone) if zone == LABEL_ZONES[0] => LABEL_ZONES[1],
            _ => LABEL_ZONES[0],
        })
    }

    /// Writes `label` durably; returns the place of the one after it.
    pub(super) async fn write(
        self,
        device: &SharedDevice,
        label: &ArrayLabel,
    ) -> Result<Self, DeviceError> {
        let mut block = device.allocate(label.block_size as usize);
        block.fill(0);
        // It was validated when the array was opened.
        label.encode(&mut block).expect("a label fits its block");
        let zone = match self {
            NextLabel::Begin(zone) => {
                device.reset(zone).await?;
                zone
            }
            NextLabel::Behind(zone) => zone,
        };
        device.append(zone, block.freeze(), Placement(0)).await?;
        device.flush().await?;
        Ok(NextLabel::Behind(zone))
    }
}
