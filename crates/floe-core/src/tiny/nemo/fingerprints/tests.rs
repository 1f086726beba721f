use super::layout::*;
use super::make::Maker;
use crate::tiny::object::{PAGE_BYTES, PAGE_HEADER_BYTES};
use proptest::prelude::*;

/// A pseudo-random number.
fn mixed(number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes())
}

/// The objects of each of `columns` set-groups: `objects` on average, in
/// varying numbers.
fn set(columns: u32, objects: u64, seed: u64) -> Vec<Vec<u16>> {
    (0..u64::from(columns))
        .map(|column| {
            let count = objects / 2 + mixed(seed ^ column << 20) % (objects + 1);
            (0..count)
                .map(|object| mixed(seed ^ column << 20 ^ object << 40) as u16)
                .collect()
        })
        .collect()
}

/// All stripes, as a page and concatenated.
fn made(layout: Layout, set: &[Vec<u16>]) -> (Vec<u8>, Vec<u8>) {
    let mut maker = Maker::new(layout);
    let mut page = vec![0; PAGE_BYTES];
    let mut row = Vec::new();
    for (at, columns) in set.chunks(layout.columns.into()).enumerate() {
        let stripe = maker.make(columns.iter().map(Vec::as_slice));
        assert_eq!(stripe.len(), layout.stripe_bytes());
        layout.write_to_page(at, stripe, &mut page);
        row.extend(stripe);
    }
    row.resize(layout.stripes_bytes(layout.stripes.into()), 0);
    (page, row)
}

fn named(bucket: Bucket<'_>) -> u64 {
    let matches = bucket.byte_matches();
    match matches {
        0 => 0,
        _ => bucket.set_groups(matches),
    }
}

/// The matching columns of a page.
fn columns(layout: Layout, page: &[u8], short: u16) -> Vec<u32> {
    let key = Fingerprint::of(short, layout.buckets.into());
    let stripes = layout.stripes_of_page(page);
    let named = stripes.flat_map(|(first, stripe)| {
        let bits = named(stripe.bucket(key));
        (0..64)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit| first + bit)
    });
    named.collect()
}

fn layout_for(objects: f64, false_positives: f64) -> (u32, Layout) {
    let columns = whole_stripes(columns_with(objects, false_positives, 0.0));
    let layout = Layout::new(columns, buckets_for(columns, objects), 0);
    (columns, layout.expect("a page can have the layout"))
}

#[test]
fn fingerprints_match_every_object() {
    // As many objects as expected, far fewer, and far more, up to where not
    // even one bit per object fits.
    for expected in [1.0, 3.0, 16.0, 50.0, 200.0] {
        for factor in [0.0, 0.1, 1.0, 1.1, 1.5, 3.0, 9.0] {
            let (count, layout) = layout_for(expected, 0.003);
            let set = set(count, (expected * factor) as u64, 7);
            let (page, row) = made(layout, &set);
            for (column, objects) in set.iter().enumerate() {
                for short in objects {
                    let found = columns(layout, &page, *short);
                    let context = (expected, factor, column);
                    assert!(found.contains(&(column as u32)), "{context:?}");
                    assert!(found.iter().all(|column| *column < count), "{context:?}");
                    let stripe = column / usize::from(layout.columns);
                    let key = Fingerprint::of(*short, layout.buckets.into());
                    let in_row = named(layout.stripe_in_row(&row, stripe).bucket(key));
                    assert!(in_row >> (column % usize::from(layout.columns)) & 1 == 1);
                }
            }
        }
    }
}

/// Match rate over all 16-bit values. It includes the few that equal an
/// object's.
fn wrong(layout: Layout, set: &[Vec<u16>]) -> f64 {
    let (page, _) = made(layout, set);
    let all = (0..=u16::MAX).map(|short| columns(layout, &page, short).len());
    all.sum::<usize>() as f64 / (65536.0 * set.len() as f64)
}

#[test]
fn fingerprints_have_the_configured_false_positive_rate() {
    for (objects, rate) in [(16u32, 0.003), (16, 0.001), (40, 0.001), (9, 0.001)] {
        let (count, layout) = layout_for(f64::from(objects), rate);
        let wrong = wrong(layout, &set(count, objects.into(), 11));
        // For a rate of 0.003 a byte would do, but layouts have slightly more.
        let least = f64::min(rate, 0.002) * 0.5;
        assert!(
            (least..rate * 1.3).contains(&wrong),
            "{objects} {rate}: {wrong}"
        );
    }
}

#[test]
fn the_false_positive_rate_grows_slowly_with_more_objects() {
    let (count, layout) = layout_for(16.0, 0.003);
    let of = |objects| wrong(layout, &set(count, objects, 13));
    let rates = [of(16), of(20), of(26), of(32)];
    assert!(rates.is_sorted(), "{rates:?}");
    assert!(rates[1] < 0.02 && rates[3] < 0.15, "{rates:?}");
}

#[test]
fn fingerprints_are_smaller_than_bloom_filters() {
    for (objects, rate) in [(16.0, 0.002), (16.0, 0.001), (40.0, 0.001)] {
        let fingerprints = layout_for(objects, rate).0;
        let bits = crate::tiny::nemo::filters::filter_bits(objects, rate);
        let bloom = crate::tiny::nemo::filters::columns_with(bits);
        assert!(fingerprints * 100 > bloom * 107, "{fingerprints} {bloom}");
    }
}

#[test]
fn nth_one_agrees_with_a_loop() {
    for seed in 0..2000u64 {
        let word = mixed(seed) & mixed(seed + 5000) & ones(BITS_AT_ONCE);
        let mut left = word;
        for rank in 0..word.count_ones() {
            assert_eq!(nth_one(word, counts(word), rank), left.trailing_zeros());
            left &= left - 1;
        }
        assert_eq!(counts(word) >> 56, u64::from(word.count_ones()));
    }
}

proptest! {
    /// Pages are checksummed. Even a wrong page only makes searches read more.
    #[test]
    fn any_bytes_match_existing_columns(
        bytes in proptest::collection::vec(any::<u8>(), PAGE_BYTES),
        count in 1u32..=512,
        buckets in 1u32..300,
        short: u16,
        mode in 0u16..14,
    ) {
        let count = whole_stripes(count);
        if let Some(layout) = Layout::new(count, buckets, 0) {
            let mut page = bytes;
            for stripe in 0..usize::from(layout.stripes) {
                let at = PAGE_HEADER_BYTES + stripe * RECORD_BYTES;
                page[at..at + RECORD_BYTES].copy_from_slice(&mode.to_le_bytes());
            }
            let found = columns(layout, &page, short);
            prop_assert!(found.iter().all(|column| *column < count));
        }
    }
}
