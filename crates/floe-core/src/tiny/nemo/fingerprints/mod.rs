//! Filters of sets as fingerprints that share their room.
//!
//! The objects of one set in up to 64 set-groups, a *stripe* of a page of
//! filters, lie in buckets by their keys' hashes, in each in the order of
//! their set-groups. Of each object there are eight bits of its hash, a byte,
//! so that a key is compared with a whole bucket at once, and some more bits,
//! as many as there is room for, which are looked at where the byte is the same.
//! Whose the objects of a bucket are is told in unary: a one for each object,
//! and a zero behind each set-group's. This is a quotient filter (Bender et al.,
//! "Don't Thrash: How to Cache Your Hash on Flash", 2012) with long buckets
//! instead of runs, and without the slots that one leaves empty because it is
//! to be added to: a stripe is made at once and never changed.
//!
//! With *k* objects for each bucket and set-group, and *f* bits of each, a
//! filter is wrong in *k* 2^-f, and an object takes *f* + 1 + 1/*k* bits and its
//! share of the directory: 2.5 bits more than the least possible, where a Bloom
//! filter takes 1.44 times it. However many objects a stripe has, they share
//! all of its room.
//!
//! A page's body holds the directories of all stripes, record by record, and
//! then each stripe's buckets. A stripe's records, of two bytes each:
//!
//! | record | what |
//! |---|---|
//! | 0 | *f*, bits of each object; 65,535 if there is no room for any: then every set-group may hold a key |
//! | 1 | the buckets, from the first on, whose objects have one bit more |
//! | 2 + *b* | where the bucket *b* begins, in bytes |
//!
//! A bucket is the number of its objects (one byte), their bytes, what they
//! have of further bits (a plane has one bit of each), and the unary part. All
//! of it is near the bytes, so that what is looked at after them is in the
//! processor's cache already. Where there is no room for bytes, there are only
//! planes.

mod layout;
mod make;
#[cfg(test)]
mod tests;

pub(super) use layout::{
    Bucket, Fingerprint, INDEX_GROUP_MAX, Layout, STRIPE_COLUMNS, buckets_for, columns_with,
    whole_stripes,
};
pub(super) use make::Maker;
