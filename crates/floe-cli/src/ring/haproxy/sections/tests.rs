use super::{Sections, parse};

#[track_caller]
fn read(text: &str) -> Sections {
    parse(text).unwrap()
}

#[test]
fn sections_inherit_from_the_last_defaults() {
    let sections = read(
        "defaults\n mode http\n balance uri path-only\n option redispatch\n default-server check\n\
         backend a\n server s h:1\n\
         defaults\n mode tcp\n\
         backend b\n server s h:1\n",
    );
    let [a, b] = sections.backends.as_slice() else {
        panic!("{sections:?}");
    };
    assert!(a.settings.http && a.settings.redispatch && a.servers[0].parameters.checked);
    assert_eq!(a.settings.balance, ["uri", "path-only"]);
    assert_eq!(a.settings.lines["balance"], 3);
    assert!(!b.settings.http && !b.settings.redispatch && !b.servers[0].parameters.checked);
}

#[test]
fn sections_inherit_from_named_defaults() {
    let sections = read(
        "defaults web\n mode http\n\
         defaults sticky from web\n cookie X insert\n\
         defaults\n mode tcp\n\
         backend a from sticky\n no option redispatch\n\
         listen b from web\n bind :1\n",
    );
    let [a, b] = sections.backends.as_slice() else {
        panic!("{sections:?}");
    };
    assert!(a.settings.http);
    assert_eq!(a.settings.persistence, Some("cookie"));
    assert!(b.settings.http);
    assert_eq!(b.ports, [1]);
    let error = parse("backend a from nothing\n").unwrap_err();
    assert!(error.problem.contains("no `defaults nothing`"), "{error:?}");
}

#[test]
fn servers_have_their_parameters() {
    let sections = read(
        "backend a\n default-server inter 1s fall 2\n\
         server one ipv4@H:11211 check weight 5 id 7 cookie backup\n\
         server two h2:80 backup no-check fastinter 100 fall 5\n\
         server-template t 2-4 h3:80 check observe layer4 on-error mark-down\n",
    );
    let servers = &sections.backends[0].servers;
    assert_eq!(servers.len(), 5);
    let one = &servers[0];
    assert_eq!((one.address.as_str(), one.port), ("h:11211", Some(11211)));
    // `backup` is the value of `cookie` here.
    assert!(one.parameters.checked && !one.parameters.backup);
    assert_eq!(
        (one.parameters.weight, one.parameters.id),
        (Some(5), Some(7))
    );
    assert!(servers[1].parameters.backup && !servers[1].parameters.checked);
    assert_eq!(servers[4].name, "t4");
    assert!(servers[4].parameters.checked);
}

#[test]
fn values_of_parameters_are_no_parameters() {
    for parameter in ["fall", "fastinter", "inter", "on-error", "verify"] {
        let sections = read(&format!(
            "backend a\n server s h:1 {parameter} backup check\n"
        ));
        let parameters = &sections.backends[0].servers[0].parameters;
        assert!(parameters.checked && !parameters.backup, "{parameter}");
    }
    let sections = read("backend a\n server s h:1 agent-check\n");
    assert!(sections.backends[0].servers[0].parameters.checked);
}

#[test]
fn the_uri_of_a_check_has_two_places() {
    let uris = |text: &str| read(text).backends[0].settings.check_uris.clone();
    assert_eq!(uris("backend a\n option httpchk /x\n"), ["/x"]);
    assert_eq!(uris("backend a\n option httpchk GET /x HTTP/1.1\n"), ["/x"]);
    let sent = "backend a\n option httpchk\n http-check send meth GET uri /y ver HTTP/1.1\n http-check expect status 200\n";
    assert_eq!(uris(sent), ["/y"]);
}

#[test]
fn other_sections_end_a_section() {
    let sections = read("backend a\npeers p\n server x h:1\n balance uri\n");
    assert!(sections.backends[0].servers.is_empty());
}

#[test]
fn bad_lines_are_errors() {
    for (text, line) in [
        ("backend a\n server x\n", 2),
        ("backend a\n server-template x many h:1\n", 2),
        ("backend a\n hash-balance-factor x\n", 2),
        ("backend a\n\n mode \"http\n", 3),
    ] {
        assert_eq!(parse(text).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn a_huge_template_is_bounded() {
    let sections = read("backend a\n server-template x 1-99999999999 h:1\n");
    assert_eq!(
        sections.backends[0].servers.len(),
        super::TEMPLATE_SERVERS_MAX
    );
}
