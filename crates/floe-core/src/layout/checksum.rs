//! CRC-32C (Castagnoli) over several parts, with the widest instructions that
//! the processor has. Every hit verifies a checksum: most of a hit's CPU time
//! outside the kernel is spent here.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of the concatenation of `parts`.
pub(crate) fn crc32c<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // The crate returns checksums of every width in 64 bits; this one has 32.
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_checksum_is_crc32c_of_all_parts() {
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
