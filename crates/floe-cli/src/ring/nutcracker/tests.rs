use crate::ring::testing::{changed, found, knowing, problems, the};
use crate::ring::{Config, Finding, Nodes, RingHash, Severity, check, check_all};

/// The pool of the tests: one ring, nothing to find but a note on commands.
const GOOD: &str = "\
alpha:
  listen: 127.0.0.1:22121
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: false
  timeout: 400
  servers:
    - 10.0.0.1:11211:1 one
    - 10.0.0.2:11211:1 two
";

fn ejecting() -> String {
    changed(GOOD, "auto_eject_hosts: false", "auto_eject_hosts: true")
}

#[test]
fn a_good_pool_has_only_the_note_on_commands() {
    for ring_hash in [RingHash::Off, RingHash::Nutcracker] {
        let findings = found(GOOD, &knowing(ring_hash));
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(the(&findings, "flush_all").severity, Severity::Note);
    }
}

#[test]
fn ejection_lies_if_nodes_do_not_know_the_ring() {
    let findings = found(&ejecting(), &Nodes::default());
    let ejection = the(&findings, "auto_eject_hosts");
    assert_eq!(ejection.severity, Severity::Lies);
    assert_eq!(ejection.place, "test:5: pool `alpha`");
    for part in [
        "30000 ms after 2 failures",
        "requests after 400 ms",
        "returns with its old values",
        "keep what they took",
    ] {
        assert!(ejection.problem.contains(part), "{ejection:?}");
    }
    for part in [
        "auto_eject_hosts: false",
        "`node.ring_hash = \"nutcracker\"`",
    ] {
        assert!(ejection.cure.contains(part), "{ejection:?}");
    }
}

#[test]
fn ejection_is_noted_if_nodes_know_the_ring() {
    let severity = |nodes| the(&found(&ejecting(), &knowing(nodes)), "auto_eject_hosts").severity;
    assert_eq!(severity(RingHash::Off), Severity::Lies);
    assert_eq!(severity(RingHash::Nutcracker), Severity::Note);
    assert_eq!(severity(RingHash::Pymemcache), Severity::Note);
}

#[test]
fn ejection_without_a_timeout_names_none() {
    for timeout in ["", "  timeout: 0\n"] {
        let text = ejecting().replace("  timeout: 400\n", timeout);
        let findings = found(&text, &Nodes::default());
        let ejection = the(&findings, "auto_eject_hosts");
        assert!(!ejection.problem.contains("unanswered"), "{ejection:?}");
    }
}

#[test]
fn one_server_is_never_ejected_to_another() {
    let text = ejecting().replace("    - 10.0.0.2:11211:1 two\n", "");
    assert_eq!(
        problems(&found(&text, &Nodes::default()), Severity::Lies),
        [""; 0]
    );
}

#[test]
fn random_lies_and_modula_is_a_risk() {
    let of = |name| found(&changed(GOOD, "ketama", name), &Nodes::default());
    let random = of("random");
    assert_eq!(the(&random, "no owner").severity, Severity::Lies);
    let modula = of("modula");
    assert_eq!(the(&modula, "nearly all keys").severity, Severity::Risk);
    assert_eq!(
        the(&modula, "nearly all keys").place,
        "test:4: pool `alpha`"
    );
}

/// A change of the pool, and its line.
const OTHER_OWNERS: [(&str, &str, u32); 3] = [
    ("fnv1a_64", "md5", 3),
    ("ketama", "modula", 4),
    ("ketama", "random", 4),
];

#[test]
fn other_owners_than_the_nodes_compute_are_a_risk() {
    for (from, to, line) in OTHER_OWNERS {
        let text = changed(GOOD, from, to);
        let findings = found(&text, &knowing(RingHash::Nutcracker));
        let risk = the(&findings, "refuses a share");
        assert_eq!(risk.severity, Severity::Risk);
        assert_eq!(risk.place, format!("test:{line}: pool `alpha`"));
        assert_eq!(problems(&findings, Severity::Lies), [""; 0]);
        let one = text.replace("    - 10.0.0.2:11211:1 two\n", "");
        let findings = found(&one, &knowing(RingHash::Nutcracker));
        assert_eq!(problems(&findings, Severity::Risk), [""; 0]);
    }
    for (hash, message) in [
        (RingHash::Pymemcache, "that pymemcache computes"),
        (RingHash::Emcache, "that emcache computes"),
    ] {
        let findings = found(GOOD, &knowing(hash));
        assert_eq!(the(&findings, message).severity, Severity::Risk);
    }
}

#[test]
fn a_missing_timeout_redis_and_unnamed_servers_are_risks() {
    let text = changed(GOOD, "  timeout: 400\n", "  redis: true\n").replace(" one\n", "\n");
    let findings = found(&text, &Nodes::default());
    for part in ["waits for ever", "Redis", "1 of 2 servers have no name"] {
        assert_eq!(the(&findings, part).severity, Severity::Risk);
    }
    assert_eq!(findings.len(), 3);
}

#[test]
fn several_connections_let_a_get_overtake_a_set() {
    let text = changed(
        GOOD,
        "timeout: 400",
        "timeout: 400\n  server_connections: 2",
    );
    let findings = found(&text, &Nodes::default());
    assert_eq!(the(&findings, "overtake").severity, Severity::Risk);
}

#[test]
fn an_unknown_setting_is_noted() {
    let text = changed(GOOD, "timeout: 400", "timeout: 400\n  zone_aware: true");
    let findings = found(&text, &Nodes::default());
    assert_eq!(the(&findings, "zone_aware").place, "test:7: pool `alpha`");
}

