//! Labels: reading the newest one of a drive, and writing another.

use floe_core::ZoneId;
use floe_core::layout::{ArrayLabel, LayoutError};

use super::shape::{LABEL_ZONES, LABELS_MAX};
use crate::contract::{Placement, SharedDevice};
use crate::error::DeviceError;
use crate::{Address, IoBuf};

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

/// Reads the labels of a drive: the newest of the array that the first block of either zone
/// names. Blocks behind may be damaged, or of an earlier life of the zone.
pub(super) async fn read(device: &SharedDevice) -> Result<Content, DeviceError> {
    let (mut first, mut other) = (None, None);
    let (mut labels, mut heads) = (Vec::new(), Vec::new());
    for zone in LABEL_ZONES {
        for (number, block) in blocks(device, zone).await?.into_iter().enumerate() {
            let label = ArrayLabel::decode(&block);
            match label {
                Ok(label) => {
                    if number == 0 {
                        first = first.or(Some(label.array));
                        heads.push(zone);
                    }
                    labels.push((label, zone));
                }
                // A crash while it was written, or damage.
                Err(LayoutError::Blank | LayoutError::BadChecksum | LayoutError::Malformed(_)) => {}
                Err(error) if number == 0 => other = other.or(Some(error)),
                Err(_) => {}
            }
        }
    }
    labels.retain(|(label, _)| Some(label.array) == first);
    // Of two copies, the one in a zone without a first label counts less: the next label resets
    // the other zone.
    let order = |(label, zone): &(ArrayLabel, ZoneId)| (label.sequence, heads.contains(zone));
    let newest = labels.into_iter().max_by_key(order);
    Ok(match (newest, other) {
        (_, Some(error @ LayoutError::UnsupportedVersion { .. })) => Content::Other(error),
        (Some((label, zone)), _) => Content::Labelled(label, zone),
        (None, Some(error)) => Content::Other(error),
        (None, None) => Content::Blank,
    })
}

/// The blocks of a zone that may hold labels. One that cannot be read counts as zeros.
///
/// # Errors
/// If one cannot be read, and the others are blank.
async fn blocks(device: &SharedDevice, zone: ZoneId) -> Result<Vec<IoBuf>, DeviceError> {
    let block = device.geometry().block_size;
    let reads: Vec<_> = (0..LABELS_MAX)
        .map(|number| Address::new(zone, number * u64::from(block)))
        .map(|at| device.read(at, device.allocate(block as usize)))
        .collect();
    let (mut blocks, mut failure) = (Vec::new(), None);
    for read in reads {
        match read.await {
            Ok(block) => blocks.push(block),
            Err(error) => {
                blocks.push(IoBuf::zeroed(block as usize));
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error)
            if blocks
                .iter()
                .all(|block| block.iter().all(|byte| *byte == 0)) =>
        {
            Err(error)
        }
        _ => Ok(blocks),
    }
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

    /// Writes two copies of `label` durably; then this is the place of the one after it.
    /// After a failure the zone may have anything behind its last label, so that the next
    /// attempt begins a zone.
    pub(super) async fn write(
        &mut self,
        device: &SharedDevice,
        label: &ArrayLabel,
    ) -> Result<(), DeviceError> {
        let mut block = device.allocate(label.block_size as usize);
        block.fill(0);
        // It was validated when the array was opened.
        label.encode(&mut block).expect("a label fits its block");
        let block = block.freeze();
        let zone = match *self {
            NextLabel::Begin(zone) => {
                device.reset(zone).await?;
                zone
            }
            NextLabel::Behind(zone) => {
                *self = NextLabel::after(Some(zone));
                zone
            }
        };
        let mut end = 0;
        for _ in 0..2 {
            let at = device
                .append(zone, block.clone(), Placement::METADATA)
                .await?;
            device.flush().await?;
            end = at.offset / u64::from(label.block_size) + 1;
        }
        *self = match end + 2 <= LABELS_MAX {
            true => NextLabel::Behind(zone),
            false => NextLabel::after(Some(zone)),
        };
        Ok(())
    }
}
