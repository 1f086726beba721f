//! The layout of a stripe of fingerprints, and how it is probed.

use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};
use wide::u8x16;

/// Most set-groups of an index group.
pub(in super::super) const INDEX_GROUP_MAX: u32 = 512;

/// Most set-groups of a stripe: its matches are one word of 64 bits.
pub(in super::super) const STRIPE_COLUMNS: u32 = u64::BITS;

/// Padding at the end of a page, because bits are read eight bytes at a time.
const SLACK_BYTES: usize = 7;

/// Bytes of a page for directories and buckets.
const BODY_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES - SLACK_BYTES;

/// Bits of a byte.
pub(super) const BYTE: usize = 8;

/// Most bits per object.
pub(super) const BITS_MAX: usize = 12;

/// Marks a bucket whose bits per object are unknown: more than any object has.
const BITS_UNKNOWN: usize = u8::MAX as usize;

/// Fewest bits per object that layouts are sized for: room for a byte even with
/// slightly more objects than expected. Without the byte, searches would be
/// slow.
const BITS_MIN: f64 = 8.4;

/// Replaces the number of bits if the objects do not fit.
pub(super) const NO_ROOM: u16 = u16::MAX;

/// Records before those of the buckets.
pub(super) const HEAD_RECORDS: usize = 2;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 2;

/// Objects whose bytes are compared at once.
const AT_ONCE: usize = 64;

/// Bits that one read provides: eight bytes, beginning at any bit of the first.
pub(super) const BITS_AT_ONCE: usize = 56;

/// Most objects per bucket that layouts are sized for, so that all are compared
/// at once even in buckets above the mean.
const BUCKET_OBJECTS: f64 = 48.0;

/// Bits of a bucket besides its objects': its record, the number of objects,
/// and the unused rest of its last byte.
const BUCKET_BITS: f64 = (8 * RECORD_BYTES + BYTE) as f64 + 3.5;

/// Objects per set-group and bucket that take the least room, for stripes of
/// `columns` set-groups.
fn objects_per_column(columns: f64) -> f64 {
    let least = std::f64::consts::LN_2 * (1.0 + BUCKET_BITS / columns);
    least.min(BUCKET_OBJECTS / columns)
}

/// Set-groups with `objects` objects per set that share a page at a
/// false-positive rate of `false_positives`, with `more` bits of the page for each object.
pub(in super::super) fn columns_with(objects: f64, false_positives: f64, more: f64) -> u32 {
    let of_page = (8 * BODY_BYTES) as f64;
    let columns = |stripe_columns: f64| {
        let share = objects_per_column(stripe_columns);
        let of_hash = (share / false_positives).log2().max(BITS_MIN);
        let bits = of_hash + 1.0 + (1.0 + BUCKET_BITS / stripe_columns) / share + more;
        of_page / (objects.max(1.0) * bits)
    };
    let all = columns(f64::from(STRIPE_COLUMNS));
    // If fewer than 64 fit, they form one short stripe.
    let fewer = columns(all.clamp(1.0, f64::from(STRIPE_COLUMNS)));
    (fewer as u32).clamp(8, INDEX_GROUP_MAX)
}

/// The largest number up to `columns` that makes equal stripes.
pub(in super::super) fn whole_stripes(columns: u32) -> u32 {
    columns - columns % columns.div_ceil(STRIPE_COLUMNS)
}

/// Buckets of a stripe, for sets of `objects` objects of which `columns` share
/// a page.
pub(in super::super) fn buckets_for(columns: u32, objects: f64) -> u32 {
    let stripe_columns = columns / columns.div_ceil(STRIPE_COLUMNS);
    let buckets = objects / objects_per_column(f64::from(stripe_columns));
    (buckets.round() as u32).clamp(1, u32::from(u16::MAX))
}

/// The layout of a page of fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Layout {
    pub(super) stripes: u16,
    /// Set-groups of a stripe.
    pub(super) columns: u16,
    pub(super) buckets: u16,
    /// Bytes of a stripe's buckets.
    pub(super) body_bytes: u16,
}

impl Layout {
    /// The layout for `columns` set-groups in all and `buckets` buckets per
    /// stripe, in a page whose last `reserved` bytes have another use.
    ///
    /// `None` if no page can have it.
    pub(in super::super) fn new(columns: u32, buckets: u32, reserved: usize) -> Option<Self> {
        let buckets = u16::try_from(buckets).ok().filter(|buckets| *buckets > 0)?;
        let stripes = columns.div_ceil(STRIPE_COLUMNS);
        let is_whole = stripes > 0 && columns.is_multiple_of(stripes);
        let layout = Layout {
            stripes: u16::try_from(stripes).ok().filter(|_| is_whole)?,
            columns: (columns / stripes) as u16,
            buckets,
            body_bytes: 0,
        };
        let directories = usize::from(layout.stripes) * layout.directory_bytes();
        let room = BODY_BYTES.checked_sub(directories + reserved)?;
        let body_bytes = room / usize::from(layout.stripes);
        (body_bytes > 0).then_some(Layout {
            body_bytes: body_bytes as u16,
            ..layout
        })
    }

