use proptest::prelude::*;

use super::*;

#[test]
fn words_are_found_between_any_spaces() {
    let Request::Get(get) = parse(b"  gets   a  bb ") else {
        panic!("it is a get");
    };
    assert!(get.with_version);
    assert!(get.keys().eq([&b"a"[..], b"bb"]));
    let Request::Get(get) = parse(b"gat  10  a b") else {
        panic!("it is a get");
    };
    assert_eq!(get.exptime, Some(10));
    assert!(get.keys().eq([&b"a"[..], b"b"]));
}

#[test]
fn authentication_requests_parse() {
    assert_eq!(authentication_len(b"set x 0 0 10\r"), Some(10));
    assert_eq!(authentication_len(b"set x 0 0"), None);
    assert_eq!(authentication_len(b"get x"), None);
    assert_eq!(
        name_and_password(b"ann secret"),
        Some((&b"ann"[..], &b"secret"[..]))
    );
    assert_eq!(name_and_password(b"ann"), None);
}

proptest! {
    #[test]
    fn any_line_is_a_request(line in prop::collection::vec(any::<u8>(), 0..300)) {
        parse(&line);
    }

    #[test]
    fn any_words_are_a_request(
        command in prop::sample::select(vec!["get", "set", "cas", "mg", "ms", "ma", "md", "me", "incr", "gat"]),
        rest in "[ -~]{0,60}",
    ) {
        parse(format!("{command} {rest}").as_bytes());
    }
}
