//! Filters of sets, sliced by bits.
//!
//! The filters of one set in all set-groups of an index group lie in one page
//! (§4.3), and there by rows: row *r* holds bit *r* of every filter. So one
//! probe of a key is the conjunction of a few rows, for all set-groups at
//! once, instead of several probes for each (the layout of bit-sliced
//! signature files: Faloutsos and Christodoulakis, 1984; BitFunnel, 2017).

use super::hashes::{PROBES_MAX, Probe, Rows};
use crate::hash::KeyHash;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};

/// Most set-groups of an index group.
pub(super) const INDEX_GROUP_MAX: u32 = 512;

/// Bytes of a page for rows.
const ROW_ROOM_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

/// Bits of a Bloom filter for `objects` objects at a rate of false positives.
pub(super) fn filter_bits(objects: f64, false_positives: f64) -> f64 {
    let ln2 = std::f64::consts::LN_2;
    objects.max(1.0) * -false_positives.ln() / (ln2 * ln2)
}

/// Objects that filters are to be made for, to be wrong in `false_positives`
/// on average over sets of so many objects each. A filter that is made for the
/// mean is wrong far more often where there are more than it is right where
/// there are fewer.
pub(super) fn objects_for(sets: impl Iterator<Item = usize> + Clone, false_positives: f64) -> f64 {
    /// The result is this near, relative to the largest set.
    const HALVINGS: u32 = 12;
    let (mut low, mut high) = (mean(sets.clone()), sets.clone().max().unwrap_or(0) as f64);
    let probes = -false_positives.log2();
    let mut count_of = vec![0u32; high as usize + 1];
    sets.for_each(|objects| count_of[objects] += 1);
    let all: u32 = count_of.iter().sum();
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        // Half of its bits are set by as many objects as it is made for.
        let wrong = (0..).zip(&count_of).map(|(objects, count)| {
            let set = 1.0 - (-f64::from(objects) / middle.max(1.0)).exp2();
            f64::from(*count) * set.powf(probes)
        });
        match wrong.sum::<f64>() <= false_positives * f64::from(all) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// Objects in a set.
pub(super) fn mean(sets: impl Iterator<Item = usize>) -> f64 {
    let (count, objects) = sets.fold((0u32, 0), |(count, all), set| (count + 1, all + set));
    objects as f64 / f64::from(count.max(1))
}

/// How many filters of `bits` bits a page holds.
pub(super) fn columns_with(bits: f64) -> u32 {
    let columns = (ROW_ROOM_BYTES * 8) as f64 / bits.max(1.0);
    // Rows are whole bytes.
    ((columns as u32) & !7).clamp(8, INDEX_GROUP_MAX)
}

/// Bits of each of `columns` filters in a page.
pub(super) fn columns_shape_rows(columns: u32) -> u32 {
    (ROW_ROOM_BYTES / columns.div_ceil(8) as usize) as u32
}

/// How the filters of an index group are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Set-groups.
    pub(super) columns: u32,
    /// Bits of a filter.
    pub(super) rows: u32,
    /// Bits that a key sets.
    pub(super) probes: u32,
}

impl Shape {
    /// `columns` filters in a page, for sets of `objects` objects.
    pub(super) fn new(columns: u32, objects: f64) -> Self {
        let rows = columns_shape_rows(columns);
        let best = f64::from(rows) / objects.max(1.0) * std::f64::consts::LN_2;
        Shape {
            columns,
            rows,
            probes: (best.round() as u32).clamp(1, PROBES_MAX as u32),
        }
    }

    /// Objects in a set that it is made for, about.
    pub(super) fn objects(self) -> f64 {
        f64::from(self.rows) * std::f64::consts::LN_2 / f64::from(self.probes.max(1))
    }

    /// Whether filters of this shape fit a page, and probes make sense.
    pub(super) fn is_sane(self) -> bool {
        let bytes = self.row_bytes() as u64 * u64::from(self.rows);
        self.columns > 0
            && self.rows > 0
            && bytes <= ROW_ROOM_BYTES as u64
            && (1..=PROBES_MAX as u32).contains(&self.probes)
    }

    /// Bytes of the filters of `sets` sets of one set-group, side by side.
    pub(super) fn filters_bytes(self, sets: u32) -> usize {
        (u64::from(sets) * u64::from(self.rows)).div_ceil(8) as usize
    }

