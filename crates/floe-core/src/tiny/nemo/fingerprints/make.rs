//! Builds stripes of fingerprints.

use super::layout::{
    BITS_MAX, BYTE, Fingerprint, HEAD_RECORDS, Layout, NO_ROOM, RECORD_BYTES, split,
};

/// Builds stripes of one layout. Reuses its memory.
#[derive(Debug)]
pub(in super::super) struct Maker {
    layout: Layout,
    /// Number of objects before each bucket, and the total.
    before: Vec<usize>,
    /// All objects, ordered by bucket, then by column.
    objects: Vec<Sorted>,
    made: Vec<u8>,
}

/// An object's set-group and fingerprint.
#[derive(Clone, Copy, Debug, Default)]
struct Sorted {
    column: u8,
    key: Fingerprint,
}

impl Maker {
    pub(in super::super) fn new(layout: Layout) -> Self {
        Maker {
            layout,
            before: Vec::new(),
            objects: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Builds a stripe. `set` has 16 bits of each object's hash, column by
    /// column.
    pub(in super::super) fn make<'a>(
        &mut self,
        set: impl Iterator<Item = &'a [u16]> + Clone,
    ) -> &[u8] {
        self.sort(set);
        let layout = self.layout;
        self.made.clear();
        self.made.resize(layout.stripes_bytes(1), 0);
        let Some((bits, with_more)) = self.bits() else {
            self.made[..RECORD_BYTES].copy_from_slice(&NO_ROOM.to_le_bytes());
            return &self.made[..layout.stripe_bytes()];
        };
        self.put_record(0, bits);
        self.put_record(1, with_more);
        let body = layout.directory_bytes();
        let mut at = body;
        for bucket in 0..usize::from(layout.buckets) {
            self.put_record(HEAD_RECORDS + bucket, at - body);
            let bits = bits + usize::from(bucket < with_more);
            self.put_bucket(at, bucket, bits);
            at += self.bucket_bytes(bucket, bits);
        }
        &self.made[..layout.stripe_bytes()]
    }

    fn put_record(&mut self, at: usize, record: usize) {
        let out = &mut self.made[at * RECORD_BYTES..][..RECORD_BYTES];
        out.copy_from_slice(&(record as u16).to_le_bytes());
    }

    /// The bits per object that fit, and the number of buckets whose objects
    /// can have one more. `None` if the objects do not fit.
    fn bits(&self) -> Option<(usize, usize)> {
        let buckets = 0..usize::from(self.layout.buckets);
        let room = usize::from(self.layout.body_bytes);
        let is_countable = |bucket| u8::try_from(self.of_bucket(bucket).len()).is_ok();
        if !buckets.clone().all(is_countable) {
            return None;
        }
        let all = |bits| -> usize {
            let bytes = |bucket| self.bucket_bytes(bucket, bits);
            buckets.clone().map(bytes).sum()
        };
        let bits = (0..=BITS_MAX).rev().find(|bits| all(*bits) <= room)?;
        let mut left = room - all(bits);
        let with_more = buckets.take_while(|bucket| {
            let more = self.bucket_bytes(*bucket, bits + 1) - self.bucket_bytes(*bucket, bits);
            let fits = bits < BITS_MAX && more <= left;
            left -= if fits { more } else { 0 };
            fits
        });
        Some((bits, with_more.count()))
    }

    fn of_bucket(&self, bucket: usize) -> &[Sorted] {
        &self.objects[self.before[bucket]..self.before[bucket + 1]]
    }

    /// Bytes of a bucket with `bits` bits per object.
    fn bucket_bytes(&self, bucket: usize, bits: usize) -> usize {
        let count = self.of_bucket(bucket).len();
        let (bytes, planes) = split(bits);
        let in_bits = planes * count + count + usize::from(self.layout.columns);
        1 + bytes * count + in_bits.div_ceil(8)
    }

    /// Writes a bucket with `bits` bits per object at the byte `at`.
    fn put_bucket(&mut self, at: usize, bucket: usize, bits: usize) {
        let objects = &self.objects[self.before[bucket]..self.before[bucket + 1]];
        let count = objects.len();
        let (bytes, planes) = split(bits);
        let (head, in_bits) = self.made[at..].split_at_mut(1 + bytes * count);
        head[0] = count as u8;
        for (out, object) in head[1..].iter_mut().zip(objects) {
            *out = object.key.byte();
        }
        for (at, object) in objects.iter().enumerate() {
            let mut left = object.key.bits << (bytes * BYTE);
            for plane in 0..planes {
                put_bit(in_bits, plane * count + at, left >> 15);
                left <<= 1;
            }
            let zeroes = usize::from(object.column);
            put_bit(in_bits, planes * count + at + zeroes, 1);
        }
    }

    /// Sorts the objects by bucket, then by column.
    fn sort<'a>(&mut self, set: impl Iterator<Item = &'a [u16]> + Clone) {
        let buckets = self.layout.buckets;
        let fingerprint = |short: &u16| Fingerprint::of(*short, u32::from(buckets));
        self.before.clear();
        self.before.resize(usize::from(buckets) + 1, 0);
        for short in set.clone().flatten() {
            self.before[usize::from(fingerprint(short).bucket)] += 1;
        }
        let mut all = 0;
        for before in &mut self.before {
            all += std::mem::replace(before, all);
        }
        self.objects.clear();
        self.objects.resize(all, Sorted::default());
        for (column, shorts) in set.enumerate() {
            for short in shorts {
                let key = fingerprint(short);
                let next = &mut self.before[usize::from(key.bucket)];
                self.objects[*next] = Sorted {
                    column: column as u8,
                    key,
                };
                *next += 1;
            }
        }
        // Each entry now has the beginning of the next bucket.
        self.before.rotate_right(1);
        self.before[0] = 0;
    }
}

/// Writes a bit into zeroed bytes.
fn put_bit(out: &mut [u8], at: usize, bit: u16) {
    out[at / 8] |= (bit as u8) << (at % 8);
}
