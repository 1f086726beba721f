use super::*;
use crate::config::Anonymous;
use s3::AccessKey;

fn parse(text: &str) -> Result<ServerConfig, String> {
    let config: ServerConfig = toml::from_str(text).map_err(|e| e.to_string())?;
    config.validate().map_err(|e| e.to_string())?;
    Ok(config)
}

#[test]
fn a_small_configuration_gets_defaults() {
    let config = parse(
        "[s3]\nlisten = \"127.0.0.1:0\"\n[[s3.keys]]\naccess_key = \"AK\"\nsecret_key = \"long enough\"\n\
         [oxcache]\npath = \"/run/ox\"\nbucket = \"b\"\n[admin]\n",
    )
    .unwrap();
    let s3 = config.s3.unwrap();
    assert_eq!(s3.anonymous, Anonymous::Rejected);
    assert_eq!(s3.max_connections, 4096);
    assert_eq!(config.oxcache.unwrap().max_pipeline, 64);
    assert_eq!(config.admin.unwrap().listen.port(), 9100);
}

/// A section `[nbd]` with an export and one more setting.
fn nbd(name: &str, kind: &str, size: &str, more: &str) -> String {
    let export = format!("{{ name = \"{name}\", kind = \"{kind}\", size = \"{size}\" }}");
    format!("[nbd]\n{more}\nexports = [{export}]\n")
}

/// A section `[s3]` with a key and a policy.
fn policy(text: &str) -> String {
    let key = "[[s3.keys]]\naccess_key = \"AK\"\nsecret_key = \"long enough\"\n";
    format!("{key}[[s3.policies]]\naccess = \"read\"\n{text}\n")
}

#[test]
fn invalid_configurations_are_rejected_with_setting_and_remedy() {
    for (text, named) in [
        ("", "no frontend is configured"),
        ("[s3]\n", "s3.anonymous = true"),
        ("[s3]\nanonymos = true\n", "anonymos"),
        ("[s3]\nanonymous = \"sometimes\"\n", "loopback"),
        (
            "[s3]\nanonymous = \"loopback\"\nlisten = \"0.0.0.0:9000\"\n",
            "other machines",
        ),
        (
            "[s3]\nanonymous = true\nmax_connections = 0\n",
            "s3.max_connections",
        ),
        (
            "[s3]\nanonymous = true\nmax_header_size = \"1KiB\"\n",
            "s3.max_header_size",
        ),
        (
            "[s3]\nanonymous = true\ndomains = [\"*.a\"]\n",
            "s3.domains",
        ),
        (
            "[s3]\n[[s3.keys]]\naccess_key = \"AK\"\nsecret_key = \"short\"\n",
            "s3.keys[0]",
        ),
        (
            &policy("key = \"other\"\nbuckets = [\"*\"]"),
            "`other` is no access key",
        ),
        (
            &policy("key = \"AK\"\nbuckets = []"),
            "s3.policies[0]: buckets is empty",
        ),
        (
            &policy("key = \"AK\"\nbuckets = [\"b*\"]"),
            "`b*` is no name of a bucket",
        ),
        (
            &policy("key = \"AK\"\nbuckets = [\"*\"]\nprefixes = [\"\"]"),
            "a prefix is empty",
        ),
        (
            &policy("key = \"AK\"\nbuckets = [\"*\"]\nprefix = [\"a\"]"),
            "unknown field `prefix`",
        ),
        (
            &policy("key = \"anonymous\"\nbuckets = [\"*\"]"),
            "s3.anonymous is false",
        ),
        (
            "[memcached]\nlisten = \"0.0.0.0:11211\"\n",
            "memcached.anonymous = true",
        ),
        (
            "[memcached]\nlisten = \"[2001:db8::1]:11211\"\n",
            "other machines",
        ),
        (
            "[memcached]\nlisten = \"off\"\npath = \"/run/m\"\nanonymous = false\n",
            "memcached.auth_file",
        ),
        (
            "[admin]\nlisten = \"0.0.0.0:9100\"\n",
            "admin.public = true",
        ),
        ("[nbd]\nlisten = \"off\"\n", "nbd.path is empty"),
        (
            &nbd("a", "memory", "4KiB", "listen = \"0.0.0.0:1\""),
            "nbd.anonymous = true",
        ),
        (
            &nbd("a", "memory", "4KiB", "anonymous = false"),
            "nbd.tls_client_ca",
        ),
        (&nbd("a", "memory", "4KiB", "tls = \"required\""), "nbd.tls"),
        (
            &nbd("a", "memory", "4KiB", "tls_key = \"k\""),
            "nbd.tls_certificate",
        ),
        (
            &nbd("a", "memory", "4KiB", "memory = \"32MiB\""),
            "nbd.memory",
        ),
        (
            &nbd("a", "memory", "4KiB", "max_request_size = \"33MiB\""),
            "nbd.max_request_size",
        ),
        (
            &nbd("a", "memory", "4KiB", "max_requests = 0"),
            "nbd.max_requests",
        ),
        (&nbd("", "memory", "4KiB", ""), "needs a name"),
        (&nbd("a", "memory", "1KiB", ""), "multiple of 4KiB"),
        (&nbd("a", "disk", "4KiB", ""), "unknown variant"),
        ("[oxcache]\npath = \"/run/ox\"\n", "oxcache.bucket"),
        ("[oxcache]\nbucket = \"b\"\n", "oxcache.path"),
        (
            "[oxcache]\npath = \"/x\"\nbucket = \"b\"\nmax_read_size = \"4GiB\"\n",
            "oxcache.max_read_size",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn allowed_open_frontends_are_listed() {
    let config = parse(
        "[memcached]\nlisten = \"0.0.0.0:11211\"\nanonymous = true\n\
         [admin]\nlisten = \"192.0.2.1:9100\"\npublic = true\n\
         [s3]\nlisten = \"0.0.0.0:9000\"\nanonymous = true\n",
    )
    .unwrap();
    let exposed = config.exposed();
    let settings: Vec<_> = exposed.iter().map(|e| e.setting).collect();
    assert_eq!(
        settings,
        ["s3.anonymous", "memcached.anonymous", "admin.public"]
    );
    assert!(exposed[1].to_string().contains("0.0.0.0:11211"));
    let guarded = parse(
        "[memcached]\nlisten = \"0.0.0.0:11211\"\nauth_file = \"/etc/users\"\n\
         [admin]\nlisten = \"[::ffff:127.0.0.1]:9100\"\npublic = true\n",
    );
    assert_eq!(guarded.unwrap().exposed(), []);
    let open = nbd(
        "a",
        "null",
        "4KiB",
        "listen = \"0.0.0.0:1\"\nanonymous = true",
    );
    assert_eq!(parse(&open).unwrap().exposed()[0].setting, "nbd.anonymous");
}

#[test]
fn anonymous_is_written_three_ways() {
    for (written, expected) in [
        ("true", Anonymous::Served),
        ("false", Anonymous::Rejected),
        ("\"loopback\"", Anonymous::OnLoopback),
    ] {
        let s3: S3Config = toml::from_str(&format!("anonymous = {written}")).unwrap();
        assert_eq!(s3.anonymous, expected);
        let again: S3Config = toml::from_str(&toml::to_string(&s3).unwrap()).unwrap();
        assert_eq!(again, s3);
    }
}

#[test]
fn secrets_are_not_printed() {
    let key = AccessKey::new("AK", "top secret");
    assert!(!format!("{key:?}").contains("top"));
}