    /// The filters of one set-group, bit by bit, set after set: `hashes`
    /// names, for each set, its objects.
    pub(super) fn filters_of<Set>(self, hashes: impl ExactSizeIterator<Item = Set>) -> Box<[u8]>
    where
        Set: Iterator<Item = KeyHash>,
    {
        let mut bits = vec![0u8; self.filters_bytes(hashes.len() as u32)];
        for (at, set) in hashes.enumerate() {
            let start = at * self.rows as usize;
            for hash in set {
                for row in Rows::of(hash).iter(self) {
                    bits[(start + row) / 8] |= 1 << ((start + row) % 8);
                }
            }
        }
        bits.into_boxed_slice()
    }

    fn row_bytes(self) -> usize {
        self.columns.div_ceil(8) as usize
    }
}

/// Which of 64 set-groups in a row may hold a key.
///
/// Filters answer with these, and with those that name nobody, too: whoever
/// looks into them right away has the processor guess what is in them, and
/// wait for the memory of each before it asks the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Column of the first of them.
    pub(super) column: u32,
    /// Bit *i* is that of the *i*-th behind it.
    pub(super) bits: u64,
}

/// Looks up a key in a page of filters; calls `found` for all its columns.
pub(super) fn probe_page(probe: &Probe, page: &[u8], found: impl FnMut(Word)) {
    match probe.shape.row_bytes().div_ceil(8) {
        0..=1 => probe_words::<1>(probe, page, found),
        2 => probe_words::<2>(probe, page, found),
        3 => probe_words::<3>(probe, page, found),
        4 => probe_words::<4>(probe, page, found),
        _ => probe_words::<{ (INDEX_GROUP_MAX / u64::BITS) as usize }>(probe, page, found),
    }
}

/// The same for rows of up to `WORDS` words, all of which are looked at
/// together: a row lies in one or two lines of the processor's cache.
fn probe_words<const WORDS: usize>(probe: &Probe, page: &[u8], mut found: impl FnMut(Word)) {
    let row_bytes = probe.shape.row_bytes();
    let body = &page[PAGE_HEADER_BYTES..];
    let mut all = [u64::MAX; WORDS];
    // All rows, though most often some fewer would do: a processor does not
    // guess when, and that costs more than the rest.
    for row in probe.rows() {
        let at = row * row_bytes;
        match body.get(at..at + WORDS * 8) {
            Some(row) => {
                for (all, word) in all.iter_mut().zip(row.as_chunks().0) {
                    *all &= u64::from_le_bytes(*word);
                }
            }
            // At the end of the page.
            None => {
                let row = &body[at..at + row_bytes];
                for (all, word) in all.iter_mut().zip(row.chunks(8)) {
                    let mut bytes = [0; 8];
                    bytes[..word.len()].copy_from_slice(word);
                    *all &= u64::from_le_bytes(bytes);
                }
            }
        }
    }
    for (at, word) in all.into_iter().enumerate() {
        // What lies behind the columns belongs to the next row.
        let bits = 8 * row_bytes.saturating_sub(at * 8).min(8) as u32;
        let of_row = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
        found(Word {
            column: at as u32 * u64::BITS,
            bits: word & of_row,
        });
    }
}

/// Set-groups of a stripe.
const STRIPE_COLUMNS: u32 = u64::BITS;

/// The index group that is still being filled, in stripes of set-groups, so
/// that it takes memory only as it fills.
#[derive(Clone, Debug)]
pub(super) struct OpenGroup {
    pub(super) shape: Shape,
    sets: u32,
    filled: u32,
    /// Of each stripe, set after set: its rows.
    stripes: Vec<Vec<u64>>,
}

impl OpenGroup {
    pub(super) fn new(shape: Shape, sets: u32) -> Self {
        OpenGroup {
            shape,
            sets,
            filled: 0,
            stripes: Vec::new(),
        }
    }

    /// Set-groups in it.
    pub(super) fn filled(&self) -> u32 {
        self.filled
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled == self.shape.columns
    }

