//! The open index group.

use std::sync::Arc;

use super::filters::{MatchSink, Probe, Shape, Word};
use super::fingerprints::{Layout, Maker, STRIPE_COLUMNS};
use super::hashes::Rows;
use super::page_filter::{KeyLine, PageFilterShape, PageFilters};
use crate::hash::KeyHash;
use crate::tiny::engine::Discarded;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};

/// The index group that is being filled. It grows by stripes of set-groups, so
/// that it takes memory only as it fills.
///
/// The fingerprints of a stripe are built once all its set-groups are there.
/// That takes time, so it is spread over the page writes that follow
/// ([`OpenGroup::make`]). Until then the stripe has Bloom filters.
///
/// A set-group is added set by set while it is written. Its column counts, and matches, once it
/// is complete.
#[derive(Debug)]
pub(super) struct OpenGroup {
    pub(super) shape: Shape,
    sets: u32,
    filled: u32,
    stripes: Vec<Stripe>,
    /// The objects of the set-group that is being added.
    adding: Column,
    /// The layout of fingerprints, if the group has them.
    layout: Option<Layout>,
    maker: Option<Maker>,
    /// The page filters, with the objects of the set-group that is being added.
    page_filters: PageFilters,
    /// Memory that is no longer needed.
    discarded: Vec<Discarded>,
}

/// Consecutive set-groups.
#[derive(Debug, Default)]
struct Stripe {
    /// The rows of the sets' Bloom filters, `row_bytes` each. Empty once all fingerprints are
    /// built.
    blocks: Vec<Block>,
    row_bytes: usize,
    /// Rows of a set.
    set_rows: usize,
    /// The objects to build fingerprints of, by set-group.
    columns: Vec<Column>,
    /// Fingerprints of the first `made` sets.
    fingerprints: Vec<u8>,
    made: u32,
}

/// The rows of [`BLOCK_SETS`] sets, and padding so that the last row can be read as a word.
type Block = Box<[u8]>;

/// Sets of a block. Memory is zeroed by the block, since that of all sets would take too long in
/// one piece of work.
const BLOCK_SETS: u32 = 32;

impl Stripe {
    /// A stripe of `columns` set-groups whose filters have `set_rows` rows.
    fn new(columns: u32, set_rows: u32) -> Self {
        Stripe {
            row_bytes: columns.div_ceil(u8::BITS) as usize,
            set_rows: set_rows as usize,
            ..Stripe::default()
        }
    }

    /// Makes room for one of `sets` sets. They come in order.
    fn begin_set(&mut self, set: u32, sets: u32) {
        if self.blocks.len() as u32 == set / BLOCK_SETS {
            let rows = BLOCK_SETS.min(sets - set) as usize * self.set_rows;
            let bytes = rows * self.row_bytes + size_of::<u64>() - 1;
            self.blocks.push(vec![0; bytes].into());
        }
    }

    /// The first byte of a row in its block.
    fn byte(&self, set: u32, row: usize) -> usize {
        ((set % BLOCK_SETS) as usize * self.set_rows + row) * self.row_bytes
    }

    /// The rows of a set.
    fn rows_of(&self, set: u32) -> &[u8] {
        let block = self.blocks.get((set / BLOCK_SETS) as usize);
        block.map_or(&[], |block| &block[self.byte(set, 0)..])
    }

