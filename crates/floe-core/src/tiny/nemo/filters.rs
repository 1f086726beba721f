//! Bit-sliced filters of sets.
//!
//! A page holds the filters of one set in all set-groups of an index group
//! (§4.3), sliced into rows: row *r* has bit *r* of every filter. One probe
//! ANDs a few rows and so covers all set-groups at once (the layout of
//! bit-sliced signature files: Faloutsos and Christodoulakis, 1984; BitFunnel,
//! 2017). [`super::fingerprints`] has the other kind of filters. They take less
//! room, but a stripe of them can only be built once all of its objects are
//! known.

use super::fingerprints::{self, Bucket, Fingerprint, INDEX_GROUP_MAX, Layout};
use super::hashes::{PROBES_MAX, Rows};
use super::page_filter::PageFilterShape;
use crate::hash::KeyHash;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};

/// Bytes of a page for rows and the page filter.
const ROW_ROOM_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

/// Bits of a Bloom filter for `objects` objects at a false-positive rate.
pub(super) fn filter_bits(objects: f64, false_positives: f64) -> f64 {
    let ln2 = std::f64::consts::LN_2;
    objects.max(1.0) * -false_positives.ln() / (ln2 * ln2)
}

/// The number of objects to size filters for so that their false-positive rate, averaged over
/// sets, is `false_positives`. `counts` has the number of sets with as many objects as the index
/// says. Sizing for the mean would exceed the rate: sets above the mean add more false positives
/// than sets below it save.
pub(super) fn objects_for(counts: &[u32], false_positives: f64) -> f64 {
    /// Steps of the binary search: its error is 2^-12 of the largest set.
    const HALVINGS: u32 = 12;
    let largest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    let (mut low, mut high) = (mean(counts), largest as f64);
    let probes = -false_positives.log2();
    let all: u32 = counts.iter().sum();
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        // A filter that holds as many objects as it is sized for has half of
        // its bits set.
        let wrong = (0..).zip(counts).map(|(objects, count)| {
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

/// Mean number of objects in a set, from the number of sets with as many objects as the index
/// says.
pub(super) fn mean(counts: &[u32]) -> f64 {
    let all: u32 = counts.iter().sum();
    let objects = (0..)
        .zip(counts)
        .map(|(objects, count)| objects * u64::from(*count));
    objects.sum::<u64>() as f64 / f64::from(all.max(1))
}

/// Filters of `bits` bits that fit a page.
pub(super) fn columns_with(bits: f64) -> u32 {
    let columns = (ROW_ROOM_BYTES * 8) as f64 / bits.max(1.0);
    // Rows are whole bytes.
    ((columns as u32) & !7).clamp(8, INDEX_GROUP_MAX)
}

/// Bits of each filter if a page holds `columns` of them beside its page filter.
pub(super) fn rows_with(columns: u32, page_filter: PageFilterShape) -> u32 {
    ((ROW_ROOM_BYTES - page_filter.bytes()) / columns.div_ceil(8) as usize) as u32
}

/// Page filters of `columns` set-groups, with `bits` bits for each object. They take half of the
/// page at most.
pub(super) fn page_filters_with(columns: u32, objects: f64, bits: f64) -> PageFilterShape {
    PageFilterShape::new(
        f64::from(columns) * objects.max(1.0),
        bits,
        ROW_ROOM_BYTES / 2,
    )
}

/// The layout of an index group's filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Set-groups.
    pub(super) columns: u32,
    /// Bits of a Bloom filter.
    pub(super) rows: u32,
    /// Bits that a key sets.
    pub(super) probes: u32,
    /// Buckets in each stripe of fingerprints, or zero for Bloom filters. Until
    /// its fingerprints are built, a stripe has Bloom filters.
    pub(super) buckets: u32,
    /// The page filters.
    pub(super) page_filter: PageFilterShape,
}

impl Shape {
    /// A page of `columns` Bloom filters for sets of `objects` objects, and its page filter.
    pub(super) fn new(columns: u32, objects: f64, page_filter: PageFilterShape) -> Self {
        let rows = rows_with(columns, page_filter);
        let best = f64::from(rows) / objects.max(1.0) * std::f64::consts::LN_2;
        Shape {
            columns,
            rows,
            probes: (best.round() as u32).clamp(1, PROBES_MAX as u32),
            buckets: 0,
            page_filter,
        }
    }

    /// A page of fingerprints of `columns` set-groups, rounded down to equal
    /// stripes, and its page filter.
    pub(super) fn of_fingerprints(
        columns: u32,
        objects: f64,
        page_filter: PageFilterShape,
    ) -> Self {
        let columns = fingerprints::whole_stripes(columns);
        Shape {
            buckets: fingerprints::buckets_for(columns, objects),
            ..Shape::new(columns, objects, page_filter)
        }
    }

    /// The layout of the fingerprints, if the shape has them.
    pub(super) fn layout(self) -> Option<Layout> {
        Layout::new(self.columns, self.buckets, self.page_filter.bytes())
    }

    /// The shape on flash, without the Bloom filters that precede fingerprints.
    pub(super) fn of_pages(self) -> Self {
        match self.buckets {
            0 => self,
            _ => Shape {
                rows: 0,
                probes: 0,
                ..self
            },
        }
    }

    /// The shape that an index group's summary records: see
    /// [`Shape::rows_and_probes`].
    pub(super) fn of_index_group(
        columns: u32,
        rows: u32,
        probes: u32,
        page_filter: PageFilterShape,
    ) -> Self {
        let (rows, buckets) = match probes {
            0 => (0, rows),
            _ => (rows, 0),
        };
        Shape {
            columns,
            rows,
            probes,
            buckets,
            page_filter,
        }
    }

    /// Roughly the objects per set that the filters are sized for.
    pub(super) fn objects(self) -> f64 {
        f64::from(self.rows) * std::f64::consts::LN_2 / f64::from(self.probes.max(1))
    }

    /// False-positive rate of the filters of sets of `objects` objects.
    pub(super) fn false_positives(self, objects: f64) -> f64 {
        if let Some(layout) = self.layout() {
            return layout.false_positives(objects);
        }
        let probes = f64::from(self.probes);
        let bit_is_set = 1.0 - (-probes * objects / f64::from(self.rows)).exp();
        bit_is_set.powf(probes)
    }

    /// The two numbers that an index group's summary records: rows and probes,
    /// or buckets and zero.
    pub(super) fn rows_and_probes(self) -> (u32, u32) {
        match self.buckets {
            0 => (self.rows, self.probes),
            buckets => (buckets, 0),
        }
    }

    /// True if filters of this shape fit a page and can be probed.
    pub(super) fn is_valid(self) -> bool {
        if !(1..=INDEX_GROUP_MAX).contains(&self.columns) || !self.page_filter.is_valid() {
            return false;
        }
        if self.layout().is_some() {
            return true;
        }
        let bytes = self.row_bytes() as u64 * u64::from(self.rows);
        let bytes = bytes + self.page_filter.bytes() as u64;
        self.rows > 0
            && bytes <= ROW_ROOM_BYTES as u64
            && (1..=PROBES_MAX as u32).contains(&self.probes)
    }

    /// Bytes of the concatenated filters of one set-group's `sets` sets.
    pub(super) fn filters_bytes(self, sets: u32) -> usize {
        (u64::from(sets) * u64::from(self.rows)).div_ceil(8) as usize
    }

    /// The concatenated filters of one set-group. `hashes` has the objects of
    /// each set.
    pub(super) fn filters_of<Set>(self, hashes: impl ExactSizeIterator<Item = Set>) -> Box<[u8]>
    where
        Set: Iterator<Item = KeyHash>,
    {
        let mut bits = vec![0u8; self.filters_bytes(hashes.len() as u32)];
        for (at, set) in (0..).zip(hashes) {
            for hash in set {
                self.add_to_filters(&mut bits, at, &Rows::of(hash));
            }
        }
        bits.into_boxed_slice()
    }

    /// Adds a key to the filter of `set` among concatenated ones.
    pub(super) fn add_to_filters(self, bits: &mut [u8], set: u32, rows: &Rows) {
        let start = set as usize * self.rows as usize;
        for row in self.bits_of(rows) {
            bits[(start + row) / 8] |= 1 << ((start + row) % 8);
        }
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

/// A key's bits in filters of one shape, and its fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) shape: Shape,
    /// The layout of fingerprints, if the shape has them.
    pub(super) layout: Option<Layout>,
    pub(super) fingerprint: Fingerprint,
    rows: [u16; PROBES_MAX],
}

impl Probe {
    pub(super) fn of(hash: KeyHash, shape: Shape) -> Self {
        Probe::new(&Rows::of(hash), shape)
    }

    pub(super) fn new(rows: &Rows, shape: Shape) -> Self {
        // A page has fewer than 2^16 rows. The loop covers all points, not only
        // `probes`, so that it vectorizes.
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

/// Filter matches in 64 consecutive columns.
///
/// Empty words are reported, too: a branch on each word would wait for its
/// memory before the next probe starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// The first of the columns.
    pub(super) column: u32,
    /// Bit *i* is set if the column `column + i` matches.
    pub(super) bits: u64,
}

/// Receives the matches of filters.
pub(super) trait MatchSink<'a> {
    /// Receives a word of matches of Bloom filters.
    fn word(&mut self, word: Word);
    /// Receives the key's bucket in the stripe of fingerprints that begins with
    /// `column`, to be probed.
    fn bucket(&mut self, column: u32, bucket: Bucket<'a>);
}

/// Probes each bucket at once and passes every word to a closure.
pub(super) struct WordSink<F>(pub(super) F);

impl<'a, F: FnMut(Word)> MatchSink<'a> for WordSink<F> {
    fn word(&mut self, word: Word) {
        self.0(word);
    }

    fn bucket(&mut self, column: u32, bucket: Bucket<'a>) {
        let bits = bucket.set_groups(bucket.byte_matches());
        self.0(Word { column, bits });
    }
}

/// Probes all columns of a page of filters for a key.
#[inline]
pub(super) fn probe_page<'a>(probe: &Probe, page: &'a [u8], sink: &mut impl MatchSink<'a>) {
    if let Some(layout) = probe.layout {
        for (column, stripe) in layout.stripes_of_page(page) {
            sink.bucket(column, stripe.bucket(probe.fingerprint));
        }
        return;
    }
    let found = |word| sink.word(word);
    match probe.shape.row_bytes().div_ceil(8) {
        0..=1 => probe_words::<1>(probe, page, found),
        2 => probe_words::<2>(probe, page, found),
        3 => probe_words::<3>(probe, page, found),
        4 => probe_words::<4>(probe, page, found),
        _ => probe_words::<{ (INDEX_GROUP_MAX / u64::BITS) as usize }>(probe, page, found),
    }
}

/// As [`probe_page`], for rows of up to `WORDS` words. Each row lies in one or
/// two cache lines.
#[inline]
fn probe_words<const WORDS: usize>(probe: &Probe, page: &[u8], mut found: impl FnMut(Word)) {
    let row_bytes = probe.shape.row_bytes();
    let body = &page[PAGE_HEADER_BYTES..];
    let mut all = [u64::MAX; WORDS];
    // No early exit once no column matches: its branch would be mispredicted,
    // which costs more than the remaining rows.
    for row in probe.rows() {
        let row = row_words::<WORDS>(body, row * row_bytes);
        all = std::array::from_fn(|at| all[at] & row[at]);
    }
    for (at, word) in all.into_iter().enumerate() {
        // Bits beyond the columns are unused or belong to the next row.
        let column = at as u32 * u64::BITS;
        let columns = probe.shape.columns.saturating_sub(column).min(u64::BITS);
        let of_row = u64::MAX.checked_shr(u64::BITS - columns).unwrap_or(0);
        found(Word {
            column,
            bits: word & of_row,
        });
    }
}

/// The words from byte `at` on, zero beyond the end of the page.
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
