//! The superblock of a cache of volumes.
//!
//! There are two copies, at bytes 0 and 32,768 of the device, which are written in
//! turns; of two sound copies the one with the higher epoch and sequence is newer.
//! After the frame, whose count is the number of volumes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | cache id |
//! | 40 | 8 | seed of the hash of regions |
//! | 48 | 8 | time of formatting, seconds since 1970 |
//! | 56 | 8 | epoch of the log |
//! | 64 | 8 | sequence of the copy |
//! | 72 | 4 | block size |
//! | 76 | 4 | bytes of a granule, the smallest block |
//! | 80 | 4 | classes: bit *i* stands for blocks of 2^*i* granules |
//! | 84 | 4 | shards |
//! | 88 | 8 | offset of the log |
//! | 96 | 8 | bytes of the log |
//! | 104 | 8 | offset of the table |
//! | 112 | 8 | offset of the first place |
//! | 120 | 8 | bytes of all places |
//! | 128 | 8 | number of the first batch whose records the table lacks |
//! | 136 | 8 | offset of that batch within the log |
//! | 144 | 16 | identity of the machine's boot |
//! | 160 | 2 | 1 after a clean stop, else 0 |
//! | 162 | 2 | 1 if data has checksums, else 0 |
//! | 164 | 4 | number of the witness, or zero |
//! | 168 | 4096 | write-intent bitmap |
//! | 4264 | 160 each | volumes |
//!
//! A volume:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | number |
//! | 2 | 2 | length of the name |
//! | 4 | 2 | 1 if its backing device was reserved |
//! | 6 | 2 | zero |
//! | 8 | 8 | bytes of its backing device |
//! | 16 | 32 | stamp of its backing device |
//! | 48 | 112 | name |
//!
//! Its checksum is taken with an id of zeros, because a reader learns the id
//! from it.

use crate::hash::HashSeed;
use crate::layout::error::LayoutError;
use crate::layout::frame::{Frame, open, seal};
use crate::layout::ids::CacheId;
use crate::layout::structure::Structure;
use crate::layout::volume::record::BlockRecord;
use crate::layout::volume::shape::{TABLE_PAGE_BYTES, TableShape};
use crate::layout::volume::{BATCH_BYTES_MAX, check_counts};
use crate::layout::wire::{
    first, first_mut, id_at, narrow, prefix_mut, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at,
};
use crate::volume::{ByteRange, Extent, VolumeId};

/// Bytes of a copy.
pub const VOLUME_SUPERBLOCK_BYTES: usize = 32 << 10;

/// Bytes of a volume's entry.
pub const VOLUME_ENTRY_BYTES: usize = 160;

/// Most volumes of a cache.
pub const VOLUMES_MAX: usize = 128;

/// Bits of the write-intent bitmap.
pub const INTENT_BITS: u32 = 32 << 10;

/// Bytes before the volumes.
pub const VOLUME_FIXED_BYTES: usize = 4264;

/// Most bytes of a volume's name.
pub const VOLUME_NAME_BYTES_MAX: usize = 112;

/// Fewest bytes of a log: eight batches of the largest size, so that a checkpoint begins
/// before there is no room.
pub const LOG_BYTES_MIN: u64 = 8 * BATCH_BYTES_MAX as u64;

/// Most bytes of a log, which is read into memory whole.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of a block.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

const INTENTS_AT: usize = 168;

/// The id its own checksum is taken with.
const NO_ID: CacheId = CacheId([0; 16]);

/// A bit for each set of addresses whose blocks may differ from their backing
/// devices after an unclean stop.
pub type IntentBitmap = [u8; INTENT_BITS as usize / 8];

/// Bytes of a volume that share a bit.
const INTENT_BYTES: u64 = 4 << 20;

/// The write-intent bits of the addresses of `extent`.
pub fn intent_bits(extent: Extent) -> impl Iterator<Item = u32> {
    let ByteRange { start, end } = extent.range;
    let areas = start / INTENT_BYTES..end.div_ceil(INTENT_BYTES);
    // Volumes begin at different bits.
    let shift = u64::from(extent.volume.0) * 7919;
    areas.map(move |area| ((area + shift) % u64::from(INTENT_BITS)) as u32)
}

