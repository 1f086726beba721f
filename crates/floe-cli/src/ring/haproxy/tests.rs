use crate::ring::testing::{changed, found, knowing, mode, problems, the};
use crate::ring::{Config, Consistency, Finding, Nodes, RingHash, Severity, check_all};

/// The backend of the tests: nothing to find in mode `etag`.
const S3: &str = "\
defaults
  mode http
  option redispatch
frontend in
  bind :9000
  default_backend s3
backend s3
  balance uri path-only
  hash-type consistent
  option httpchk GET /ready
  default-server check
  server one 10.0.0.1:9000
  server two 10.0.0.2:9000
";

/// One node and its backup.
const BACKUP: &str = "\
defaults
  mode tcp
listen cache
  bind :11211
  server one 10.0.0.1:11300 check inter 1s fall 3
  server two 10.0.0.2:11300 check backup
";

fn etag(text: &str) -> Vec<Finding> {
    found(text, &mode(Consistency::Etag))
}

#[test]
fn a_good_backend_has_no_finding() {
    assert_eq!(etag(S3), []);
    assert_eq!(found(S3, &mode(Consistency::Immutable)), []);
}

#[test]
fn a_backend_with_one_server_is_no_ring() {
    let text =
        changed(S3, "  server two 10.0.0.2:9000\n", "").replace("uri path-only", "roundrobin");
    assert_eq!(etag(&text), []);
}

#[test]
fn a_balance_that_does_not_go_by_path_is_a_risk() {
    let balance = "balance uri path-only";
    for (to, part) in [
        ("", "`balance roundrobin` does not go by path"),
        (
            "balance leastconn",
            "`balance leastconn` does not go by path",
        ),
        ("balance hdr(host)", "does not go by path"),
        ("balance uri", "without `path-only`"),
        ("balance uri whole path-only", "hashes the query too"),
        ("balance uri path-only depth 2", "share one node"),
        ("balance hash pathq", "hashes the query too"),
        (
            "cookie S insert\n  balance uri path-only",
            "`cookie` keeps a client",
        ),
    ] {
        let findings = etag(&changed(S3, balance, to));
        assert_eq!(the(&findings, part).severity, Severity::Risk, "{to}");
        assert_eq!(findings.len(), 1, "{to}: {findings:#?}");
    }
    assert_eq!(etag(&changed(S3, balance, "balance hash path")), []);
    let findings = etag(&changed(S3, balance, "balance hash var(txn.p)"));
    assert_eq!(the(&findings, "var(txn.p)").severity, Severity::Note);
}

/// The severity of the finding with `part` once `from` is replaced.
fn severity(from: &str, to: &str, part: &str) -> Severity {
    the(&etag(&changed(S3, from, to)), part).severity
}

#[test]
fn a_map_based_hash_is_a_risk() {
    let unset = severity("  hash-type consistent\n", "", "its default, `map-based`");
    assert_eq!(unset, Severity::Risk);
    let set = etag(&changed(S3, "consistent", "map-based sdbm avalanche"));
    let moved = the(&set, "nearly all objects");
    assert_eq!(moved.place, "test:9: backend `s3`");
}

#[test]
fn a_node_whose_death_is_not_checked_is_a_risk() {
    let check = "  option httpchk GET /ready\n";
    let findings = [
        severity("  default-server check\n", "", "has no `check`"),
        severity(check, "", "without `option httpchk`"),
        severity("GET /ready", "GET /", "does not ask for /ready"),
    ];
    assert_eq!(findings, [Severity::Risk, Severity::Risk, Severity::Note]);
    let sent = "\n  http-check send meth GET uri /ready?x";
    assert_eq!(etag(&changed(S3, "GET /ready", sent)), []);
}

#[test]
fn spilled_hot_objects_and_lost_requests_are_noted() {
    let hot = etag(&changed(
        S3,
        "hash-type",
        "hash-balance-factor 150\n  hash-type",
    ));
    assert_eq!(the(&hot, "keep copies").severity, Severity::Note);
    let lost = etag(&changed(S3, "  option redispatch\n", ""));
    assert_eq!(the(&lost, "at the same node").severity, Severity::Note);
    let lost = etag(&changed(
        S3,
        "  option redispatch\n",
        "  option redispatch\n  retries 0\n",
    ));
    assert_eq!(the(&lost, "not retried").severity, Severity::Note);
}

#[test]
fn copies_lie_in_mode_ttl() {
    let nodes = mode(Consistency::Ttl);
    let redispatched = found(S3, &nodes);
    assert_eq!(
        the(&redispatched, "`option redispatch`").severity,
        Severity::Lies
    );
    let spilled = changed(
        S3,
        "balance uri path-only",
        "balance random\n  hash-balance-factor 150",
    );
    let spilled = found(&spilled, &nodes);
    assert!(
        the(&spilled, "ttl_seconds")
            .problem
            .contains("`balance`, `hash-balance-factor`")
    );
}

