//! Page filters: for each index page on flash, a small Bloom filter in memory of all keys in it.
//!
//! An index page has the filters of one set in some hundred set-groups. Its page filter excludes
//! nearly all keys that none of these sets has. So the lookup of an absent key reads almost no
//! index page, and a hit about one. The page filter is also at the end of its page, from where a
//! restart loads it.
//!
//! The bits of a key are in one line of 64 bytes, so that a probe waits for memory once (Putze,
//! Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007).

use super::hashes::PageProbe;
use crate::hash::fast_range;
use crate::tiny::object::PAGE_BYTES;
use crate::tiny::statistics::room_bytes;

/// Bytes of a line.
const LINE_BYTES: usize = LINE_WORDS * size_of::<u64>();

/// Words of a line.
const LINE_WORDS: usize = 8;

/// Bits of a line.
const LINE_BITS: u32 = 8 * LINE_BYTES as u32;

/// Most bits that a key sets: one hash has as many positions in a line.
const PROBES_MAX: u32 = u64::BITS / LINE_BITS.ilog2();

/// The layout of the page filters of an index group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFilterShape {
    /// Lines of 64 bytes; zero if the group has no page filters.
    pub lines: u32,
    /// Bits that a key sets.
    pub probes: u32,
}

impl PageFilterShape {
    /// No page filters.
    pub const NONE: PageFilterShape = PageFilterShape {
        lines: 0,
        probes: 0,
    };

    /// Page filters of about `bits` bits for each of `objects` objects, which take at most
    /// `bytes_max` bytes.
    pub(super) fn new(objects: f64, bits: f64, bytes_max: usize) -> Self {
        if bits <= 0.0 {
            return PageFilterShape::NONE;
        }
        let lines = (objects * bits / f64::from(LINE_BITS)).round() as u32;
        let lines = lines.clamp(1, (bytes_max / LINE_BYTES) as u32);
        let bits = f64::from(lines * LINE_BITS) / objects.max(1.0);
        PageFilterShape {
            lines,
            probes: ((bits * std::f64::consts::LN_2) as u32).clamp(1, PROBES_MAX),
        }
    }

    /// True if there are page filters.
    pub fn exists(self) -> bool {
        self.lines > 0
    }

    /// Bytes at the end of an index page.
    pub fn bytes(self) -> usize {
        self.lines as usize * LINE_BYTES
    }

    /// True if a page can end with such a filter.
    pub(super) fn is_valid(self) -> bool {
        match self.lines {
            0 => self.probes == 0,
            lines => {
                lines as usize <= PAGE_BYTES / LINE_BYTES && (1..=PROBES_MAX).contains(&self.probes)
            }
        }
    }

    /// False-positive rate with `objects` objects.
    pub(super) fn false_positives(self, objects: f64) -> f64 {
        if !self.exists() {
            return 1.0;
        }
        let mean = objects / f64::from(self.lines);
        let bit_stays_clear = 1.0 - 1.0 / f64::from(LINE_BITS);
        let with = |count: f64| {
            let is_set = 1.0 - bit_stays_clear.powf(f64::from(self.probes) * count);
            is_set.powi(self.probes as i32)
        };
        if mean > f64::from(LINE_BITS) / 2.0 {
            // Nearly all bits are set, so the variance does not matter.
            return with(mean);
        }
        // Objects of a line have a Poisson distribution.
        let (mut probability, mut rate) = ((-mean).exp(), 0.0);
        for count in 0..LINE_BITS {
            rate += probability * with(f64::from(count));
            probability *= mean / f64::from(count + 1);
        }
        rate
    }
}

/// A part of a page filter. It has the alignment of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

impl Line {
    const EMPTY: Line = Line([0; LINE_WORDS]);

    const FULL: Line = Line([u64::MAX; LINE_WORDS]);

    fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        Line(std::array::from_fn(|at| u64::from_le_bytes(words[at])))
    }

    /// The bits of a key.
    fn of(probe: &PageProbe, probes: u32) -> Self {
        let mut line = Line::EMPTY;
        for probed in 0..probes {
            let position = probe.positions >> (probed * LINE_BITS.ilog2());
            let position = position as u32 % LINE_BITS;
            line.0[(position / u64::BITS) as usize] |= 1 << (position % u64::BITS);
        }
        line
    }

    fn contains(&self, other: &Line) -> bool {
        // No early exit, so that it vectorizes.
        let missing = self.0.iter().zip(&other.0);
        missing.fold(0, |all, (word, other)| all | (other & !word)) == 0
    }

    fn add(&mut self, other: &Line) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }
}