/// The settings by which the device was laid out. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeFormatPlan {
    /// The device's unit of reading and writing.
    pub block_size: u32,
    /// Bytes of the smallest block.
    pub granule_bytes: u32,
    /// Bit `i` stands for blocks of `1 << i` granules.
    pub classes: u32,
    /// Shards of the cache.
    pub shards: u32,
    /// Offset of the log.
    pub log_offset: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Offset of the table.
    pub table_offset: u64,
    /// Offset of the first place.
    pub places_offset: u64,
    /// Bytes of all places.
    pub places_bytes: u64,
    /// The table has a checksum for each block of the device.
    pub checksums: bool,
}

impl VolumeFormatPlan {
    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] names the first number that is not.
    pub fn validate(&self) -> Result<(), LayoutError> {
        let wrong = |why| Err(LayoutError::Malformed(why));
        let (block, granule) = (self.block_size, self.granule_bytes);
        if !block.is_power_of_two() || !(512..=4096).contains(&block) {
            return wrong("the block size is not a power of two from 512 to 4096");
        }
        if !granule.is_power_of_two() || !(4096..=1 << 20).contains(&granule) {
            return wrong("the smallest block is not a power of two from 4 KiB to 1 MiB");
        }
        let largest = u64::from(self.classes).saturating_mul(granule.into());
        if self.classes & 1 == 0 || largest >= 2 * BLOCK_BYTES_MAX || self.shards == 0 {
            return wrong("there is no smallest block, no shard, or a block above 1 MiB");
        }
        let log_end = self.log_offset.saturating_add(self.log_bytes);
        let places_end = self.places_offset.saturating_add(self.places_bytes);
        let parts = [2 * VOLUME_SUPERBLOCK_BYTES as u64, self.log_offset, log_end];
        let table = [self.table_offset, self.table_end()];
        let places = [self.places_offset, places_end];
        let is_sorted = |parts: [&[u64]; 3]| parts.concat().is_sorted();
        if !is_sorted([&parts, &table, &places]) && !is_sorted([&parts, &places, &table]) {
            return wrong("the parts of the device overlap");
        }
        if self.shape().is_none() {
            return wrong("the checksums of one of the smallest blocks do not fit in a page");
        }
        if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&self.log_bytes) {
            return wrong("the log has less than 512 KiB or more than 64 MiB");
        }
        if self.places_bytes / u64::from(granule) > u64::from(u32::MAX) {
            return wrong("there are more places than 32 bits can number");
        }
        let offsets = [
            self.log_offset,
            log_end,
            self.table_offset,
            self.places_offset,
        ];
        let mut whole = offsets.iter().all(|at| at.is_multiple_of(4096));
        whole &= self.places_bytes.is_multiple_of(u64::from(granule));
        if !whole {
            return wrong("the parts of the device are not whole pages");
        }
        Ok(())
    }

    /// The shape of the table. `None` if the checksums of an entry do not fit in a page.
    pub fn shape(&self) -> Option<TableShape> {
        TableShape::of_cache(self.granule_bytes, self.block_size, self.checksums)
    }

    /// The byte after the table.
    pub fn table_end(&self) -> u64 {
        let pages = self.shape().map_or(0, |shape| shape.pages(self.granules()));
        let bytes = u64::from(pages) * 2 * TABLE_PAGE_BYTES as u64;
        self.table_offset.saturating_add(bytes)
    }

    /// The byte of the device after the last part: the places, or the table of a cache
    /// that has grown.
    pub fn end(&self) -> u64 {
        let places_end = self.places_offset.saturating_add(self.places_bytes);
        places_end.max(self.table_end())
    }

    /// Places, in granules.
    pub fn granules(&self) -> u32 {
        (self.places_bytes / u64::from(self.granule_bytes.max(1))) as u32
    }
}

/// A volume of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// Its number. No other volume gets it while blocks have it.
    pub volume: VolumeId,
    /// Its name, at most 112 bytes.
    pub name: String,
    /// Bytes of its backing device.
    pub size_bytes: u64,
    /// What tells its backing device from others: taken at a clean stop, and zeros while
    /// the volume is attached or after an unclean stop.
    pub stamp: [u8; 32],
    /// Its backing device was reserved for this cache when the volume was attached last.
    pub is_reserved: bool,
}

