use proptest::prelude::*;

use super::testing::{knowing, mode, the};
use super::{Config, Consistency, Nodes, RingHash, Severity, Unreadable, check};

#[test]
fn the_content_tells_the_format() {
    let nodes = Nodes::default();
    assert!(check("a:\n  listen: 127.0.0.1:1\n", "x", &nodes).is_ok());
    assert!(check("# global\nglobal:\n  redis: false\n", "x", &nodes).is_ok());
    assert!(check("global : \n  redis: false\n", "x", &nodes).is_ok());
    assert!(check("# a:\n\n  defaults # b\n mode http\n", "x", &nodes).is_ok());
    assert!(check("global#c\n", "x", &nodes).is_ok());
}

#[test]
fn an_unknown_format_is_an_error_that_names_the_known_ones() {
    for text in [
        "",
        "# nothing\n",
        "hello",
        "[device]\npath = \"x\"\n",
        "- a\n- b\n",
    ] {
        let error = check(text, "f", &Nodes::default()).unwrap_err();
        assert!(
            matches!(error, Unreadable::Unknown { .. }),
            "{text}: {error}"
        );
        assert!(error.to_string().contains("YAML map of pools"), "{error}");
    }
}

#[test]
fn an_invalid_line_is_named() {
    let error = check("a:\n  timeout: soon\n", "n.yml", &Nodes::default()).unwrap_err();
    assert_eq!(error.to_string(), "n.yml:2: `soon` is not a number");
    let error = check("backend\n", "h.cfg", &Nodes::default()).unwrap_err();
    assert_eq!(error.to_string(), "h.cfg:1: `backend` has no name");
}

#[test]
fn a_long_text_is_not_read() {
    let text = "a".repeat(super::TEXT_BYTES_MAX + 1);
    let error = check(&text, "x", &Nodes::default()).unwrap_err();
    assert!(matches!(error, Unreadable::TooLong { .. }));
}

#[test]
fn the_worst_findings_come_first() {
    let text = "a:\n  distribution: random\n  servers:\n   - h:1:1 a\n   - h:2:1 b\n";
    let findings = check(text, "x", &Nodes::default()).unwrap();
    assert!(findings.is_sorted_by_key(|one| one.severity));
    assert_eq!(findings[0].severity, Severity::Lies);
}

#[test]
fn findings_have_a_json_form() {
    let findings = check("a:\n  redis: true\n", "x", &Nodes::default()).unwrap();
    let json = serde_json::to_value(the(&findings, "Redis")).unwrap();
    assert_eq!(json["severity"], "risk");
    assert_eq!(json["place"], "x:2: pool `a`");
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    for opening in ["[", "{", "{a: ", "- ", "? ", "a:\n "] {
        let _ = check(
            &format!("a: {}", opening.repeat(200_000)),
            "x",
            &Nodes::default(),
        );
        let _ = check(&opening.repeat(200_000), "x", &Nodes::default());
    }
}

/// Fragments of both formats, so that random texts get past their first line.
fn fragment() -> impl Strategy<Value = String> {
    let known = [
        "a:\n",
        "  ",
        "servers:\n",
        " - h:1:1 n\n",
        "timeout: ",
        "400\n",
        ":",
        "- ",
        "\t",
        "&a ",
        "*a ",
        "!!str ",
        "|\n",
        "\"",
        "'",
        "\\",
        "\\x",
        "#",
        "\n",
        "---\n",
        "global\n",
        "defaults ",
        "from ",
        "backend b\n",
        "listen l\n",
        "frontend f\n",
        "server s h:11211 check backup\n",
        "server-template t 1-99999999999 h:1\n",
        "balance uri ",
        "option httpchk\n",
        "no option redispatch\n",
        "hash-type ",
        "http-check send uri\n",
        "default-server ",
        "fall 0\n",
        "inter 99999999999999999999d\n",
        "bind :11211\n",
        "mode http\n",
        "é",
        "\u{0}",
        "\u{2028}",
        "${X}",
    ];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => ".{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = check(&text, "x", &Nodes::default());
        let _ = super::nutcracker::parse(&text);
        let _ = super::haproxy::parse(&text);
    }

    #[test]
    fn arbitrary_fragments_do_not_panic(fragments in prop::collection::vec(fragment(), 0..40)) {
        let text = fragments.concat();
        let _ = check(&text, "x", &mode(Consistency::Ttl));
        let _ = super::nutcracker::parse(&text);
        if let Ok(config) = Config::parse(&format!("global\n{text}"), "x") {
            super::check_all(&[config], &knowing(RingHash::Nutcracker));
        }
    }
}
