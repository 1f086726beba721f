//! The bytes of a value: cells that each tell the value, their place and the number of cells, so
//! that any range tells which write it is of.

use anyhow::{Context, Result, bail, ensure};

use super::history::Value;

/// Bytes of a cell: the value, the cell's index, and the number of cells.
pub(super) const CELL_BYTES: usize = 16;

/// A value of several cells.
pub(super) fn of_value(value: Value, cells: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(cells as usize * CELL_BYTES);
    for index in 0..cells {
        bytes.extend_from_slice(&cell(value, index, cells));
    }
    bytes
}

fn cell(value: Value, index: u32, cells: u32) -> [u8; CELL_BYTES] {
    let words = u128::from(value) | u128::from(index) << 64 | u128::from(cells) << 96;
    words.to_le_bytes()
}

/// The value that all bytes of a range are of. The range begins with the cell `first`, and ends
/// before the cell `end` or with the value.
///
/// # Errors
/// A byte is not of this value, or bytes are missing.
pub(super) fn value_of(bytes: &[u8], first: u32, end: u32) -> Result<Value> {
    let head = bytes.first_chunk::<CELL_BYTES>();
    let head = head.with_context(|| format!("a value of {} bytes", bytes.len()))?;
    let words = u128::from_le_bytes(*head);
    let (value, cells) = (words as Value, (words >> 96) as u32);
    let end = end.min(cells);
    let expected = end.saturating_sub(first) as usize * CELL_BYTES;
    ensure!(
        bytes.len() == expected,
        "{} bytes of value {value} instead of {expected}",
        bytes.len()
    );
    for (index, found) in (first..end).zip(bytes.chunks_exact(CELL_BYTES)) {
        if found != cell(value, index, cells) {
            bail!("cell {index} of value {value} is {found:02x?}");
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_tells_its_value() {
        let bytes = of_value(7, 5);
        assert_eq!(value_of(&bytes, 0, u32::MAX).unwrap(), 7);
        assert_eq!(value_of(&bytes[2 * CELL_BYTES..], 2, 9).unwrap(), 7);
        assert_eq!(
            value_of(&bytes[CELL_BYTES..][..CELL_BYTES], 1, 2).unwrap(),
            7
        );
    }

    #[test]
    fn bytes_of_elsewhere_are_found() {
        let bytes = of_value(7, 5);
        assert!(value_of(&bytes, 1, 6).is_err(), "another place");
        assert!(value_of(&bytes[..4 * CELL_BYTES], 0, 5).is_err(), "short");
        let other = of_value(8, 5);
        let mixed = [&bytes[..3 * CELL_BYTES], &other[3 * CELL_BYTES..]].concat();
        assert!(value_of(&mixed, 0, 5).is_err(), "two values");
        assert!(value_of(b"", 0, 5).is_err(), "nothing");
    }
}