/// The identity, the plan and the volumes of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSuperblock {
    /// The cache's identity.
    pub cache_id: CacheId,
    /// The seed of the hash of regions.
    pub seed: HashSeed,
    /// Time of formatting, in seconds since 1970.
    pub formatted_at: u64,
    /// The log's epoch: batches of other epochs are not part of it.
    pub epoch: u64,
    /// Of two copies with one epoch the higher is newer.
    pub sequence: u64,
    /// The layout of the device.
    pub plan: VolumeFormatPlan,
    /// The first batch whose records the table lacks.
    pub first_batch: u64,
    /// Its offset within the log.
    pub log_position: u64,
    /// The boot of the machine that last wrote to the cache.
    pub boot: [u8; 16],
    /// True if nothing was written since.
    pub is_clean: bool,
    /// The number of the witness, until a clean stop. Without one, or after a clean stop,
    /// zero.
    pub witness: u32,
    /// Addresses whose blocks may differ from their backing devices.
    pub intents: Box<IntentBitmap>,
    /// The volumes.
    pub volumes: Vec<VolumeEntry>,
}

impl VolumeSuperblock {
    /// Applies a record to the write-intent bitmap. Records of blocks, and of bits that
    /// it does not have, change nothing.
    pub fn apply_intent(&mut self, record: &BlockRecord) {
        let (bit, is_set) = match *record {
            BlockRecord::Intent { bit } => (bit, true),
            BlockRecord::Settled { bit } => (bit, false),
            BlockRecord::Map { .. }
            | BlockRecord::Unmap { .. }
            | BlockRecord::Mark { .. }
            | BlockRecord::Sums { .. } => return,
        };
        if let Some(byte) = self.intents.get_mut(bit as usize / 8) {
            *byte = *byte & !(1 << (bit % 8)) | u8::from(is_set) << (bit % 8);
        }
    }

    /// True if a bit of `extent` is set.
    pub fn has_intent(&self, extent: Extent) -> bool {
        intent_bits(extent).any(|bit| self.intents[bit as usize / 8] >> (bit % 8) & 1 == 1)
    }

