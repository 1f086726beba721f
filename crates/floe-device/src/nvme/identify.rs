//! The structures that an identify command returns.
//!
//! Offsets and bits are those of the NVMe base, NVM and zoned-namespace command set
//! specifications.

use super::command::CommandSet;
use super::fields::{DecodeError, Fields};

/// Bytes of each structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// A controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// The drive's serial number.
    pub serial: String,
    /// The drive's model.
    pub model: String,
    /// The firmware's revision.
    pub firmware: String,
    /// Most bytes of one transfer, in memory pages of the controller as a power of two;
    /// `None` without a limit.
    pub max_transfer_log2_pages: Option<u8>,
    /// Endurance groups are there.
    pub has_endurance_groups: bool,
    /// Flexible data placement is supported.
    pub has_data_placement: bool,
    /// The Write Zeroes command is supported.
    pub has_write_zeroes: bool,
    /// The Dataset Management command is supported.
    pub has_deallocate: bool,
    /// A volatile write cache is there.
    pub has_write_cache: bool,
    /// Blocks that are written atomically even if power fails.
    pub atomic_blocks: u32,
    /// The largest number of a namespace.
    pub namespaces_max: u32,
    /// A format of one namespace formats all.
    pub formats_all: bool,
}

impl Controller {
    /// True if a format of one namespace may erase another one.
    pub fn may_format_others(&self) -> bool {
        self.formats_all && self.namespaces_max != 1
    }

    /// Decodes the identify controller structure.
    ///
    /// # Errors
    /// If there are fewer than [`IDENTIFY_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::new(
            bytes,
            IDENTIFY_BYTES,
            "a short identify controller structure",
        )?;
        let (attributes, commands) = (fields.u32(96), fields.u16(520));
        Ok(Controller {
            serial: fields.text(4, 20),
            model: fields.text(24, 40),
            firmware: fields.text(64, 8),
            max_transfer_log2_pages: (fields.u8(77) != 0).then_some(fields.u8(77)),
            has_endurance_groups: attributes & 1 << 4 != 0,
            has_data_placement: attributes & 1 << 19 != 0,
            has_write_zeroes: commands & 1 << 3 != 0,
            has_deallocate: commands & 1 << 2 != 0,
            has_write_cache: fields.u8(525) & 1 != 0,
            atomic_blocks: u32::from(fields.u16(528)) + 1,
            namespaces_max: fields.u32(516),
            formats_all: fields.u8(524) & 1 != 0,
        })
    }
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its size in blocks.
    pub blocks: u64,
    /// Bytes of data in a block.
    pub block_bytes: u32,
    /// Bytes of metadata for each block.
    pub metadata_bytes: u16,
    /// The format in use, of [`formats`](Self::formats).
    pub format: usize,
    /// The formats that are supported.
    pub formats: Vec<BlockFormat>,
    /// End-to-end protection information is on.
    pub is_protected: bool,
    /// Deallocated and unwritten blocks read as zeros.
    pub unwritten_reads_zero: bool,
    /// Blocks that are written atomically even if power fails; `None` if the
    /// controller's number counts.
    pub atomic_blocks: Option<u32>,
    /// Blocks between boundaries that an atomic write must not cross.
    pub atomic_boundary_blocks: Option<u32>,
    /// The block at which the first of these boundaries lies.
    pub atomic_boundary_start: u16,
    /// The endurance group; zero for none.
    pub endurance_group: u16,
}

/// A block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// Bytes of data in a block.
    pub block_bytes: u32,
    /// Bytes of metadata for each block.
    pub metadata_bytes: u16,
}