#[test]
fn mode_ttl_lies_if_nodes_are_marked_down() {
    let text = changed(S3, "  option redispatch\n", "");
    // Nodes refuse memcached's keys alone.
    for ring_hash in [RingHash::Off, RingHash::Nutcracker] {
        let nodes = Nodes {
            consistency: Some(Consistency::Ttl),
            ..knowing(ring_hash)
        };
        let findings = found(&text, &nodes);
        assert_eq!(the(&findings, "marked down go to").severity, Severity::Lies);
        let backup = text.replace("two 10.0.0.2:9000", "two 10.0.0.2:9000 backup");
        assert_eq!(
            the(&found(&backup, &nodes), "takes the place of").severity,
            Severity::Lies
        );
        let unchecked = text.replace("  default-server check\n", "");
        assert_eq!(
            problems(&found(&unchecked, &nodes), Severity::Lies),
            [""; 0]
        );
    }
}

#[test]
fn an_unknown_mode_is_noted_and_events_are_a_risk() {
    let findings = found(S3, &Nodes::default());
    assert_eq!(the(&findings, "stale for").severity, Severity::Note);
    let findings = found(S3, &mode(Consistency::Events));
    assert_eq!(the(&findings, "notification").severity, Severity::Risk);
}

#[test]
fn memcached_over_several_servers_lies() {
    for balance in [
        "",
        "  balance source\n",
        "  balance first\n",
        "  balance hash req.payload(0,16)\n",
    ] {
        let text = format!(
            "backend m\n{balance}  server a h:11211\n  server b h2:11211\n  server c h3:11211\n"
        );
        let findings = found(&text, &Nodes::default());
        let lies = the(&findings, "does not read memcached's keys");
        assert_eq!(lies.severity, Severity::Lies);
        assert!(lies.problem.contains("up to 3 owners"), "{lies:?}");
        let knowing = [RingHash::Nutcracker, RingHash::Pymemcache].map(knowing);
        for nodes in &knowing {
            let risks = found(&text, nodes);
            let risk = the(&risks, "does not read memcached's keys");
            let (severity, problem) = (risk.severity, &risk.problem);
            assert_eq!(severity, Severity::Risk);
            assert!(problem.contains("2 of 3 requests"), "{problem}");
        }
    }
}

#[test]
fn memcached_is_known_by_the_port_of_its_frontend_too() {
    let text = "frontend f\n bind 10.0.0.1:80,10.0.0.2:11211\n use_backend m if x\nbackend m\n server a h:1\n server b h:2\n";
    assert_eq!(
        problems(&found(text, &Nodes::default()), Severity::Lies).len(),
        1
    );
    let other = found(&text.replace(":11211", ":81"), &Nodes::default());
    assert_eq!(the(&other, "was not examined").severity, Severity::Note);
}

#[test]
fn a_backup_of_memcached_lies_unless_nodes_know_the_ring() {
    let findings = found(BACKUP, &Nodes::default());
    let lies = the(&findings, "takes the place of");
    assert_eq!(lies.severity, Severity::Lies);
    assert!(lies.cure.contains("`node.ring_hash`"), "{lies:?}");
    for ring_hash in [RingHash::Nutcracker, RingHash::Pymemcache] {
        let findings = found(BACKUP, &knowing(ring_hash));
        assert_eq!(
            the(&findings, "takes the place of").severity,
            Severity::Note
        );
    }
    let unused = found(&BACKUP.replace("check", ""), &Nodes::default());
    assert_eq!(the(&unused, "are not used").severity, Severity::Note);
}

#[test]
fn conditions_are_noted() {
    let findings = etag(&format!("{S3}.if defined(X)\n.endif\n"));
    assert_eq!(the(&findings, "`.if`").place, "test:14");
}

fn both(a: &str, b: &str, nodes: &Nodes) -> Vec<Finding> {
    let configs = [Config::parse(a, "a.cfg"), Config::parse(b, "b.cfg")].map(Result::unwrap);
    check_all(&configs, nodes)
}

#[test]
fn two_rings_over_a_server_are_found_across_files() {
    let swapped = changed(S3, "one 10.0.0.1", "one 10.0.0.3")
        .replace("two 10.0.0.2", "two 10.0.0.1")
        .replace("one 10.0.0.3", "one 10.0.0.2");
    for other in [
        swapped.clone(),
        changed(S3, "consistent", "consistent djb2"),
    ] {
        let findings = both(S3, &other, &mode(Consistency::Etag));
        assert_eq!(
            the(&findings, "in another ring too").severity,
            Severity::Risk
        );
    }
    let findings = both(S3, &swapped, &mode(Consistency::Ttl));
    assert_eq!(
        the(&findings, "in another ring too").severity,
        Severity::Lies
    );
    assert_eq!(both(S3, S3, &mode(Consistency::Etag)), []);
}

#[test]
fn a_way_past_nutcracker_s_ring_lies() {
    let pool = "p:\n  timeout: 1\n  servers:\n    - 10.0.0.1:11300:1 a\n    - 10.0.0.2:11300:1 b\n";
    let past = "listen door\n  bind :11311\n  server one 10.0.0.1:11300\n";
    let findings = both(pool, past, &Nodes::default());
    assert_eq!(the(&findings, "passes the ring").severity, Severity::Lies);
    let elsewhere = past.replace("11300", "11301");
    assert_eq!(
        problems(&both(pool, &elsewhere, &Nodes::default()), Severity::Lies),
        [""; 0]
    );
}