    /// Writes the superblock over `out`, which has [`VOLUME_SUPERBLOCK_BYTES`].
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is; [`LayoutError::Malformed`] if the plan is
    /// invalid, a name is too long, or there are too many volumes.
    pub fn encode(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        self.plan.validate()?;
        if self.volumes.len() > VOLUMES_MAX {
            return Err(LayoutError::Malformed("there are too many volumes"));
        }
        let out = prefix_mut(out, VOLUME_SUPERBLOCK_BYTES)?;
        out.fill(0);
        let head = first_mut::<VOLUME_FIXED_BYTES>(out)?;
        head[24..40].copy_from_slice(&self.cache_id.0);
        head[144..160].copy_from_slice(&self.boot);
        put_u64(head, 40, self.seed.0);
        put_u64(head, 48, self.formatted_at);
        put_u64(head, 56, self.epoch);
        put_u64(head, 64, self.sequence);
        let plan = &self.plan;
        put_u32(head, 72, plan.block_size);
        put_u32(head, 76, plan.granule_bytes);
        put_u32(head, 80, plan.classes);
        put_u32(head, 84, plan.shards);
        put_u64(head, 88, plan.log_offset);
        put_u64(head, 96, plan.log_bytes);
        put_u64(head, 104, plan.table_offset);
        put_u64(head, 112, plan.places_offset);
        put_u64(head, 120, plan.places_bytes);
        put_u64(head, 128, self.first_batch);
        put_u64(head, 136, self.log_position);
        put_u16(head, 160, u16::from(self.is_clean));
        put_u16(head, 162, u16::from(plan.checksums));
        put_u32(head, 164, self.witness);
        head[INTENTS_AT..].copy_from_slice(&self.intents[..]);
        let (entries, _) = out[VOLUME_FIXED_BYTES..].as_chunks_mut::<VOLUME_ENTRY_BYTES>();
        for (volume, entry) in self.volumes.iter().zip(entries) {
            let name = volume.name.as_bytes();
            if name.len() > VOLUME_NAME_BYTES_MAX {
                return Err(LayoutError::Malformed("the name of a volume is too long"));
            }
            put_u16(entry, 0, volume.volume.0);
            put_u16(entry, 2, name.len() as u16);
            put_u16(entry, 4, u16::from(volume.is_reserved));
            put_u64(entry, 8, volume.size_bytes);
            entry[16..48].copy_from_slice(&volume.stamp);
            entry[48..48 + name.len()].copy_from_slice(name);
        }
        let frame = Frame {
            structure: Structure::VolumeSuperblock,
            kind: 0,
            count: narrow(self.volumes.len())?,
        };
        seal(NO_ID, frame, out)?;
        Ok(())
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] if nothing was written there, [`LayoutError::Foreign`] if
    /// other software wrote it, and the errors of every structure.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let opened = open(NO_ID, Structure::VolumeSuperblock, bytes)?;
        let head = first::<VOLUME_FIXED_BYTES>(opened.covered)?;
        let (entries, _) = opened.covered[VOLUME_FIXED_BYTES..].as_chunks::<VOLUME_ENTRY_BYTES>();
        let entries = entries.get(..opened.count as usize);
        let entries = entries.ok_or(LayoutError::Malformed("there are too many volumes"))?;
        let mut intents = Box::new([0; INTENT_BITS as usize / 8]);
        intents.copy_from_slice(&head[INTENTS_AT..]);
        let boot = id_at(head, 144);
        let id = id_at(head, 24);
        let plan = VolumeFormatPlan {
            block_size: u32_at(head, 72),
            granule_bytes: u32_at(head, 76),
            classes: u32_at(head, 80),
            shards: u32_at(head, 84),
            log_offset: u64_at(head, 88),
            log_bytes: u64_at(head, 96),
            table_offset: u64_at(head, 104),
            places_offset: u64_at(head, 112),
            places_bytes: u64_at(head, 120),
            checksums: u16_at(head, 162) == 1,
        };
        plan.validate()?;
        let log_position = u64_at(head, 136);
        if log_position >= plan.log_bytes || !log_position.is_multiple_of(plan.block_size.into()) {
            return Err(LayoutError::Malformed("the log begins outside of itself"));
        }
        let (epoch, sequence, first_batch) =
            (u64_at(head, 56), u64_at(head, 64), u64_at(head, 128));
        check_counts([epoch, sequence, first_batch])?;
        let volumes: Vec<_> = entries.iter().map(volume).collect::<Result<_, _>>()?;
        let is_twice = |(at, volume): (usize, &VolumeEntry)| {
            let mut others = volumes[..at].iter();
            others.any(|other| other.volume == volume.volume || other.name == volume.name)
        };
        if volumes.iter().enumerate().any(is_twice) {
            return Err(LayoutError::Malformed(
                "two volumes have one number or name",
            ));
        }
        Ok(VolumeSuperblock {
            cache_id: CacheId(id),
            seed: HashSeed(u64_at(head, 40)),
            formatted_at: u64_at(head, 48),
            epoch,
            sequence,
            plan,
            first_batch,
            log_position,
            boot,
            is_clean: u16_at(head, 160) == 1,
            witness: u32_at(head, 164),
            intents,
            volumes,
        })
    }
}

fn volume(entry: &[u8; VOLUME_ENTRY_BYTES]) -> Result<VolumeEntry, LayoutError> {
    let name = entry[48..].get(..usize::from(u16_at(entry, 2)));
    let name = name.and_then(|name| str::from_utf8(name).ok());
    let mut stamp = [0; 32];
    stamp.copy_from_slice(&entry[16..48]);
    Ok(VolumeEntry {
        volume: VolumeId(u16_at(entry, 0)),
        name: name
            .ok_or(LayoutError::Malformed("the name of a volume is no text"))?
            .to_owned(),
        size_bytes: u64_at(entry, 8),
        stamp,
        is_reserved: u16_at(entry, 4) == 1,
    })
}