    /// Set-groups of a stripe.
    pub(in super::super) fn stripe_columns(self) -> u32 {
        u32::from(self.columns)
    }

    /// Approximate false-positive rate for sets of `objects` objects.
    pub(in super::super) fn false_positives(self, objects: f64) -> f64 {
        let (columns, buckets) = (f64::from(self.columns), f64::from(self.buckets));
        let all = (objects * columns).max(1.0);
        let unary_bits = all + columns * buckets;
        let room = f64::from(self.body_bytes) * 8.0 - unary_bits - buckets * BUCKET_BITS;
        let bits = (room / all).min(BITS_MAX as f64);
        if bits < 1.0 {
            return 1.0;
        }
        (objects / buckets * (-bits).exp2()).min(1.0)
    }

    pub(super) fn directory_bytes(self) -> usize {
        (HEAD_RECORDS + usize::from(self.buckets)) * RECORD_BYTES
    }

    /// Bytes of a stripe outside a page: its directory and its buckets.
    pub(in super::super) fn stripe_bytes(self) -> usize {
        self.directory_bytes() + usize::from(self.body_bytes)
    }

    /// Bytes of consecutive stripes, with the padding that reads need.
    pub(in super::super) fn stripes_bytes(self, stripes: usize) -> usize {
        stripes * self.stripe_bytes() + SLACK_BYTES
    }

    /// The stripe number `at` of consecutive stripes.
    pub(in super::super) fn stripe_in_row(self, bytes: &[u8], at: usize) -> Stripe<'_> {
        Stripe {
            layout: self,
            bytes: &bytes[at * self.stripe_bytes()..],
            directory: 0,
            stride: RECORD_BYTES as u16,
            body: self.directory_bytes() as u16,
        }
    }

    /// The stripes of a page, each with its first column.
    pub(in super::super) fn stripes_of_page(
        self,
        page: &[u8],
    ) -> impl ExactSizeIterator<Item = (u32, Stripe<'_>)> {
        let stripe = Stripe {
            layout: self,
            bytes: page,
            directory: PAGE_HEADER_BYTES as u16,
            stride: self.stripes * RECORD_BYTES as u16,
            body: PAGE_HEADER_BYTES as u16 + self.stripes * self.directory_bytes() as u16,
        };
        (0..self.stripes).map(move |at| {
            let stripe = Stripe {
                directory: stripe.directory + at * RECORD_BYTES as u16,
                body: stripe.body + at * self.body_bytes,
                ..stripe
            };
            (u32::from(at) * u32::from(self.columns), stripe)
        })
    }

    /// Copies the stripe number `at` to its position in `page`.
    pub(in super::super) fn write_to_page(self, at: usize, stripe: &[u8], page: &mut [u8]) {
        let (directory, body) = stripe[..self.stripe_bytes()].split_at(self.directory_bytes());
        let (stripes, first) = (usize::from(self.stripes), at * RECORD_BYTES);
        let records = page[PAGE_HEADER_BYTES..].chunks_exact_mut(stripes * RECORD_BYTES);
        for (record, out) in directory.chunks_exact(RECORD_BYTES).zip(records) {
            out[first..first + RECORD_BYTES].copy_from_slice(record);
        }
        let bodies = PAGE_HEADER_BYTES + stripes * directory.len();
        page[bodies + at * body.len()..][..body.len()].copy_from_slice(body);
    }
}

/// A key's bucket in a stripe, and the bits that distinguish it from other
/// keys.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Fingerprint {
    pub(super) bucket: u16,
    /// The top bits come first.
    pub(super) bits: u16,
}

impl Fingerprint {
    /// The fingerprint of 16 bits of a hash, for stripes of `buckets` buckets.
    pub(in super::super) fn of(short: u16, buckets: u32) -> Self {
        let spread = u32::from(short) * u32::from(buckets as u16);
        Fingerprint {
            bucket: (spread >> 16) as u16,
            bits: spread as u16,
        }
    }

    pub(super) fn byte(self) -> u8 {
        (self.bits >> (u16::BITS as usize - BYTE)) as u8
    }
}

/// A stripe, in a page or alone.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Stripe<'a> {
    layout: Layout,
    bytes: &'a [u8],
    /// Offset of the first record, and distance between records, in bytes.
    directory: u16,
    stride: u16,
    /// Offset of the first bucket in bytes.
    body: u16,
}