/// A key's bits in the page filters of most index groups: those of one shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLine {
    probe: PageProbe,
    probes: u32,
    line: Line,
}

impl KeyLine {
    pub(super) fn of(probe: PageProbe, shape: PageFilterShape) -> Self {
        KeyLine {
            probe,
            probes: shape.probes,
            line: Line::of(&probe, shape.probes),
        }
    }

    /// The bits in a filter of any shape.
    fn with(&self, probes: u32) -> Line {
        match probes == self.probes {
            true => self.line,
            false => Line::of(&self.probe, probes),
        }
    }
}

/// The page filters of an index group, of its first sets.
#[derive(Debug)]
pub(super) struct PageFilters {
    pub(super) shape: PageFilterShape,
    /// The filters of [`BLOCK_SETS`] sets each; the last block may have fewer.
    blocks: Vec<Box<[Line]>>,
}

/// Sets whose filters are allocated at once: all sets of a large set-group would take too long.
pub(super) const BLOCK_SETS: u32 = 32;

impl PageFilters {
    /// Filters of no set.
    pub(super) fn new(shape: PageFilterShape) -> Self {
        PageFilters {
            shape,
            blocks: Vec::new(),
        }
    }

    /// Makes room for the filter of one of `sets` sets. They come in order, once for each
    /// set-group.
    pub(super) fn begin_set(&mut self, set: u32, sets: u32) {
        if self.shape.exists() && self.blocks.len() as u32 == set / BLOCK_SETS {
            let lines = BLOCK_SETS.min(sets - set) * self.shape.lines;
            self.blocks.push(vec![Line::EMPTY; lines as usize].into());
        }
    }

    /// Adds a key to the filter of a set that was begun.
    pub(super) fn add(&mut self, set: u32, probe: &PageProbe) {
        let (at, shape) = (self.line_of(set, probe), self.shape);
        let block = self.blocks.get_mut((set / BLOCK_SETS) as usize);
        if let Some(line) = block.and_then(|block| block.get_mut(at)) {
            line.add(&Line::of(probe, shape.probes));
        }
    }

    /// True if the page of `set` may have the key, or if its filter is not loaded.
    pub(super) fn may_hold(&self, set: u32, key: &KeyLine) -> bool {
        let block = self.blocks.get((set / BLOCK_SETS) as usize);
        let line = block.and_then(|block| block.get(self.line_of(set, &key.probe)));
        line.is_none_or(|line| line.contains(&key.with(self.shape.probes)))
    }

    /// The line of a key in the block of its set.
    fn line_of(&self, set: u32, probe: &PageProbe) -> usize {
        let lines = self.shape.lines as usize;
        (set % BLOCK_SETS) as usize * lines + fast_range(probe.line_hash, lines)
    }

