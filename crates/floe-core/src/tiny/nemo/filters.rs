//! Filters of sets, sliced by bits.
//!
//! The filters of one set in all set-groups of an index group lie in one page
//! (§4.3), and there by rows: row *r* holds bit *r* of every filter. So one
//! probe of a key is the conjunction of a few rows, for all set-groups at
//! once, instead of several probes for each (the layout of bit-sliced
//! signature files: Faloutsos and Christodoulakis, 1984; BitFunnel, 2017). Filters
//! of fingerprints, which take less room and can only be made when all of them
//! are known, are in [`super::fingerprints`].

use super::fingerprints::{self, Bucket, Fingerprint, INDEX_GROUP_MAX, Layout};
use super::hashes::{PROBES_MAX, Rows};
use crate::hash::KeyHash;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};

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
    /// Buckets of fingerprints of each stripe of a page, or zero for Bloom
    /// filters. Of fingerprints that are not made yet there are Bloom filters.
    pub(super) buckets: u32,
}

impl Shape {
    /// `columns` Bloom filters in a page, for sets of `objects` objects.
    pub(super) fn new(columns: u32, objects: f64) -> Self {
        let rows = columns_shape_rows(columns);
        let best = f64::from(rows) / objects.max(1.0) * std::f64::consts::LN_2;
        Shape {
            columns,
            rows,
            probes: (best.round() as u32).clamp(1, PROBES_MAX as u32),
            buckets: 0,
        }
    }

    /// `columns` filters of fingerprints in a page, or as many fewer as make
    /// equal stripes.
    pub(super) fn of_fingerprints(columns: u32, objects: f64) -> Self {
        let columns = fingerprints::whole_stripes(columns);
        Shape {
            buckets: fingerprints::buckets_for(columns, objects),
            ..Shape::new(columns, objects)
        }
    }

    /// How a page of fingerprints of this shape is laid out.
    pub(super) fn layout(self) -> Option<Layout> {
        Layout::new(self.columns, self.buckets)
    }

    /// The shape of whole pages.
    pub(super) fn of_pages(self) -> Self {
        match self.buckets {
            0 => self,
            buckets => Shape::of_fingerprint_pages(self.columns, buckets),
        }
    }

    /// That of whole pages of fingerprints.
    fn of_fingerprint_pages(columns: u32, buckets: u32) -> Self {
        Shape {
            columns,
            rows: 0,
            probes: 0,
            buckets,
        }
    }

    /// That of an index group, as it was noted.
    pub(super) fn of_index_group(columns: u32, rows: u32, probes: u32) -> Self {
        match probes {
            0 => Shape::of_fingerprint_pages(columns, rows),
            _ => Shape {
                columns,
                rows,
                probes,
                buckets: 0,
            },
        }
    }

    /// Objects in a set that it is made for, about.
    pub(super) fn objects(self) -> f64 {
        f64::from(self.rows) * std::f64::consts::LN_2 / f64::from(self.probes.max(1))
    }

    /// Share of the filters of sets of `objects` objects, without the one that
    /// is asked for, that say it is there.
    pub(super) fn false_positives(self, objects: f64) -> f64 {
        if let Some(layout) = self.layout() {
            return layout.false_positives(objects);
        }
        let probes = f64::from(self.probes);
        let bit_is_set = 1.0 - (-probes * objects / f64::from(self.rows)).exp();
        bit_is_set.powf(probes)
    }

    /// The shape as an index group notes it: rows and probes, or buckets and no
    /// probes.
    pub(super) fn rows_and_probes(self) -> (u32, u32) {
        match self.buckets {
            0 => (self.rows, self.probes),
            buckets => (buckets, 0),
        }
    }

    /// Whether filters of this shape fit a page and can be asked.
    pub(super) fn is_sane(self) -> bool {
        if !(1..=INDEX_GROUP_MAX).contains(&self.columns) {
            return false;
        }
        if self.layout().is_some() {
            return true;
        }
        let bytes = self.row_bytes() as u64 * u64::from(self.rows);
        self.rows > 0
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
                for row in self.bits_of(&Rows::of(hash)) {
                    bits[(start + row) / 8] |= 1 << ((start + row) % 8);
                }
            }
        }
        bits.into_boxed_slice()
    }

    /// The bits that a key sets in a filter.
    pub(super) fn bits_of(self, rows: &Rows) -> impl Iterator<Item = usize> {
        let points = rows.points.iter().take(self.probes as usize);
        points.map(move |point| ((u32::from(*point) * self.rows) >> 16) as usize)
    }

    pub(super) fn row_bytes(self) -> usize {
        self.columns.div_ceil(8) as usize
    }
}

