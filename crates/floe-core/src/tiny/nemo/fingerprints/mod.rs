//! Filters of sets as fingerprints that share the room of a page.
//!
//! A *stripe* of a page has the objects of one set in up to 64 set-groups. They
//! lie in buckets by their keys' hashes, within a bucket in the order of their
//! set-groups. Each object has one byte of its hash, so that a key is compared
//! with a whole bucket at once, and as many further bits as there is room for.
//! Those are compared only where the byte is equal. A unary code assigns a
//! bucket's objects to set-groups: a one for each object, and a zero at each
//! set-group's end. This is a quotient filter (Bender et al., "Don't Thrash:
//! How to Cache Your Hash on Flash", 2012) with long buckets instead of runs.
//! It needs no empty slots, because a stripe is built at once and never
//! changed.
//!
//! With *k* objects per bucket and set-group, and *f* bits per object, the
//! false-positive rate is *k* 2^-f. An object takes *f* + 1 + 1/*k* bits and
//! its share of the directory: 2.5 bits more than the theoretical minimum,
//! where a Bloom filter takes 1.44 times that minimum. The objects of a stripe
//! always share all of its room.
//!
//! A page's body holds the directories of all stripes, interleaved record by
//! record, then each stripe's buckets. A stripe's records, of two bytes each:
//!
//! | record | content |
//! |---|---|
//! | 0 | *f*, bits of each object; 65,535 if the objects do not fit, so that every set-group matches |
//! | 1 | number of the first buckets whose objects have one more bit |
//! | 2 + *b* | offset of the bucket *b* in bytes |
//!
//! A bucket is the number of its objects (one byte), their bytes, their further
//! bits (in planes, each with one bit of every object), and the unary code.
//! These parts are adjacent, so that the later ones are already in the
//! processor's cache. If there is no room for bytes, a bucket has only planes.

mod layout;
mod make;
#[cfg(test)]
mod tests;

pub(super) use layout::{
    Bucket, Fingerprint, INDEX_GROUP_MAX, Layout, STRIPE_COLUMNS, buckets_for, columns_with,
    whole_stripes,
};
pub(super) use make::Maker;
