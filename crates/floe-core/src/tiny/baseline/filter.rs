//! A Bloom filter for each page of objects, all in one array.
//!
//! A filter is rebuilt whenever its page is rewritten, so nothing is ever
//! removed from one. An empty filter means an empty page.

use crate::hash::KeyHash;

/// Most bits that a key sets.
const PROBES_MAX: u32 = 12;

/// Filters of many pages, all of the same number of 64-bit words.
#[derive(Clone, Debug)]
pub struct PageFilters {
    words: Vec<u64>,
    words_per_page: usize,
    probes: u32,
}

impl PageFilters {
    /// Empty filters of `bytes_per_page` bytes (a multiple of 8) for `pages`
    /// pages, with the best number of probes for `objects_expected` objects.
    pub fn new(pages: usize, bytes_per_page: u32, objects_expected: u32) -> Self {
        let bits_per_object = f64::from(bytes_per_page * 8) / f64::from(objects_expected.max(1));
        PageFilters {
            words: vec![0; pages * bytes_per_page as usize / 8],
            words_per_page: bytes_per_page as usize / 8,
            // The optimum of a Bloom filter: ln 2 probes per bit and object.
            probes: ((bits_per_object * std::f64::consts::LN_2).round() as u32)
                .clamp(1, PROBES_MAX),
        }
    }

    /// True if `page` may hold `hash`. False is certain.
    pub fn may_hold(&self, page: usize, hash: KeyHash) -> bool {
        let words = &self.words[page * self.words_per_page..][..self.words_per_page];
        let mut probe = Probe::new(hash, words.len());
        (0..self.probes).all(|_| {
            let (word, bit) = probe.next();
            words[word] & bit != 0
        })
    }

    /// All pages that may hold `hash`. The bits are computed once for all
    /// pages.
    pub fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = usize> {
        let mut bits = [(0, 0); PROBES_MAX as usize];
        let mut probe = Probe::new(hash, self.words_per_page);
        for bit in bits.iter_mut().take(self.probes as usize) {
            *bit = probe.next();
        }
        let count = self.probes as usize;
        let pages = self.words.chunks_exact(self.words_per_page.max(1));
        pages.enumerate().filter_map(move |(page, words)| {
            let all = bits[..count].iter().all(|(at, bit)| words[*at] & bit != 0);
            all.then_some(page)
        })
    }

    /// True if the filter of `page` is empty, and so is the page.
    pub fn is_empty(&self, page: usize) -> bool {
        self.words[page * self.words_per_page..][..self.words_per_page]
            .iter()
            .all(|word| *word == 0)
    }

    /// Rebuilds the filter of `page` from `hashes`.
    pub fn rebuild(&mut self, page: usize, hashes: impl Iterator<Item = KeyHash>) {
        let words = &mut self.words[page * self.words_per_page..][..self.words_per_page];
        words.fill(0);
        for hash in hashes {
            let mut probe = Probe::new(hash, words.len());
            for _ in 0..self.probes {
                let (word, bit) = probe.next();
                words[word] |= bit;
            }
        }
    }

    /// Bytes of memory of the filters.
    pub fn memory_bytes(&self) -> u64 {
        (self.words.capacity() * size_of::<u64>()) as u64
    }
}

/// Generates the bits of a hash with a 32-bit generator. Its seed bits choose
/// neither the set nor the log's tag.
struct Probe {
    state: u64,
    words: u64,
}

impl Probe {
    fn new(hash: KeyHash, words: usize) -> Self {
        Probe {
            state: (hash.0 ^ 0x6a09_e667_f3bc_c909).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            words: words as u64,
        }
    }

    fn next(&mut self) -> (usize, u64) {
        let draw = self.state >> 32;
        self.state = (self.state ^ draw).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let bit = (draw * self.words * 64) >> 32;
        ((bit / 64) as usize, 1 << (bit % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> KeyHash {
        KeyHash::of(crate::hash::HashSeed(1), &n.to_le_bytes())
    }

    #[test]
    fn filters_match_their_objects_and_few_others() {
        // Bytes per page, objects, upper limit of the false-positive rate.
        for (bytes, objects, limit) in [(8, 16, 0.20), (24, 16, 0.008), (32, 16, 0.003)] {
            let pages = 400;
            let mut filters = PageFilters::new(pages, bytes, objects);
            assert!((0..pages).all(|page| filters.is_empty(page)));
            let of_page =
                |page: usize| (0..u64::from(objects)).map(move |n| hash(page as u64 * 64 + n));
            for page in 0..pages {
                filters.rebuild(page, of_page(page));
            }
            let mut false_positives = 0;
            let tries = 200;
            for page in 0..pages {
                assert!(!filters.is_empty(page));
                assert!(of_page(page).all(|hash| filters.may_hold(page, hash)));
                assert!(of_page(page).all(|hash| filters.candidates(hash).any(|p| p == page)));
                false_positives += (0..tries)
                    .filter(|n| filters.may_hold(page, hash((1 << 40) + page as u64 * 4096 + n)))
                    .count();
            }
            let share = false_positives as f64 / (pages as f64 * tries as f64);
            assert!(share < limit, "{bytes} bytes, {objects} objects: {share}");
        }
    }
}