/// `GOOD` and a second pool, changed.
fn with_second(from: &str, to: &str) -> Vec<Finding> {
    let second = changed(GOOD, "alpha", "beta").replace(from, to);
    found(&format!("{GOOD}{second}"), &Nodes::default())
}

/// A change of a second pool, and what then differs.
const OTHER_RINGS: [(&str, &str, &str); 7] = [
    ("fnv1a_64", "md5", "`hash`"),
    ("ketama", "modula", "`distribution`"),
    ("  timeout", "  hash_tag: \"{}\"\n  timeout", "`hash_tag`"),
    ("11211:1 two", "11211:2 two", "names, weights"),
    ("11211:1 two", "11211:1 2", "names, weights"),
    ("    - 10.0.0.2:11211:1 two\n", "", "list of servers"),
    ("10.0.0.2", "10.0.0.3", "list of servers"),
];

#[test]
fn two_different_rings_over_a_server_lie() {
    for (from, to, named) in OTHER_RINGS {
        let findings = with_second(from, to);
        let lies = problems(&findings, Severity::Lies);
        assert_eq!(lies.len(), 1, "{from} → {to}: {findings:#?}");
        assert!(lies[0].contains(named), "{}", lies[0]);
    }
}

#[test]
fn two_different_rings_are_a_risk_if_nodes_know_one() {
    let text = format!(
        "{GOOD}{}",
        changed(GOOD, "alpha", "beta").replace("10.0.0.2", "h")
    );
    for ring_hash in [RingHash::Nutcracker, RingHash::Pymemcache] {
        let findings = found(&text, &knowing(ring_hash));
        let conflict = the(&findings, "in another ring too");
        assert_eq!(conflict.severity, Severity::Risk);
        assert!(conflict.problem.contains("refuses keys"), "{conflict:?}");
    }
}

#[test]
fn equal_and_disjoint_rings_are_right() {
    for (from, to) in [
        ("127.0.0.1:22121", "127.0.0.1:22122"),
        // ketama does not use the order.
        (
            "    - 10.0.0.1:11211:1 one\n    - 10.0.0.2:11211:1 two\n",
            "    - 10.0.0.2:11211:1 two\n    - 10.0.0.1:11211:1 one\n",
        ),
        ("10.0.0.", "10.0.1."),
    ] {
        assert_eq!(
            problems(&with_second(from, to), Severity::Lies),
            [""; 0],
            "{to}"
        );
    }
}

#[test]
fn a_server_alone_has_one_owner_however_keys_are_hashed() {
    let one = GOOD.replace("    - 10.0.0.2:11211:1 two\n", "");
    let other = one.replace("alpha", "beta").replace("fnv1a_64", "md5");
    let findings = found(&format!("{one}{other}"), &Nodes::default());
    assert_eq!(problems(&findings, Severity::Lies), [""; 0]);
}

#[test]
fn rings_are_compared_across_files() {
    let other = changed(GOOD, "fnv1a_64", "murmur");
    let configs =
        [Config::parse(GOOD, "a.yml"), Config::parse(&other, "b.yml")].map(Result::unwrap);
    let findings = check_all(&configs, &Nodes::default());
    let conflict = the(&findings, "two owners");
    assert_eq!(conflict.place, "b.yml:7: pool `alpha`");
    assert!(conflict.problem.contains("a.yml:7"), "{conflict:?}");
}

#[test]
fn servers_are_read_from_their_end() {
    let read = |text| super::server(text).map(|one| (one.label, one.address, one.weight));
    let owned =
        |label: &str, address: &str, weight| Some((label.to_owned(), address.to_owned(), weight));
    assert_eq!(read("Host:11211:3"), owned("host", "host:11211", 3));
    assert_eq!(read("host:11212:3"), owned("host:11212", "host:11212", 3));
    assert_eq!(read("::1:11212:3 n"), owned("n", "::1:11212", 3));
    assert_eq!(read("/run/x:2 n"), owned("n", "/run/x", 2));
    assert_eq!(read("/run/x:2"), owned("/run/x", "/run/x", 2));
    for bad in ["", "host", "host:1", "host:11211:0", "host:11211:x", "a b"] {
        assert_eq!(read(bad), None, "{bad}");
    }
}

#[test]
fn what_nutcracker_rejects_is_an_error_with_its_line() {
    for (text, expected) in [
        ("a:\n  auto_eject_hosts: yes\n", "x:2: `yes` is neither"),
        ("a:\n  timeout: -1\n", "x:2: `-1` is not a number"),
        (
            "a:\n  distribution: rendezvous\n",
            "x:2: `distribution` is `rendezvous`",
        ),
        ("a:\n  servers: h:1:1\n", "x:2: `servers` is not a list"),
        ("a:\n  servers:\n    - h:1\n", "x:3: server `h:1`"),
        ("a:\n  hash: md5\n  hash: md5\n", "x:3: `hash` is set twice"),
        (
            "a:\n  listen:\n    b: c\n",
            "x:2: `listen` has another form",
        ),
        ("a: 1\n", "x:1: pool `a` is not a map"),
        ("a:\n  hash: md5\na:\n  hash: md5\n", "x:3: a second pool"),
        ("a:\n  hash: md5\n---\nb:\n", "second document"),
        ("a:\n  hash: *b\n", "x:2: "),
        ("a:\n  \"hash: md5\n", "invalid YAML"),
    ] {
        let error = check(text, "x", &Nodes::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