/// The bits that a key sets in filters of one shape, and its fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) shape: Shape,
    /// Of fingerprints.
    pub(super) layout: Option<Layout>,
    pub(super) fingerprint: Fingerprint,
    rows: [u16; PROBES_MAX],
}

impl Probe {
    /// The bits of a key.
    pub(super) fn of(hash: KeyHash, shape: Shape) -> Self {
        Probe::new(&Rows::of(hash), shape)
    }

    /// The same of a key whose rows are known.
    pub(super) fn new(rows: &Rows, shape: Shape) -> Self {
        // A page has fewer rows than 2^16, and all points are as quick as one.
        let count = u32::from(shape.rows as u16);
        Probe {
            shape,
            layout: shape.layout(),
            fingerprint: Fingerprint::of(rows.short, shape.buckets),
            rows: rows
                .points
                .map(|point| ((u32::from(point) * count) >> 16) as u16),
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter().take(self.shape.probes as usize);
        rows.map(|row| usize::from(*row))
    }
}

/// The set-groups, of 64 in a row, that may hold a key.
///
/// Filters answer with empty words, too: a caller that branched on each word would
/// wait for its memory before it asks the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Column of the first of them.
    pub(super) column: u32,
    /// Bit *i* is that of the *i*-th behind it.
    pub(super) bits: u64,
}

/// Takes the answers of filters.
pub(super) trait Answers<'a> {
    /// Takes the answer of Bloom filters.
    fn word(&mut self, word: Word);
    /// Takes the bucket to ask, of the stripe of fingerprints that begins with
    /// `column`.
    fn ask(&mut self, column: u32, bucket: Bucket<'a>);
}

/// Takes words as they come.
pub(super) struct Words<F>(pub(super) F);

impl<'a, F: FnMut(Word)> Answers<'a> for Words<F> {
    fn word(&mut self, word: Word) {
        self.0(word);
    }

    fn ask(&mut self, column: u32, bucket: Bucket<'a>) {
        let bits = bucket.set_groups(bucket.like());
        self.0(Word { column, bits });
    }
}

/// Looks up a key in a page of filters of all its columns.
#[inline]
pub(super) fn probe_page<'a>(probe: &Probe, page: &'a [u8], answers: &mut impl Answers<'a>) {
    if let Some(layout) = probe.layout {
        for (column, stripe) in layout.stripes_of_page(page) {
            answers.ask(column, stripe.bucket(probe.fingerprint));
        }
        return;
    }
    let found = |word| answers.word(word);
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
#[inline]
fn probe_words<const WORDS: usize>(probe: &Probe, page: &[u8], mut found: impl FnMut(Word)) {
    let row_bytes = probe.shape.row_bytes();
    let body = &page[PAGE_HEADER_BYTES..];
    let mut all = [u64::MAX; WORDS];
    // All rows, though most often some fewer would do: a processor does not
    // guess when, and that costs more than the rest.
    for row in probe.rows() {
        let row = row_words::<WORDS>(body, row * row_bytes);
        all = std::array::from_fn(|at| all[at] & row[at]);
    }
    for (at, word) in all.into_iter().enumerate() {
        // Bits behind the columns are unused, or the next row's.
        let column = at as u32 * u64::BITS;
        let columns = probe.shape.columns.saturating_sub(column).min(u64::BITS);
        let of_row = u64::MAX.checked_shr(u64::BITS - columns).unwrap_or(0);
        found(Word {
            column,
            bits: word & of_row,
        });
    }
}

/// The words from `at` on. Behind the end of the page there are zeroes.
#[inline(always)]
fn row_words<const WORDS: usize>(body: &[u8], at: usize) -> [u64; WORDS] {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    match body.get(at..at + WORDS * 8) {
        Some(row) => std::array::from_fn(|at| word(&row.as_chunks().0[at])),
        None => last_words(body, at),
    }
}

#[cold]
fn last_words<const WORDS: usize>(body: &[u8], at: usize) -> [u64; WORDS] {
    let mut bytes = [[0; 8]; WORDS];
    let rest = &body[at..];
    bytes.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
    bytes.map(u64::from_le_bytes)
}