    /// The bits of a row among those of [`rows_of`](Stripe::rows_of). Rows shorter than 64 bits
    /// are followed by bits of the next ones.
    fn word(&self, rows: &[u8], row: usize) -> u64 {
        let bytes = rows.get(row * self.row_bytes..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The byte of each row of a set that has the bit of `column`.
    fn column_mut(&mut self, set: u32, column: u32) -> impl Iterator<Item = &mut u8> {
        let first = self.byte(set, 0) + (column / u8::BITS) as usize;
        let block = self.blocks.get_mut((set / BLOCK_SETS) as usize);
        let (bytes, row_bytes) = (
            block.and_then(|block| block.get_mut(first..)),
            self.row_bytes,
        );
        let of_rows = bytes.into_iter();
        of_rows.flat_map(move |bytes| bytes.iter_mut().step_by(row_bytes))
    }

    fn set(&mut self, set: u32, row: usize, column: u32) {
        let byte = self.byte(set, row) + (column / u8::BITS) as usize;
        if let Some(block) = self.blocks.get_mut((set / BLOCK_SETS) as usize) {
            block[byte] |= 1 << (column % u8::BITS);
        }
    }
}

/// The objects of a set-group.
#[derive(Debug, Default)]
struct Column {
    /// 16 bits of each object's hash, set after set.
    shorts: Vec<u16>,
    /// Number of objects up to each set's end.
    ends: Vec<u32>,
}

impl Column {
    fn of_set(&self, set: u32) -> &[u16] {
        let set = set as usize;
        let start = set.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.shorts[start as usize..self.ends[set] as usize]
    }

    fn memory_bytes(&self) -> usize {
        self.shorts.capacity() * size_of::<u16>() + self.ends.capacity() * size_of::<u32>()
    }
}

impl OpenGroup {
    pub(super) fn new(shape: Shape, sets: u32) -> Self {
        let layout = shape.layout();
        OpenGroup {
            shape,
            sets,
            filled: 0,
            stripes: Vec::new(),
            adding: Column::default(),
            layout,
            maker: layout.map(Maker::new),
            page_filters: PageFilters::new(shape.page_filter),
            discarded: Vec::new(),
        }
    }

    /// Set-groups in the group.
    pub(super) fn filled(&self) -> u32 {
        self.filled
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled == self.shape.columns
    }

    /// Ends the group early, with the set-groups that it has; returns whether
    /// it could.
    ///
    /// It turns into a group of Bloom filters. Once it has fingerprints it
    /// cannot end early, because all stripes of a page have equal size.
    pub(super) fn close(&mut self) -> bool {
        let is_made = |layout: Layout| self.filled >= layout.stripe_columns();
        if self.layout.is_some_and(is_made) {
            return false;
        }
        (self.layout, self.maker) = (None, None);
        for stripe in &mut self.stripes {
            let columns = std::mem::take(&mut stripe.columns);
            self.discarded.push(Discarded::new(columns));
        }
        self.shape.buckets = 0;
        self.shape.columns = self.filled;
        true
    }

    /// Adds a set-group. `hashes` has the objects of each set.
    pub(super) fn push<Set>(&mut self, hashes: impl Iterator<Item = Set>)
    where
        Set: Iterator<Item = KeyHash>,
    {
        self.begin_column(0);
        for (set, hashes) in (0..).zip(hashes) {
            self.add_set(set, hashes.map(Rows::of));
        }
        self.end_column();
    }

    /// Begins to add a set-group of `objects` objects, perhaps for the second time: then it has
    /// all the objects that it had before.
    pub(super) fn begin_column(&mut self, objects: u64) {
        self.adding = Column::default();
        if self.maker.is_some() {
            self.adding.shorts.reserve_exact(objects as usize);
            self.adding.ends.reserve_exact(self.sets as usize);
        }
        let stripe_columns = self.stripe_columns();
        if self.filled / stripe_columns == self.stripes.len() as u32 {
            let columns = stripe_columns.min(self.shape.columns - self.filled);
            self.stripes.push(Stripe::new(columns, self.shape.rows));
        }
    }

    /// Adds the objects of a set to the set-group that was begun. Sets come in order.
    pub(super) fn add_set(&mut self, set: u32, objects: impl Iterator<Item = Rows>) {
        let (shape, makes) = (self.shape, self.maker.is_some());
        let column = self.filled % self.stripe_columns();
        self.page_filters.begin_set(set, self.sets);
        let Some(stripe) = self.stripes.last_mut() else {
            return;
        };
        stripe.begin_set(set, self.sets);
        for rows in objects {
            for row in shape.bits_of(&rows) {
                stripe.set(set, row, column);
            }
            self.page_filters.add(set, &rows.page);
            if makes {
                self.adding.shorts.push(rows.short);
            }
        }
        if makes {
            self.adding.ends.push(self.adding.shorts.len() as u32);
        }
    }

    /// Completes the set-group that was begun.
    pub(super) fn end_column(&mut self) {
        self.filled += 1;
        let column = std::mem::take(&mut self.adding);
        if self.maker.is_some()
            && let Some(stripe) = self.stripes.last_mut()
        {
            stripe.columns.push(column);
        }
    }

    /// Adds a set-group by its filters, as [`Shape::filters_of`] made them.
    /// Bits beyond the end of `bits` count as set. Neither fingerprints nor page filters can be
    /// built from filters.
    pub(super) fn push_filters(&mut self, bits: &[u8]) {
        debug_assert!(self.maker.is_none() && !self.page_filters.shape.exists());
        let rows = self.shape.rows as usize;
        self.begin_column(0);
        let column = self.filled % self.stripe_columns();
        if let Some(stripe) = self.stripes.last_mut() {
            for (set, first) in (0..self.sets).zip((0..).step_by(rows)) {
                stripe.begin_set(set, self.sets);
                // Half of the bits are set: a branch on each would be predicted badly.
                for (bit, out) in (first..first + rows).zip(stripe.column_mut(set, column)) {
                    let byte = bits.get(bit / 8).copied().unwrap_or(u8::MAX);
                    *out |= (byte >> (bit % 8) & 1) << (column % u8::BITS);
                }
            }
        }
        self.end_column();
    }

    fn stripe_columns(&self) -> u32 {
        self.layout
            .map_or(STRIPE_COLUMNS, |layout| layout.stripe_columns())
    }

    /// Builds the fingerprints of complete stripes, for the sets before `end`. Returns the number
    /// of their objects.
    pub(super) fn make(&mut self, end: u32) -> usize {
        let Some((layout, maker)) = self.layout.zip(self.maker.as_mut()) else {
            return 0;
        };
        let mut objects = 0;
        for stripe in &mut self.stripes {
            if stripe.columns.len() < layout.stripe_columns() as usize {
                continue;
            }
            if stripe.fingerprints.is_empty() {
                let bytes = layout.stripes_bytes(self.sets as usize);
                stripe.fingerprints.reserve_exact(bytes);
            }
            while stripe.made < end {
                let set = stripe.made;
                let columns = stripe.columns.iter().map(|column| column.of_set(set));
                objects += columns.clone().map(<[u16]>::len).sum::<usize>();
                // Each stripe can be read beyond its end.
                let made = &mut stripe.fingerprints;
                made.truncate(layout.stripe_bytes() * set as usize);
                made.extend_from_slice(maker.make(columns));
                made.resize(layout.stripes_bytes(set as usize + 1), 0);
                stripe.made += 1;
            }
            if stripe.made == self.sets {
                let blocks = std::mem::take(&mut stripe.blocks);
                let columns = std::mem::take(&mut stripe.columns);
                self.discarded.push(Discarded::new((blocks, columns)));
            }
        }
        objects
    }

    /// Memory that is no longer needed, to drop.
    pub(super) fn discard(&mut self) -> Option<Discarded> {
        self.discarded.pop()
    }

    /// True if the group may have the key in `set`, according to its page filter.
    pub(super) fn may_hold(&self, set: u32, key: &KeyLine) -> bool {
        self.page_filters.may_hold(set, key)
    }

    /// Removes the page filters, which are complete.
    pub(super) fn take_page_filters(&mut self) -> PageFilters {
        let none = PageFilters::new(PageFilterShape::NONE);
        std::mem::replace(&mut self.page_filters, none)
    }

    /// Bits of the complete columns among the 64 from `column` on.
    fn complete(&self, column: u32) -> u64 {
        let columns = self.filled.saturating_sub(column).min(u64::BITS);
        u64::MAX.checked_shr(u64::BITS - columns).unwrap_or(0)
    }

    /// Probes the filters of `set`, as
    /// [`probe_page`](super::filters::probe_page).
    pub(super) fn probe<'a>(&'a self, set: u32, probe: &Probe, sink: &mut impl MatchSink<'a>) {
        let stripe_columns = self.stripe_columns();
        for (column, stripe) in (0..).step_by(stripe_columns as usize).zip(&self.stripes) {
            if let Some(layout) = probe.layout.filter(|_| set < stripe.made) {
                let stripe = layout.stripe_in_row(&stripe.fingerprints, set as usize);
                sink.bucket(column, stripe.bucket(probe.fingerprint));
                continue;
            }
            let of_set = stripe.rows_of(set);
            let rows = probe.rows().map(|row| stripe.word(of_set, row));
            sink.word(Word {
                column,
                bits: rows.fold(self.complete(column), |all, row| all & row),
            });
        }
    }

    /// The page of a set. Its fingerprints must have been built.
    pub(super) fn page(&self, set: u32) -> Arc<[u8]> {
        let mut page: Arc<[u8]> = std::iter::repeat_n(0, PAGE_BYTES).collect();
        self.write_page(set, Arc::make_mut(&mut page));
        page
    }

    /// Writes the page of a set into `page`, which must be zeroed.
    pub(super) fn write_page(&self, set: u32, page: &mut [u8]) {
        self.page_filters.write_to_page(set, page);
        if let Some(layout) = self.layout {
            let bytes = layout.stripe_bytes();
            for (at, stripe) in self.stripes.iter().enumerate() {
                let made = &stripe.fingerprints[set as usize * bytes..][..bytes];
                layout.write_to_page(at, made, page);
            }
            return;
        }
        let row_bytes = self.shape.row_bytes();
        let body = &mut page[PAGE_HEADER_BYTES..];
        for (at, stripe) in self.stripes.iter().enumerate() {
            let complete = self.complete(at as u32 * STRIPE_COLUMNS);
            let of_set = stripe.rows_of(set);
            for (row, out) in body
                .chunks_exact_mut(row_bytes)
                .take(self.shape.rows as usize)
                .enumerate()
            {
                let Some(out) = out.chunks_mut(8).nth(at) else {
                    break;
                };
                let bits = (stripe.word(of_set, row) & complete).to_le_bytes();
                out.copy_from_slice(&bits[..out.len()]);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let of_stripe = |stripe: &Stripe| {
            let columns: usize = stripe.columns.iter().map(Column::memory_bytes).sum();
            let blocks: usize = stripe.blocks.iter().map(|block| block.len()).sum();
            blocks + columns + stripe.fingerprints.capacity()
        };
        let stripes = self.stripes.iter().map(of_stripe).sum::<usize>();
        (stripes + self.adding.memory_bytes()) as u64 + self.page_filters.memory_bytes()
    }
}
