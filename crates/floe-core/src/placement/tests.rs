//! Handles for random sets of streams.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Streams of a store, with the metadata.
fn streams() -> impl Strategy<Value = BTreeSet<Stream>> {
    let number = 0..6_u32;
    let stream = prop_oneof![
        Just(Stream::Moved),
        number.clone().prop_map(Stream::New),
        number.clone().prop_map(Stream::Index),
        number.clone().prop_map(Stream::InPlace),
        number.prop_map(Stream::Appended),
    ];
    prop::collection::btree_set(stream, 0..20).prop_map(|mut streams| {
        // Stores number the streams of a kind from zero.
        let numbered: Vec<Stream> = streams.iter().copied().collect();
        streams.clear();
        streams.insert(Stream::Metadata);
        for stream in numbered {
            let same = streams.iter().filter(|at| at.split().0 == stream.split().0);
            let number = same.count() as u32;
            streams.insert(match stream {
                Stream::New(_) => Stream::New(number),
                Stream::Index(_) => Stream::Index(number),
                Stream::InPlace(_) => Stream::InPlace(number),
                Stream::Appended(_) => Stream::Appended(number),
                other => other,
            });
        }
        streams
    })
}

proptest! {
    #[test]
    fn streams_share_handles_only_where_there_are_too_few(
        count in 0..40_u16,
        streams in streams(),
    ) {
        let handles = Handles::new(count, streams.iter().copied());
        let of = |stream: &Stream| handles.of(*stream).0;
        let kind = |stream: &Stream| stream.split().0;
        prop_assert_eq!(handles.of(Stream::Metadata), Placement::METADATA);
        let used: BTreeSet<u16> = streams.iter().map(of).collect();
        let kinds: BTreeSet<Stream> = streams.iter().map(kind).collect();
        let wanted = streams.len().min(usize::from(count.max(1)));
        prop_assert_eq!(used.len(), wanted, "no handle is left unused");
        prop_assert!(used.iter().all(|handle| *handle < count.max(1)));
        for (one, other) in streams.iter().flat_map(|a| streams.iter().map(move |b| (a, b))) {
            if kind(one) != kind(other) && of(one) == of(other) {
                prop_assert!(kinds.len() > usize::from(count), "{one:?} with {other:?}");
            }
            // Kinds that share are neighbours.
            if one < other {
                prop_assert!(kinds.len() <= usize::from(count) || of(one) <= of(other));
            }
        }
    }
}

#[test]
fn the_metadata_shares_first_and_large_kinds_have_most_handles() {
    let log = || {
        let new = (0..4).map(Stream::New);
        new.chain([Stream::Metadata, Stream::Moved])
    };
    let of = |count| {
        let handles = Handles::new(count, log());
        log().map(|stream| handles.of(stream).0).collect::<Vec<_>>()
    };
    // New values by zone, the metadata, moved values.
    assert_eq!(of(0), [0, 0, 0, 0, 0, 0]);
    assert_eq!(of(1), [0, 0, 0, 0, 0, 0]);
    assert_eq!(of(2), [1, 1, 1, 1, 0, 0]);
    assert_eq!(of(3), [2, 2, 2, 2, 0, 1]);
    assert_eq!(of(4), [2, 3, 2, 3, 0, 1]);
    assert_eq!(of(6), [2, 3, 4, 5, 0, 1]);
    assert_eq!(of(16), of(6));
}
