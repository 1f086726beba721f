//! The reasons why drives are no array.

use floe_core::layout::LayoutError;

use crate::error::DeviceError;

/// The reason why drives cannot be opened as an array.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// There are none, or too many.
    #[error("an array has 1 to 32 drives, not {0}")]
    Count(usize),
    /// The array has another number of drives.
    #[error("the array has {of} drives, and device.paths names {named}; name all of them")]
    OtherCount {
        /// Drives of the array.
        of: usize,
        /// Drives that the settings name.
        named: usize,
    },
    /// A drive has other data.
    #[error("`{name}` is no drive of an array: {content}")]
    NotBlank {
        /// The drive.
        name: String,
        /// Its content.
        content: LayoutError,
    },
    /// Two drives belong to different arrays.
    #[error("`{name}` belongs to another array than `{other}`")]
    Mixed {
        /// A drive.
        name: String,
        /// A drive of another array.
        other: String,
    },
    /// A drive of the array is missing, and was not dropped before.
    #[error(
        "{there} of the array's {of} drives are there; without the others they cannot know whether \
         their content is the newest; not of the array: {others}"
    )]
    Incomplete {
        /// Drives that are there.
        there: usize,
        /// Drives that the newest label names.
        of: usize,
        /// The drives that are missing or blank.
        others: String,
    },
    /// The labels of the drives contradict each other.
    #[error("the labels of its drives contradict each other, so it cannot be opened")]
    Conflict,
    /// Every drive failed while the array was opened.
    #[error("no drive of the array takes a label")]
    Lost,
    /// The drives do not fit each other, or the array.
    #[error("an array cannot be made of these drives: {0}")]
    Shape(&'static str),
    /// A drive has labels in zones or blocks of other sizes, where not all of them are found.
    #[error(
        "`{name}` belongs to an array whose zones have {zone_bytes} bytes and whose blocks have \
         {block_bytes}; empty it first: `blkdiscard --zeroout {name}`, or delete the file"
    )]
    OtherZones {
        /// The drive.
        name: String,
        /// Size of the zones of its array.
        zone_bytes: u64,
        /// Size of their blocks.
        block_bytes: u32,
    },
    /// A drive failed.
    #[error("`{name}` cannot be used: {error}")]
    Drive {
        /// The drive.
        name: String,
        /// Its failure.
        #[source]
        error: DeviceError,
    },
}
