//! The blocks that cache a missing range: AdaCache's Algorithm 2, mended.
//!
//! As printed, the paper's loop goes on to smaller sizes after each block, so
//! that 512 KiB become blocks of 256, 128, 64, 32 and 32 KiB. Here the search
//! starts again from the largest size after each block.

/// The blocks that cover the missing granules `first..end` of a region: first
/// granule and class of each. Every block is the largest of `classes` that is
/// aligned and ends in the range, so that it overlaps nothing that is cached.
/// Class 0 must be one of `classes`.
pub(super) fn blocks(classes: u32, first: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut at = first;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let aligned = at.trailing_zeros().min(u32::BITS - 1);
        let fits = (end - at).ilog2();
        let at_most = classes & (u32::MAX >> (u32::BITS - 1 - aligned.min(fits)));
        let block = (at, at_most.ilog2());
        at += 1 << block.1;
        Some(block)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: u32 = 0b1111;

    fn of(classes: u32, first: u32, end: u32) -> Vec<(u32, u32)> {
        blocks(classes, first, end).collect()
    }

    #[test]
    fn the_largest_size_comes_first_again_after_each_block() {
        assert_eq!(of(FOUR, 0, 16), [(0, 3), (8, 3)]);
        assert_eq!(of(FOUR, 1, 16), [(1, 0), (2, 1), (4, 2), (8, 3)]);
        assert_eq!(of(FOUR, 0, 7), [(0, 2), (4, 1), (6, 0)]);
        assert_eq!(of(0b1001, 0, 9), [(0, 3), (8, 0)]);
        assert_eq!(of(1, 3, 5), [(3, 0), (4, 0)]);
        assert!(of(FOUR, 4, 4).is_empty());
    }

    #[test]
    fn blocks_cover_exactly_the_missing_granules() {
        for classes in (1..64).step_by(2) {
            for first in 0..32 {
                for end in first..=32 {
                    let mut at = first;
                    for (start, class) in blocks(classes, first, end) {
                        assert_eq!(start, at);
                        assert!(classes >> class & 1 == 1 && start % (1 << class) == 0);
                        at += 1 << class;
                    }
                    assert_eq!(at, end);
                }
            }
        }
    }
}
