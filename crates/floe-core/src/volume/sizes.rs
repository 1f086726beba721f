//! The block sizes of a cache.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ByteSize;

/// Base-2 logarithm of the smallest block size there can be, 4 KiB.
const BITS_MIN: u32 = 12;
/// Base-2 logarithm of the largest, 1 MiB.
const BITS_MAX: u32 = 20;

/// A set of powers of two from 4 KiB to 1 MiB, never empty. It parses from
/// `64KiB`, `32KiB,256KiB` and `32KiB..256KiB` (every power of two between).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSizes {
    /// Bit `i` stands for `4 KiB << i`.
    mask: u16,
}

impl BlockSizes {
    /// The sizes of the paper: 32, 64, 128 and 256 KiB.
    pub const ADACACHE: BlockSizes = BlockSizes { mask: 0b111_1000 };

    /// The set of `sizes`.
    ///
    /// # Errors
    /// The first size that cannot be one of a block, or that there is none.
    pub fn new(sizes: impl IntoIterator<Item = ByteSize>) -> Result<Self, BlockSizesError> {
        let mut mask = 0;
        for size in sizes {
            let bits = size.bytes().trailing_zeros();
            if !size.bytes().is_power_of_two() || !(BITS_MIN..=BITS_MAX).contains(&bits) {
                let nearest = nearest(size);
                return Err(BlockSizesError::NoBlockSize { size, nearest });
            }
            mask |= 1 << (bits - BITS_MIN);
        }
        if mask == 0 {
            return Err(BlockSizesError::Empty);
        }
        Ok(BlockSizes { mask })
    }

    /// Every power of two from `smallest` to `largest`.
    ///
    /// # Errors
    /// A bound that cannot be a block size, or bounds in the wrong order.
    pub fn range(smallest: ByteSize, largest: ByteSize) -> Result<Self, BlockSizesError> {
        BlockSizes::new([smallest, largest])?;
        let doubled = |size: &ByteSize| Some(ByteSize(size.bytes() * 2));
        let sizes = std::iter::successors(Some(smallest), doubled);
        BlockSizes::new(sizes.take_while(|size| *size <= largest))
    }

    /// The smallest size.
    pub fn smallest(self) -> ByteSize {
        ByteSize(1 << (BITS_MIN + self.mask.trailing_zeros()))
    }

    /// The largest size.
    pub fn largest(self) -> ByteSize {
        ByteSize(1 << (BITS_MIN + self.mask.ilog2()))
    }

    /// The sizes, in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = ByteSize> {
        (0..=BITS_MAX - BITS_MIN)
            .filter(move |bit| self.mask >> bit & 1 == 1)
            .map(|bit| ByteSize(1 << (BITS_MIN + bit)))
    }

    /// The number of sizes.
    pub fn count(self) -> usize {
        self.mask.count_ones() as usize
    }

    /// Bit `i` stands for blocks of `smallest << i`.
    pub fn classes(self) -> u32 {
        u32::from(self.mask >> self.mask.trailing_zeros())
    }
}

/// The power of two that is nearest to `size`, within the limits.
fn nearest(size: ByteSize) -> ByteSize {
    let bytes = size.bytes().clamp(1 << BITS_MIN, 1 << BITS_MAX);
    let below = 1 << bytes.ilog2();
    let is_nearer_above = bytes - below > below / 2;
    ByteSize(if is_nearer_above { below * 2 } else { below })
}

/// Sizes that blocks cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockSizesError {
    /// One of them is no power of two, too small or too large.
    #[error("{size} is no block size; the nearest is {nearest} (powers of two, 4KiB to 1MiB)")]
    NoBlockSize {
        /// The size.
        size: ByteSize,
        /// The nearest block size.
        nearest: ByteSize,
    },
    /// There is none.
    #[error(
        "no block size: name one, a list such as 32KiB,256KiB, or a range such as 32KiB..256KiB"
    )]
    Empty,
    /// One is not written as a size.
    #[error(transparent)]
    NoSize(#[from] crate::size::ParseSizeError),
}

impl FromStr for BlockSizes {
    type Err = BlockSizesError;

    fn from_str(text: &str) -> Result<Self, BlockSizesError> {
        if let Some((smallest, largest)) = text.split_once("..") {
            return BlockSizes::range(smallest.parse()?, largest.parse()?);
        }
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let sizes: Result<Vec<ByteSize>, _> = parts.map(str::parse).collect();
        BlockSizes::new(sizes?)
    }
}

impl fmt::Display for BlockSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_range = self.count() > 2 && (self.classes() + 1).is_power_of_two();
        if is_range {
            return f.pad(&format!("{}..{}", self.smallest(), self.largest()));
        }
        let sizes: Vec<String> = self.iter().map(|size| size.to_string()).collect();
        f.pad(&sizes.join(","))
    }
}

impl Serialize for BlockSizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlockSizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        for (text, printed, count) in [
            ("64KiB", "64KiB", 1),
            ("32k, 256k", "32KiB,256KiB", 2),
            ("32KiB..256KiB", "32KiB..256KiB", 4),
            ("4KiB..1MiB", "4KiB..1MiB", 9),
            ("8KiB..8KiB", "8KiB", 1),
            ("64KiB,32KiB", "32KiB,64KiB", 2),
            ("4KiB,16KiB,32KiB", "4KiB,16KiB,32KiB", 3),
        ] {
            let sizes: BlockSizes = text.parse().unwrap();
            assert_eq!(sizes.to_string(), printed);
            assert_eq!(sizes.count(), count);
            assert_eq!(printed.parse(), Ok(sizes));
        }
        assert_eq!("32KiB..256KiB".parse(), Ok(BlockSizes::ADACACHE));
    }

    #[test]
    fn errors_of_invalid_sizes_name_the_nearest_valid_one() {
        for (text, nearest) in [("2KiB", 4), ("2MiB", 1024), ("48KiB", 32), ("100KiB", 128)] {
            let Err(BlockSizesError::NoBlockSize { nearest: named, .. }) =
                text.parse::<BlockSizes>()
            else {
                panic!("{text} is no block size");
            };
            assert_eq!(named, ByteSize::kib(nearest), "{text}");
        }
        assert_eq!("".parse::<BlockSizes>(), Err(BlockSizesError::Empty));
        assert_eq!(
            "64KiB..32KiB".parse::<BlockSizes>(),
            Err(BlockSizesError::Empty)
        );
        assert!("x".parse::<BlockSizes>().is_err());
    }
}
