//! The open index group.

use super::filters::{MatchSink, Probe, Shape, Word};
use super::fingerprints::{Layout, Maker, STRIPE_COLUMNS};
use super::hashes::{Rows, short};
use crate::hash::KeyHash;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};

/// The index group that is being filled. It grows by stripes of set-groups, so
/// that it takes memory only as it fills.
///
/// The fingerprints of a stripe are built once all its set-groups are there.
/// That takes time, so it is spread over the page writes that follow
/// ([`OpenGroup::make`]). Until then the stripe has Bloom filters.
#[derive(Debug)]
pub(super) struct OpenGroup {
    pub(super) shape: Shape,
    sets: u32,
    filled: u32,
    stripes: Vec<Stripe>,
    /// The layout of fingerprints, if the group has them.
    layout: Option<Layout>,
    maker: Option<Maker>,
}

/// Consecutive set-groups.
#[derive(Debug, Default)]
struct Stripe {
    /// The rows of each set's Bloom filters, `row_bytes` each, and padding so
    /// that the last row can be read as a word. Empty once all fingerprints are
    /// built.
    rows: Vec<u8>,
    row_bytes: usize,
    /// The objects to build fingerprints of, by set-group.
    columns: Vec<Column>,
    /// Fingerprints of the first `made` sets.
    fingerprints: Vec<u8>,
    made: u32,
}

impl Stripe {
    /// A stripe of `columns` set-groups whose filters have `rows` rows in all.
    fn new(columns: u32, rows: usize) -> Self {
        let row_bytes = columns.div_ceil(u8::BITS) as usize;
        Stripe {
            rows: vec![0; rows * row_bytes + size_of::<u64>() - 1],
            row_bytes,
            ..Stripe::default()
        }
    }

    /// The bits of a row. Rows shorter than 64 bits are followed by bits of the
    /// next ones.
    fn word(&self, row: usize) -> u64 {
        let bytes = self.rows[row * self.row_bytes..].first_chunk();
        bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The bits of [`Stripe::word`] that belong to the row.
    fn mask(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - u8::BITS as usize * self.row_bytes)
    }

    fn set(&mut self, row: usize, column: u32) {
        let byte = row * self.row_bytes + (column / u8::BITS) as usize;
        self.rows[byte] |= 1 << (column % u8::BITS);
    }
}

/// The objects of a set-group.
#[derive(Debug, Default)]
struct Column {
    /// 16 bits of each object's hash, set after set.
    shorts: Vec<u16>,
    /// Number of objects before each set, and the total.
    ends: Vec<u32>,
}