    /// Adds a set-group's filters: `hashes` names, for each set, its objects.
    pub(super) fn push<Set>(&mut self, hashes: impl Iterator<Item = Set>)
    where
        Set: Iterator<Item = KeyHash>,
    {
        let shape = self.shape;
        let (bit, stripe) = self.new_column();
        let filters = stripe.chunks_exact_mut(shape.rows as usize);
        for (filter, set) in filters.zip(hashes) {
            for hash in set {
                for row in Rows::of(hash).iter(shape) {
                    filter[row] |= bit;
                }
            }
        }
    }

    /// Adds a set-group's filters as [`Shape::filters_of`] made them.
    pub(super) fn push_filters(&mut self, bits: &[u8]) {
        let (column, stripe) = self.new_column();
        for (at, row) in stripe.iter_mut().enumerate() {
            let set = bits
                .get(at / 8)
                .is_some_and(|byte| byte >> (at % 8) & 1 == 1);
            *row |= if set { column } else { 0 };
        }
    }

    /// The bit of the next column, and the stripe it is in.
    fn new_column(&mut self) -> (u64, &mut Vec<u64>) {
        let at = self.filled % STRIPE_COLUMNS;
        let stripe = (self.filled / STRIPE_COLUMNS) as usize;
        self.filled += 1;
        if stripe == self.stripes.len() {
            let rows = self.shape.rows as usize * self.sets as usize;
            self.stripes.push(vec![0; rows]);
        }
        (1 << at, &mut self.stripes[stripe])
    }

    /// As [`probe_page`], of `set`.
    pub(super) fn probe(&self, set: u32, probe: &Probe, mut found: impl FnMut(Word)) {
        let start = set as usize * self.shape.rows as usize;
        for (at, stripe) in self.stripes.iter().enumerate() {
            let filter = &stripe[start..start + self.shape.rows as usize];
            found(Word {
                column: at as u32 * STRIPE_COLUMNS,
                bits: probe.rows().fold(u64::MAX, |all, row| all & filter[row]),
            });
        }
    }

    /// The page of a set, rows by rows.
    pub(super) fn page(&self, set: u32) -> Box<[u8]> {
        let mut page = vec![0; PAGE_BYTES].into_boxed_slice();
        self.write_page(set, &mut page);
        page
    }

    /// Makes `page`, which is all zeroes, the page of a set.
    pub(super) fn write_page(&self, set: u32, page: &mut [u8]) {
        let row_bytes = self.shape.row_bytes();
        let rows = self.shape.rows as usize;
        let start = set as usize * rows;
        for row in 0..rows {
            let out = &mut page[PAGE_HEADER_BYTES + row * row_bytes..][..row_bytes];
            for (out, stripe) in out.chunks_mut(8).zip(&self.stripes) {
                let bits = stripe[start + row].to_le_bytes();
                out.copy_from_slice(&bits[..out.len()]);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let rows: usize = self.stripes.iter().map(Vec::len).sum();
        (rows * size_of::<u64>()) as u64
    }
}

/// The filters of one set in many set-groups, in the pages of index groups as
/// they lie on flash.
#[derive(Clone, Debug)]
pub struct SetFilters {
    shape: Shape,
    pages: Vec<Box<[u8]>>,
}

impl SetFilters {
    /// Filters for sets of about `objects` objects: `set_groups` names, for
    /// each set-group, those of its set.
    pub fn new<Set>(
        set_groups: impl Iterator<Item = Set>,
        objects: f64,
        false_positives: f64,
    ) -> Self
    where
        Set: Iterator<Item = KeyHash>,
    {
        let shape = Shape::new(columns_with(filter_bits(objects, false_positives)), objects);
        let mut open = OpenGroup::new(shape, 1);
        let mut pages = Vec::new();
        for set in set_groups {
            open.push(std::iter::once(set));
            if open.is_full() {
                pages.push(open.page(0));
                open = OpenGroup::new(shape, 1);
            }
        }
        if open.filled() > 0 {
            pages.push(open.page(0));
        }
        SetFilters { shape, pages }
    }

    /// Bits of a filter.
    pub fn bits_per_filter(&self) -> u32 {
        self.shape.rows
    }

    /// How many of the set-groups may hold `hash`.
    pub fn candidates(&self, hash: KeyHash) -> usize {
        let probe = Probe::of(hash, self.shape);
        let mut candidates = 0;
        for page in &self.pages {
            probe_page(&probe, page, |word| {
                candidates += word.bits.count_ones();
            });
        }
        candidates as usize
    }
}
