//! Identifies the contents of a file or block device, by reading only.
//!
//! Floe changes a device only after this module has shown that it is empty or a
//! Floe cache. Anything else counts as foreign.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::Path;

use floe_core::layout::tiny::TinySuperblock;
use floe_core::layout::{ArrayLabel, Identified, Superblock, identify};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::opening::block_device_size;
use super::signatures::{self, SIGNATURES};
use crate::config::OpenDeviceError;

/// The unit of inspection; no structure that identifies a Floe cache is longer.
const BLOCK: u64 = 4096;

/// Bytes at the start and at the end that are read completely. Partition
/// tables, volume managers and file systems have their signatures there.
const EDGE_BYTES: u64 = 1 << 20;

/// Most samples taken between the edges, beside the first and the last block
/// of each extent of a file.
const SAMPLES_MAX: u64 = 1 << 14;

/// Most extents of a file that are inspected.
const EXTENTS_MAX: usize = 1 << 16;

/// Smallest and largest zone size for which a second superblock is looked up.
const ZONE_BYTES_LOG2: std::ops::RangeInclusive<u32> = 12..=37;

/// Data without a known signature.
pub(crate) const OTHER_DATA: &str = "data that is not Floe's";

/// The contents of a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Only zeros and holes.
    Empty,
    /// A Floe cache, possibly damaged, with its shape if a superblock is
    /// readable.
    Cache(Option<CacheShape>),
    /// Something else.
    Foreign {
        /// Byte offset of the foreign contents.
        offset: u64,
        /// Name of the foreign contents, with an article.
        what: &'static str,
    },
}

impl Contents {
    /// The cache on the device at `path`, if it is not empty.
    ///
    /// # Errors
    /// If its contents are foreign.
    pub(crate) fn cache(self, path: &Path) -> Result<Option<CacheShape>, OpenDeviceError> {
        match self {
            Contents::Empty => Ok(None),
            Contents::Cache(shape) => Ok(shape),
            Contents::Foreign { offset, what } => Err(OpenDeviceError::ForeignData {
                path: path.to_owned(),
                offset,
                what,
            }),
        }
    }
}

/// The shape of the device that a cache was created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    pub(crate) zone_size: u64,
    pub(crate) size: u64,
    pub(crate) block_size: u32,
}

/// A file or block device to inspect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Medium<'a> {
    pub(crate) file: &'a File,
    pub(crate) len: u64,
    pub(crate) is_block_device: bool,
}

impl<'a> Medium<'a> {
    /// An open file or block device.
    pub(crate) fn of(file: &'a File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let is_block_device = metadata.file_type().is_block_device();
        let len = match is_block_device {
            true => block_device_size(file)?,
            false => metadata.len(),
        };
        Ok(Medium {
            file,
            len,
            is_block_device,
        })
    }

    /// Inspects the medium. `zone_size` is one more possible location of a
    /// second superblock.
    pub(crate) fn contents(&self, zone_size: Option<u64>) -> io::Result<Contents> {
        let head = self.block(0)?;
        if let Identified::Claims(_) = identify(&head) {
            let shape = match shape_in(&head) {
                Some(shape) => Some(shape),
                None => self.second_superblock(zone_size)?,
            };
            return Ok(Contents::Cache(shape));
        }
        if let Some(shape) = self.second_superblock(zone_size)? {
            return Ok(Contents::Cache(Some(shape)));
        }
        if let Some(found) = self.signature()? {
            return Ok(found);
        }
        self.first_data()
    }

    /// True if a structure of Floe's begins at `offset`, sound or not.
    pub(crate) fn is_claimed(&self, offset: u64) -> io::Result<bool> {
        let block = self.block(offset)?;
        Ok(matches!(identify(&block), Identified::Claims(_)))
    }

    /// The shape from the superblock at the start of the second zone.
    fn second_superblock(&self, zone_size: Option<u64>) -> io::Result<Option<CacheShape>> {
        let powers = ZONE_BYTES_LOG2.flat_map(|log2| [1 << log2, 3 << log2]);
        for start in zone_size.into_iter().chain(powers) {
            if start >= self.len {
                continue;
            }
            let shape = shape_in(&self.block(start)?);
            // A superblock at another offset is user data.
            if shape.is_some_and(|shape| shape.zone_size == start) {
                return Ok(shape);
            }
        }
        Ok(None)
    }

