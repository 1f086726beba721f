//! The label of a drive that belongs to an array: several drives that hold one cache.
//!
//! Each drive begins with two zones of labels. After the frame:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | array id |
//! | 40 | 8 | sequence: of two labels of one drive the higher is newer |
//! | 48 | 8 | id of the label |
//! | 56 | 8 | id of the label that was in force before it; 0 in the first |
//! | 64 | 8 | epoch: labels before it |
//! | 72 | 4 | block size |
//! | 76 | 4 | zones of the drive that the array uses, those of labels included |
//! | 80 | 8 | zone size |
//! | 88 | 8 | zone capacity |
//! | 96 | 8 | id of the drive that has this label |
//! | 104 | 8 × 32 | id of the drive in each slot; 0 if the slot has none |
//!
//! The count in the frame is the number of slots. The checksum is taken with an id of
//! zeros, because a reader learns the id from the label.

use super::error::LayoutError;
use super::frame::{Frame, seal};
use super::structure::Structure;
use super::superblock::{NO_ID, open_superblock, validate_zones};
use super::wire::{
    first, first_mut, id_at, prefix_mut, put_u32, put_u64, round_up_len, u32_at, u64_at,
};

/// Most drives of an array.
pub const ARRAY_DRIVES_MAX: usize = 32;

/// Encoded length without padding.
pub const ARRAY_LABEL_BYTES: usize = DRIVES_AT + 8 * ARRAY_DRIVES_MAX;

/// Offset of the ids of the drives.
const DRIVES_AT: usize = 104;

/// The drives of an array, and the one of them that has this label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayLabel {
    /// The array's random id.
    pub array: [u8; 16],
    /// Of two labels of one drive, the higher sequence is newer.
    pub sequence: u64,
    /// The label's random id: all drives that it names get it.
    pub id: u64,
    /// The id of the label that was in force before; 0 if there was none.
    pub parent: u64,
    /// Labels before it.
    pub epoch: u64,
    /// The unit of reading and writing.
    pub block_size: u32,
    /// Zones that the array uses of each drive.
    pub zone_count: u32,
    /// Distance between the starts of two zones, in bytes.
    pub zone_size: u64,
    /// Writable bytes of a zone.
    pub zone_capacity: u64,
    /// The random id of the drive that has this label.
    pub drive: u64,
    /// The id of the drive in each slot, `None` if the slot's drive was dropped. At most
    /// [`ARRAY_DRIVES_MAX`].
    pub slots: Vec<Option<u64>>,
}

impl ArrayLabel {
    /// Writes the label with its padding and returns the length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than the padded label;
    /// [`LayoutError::Malformed`] if a number is out of range.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError> {
        self.validate()?;
        let out = prefix_mut(out, round_up_len(ARRAY_LABEL_BYTES, self.block_size))?;
        out.fill(0);
        let bytes = first_mut::<ARRAY_LABEL_BYTES>(out)?;
        bytes[24..40].copy_from_slice(&self.array);
        put_u64(bytes, 40, self.sequence);
        put_u64(bytes, 48, self.id);
        put_u64(bytes, 56, self.parent);
        put_u64(bytes, 64, self.epoch);
        put_u32(bytes, 72, self.block_size);
        put_u32(bytes, 76, self.zone_count);
        put_u64(bytes, 80, self.zone_size);
        put_u64(bytes, 88, self.zone_capacity);
        put_u64(bytes, 96, self.drive);
        for (at, drive) in (DRIVES_AT..).step_by(8).zip(&self.slots) {
            put_u64(bytes, at, drive.unwrap_or(0));
        }
        let frame = Frame {
            structure: Structure::ArrayLabel,
            kind: 0,
            count: self.slots.len() as u32,
        };
        seal(NO_ID, frame, bytes)?;
        Ok(out.len())
    }

    /// Reads a label from the start of `bytes`.
    ///
    /// # Errors
    /// As every decoder.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let opened = open_superblock(Structure::ArrayLabel, bytes)?;
        let bytes = first::<ARRAY_LABEL_BYTES>(opened.covered)
            .map_err(|_| LayoutError::Malformed("the array label ends early"))?;
        let slots = opened.count as usize;
        if slots > ARRAY_DRIVES_MAX {
            return Err(LayoutError::Malformed("an array has 1 to 32 drives"));
        }
        let drive = |slot: usize| Some(u64_at(bytes, DRIVES_AT + 8 * slot)).filter(|&id| id != 0);
        let label = ArrayLabel {
            array: id_at(bytes, 24),
            sequence: u64_at(bytes, 40),
            id: u64_at(bytes, 48),
            parent: u64_at(bytes, 56),
            epoch: u64_at(bytes, 64),
            block_size: u32_at(bytes, 72),
            zone_count: u32_at(bytes, 76),
            zone_size: u64_at(bytes, 80),
            zone_capacity: u64_at(bytes, 88),
            drive: u64_at(bytes, 96),
            slots: (0..slots).map(drive).collect(),
        };
        label.validate()?;
        Ok(label)
    }

    fn validate(&self) -> Result<(), LayoutError> {
        validate_zones(
            self.block_size,
            self.zone_count,
            self.zone_size,
            self.zone_capacity,
        )?;
        if self.drive == 0 || self.id == 0 || !self.slots.contains(&Some(self.drive)) {
            return Err(LayoutError::Malformed("a label names its drive"));
        }
        if self.slots.len() > ARRAY_DRIVES_MAX {
            return Err(LayoutError::Malformed("an array has 1 to 32 drives"));
        }
        Ok(())
    }
}