    /// Writes the filter of a set to the end of its page.
    pub(super) fn write_to_page(&self, set: u32, page: &mut [u8]) {
        let lines = self.shape.lines as usize;
        let block = self.blocks.get((set / BLOCK_SETS) as usize);
        let of_set = block.and_then(|block| block.get((set % BLOCK_SETS) as usize * lines..));
        let start = page.len() - self.shape.bytes();
        for (at, out) in page[start..].chunks_exact_mut(LINE_BYTES).enumerate() {
            let line = of_set
                .and_then(|lines| lines.get(at))
                .unwrap_or(&Line::FULL);
            let words = out.chunks_exact_mut(size_of::<u64>());
            for (word, out) in line.0.iter().zip(words) {
                out.copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// The first set whose filter is not loaded.
    pub(super) fn end(&self) -> u32 {
        self.blocks.len() as u32 * BLOCK_SETS
    }

    /// Takes the filters of the next block of sets from their pages. An unreadable page gets one
    /// that excludes no key.
    pub(super) fn load_block(&mut self, pages: &[Option<&[u8]>]) {
        let shape = self.shape;
        let block = pages.iter().flat_map(|page| {
            let filter = page.map(|page| &page[page.len() - shape.bytes()..]);
            let (lines, _) = filter.unwrap_or_default().as_chunks();
            let line = |at: u32| lines.get(at as usize).map_or(Line::FULL, Line::from_bytes);
            (0..shape.lines).map(line)
        });
        self.blocks.push(block.collect());
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| size_of_val(&**block) as u64);
        room_bytes::<Box<[Line]>>(self.blocks.capacity()) + blocks.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    const SETS: u32 = 70;

    fn hash(number: u32) -> KeyHash {
        KeyHash(xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes()))
    }

    fn probe(number: u32) -> PageProbe {
        PageProbe::of(hash(number))
    }

    fn line(number: u32, shape: PageFilterShape) -> KeyLine {
        KeyLine::of(probe(number), shape)
    }

    /// Filters of `SETS` sets, each with the `objects` keys that `key` names.
    fn filled(shape: PageFilterShape, objects: u32) -> PageFilters {
        let mut filters = PageFilters::new(shape);
        for set in 0..SETS {
            filters.begin_set(set, SETS);
            for object in 0..objects {
                filters.add(set, &probe(key(set, object)));
            }
        }
        filters
    }

    fn key(set: u32, object: u32) -> u32 {
        set << 16 | object
    }

    #[test]
    fn every_key_is_found_and_few_others() {
        for bits in [1.0, 6.0, 8.0, 10.0, 16.0] {
            let objects = 1400;
            let shape = PageFilterShape::new(f64::from(objects), bits, PAGE_BYTES);
            assert!(shape.is_valid(), "{shape:?}");
            let filters = filled(shape, objects);
            let of_set = |set| (0..objects).map(move |object| (set, key(set, object)));
            let mut all = (0..SETS).flat_map(of_set);
            assert!(all.all(|(set, key)| filters.may_hold(set, &line(key, shape))));
            // A line of another shape is as good.
            let other = PageFilterShape { probes: 1, ..shape };
            assert!(filters.may_hold(3, &line(key(3, 5), other)));
            let others = 200_000;
            let wrong = (0..others)
                .filter(|other| filters.may_hold(other % SETS, &line(1 << 31 | other, shape)))
                .count();
            let (rate, expected) = (
                wrong as f64 / f64::from(others),
                shape.false_positives(f64::from(objects)),
            );
            assert!(
                (rate / expected - 1.0).abs() < 0.15,
                "{bits}: {rate} {expected}"
            );
        }
    }

    #[test]
    fn filters_are_loaded_from_their_pages() {
        let shape = PageFilterShape::new(100.0, 10.0, PAGE_BYTES);
        let filters = filled(shape, 100);
        let pages: Vec<Vec<u8>> = (0..SETS)
            .map(|set| {
                let mut page = vec![0; PAGE_BYTES];
                filters.write_to_page(set, &mut page);
                page
            })
            .collect();
        let mut loaded = PageFilters::new(shape);
        let absent = 1 << 31;
        assert!(
            loaded.may_hold(3, &line(absent, shape)),
            "nothing is loaded"
        );
        let mut pages: Vec<Option<&[u8]>> = pages.iter().map(|page| Some(&**page)).collect();
        pages[40] = None;
        for block in pages.chunks(BLOCK_SETS as usize) {
            loaded.load_block(block);
        }
        assert!(loaded.end() >= SETS);
        assert_eq!(loaded.memory_bytes(), filters.memory_bytes());
        for number in (0..100)
            .map(|other| absent | other)
            .chain(key(9, 0)..key(9, 100))
        {
            let probe = line(number, shape);
            assert!(loaded.may_hold(40, &probe), "its page was unreadable");
            for set in (0..SETS).filter(|set| *set != 40) {
                let is_found = loaded.may_hold(set, &probe);
                assert_eq!(is_found, filters.may_hold(set, &probe));
            }
        }
    }

    #[test]
    fn without_page_filters_every_page_may_have_a_key() {
        let mut none = PageFilters::new(PageFilterShape::NONE);
        none.begin_set(0, SETS);
        none.add(0, &probe(1));
        assert!(none.may_hold(0, &line(2, none.shape)));
        assert_eq!(PageFilterShape::new(100.0, 0.0, PAGE_BYTES), none.shape);
        let small = PageFilterShape::new(10.0, 0.1, PAGE_BYTES);
        assert_eq!(small.lines, 1);
        for bits in [0.4, 0.7, 0.9] {
            let shape = PageFilterShape::new(100_000.0, bits, usize::MAX);
            assert!(shape.false_positives(100_000.0) > 0.5, "{bits}");
        }
        let invalid = [(0, 1), (1, 0), (65, 7), (1, 8)];
        let is_valid = |(lines, probes)| PageFilterShape { lines, probes }.is_valid();
        assert!(!invalid.into_iter().any(is_valid));
    }
}