    /// A known signature at its proper offset.
    fn signature(&self) -> io::Result<Option<Contents>> {
        for signature in SIGNATURES {
            let Some(offset) = signature.place.offset(self.len) else {
                continue;
            };
            if signature.matches(&self.read(offset, signatures::MAGIC_BYTES_MAX)?) {
                let what = signature.name;
                return Ok(Some(Contents::Foreign { offset, what }));
            }
        }
        Ok(None)
    }

    /// Judges the medium by the first block found that is not all zeros.
    fn first_data(&self) -> io::Result<Contents> {
        let edges = [0, self.len.saturating_sub(EDGE_BYTES) / BLOCK * BLOCK];
        for edge in edges {
            let bytes = self.read(edge, EDGE_BYTES as usize)?;
            let blocks = bytes.chunks(BLOCK as usize);
            if let Some(found) = (edge..).step_by(BLOCK as usize).zip(blocks).find_map(judge) {
                return Ok(found);
            }
        }
        match self.is_block_device {
            true => self.first_data_of_device(),
            false => self.first_data_of_file(),
        }
    }

    /// A block device does not report where its data is: inspects samples, and
    /// the offsets of signatures.
    fn first_data_of_device(&self) -> io::Result<Contents> {
        let places = SIGNATURES.iter().filter_map(|it| it.place.offset(self.len));
        let samples = (0..self.len).step_by(self.sample_step());
        for offset in places.map(|at| at / BLOCK * BLOCK).chain(samples) {
            if let Some(found) = judge((offset, &self.block(offset)?)) {
                return Ok(found);
            }
        }
        Ok(Contents::Empty)
    }

    /// A file reports where its data is: inspects the first and last block of
    /// each extent, and samples between them.
    fn first_data_of_file(&self) -> io::Result<Contents> {
        let mut end = 0;
        for _ in 0..EXTENTS_MAX {
            let Some(start) = self.next_data(end)? else {
                return Ok(Contents::Empty);
            };
            end = rustix::fs::seek(self.file, SeekFrom::Hole(start))?.max(start + 1);
            let last = (end - 1) / BLOCK * BLOCK;
            let samples = (start..end).step_by(self.sample_step());
            for offset in samples.chain([last.max(start)]) {
                if let Some(found) = judge((offset, &self.block(offset)?)) {
                    return Ok(found);
                }
            }
        }
        Ok(Contents::Foreign {
            offset: end,
            what: "data in more separate extents than can be inspected",
        })
    }

    /// The offset of the first data at or after `from`.
    fn next_data(&self, from: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(self.file, SeekFrom::Data(from)) {
            Ok(start) => Ok(Some(start)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn sample_step(&self) -> usize {
        let step = (self.len / SAMPLES_MAX).max(EDGE_BYTES);
        usize::try_from(step.next_multiple_of(BLOCK)).unwrap_or(usize::MAX)
    }

    fn block(&self, offset: u64) -> io::Result<Vec<u8>> {
        self.read(offset, BLOCK as usize)
    }

    /// Up to `len` bytes at `offset`, less where the medium ends. Nothing is known of the
    /// contents of one that ends earlier than it should.
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let left = self.len.saturating_sub(offset);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
            {
                Ok(0) => {
                    let why = "it returns no data at an offset below its size";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}

/// The cache that a block claims; `None` if it claims none.
pub(crate) fn cache_in(block: &[u8]) -> Option<Contents> {
    let claims = matches!(identify(block), Identified::Claims(_));
    claims.then(|| Contents::Cache(shape_in(block)))
}

/// The contents that the block at `offset` implies; `None` if it is all zeros.
fn judge((offset, block): (u64, &[u8])) -> Option<Contents> {
    let foreign = Contents::Foreign {
        offset,
        what: OTHER_DATA,
    };
    match identify(block) {
        Identified::Blank => None,
        _ => Some(cache_in(block).unwrap_or(foreign)),
    }
}

/// The shape from a superblock of either kind of cache, or from the label of a drive of an array.
fn shape_in(block: &[u8]) -> Option<CacheShape> {
    let chunks = || {
        let plan = Superblock::decode(block).ok()?.plan;
        Some((plan.zone_size, plan.zone_count, plan.block_size))
    };
    let tiny = || {
        let plan = TinySuperblock::decode(block).ok()?.plan;
        Some((plan.zone_size, plan.zone_count, plan.block_size))
    };
    let of_array = || {
        let label = ArrayLabel::decode(block).ok()?;
        Some((label.zone_size, label.zone_count, label.block_size))
    };
    let (zone_size, zone_count, block_size) = chunks().or_else(tiny).or_else(of_array)?;
    Some(CacheShape {
        zone_size,
        size: zone_size.checked_mul(u64::from(zone_count))?,
        block_size,
    })
}