impl Namespace {
    /// Decodes the identify namespace structure of the NVM command set.
    ///
    /// # Errors
    /// If there are fewer than [`IDENTIFY_BYTES`], or the format in use or the size is none
    /// that a drive can have.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::new(
            bytes,
            IDENTIFY_BYTES,
            "a short identify namespace structure",
        )?;
        let count = usize::from(fields.u8(25)) + 1;
        let formats: Vec<_> = fields
            .entries(128, 4, count.min(64))
            .map(BlockFormat::decode)
            .collect();
        let selected = fields.u8(26);
        let format = usize::from(selected & 0xf)
            | match count > 16 {
                true => usize::from(selected >> 5 & 3) << 4,
                false => 0,
            };
        let in_use = formats.get(format).copied();
        let in_use = in_use.filter(|format| format.block_bytes >= 512);
        let BlockFormat {
            block_bytes,
            metadata_bytes,
        } = in_use.ok_or(DecodeError("a namespace without a block format"))?;
        let blocks = fields.u64(0);
        // The kernel counts bytes in 63 bits.
        let bytes = blocks.checked_mul(u64::from(block_bytes));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(DecodeError("a namespace of more bytes than there can be"));
        }
        let features = fields.u8(24);
        let has_own_atomicity = features & 1 << 1 != 0;
        let boundary = fields.u16(44);
        Ok(Namespace {
            blocks,
            block_bytes,
            metadata_bytes,
            format,
            formats,
            is_protected: fields.u8(29) & 7 != 0,
            unwritten_reads_zero: fields.u8(33) & 7 == 1,
            atomic_blocks: has_own_atomicity.then(|| u32::from(fields.u16(36)) + 1),
            atomic_boundary_blocks: (has_own_atomicity && boundary != 0)
                .then(|| u32::from(boundary) + 1),
            atomic_boundary_start: fields.u16(42),
            endurance_group: fields.u16(102),
        })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

impl BlockFormat {
    fn decode(fields: Fields<'_>) -> Self {
        let log2 = u32::from(fields.u8(2));
        BlockFormat {
            block_bytes: 1_u32.checked_shl(log2).unwrap_or(0),
            metadata_bytes: fields.u16(0),
        }
    }
}

/// The command set of a namespace, from its identification descriptors. A drive that
/// returns none has the NVM command set.
pub fn command_set(bytes: &[u8]) -> CommandSet {
    const COMMAND_SET: u8 = 4;
    let mut rest = bytes;
    while let [kind @ 1..=u8::MAX, len, _, _, identifier, ..] = *rest {
        if kind == COMMAND_SET {
            return CommandSet::from_identifier(identifier);
        }
        rest = rest.get(4 + usize::from(len)..).unwrap_or_default();
    }
    CommandSet::Nvm
}

/// The zones of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonedNamespace {
    /// Most zones that may be active; `None` without a limit.
    pub max_active_zones: Option<u32>,
    /// Most zones that may be open; `None` without a limit.
    pub max_open_zones: Option<u32>,
    /// Blocks between the starts of two zones in each format.
    zone_blocks: Vec<u64>,
}

impl ZonedNamespace {
    /// Decodes the identify namespace structure of the zoned-namespace command set.
    ///
    /// # Errors
    /// If there are fewer than [`IDENTIFY_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const FORMATS_MAX: usize = 64;
        let fields = Fields::new(bytes, IDENTIFY_BYTES, "a short zoned namespace structure")?;
        // Limits count from zero; all ones are no limit.
        let limit = |at| fields.u32(at).checked_add(1);
        let formats = fields.entries(2816, 16, FORMATS_MAX);
        Ok(ZonedNamespace {
            max_active_zones: limit(4),
            max_open_zones: limit(8),
            zone_blocks: formats.map(|format| format.u64(0)).collect(),
        })
    }

    /// Blocks between the starts of two zones in the namespace's block format number
    /// `format`.
    ///
    /// # Errors
    /// If the drive has no zones in that format.
    pub fn zone_blocks(&self, format: usize) -> Result<u64, DecodeError> {
        let blocks = self.zone_blocks.get(format).copied();
        let blocks = blocks.filter(|&blocks| blocks > 0);
        blocks.ok_or(DecodeError("a zoned namespace without a zone size"))
    }
}

/// Most bytes of a zone append from the identify controller structure of the
/// zoned-namespace command set, in memory pages of the controller as a power of two;
/// `None` if the limit of transfers counts.
///
/// # Errors
/// If there are no bytes.
pub fn max_append_log2_pages(bytes: &[u8]) -> Result<Option<u8>, DecodeError> {
    let fields = Fields::new(bytes, 1, "no zoned controller structure")?;
    Ok((fields.u8(0) != 0).then_some(fields.u8(0)))
}
