//! Little-endian numbers at fixed offsets of fixed-size arrays.
//!
//! Offsets are literals at every call. A wrong one fails in the first round
//! trip, and none depends on the data.

macro_rules! numbers {
    ($($get:ident $put:ident $type:ty),*) => {$(
        pub(super) fn $get<const N: usize>(bytes: &[u8; N], at: usize) -> $type {
            let mut field = [0; size_of::<$type>()];
            field.copy_from_slice(&bytes[at..at + size_of::<$type>()]);
            <$type>::from_le_bytes(field)
        }

        pub(super) fn $put<const N: usize>(bytes: &mut [u8; N], at: usize, value: $type) {
            bytes[at..at + size_of::<$type>()].copy_from_slice(&value.to_le_bytes());
        }
    )*};
}

numbers!(u16_at put_u16 u16, u32_at put_u32 u32, u64_at put_u64 u64);

use super::error::LayoutError;

/// Sixteen bytes at `at`: a random id.
pub(super) fn id_at<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[at..at + 16]);
    id
}

/// The first `N` bytes, for a structure that needs at least that many.
pub(super) fn first<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], LayoutError> {
    bytes.first_chunk().ok_or(LayoutError::TooShort {
        needed: N,
        available: bytes.len(),
    })
}

/// The first `N` bytes, mutable.
pub(super) fn first_mut<const N: usize>(bytes: &mut [u8]) -> Result<&mut [u8; N], LayoutError> {
    let available = bytes.len();
    bytes.first_chunk_mut().ok_or(LayoutError::TooShort {
        needed: N,
        available,
    })
}

/// The first `len` bytes, mutable.
pub(super) fn prefix_mut(bytes: &mut [u8], len: usize) -> Result<&mut [u8], LayoutError> {
    let available = bytes.len();
    bytes.get_mut(..len).ok_or(LayoutError::TooShort {
        needed: len,
        available,
    })
}

/// A length as a 32-bit field of the format.
pub(super) fn narrow(len: usize) -> Result<u32, LayoutError> {
    u32::try_from(len).map_err(|_| LayoutError::Malformed("a length exceeds 32 bits"))
}

/// `bytes` rounded up to whole blocks. A block size of zero counts as one.
pub(super) fn round_up(bytes: u64, block_size: u32) -> u64 {
    let block = u64::from(block_size.max(1));
    bytes.div_ceil(block).saturating_mul(block)
}

/// `bytes` rounded up to whole blocks, as a buffer length.
pub(super) fn round_up_len(bytes: usize, block_size: u32) -> usize {
    let rounded = round_up(bytes as u64, block_size);
    usize::try_from(rounded).unwrap_or(usize::MAX)
}
