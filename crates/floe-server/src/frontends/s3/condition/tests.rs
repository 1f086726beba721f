use std::time::Duration;

use floe::object::ObjectMeta;
use floe::object::Verdict::{self, NotModified, PreconditionFailed as Failed, Proceed};

use super::*;

const BEFORE: &str = "Fri, 02 Jan 1970 00:00:00 GMT";
const AT: &str = "Sat, 03 Jan 1970 00:00:00 GMT";
const AFTER: &str = "Sun, 04 Jan 1970 00:00:00 GMT";

fn object() -> ObjectMeta {
    ObjectMeta {
        etag: Some("\"tag\"".into()),
        // Half a second past `AT`, which an HTTP date cannot express.
        last_modified: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(2 * 86_400_000 + 500)),
        ..ObjectMeta::default()
    }
}

fn evaluate(headers: &HeaderMap, object: ObjectMeta) -> Verdict {
    conditions(headers).evaluate(&object)
}

fn range_applies(headers: &HeaderMap, object: ObjectMeta) -> bool {
    conditions(headers).range_applies(&object)
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
        .collect()
}

#[test]
fn the_matrix_of_conditions() {
    let cases: &[(&[(&'static str, &str)], Verdict)] = &[
        (&[], Proceed),
        (&[("if-match", "\"tag\"")], Proceed),
        (&[("if-match", "tag")], Proceed),
        (&[("if-match", "*")], Proceed),
        (&[("if-match", "\"other\", \"tag\"")], Proceed),
        (&[("if-match", "\"other\"")], Failed),
        (&[("if-match", "W/\"tag\"")], Failed),
        (&[("if-match", "")], Failed),
        (&[("if-none-match", "\"tag\"")], NotModified),
        (&[("if-none-match", "W/\"tag\"")], NotModified),
        (&[("if-none-match", "*")], NotModified),
        (&[("if-none-match", "\"a,b\",\"tag\"")], NotModified),
        (&[("if-none-match", "\"a,tag\"")], Proceed),
        (&[("if-none-match", "\"other\"")], Proceed),
        (&[("if-modified-since", BEFORE)], Proceed),
        (&[("if-modified-since", AT)], NotModified),
        (&[("if-modified-since", AFTER)], NotModified),
        (&[("if-modified-since", "yesterday")], Proceed),
        (&[("if-unmodified-since", BEFORE)], Failed),
        (&[("if-unmodified-since", AT)], Proceed),
        (&[("if-unmodified-since", AFTER)], Proceed),
        (&[("if-unmodified-since", "yesterday")], Proceed),
        // Tags take precedence over dates, and the first pair over the second.
        (
            &[("if-match", "\"tag\""), ("if-unmodified-since", BEFORE)],
            Proceed,
        ),
        (
            &[("if-match", "\"x\""), ("if-unmodified-since", AFTER)],
            Failed,
        ),
        (
            &[("if-none-match", "\"x\""), ("if-modified-since", AFTER)],
            Proceed,
        ),
        (
            &[("if-none-match", "\"tag\""), ("if-modified-since", BEFORE)],
            NotModified,
        ),
        (
            &[("if-match", "\"x\""), ("if-none-match", "\"tag\"")],
            Failed,
        ),
        (
            &[("if-match", "\"tag\""), ("if-none-match", "\"tag\"")],
            NotModified,
        ),
        (
            &[
                ("if-unmodified-since", BEFORE),
                ("if-none-match", "\"tag\""),
            ],
            Failed,
        ),
        (
            &[("if-match", "\"tag\""), ("if-modified-since", AT)],
            NotModified,
        ),
    ];
    for (pairs, expected) in cases {
        assert_eq!(evaluate(&headers(pairs), object()), *expected, "{pairs:?}");
    }
}

#[test]
fn objects_without_validators_match_only_the_star() {
    let bare = ObjectMeta::default();
    for (name, value, expected) in [
        ("if-match", "*", Proceed),
        ("if-match", "\"tag\"", Failed),
        ("if-none-match", "\"tag\"", Proceed),
        ("if-modified-since", AFTER, Proceed),
        ("if-unmodified-since", BEFORE, Proceed),
    ] {
        assert_eq!(
            evaluate(&headers(&[(name, value)]), bare.clone()),
            expected,
            "{name}: {value}"
        );
    }
}

#[test]
fn if_range_must_name_this_version() {
    for (value, applies) in [
        ("\"tag\"", true),
        ("\"other\"", false),
        ("W/\"tag\"", false),
        (AT, true),
        (BEFORE, false),
        (AFTER, false),
        ("nonsense", false),
    ] {
        assert_eq!(
            range_applies(&headers(&[("if-range", value)]), object()),
            applies,
            "{value}"
        );
    }
    assert!(range_applies(&headers(&[]), object()));
}

#[test]
fn a_weak_tag_of_the_object_never_matches_strongly() {
    let weak = ObjectMeta {
        etag: Some("W/\"tag\"".into()),
        ..ObjectMeta::default()
    };
    assert_eq!(
        evaluate(&headers(&[("if-match", "W/\"tag\"")]), weak.clone()),
        Failed
    );
    assert_eq!(
        evaluate(&headers(&[("if-none-match", "\"tag\"")]), weak.clone()),
        NotModified
    );
}
