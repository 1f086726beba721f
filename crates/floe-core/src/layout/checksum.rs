//! CRC-32C (Castagnoli) over several parts, by the widest instructions the
//! processor has. Every hit is checked, so this is most of a hit's cost that
//! is not the kernel's.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `parts` one behind the other.
pub(crate) fn crc32c<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // The crate returns every width in 64 bits; this one has 32.
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn it_is_the_castagnoli_polynomial_of_the_whole() {
        // RFC 3720, B.4.
        assert_eq!(crc32c([&[0; 32]]), 0x8A91_36AA);
        let bytes: Vec<u8> = (0..=255).cycle().take(70_001).collect();
        for cut in [0, 1, 24, 4096, 70_001] {
            let (first, rest) = bytes.split_at(cut);
            assert_eq!(
                crc32c([first, rest]),
                ::crc32c::crc32c(&bytes),
                "cut at {cut}"
            );
        }
    }
}