/// A key's bucket. Callers probe in three steps and do each step for all
/// stripes before the next, so that the stripes' memory loads overlap.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Bucket<'a> {
    bytes: &'a [u8],
    /// Offset of the bucket's first byte.
    at: u16,
    /// Bits per object, or [`BITS_UNKNOWN`].
    bits: u8,
    /// Set-groups of the stripe.
    columns: u8,
    key: Fingerprint,
}

/// The parts of a bucket.
struct Parts {
    objects: usize,
    has_bytes: bool,
    planes: usize,
    /// Offset of the first plane in bits.
    planes_at: usize,
}

impl<'a> Stripe<'a> {
    fn record(&self, at: usize) -> Option<usize> {
        let at = usize::from(self.directory) + at * usize::from(self.stride);
        let record = self.bytes.get(at..at + RECORD_BYTES)?.first_chunk()?;
        Some(usize::from(u16::from_le_bytes(*record)))
    }

    /// A key's bucket, read from the directory.
    #[inline]
    pub(in super::super) fn bucket(&self, key: Fingerprint) -> Bucket<'a> {
        let bucket = usize::from(key.bucket);
        let found = self.record(0).zip(self.record(1));
        let found = found.zip(self.record(HEAD_RECORDS + bucket));
        let ((bits, with_more), at) = found.unwrap_or(((usize::from(NO_ROOM), 0), 0));
        Bucket {
            bytes: self.bytes,
            at: self.body.saturating_add(at as u16),
            bits: (bits + usize::from(bucket < with_more)).min(BITS_UNKNOWN) as u8,
            columns: self.layout.columns as u8,
            key,
        }
    }
}

impl Bucket<'_> {
    /// The objects whose byte equals the key's, one bit each. All ones if the
    /// bucket has more than 64 objects or cannot be decoded.
    #[inline]
    pub(in super::super) fn byte_matches(&self) -> u64 {
        match self.parts() {
            Some(parts) if parts.objects <= AT_ONCE => self.byte_matches_from(&parts, 0),
            _ => u64::MAX,
        }
    }

    /// The set-groups of the objects that match the key. `byte_matches` is the
    /// result of [`Bucket::byte_matches`]. All set-groups if the bucket cannot
    /// be decoded.
    #[inline]
    pub(in super::super) fn set_groups(&self, byte_matches: u64) -> u64 {
        let all = ones(usize::from(self.columns));
        let matches = self
            .parts()
            .and_then(|parts| self.matches(&parts, byte_matches));
        matches.filter(|matches| matches & !all == 0).unwrap_or(all)
    }

    /// `None` if the bucket cannot be decoded.
    #[inline]
    fn parts(&self) -> Option<Parts> {
        let at = usize::from(self.at);
        let objects = usize::from(*self.bytes.get(at)?);
        let bits = usize::from(self.bits);
        let (bytes, planes) = split(bits);
        (bits <= BITS_MAX).then_some(Parts {
            objects,
            has_bytes: bytes > 0,
            planes,
            planes_at: (at + 1 + bytes * objects) * 8,
        })
    }

    /// The objects from `first` on whose byte equals the key's. Bit 0 is the
    /// object `first`.
    #[inline]
    fn byte_matches_from(&self, parts: &Parts, first: usize) -> u64 {
        let objects = ones(parts.objects - first);
        if !parts.has_bytes {
            return objects;
        }
        let at = usize::from(self.at) + 1 + first;
        let same = match self.bytes.get(at..at + AT_ONCE) {
            Some(bytes) => bytes.first_chunk().map(|bytes| same_bytes(bytes, self.key)),
            None => {
                let rest = self.bytes.get(at..).unwrap_or_default();
                let mut bytes = [0; AT_ONCE];
                bytes[..rest.len()].copy_from_slice(rest);
                Some(same_bytes(&bytes, self.key))
            }
        };
        same.unwrap_or(u64::MAX) & objects
    }

    fn matches(&self, parts: &Parts, byte_matches: u64) -> Option<u64> {
        if parts.objects <= AT_ONCE {
            return self.matches_from(parts, 0, byte_matches);
        }
        let mut chunks = (0..parts.objects).step_by(AT_ONCE);
        chunks.try_fold(0, |matches, first| {
            Some(matches | self.matches_from(parts, first, self.byte_matches_from(parts, first))?)
        })
    }

    /// The set-groups of those `objects` that match the key's further bits. Bit
    /// 0 is the object `first`.
    #[inline]
    fn matches_from(&self, parts: &Parts, first: usize, mut objects: u64) -> Option<u64> {
        let mut matches = 0;
        while objects != 0 {
            let object = first + objects.trailing_zeros() as usize;
            objects &= objects - 1;
            let bit = 1u64.checked_shl(self.column_of(parts, object)? as u32)?;
            matches |= bit * u64::from(self.has_bits(parts, object)?);
        }
        Some(matches)
    }

    /// True if an object's further bits equal the key's.
    #[inline]
    fn has_bits(&self, parts: &Parts, object: usize) -> Option<bool> {
        let wanted = self.key.bits << if parts.has_bytes { BYTE } else { 0 };
        let mut differ = 0;
        for plane in 0..parts.planes {
            let bit = load(self.bytes, parts.planes_at + plane * parts.objects + object)?;
            differ |= bit as u16 ^ wanted << plane >> 15;
        }
        Some(differ & 1 == 0)
    }

    /// The set-group of an object: the number of zeroes before its one in the
    /// unary code.
    #[inline]
    fn column_of(&self, parts: &Parts, object: usize) -> Option<usize> {
        let unary = parts.planes_at + parts.planes * parts.objects;
        let (mut at, mut left) = (0, object as u32);
        loop {
            let low = load(self.bytes, unary + at)? & ones(BITS_AT_ONCE);
            // A branch on the half that has the object would be mispredicted,
            // so both are counted.
            let high = load(self.bytes, unary + at + BITS_AT_ONCE).unwrap_or(0);
            let high = high & ones(BITS_AT_ONCE);
            let (low_counts, high_counts) = (counts(low), counts(high));
            let in_low = (low_counts >> 56) as u32;
            let in_high = (high_counts >> 56) as u32;
            let is_high = left >= in_low;
            let choose =
                |low: u64, high: u64| low ^ (low ^ high) & u64::from(is_high).wrapping_neg();
            let rank = left.wrapping_sub(in_low * u32::from(is_high));
            if left < in_low + in_high {
                let (word, counts) = (choose(low, high), choose(low_counts, high_counts));
                let first = at + BITS_AT_ONCE * usize::from(is_high);
                return (first + nth_one(word, counts, rank) as usize).checked_sub(object);
            }
            left -= in_low + in_high;
            at += 2 * BITS_AT_ONCE;
        }
    }
}