impl Column {
    fn of_set(&self, set: u32) -> &[u16] {
        let set = set as usize;
        &self.shorts[self.ends[set] as usize..self.ends[set + 1] as usize]
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.shorts) + size_of_val(&*self.ends)
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
            layout,
            maker: layout.map(Maker::new),
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
            stripe.columns = Vec::new();
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
        let shape = self.shape;
        let makes = self.maker.is_some();
        let mut column = Column::default();
        let (at, stripe) = self.new_column();
        for (filter, set) in (0..).step_by(shape.rows as usize).zip(hashes) {
            column.ends.push(column.shorts.len() as u32);
            for hash in set {
                for row in shape.bits_of(&Rows::of(hash)) {
                    stripe.set(filter + row, at);
                }
                if makes {
                    column.shorts.push(short(hash));
                }
            }
        }
        if makes {
            column.ends.push(column.shorts.len() as u32);
            column.shorts.shrink_to_fit();
            stripe.columns.push(column);
        }
    }

    /// Adds a set-group by its filters, as [`Shape::filters_of`] made them.
    /// Bits beyond the end of `bits` count as set. No fingerprints can be built
    /// from filters.
    pub(super) fn push_filters(&mut self, bits: &[u8]) {
        debug_assert!(self.maker.is_none());
        let rows = self.shape.rows as usize * self.sets as usize;
        let (column, stripe) = self.new_column();
        for row in 0..rows {
            let is_set = |byte: &u8| byte >> (row % 8) & 1 == 1;
            if bits.get(row / 8).is_none_or(is_set) {
                stripe.set(row, column);
            }
        }
    }

    /// Adds a column; returns its number in its stripe, and the stripe.
    fn new_column(&mut self) -> (u32, &mut Stripe) {
        let stripe_columns = self.stripe_columns();
        let at = self.filled % stripe_columns;
        let stripe = (self.filled / stripe_columns) as usize;
        self.filled += 1;
        if stripe == self.stripes.len() {
            // The fingerprints of earlier stripes are complete unless the
            // writes since were dropped.
            self.make(self.sets);
            let rows = self.shape.rows as usize * self.sets as usize;
            let columns = stripe_columns.min(self.shape.columns - self.filled + 1);
            self.stripes.push(Stripe::new(columns, rows));
        }
        (at, &mut self.stripes[stripe])
    }

    fn stripe_columns(&self) -> u32 {
        self.layout
            .map_or(STRIPE_COLUMNS, |layout| layout.stripe_columns())
    }

    /// Builds the fingerprints of complete stripes, for the sets before `end`.
    pub(super) fn make(&mut self, end: u32) {
        let Some((layout, maker)) = self.layout.zip(self.maker.as_mut()) else {
            return;
        };
        let stripe_bytes = layout.stripe_bytes();
        for stripe in &mut self.stripes {
            if stripe.columns.len() < layout.stripe_columns() as usize {
                continue;
            }
            if stripe.fingerprints.is_empty() {
                stripe.fingerprints = vec![0; layout.stripes_bytes(self.sets as usize)];
            }
            while stripe.made < end {
                let set = stripe.made;
                let made = maker.make(stripe.columns.iter().map(|column| column.of_set(set)));
                let start = set as usize * stripe_bytes;
                stripe.fingerprints[start..start + stripe_bytes].copy_from_slice(made);
                stripe.made += 1;
            }
            if stripe.made == self.sets {
                stripe.rows = Vec::new();
                stripe.columns = Vec::new();
            }
        }
    }

    /// Probes the filters of `set`, as
    /// [`probe_page`](super::filters::probe_page).
    pub(super) fn probe<'a>(&'a self, set: u32, probe: &Probe, sink: &mut impl MatchSink<'a>) {
        let start = set as usize * self.shape.rows as usize;
        let stripe_columns = self.stripe_columns();
        for (column, stripe) in (0..).step_by(stripe_columns as usize).zip(&self.stripes) {
            if let Some(layout) = probe.layout.filter(|_| set < stripe.made) {
                let stripe = layout.stripe_in_row(&stripe.fingerprints, set as usize);
                sink.bucket(column, stripe.bucket(probe.fingerprint));
                continue;
            }
            let rows = probe.rows().map(|row| stripe.word(start + row));
            sink.word(Word {
                column,
                bits: rows.fold(stripe.mask(), |all, row| all & row),
            });
        }
    }

    /// The page of a set. Its fingerprints must have been built.
    pub(super) fn page(&self, set: u32) -> Box<[u8]> {
        let mut page = vec![0; PAGE_BYTES].into_boxed_slice();
        self.write_page(set, &mut page);
        page
    }

    /// Writes the page of a set into `page`, which must be zeroed.
    pub(super) fn write_page(&self, set: u32, page: &mut [u8]) {
        if let Some(layout) = self.layout {
            let bytes = layout.stripe_bytes();
            for (at, stripe) in self.stripes.iter().enumerate() {
                let made = &stripe.fingerprints[set as usize * bytes..][..bytes];
                layout.write_to_page(at, made, page);
            }
            return;
        }
        let row_bytes = self.shape.row_bytes();
        let rows = self.shape.rows as usize;
        let start = set as usize * rows;
        for row in 0..rows {
            let out = &mut page[PAGE_HEADER_BYTES + row * row_bytes..][..row_bytes];
            for (out, stripe) in out.chunks_mut(8).zip(&self.stripes) {
                let bits = stripe.word(start + row).to_le_bytes();
                out.copy_from_slice(&bits[..out.len()]);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let of_stripe = |stripe: &Stripe| {
            let columns: usize = stripe.columns.iter().map(Column::memory_bytes).sum();
            stripe.rows.len() + columns + stripe.fingerprints.len()
        };
        self.stripes.iter().map(of_stripe).sum::<usize>() as u64
    }
}
