use proptest::prelude::*;

use super::*;

/// `None` is the whole object, `Some(None)` is 416.
type Expected = Option<Option<(u64, u64)>>;

#[test]
fn the_matrix_of_ranges() {
    // For an object of 10 bytes.
    let cases: &[(&str, Expected)] = &[
        ("bytes=0-0", Some(Some((0, 1)))),
        ("bytes=0-9", Some(Some((0, 10)))),
        ("bytes=0-10", Some(Some((0, 10)))),
        ("bytes=3-", Some(Some((3, 10)))),
        ("bytes=9-", Some(Some((9, 10)))),
        ("bytes=10-", Some(None)),
        ("bytes=10-20", Some(None)),
        ("bytes=-1", Some(Some((9, 10)))),
        ("bytes=-10", Some(Some((0, 10)))),
        ("bytes=-11", Some(Some((0, 10)))),
        ("bytes=-0", Some(None)),
        ("bytes=0-18446744073709551615", Some(Some((0, 10)))),
        ("bytes=0-99999999999999999999999", Some(Some((0, 10)))),
        ("bytes=99999999999999999999999-", Some(None)),
        ("BYTES=1-2", Some(Some((1, 3)))),
        ("bytes= 1-2 ", Some(Some((1, 3)))),
        ("bytes=5-2", None),
        ("bytes=0-1,3-4", None),
        ("bytes=0-1,", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("bytes=+1-2", None),
        ("bytes=1--2", None),
        ("items=0-1", None),
        ("0-1", None),
        ("", None),
    ];
    for (line, expected) in cases {
        let resolved = parse(line).map(|range| range.resolve(10).map(|r| (r.start, r.end)));
        assert_eq!(resolved, *expected, "{line:?}");
    }
}

#[test]
fn no_range_of_an_empty_object_is_satisfiable() {
    for line in ["bytes=0-0", "bytes=0-", "bytes=-1"] {
        assert_eq!(parse(line).unwrap().resolve(0), None, "{line}");
    }
}

proptest! {
    #[test]
    fn any_header_gives_a_range_inside_the_object_or_none(line in "(bytes=)?[-0-9, ]{0,30}", size: u64) {
        if let Some(range) = parse(&line).and_then(|range| range.resolve(size)) {
            prop_assert!(range.start < range.end && range.end <= size);
        }
    }
}