/// Bit *i* is set if the byte number *i* equals the key's.
#[inline]
fn same_bytes(bytes: &[u8; AT_ONCE], key: Fingerprint) -> u64 {
    let wanted = u8x16::splat(key.byte());
    let parts = bytes.as_chunks().0.iter().enumerate();
    parts.fold(0, |same, (at, part)| {
        let mask = u8x16::new(*part).simd_eq(wanted).to_bitmask();
        same | u64::from(mask) << (16 * at)
    })
}

/// The bytes (zero or one) and planes of an object of `bits` bits.
pub(super) fn split(bits: usize) -> (usize, usize) {
    match bits.checked_sub(BYTE) {
        Some(planes) => (1, planes),
        None => (0, bits),
    }
}

/// A word whose lowest `count` bits are ones.
pub(super) fn ones(count: usize) -> u64 {
    match count {
        0..64 => (1 << count) - 1,
        _ => u64::MAX,
    }
}

/// At least [`BITS_AT_ONCE`] bits from the bit `at` on.
fn load(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at / 8..at / 8 + SLACK_BYTES + 1)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) >> (at % 8))
}

const EACH_BYTE: u64 = u64::MAX / 0xff;

/// Each byte of the result has the number of ones in that byte of `word` and in
/// the lower ones.
pub(super) fn counts(word: u64) -> u64 {
    let pairs = word - (word >> 1 & (EACH_BYTE * 0x55));
    let fours = (pairs & (EACH_BYTE * 0x33)) + (pairs >> 2 & (EACH_BYTE * 0x33));
    let bytes = (fours + (fours >> 4)) & (EACH_BYTE * 0x0f);
    bytes.wrapping_mul(EACH_BYTE)
}

/// The position of the one with `rank` ones below it, in a word with more ones
/// than that (after Vigna, "Broadword Implementation of Rank/Select Queries",
/// 2008).
pub(super) fn nth_one(word: u64, counts: u64, rank: u32) -> u32 {
    let tops = EACH_BYTE * 0x80;
    // Bytes up to whose end there are at most `rank` ones.
    let below = (((u64::from(rank) * EACH_BYTE) | tops) - counts) & tops;
    let place = (below >> 7).wrapping_mul(EACH_BYTE) >> 56 << 3;
    let before = counts << 8 >> place & 0xff;
    // The same for the bits of that byte, each spread to a byte.
    let spread = ((word >> place & 0xff) * EACH_BYTE) & 0x8040_2010_0804_0201;
    let bits = (spread + EACH_BYTE * 0x7f) >> 7 & EACH_BYTE;
    let counts = bits.wrapping_mul(EACH_BYTE);
    let rank = u64::from(rank) - before;
    let below = (((rank * EACH_BYTE) | tops) - counts) & tops;
    (place + ((below >> 7).wrapping_mul(EACH_BYTE) >> 56)) as u32
}
