//! SIGHUP: the settings that a running server applies.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStderr, Stdio};
use std::sync::Arc;

use common::{Serving, floe, get};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const SHAPE: &str =
    "[ram]\nsize = \"1MiB\"\n[memcached]\nlisten = \"127.0.0.1:0\"\nauth_file = \"users\"\n";

fn write(folder: &Path, level: &str, secret: &str, password: &str, rest: &str) {
    let keys = format!("[[s3.keys]]\naccess_key = \"me\"\nsecret_key = \"{secret}\"\n");
    let log = format!("[log]\nlevel = \"{level}\"\n");
    fs::write(folder.join("users"), format!("ann:{password}\n")).unwrap();
    fs::write(
        folder.join("floe.toml"),
        format!("{log}{keys}{SHAPE}{rest}"),
    )
    .unwrap();
}

/// True if memcached's users have this name and password.
fn authenticates(serving: &Serving, password: &str) -> bool {
    let address = serving.announced["memcached"].as_str().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let value = format!("ann {password}");
    write!(stream, "set x 0 0 {}\r\n{value}\r\n", value.len()).unwrap();
    let mut response = [0; 6];
    stream.read_exact(&mut response).is_ok() && &response == b"STORED"
}

/// Log lines of a server.
struct Log(Lines<BufReader<ChildStderr>>);

impl Log {
    /// Reads up to a line with `part`, and returns it.
    fn expect(&mut self, part: &str) -> String {
        let mut lines = self.0.by_ref().map(Result::unwrap);
        let found = lines.find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("`{part}` is not logged"))
    }
}

fn start(folder: &Path) -> (Serving, Log) {
    let mut command = floe(folder);
    command
        .env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0")
        .args(["serve", "--json", "--config", "floe.toml"])
        .args(["--s3-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
        .args(["--device-size=16MiB", "--device-zone-size=1MiB"])
        .args(["--chunk-write-buffer=8MiB", "--tiny-enabled=false"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (serving, stderr) = Serving::read(&mut command);
    (serving, Log(BufReader::new(stderr).lines()))
}

#[test]
fn sighup_applies_settings_that_need_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "info", "a-first-secret", "one", "");
    let (serving, mut log) = start(folder.path());
    let mut logs = |part: &str| log.expect(part);
    assert!(authenticates(&serving, "one") && !authenticates(&serving, "two"));

    write(
        folder.path(),
        "debug",
        "a-second-secret",
        "two",
        "[object]\nfetch_window = \"2MiB\"\n",
    );
    serving.signal("-HUP");
    logs("object.fetch_window");
    logs("log.level, memcached.auth_file, s3.keys");
    assert!(authenticates(&serving, "two") && !authenticates(&serving, "one"));

    // An invalid configuration changes nothing, and ends no connection.
    for (level, password, rest) in [
        ("loud==", "three", ""),
        ("info", "", ""),
        ("info", "three", "[nonsense]\n"),
    ] {
        write(folder.path(), level, "a-third-secret", password, rest);
        serving.signal("-HUP");
        logs("the old one stays in effect");
        assert!(authenticates(&serving, "two") && !authenticates(&serving, "three"));
    }
    assert_eq!(get(serving.admin, "/health").0, 200);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn sighup_applies_the_rules_of_objects() {
    let folder = tempfile::tempdir().unwrap();
    let write = |rest: &str| {
        let text = format!(
            "[s3]\nanonymous = \"loopback\"\n[object]\nconsistency = \"immutable\"\n{rest}"
        );
        fs::write(folder.path().join("floe.toml"), text).unwrap();
    };
    write("");
    let object = folder.path().join("floe-data/origin/data/a");
    fs::create_dir_all(object.parent().unwrap()).unwrap();
    fs::write(&object, "old").unwrap();
    let (serving, mut log) = start(folder.path());
    let read = || get(serving.s3, "/data/a").1;
    assert_eq!(read(), b"old");
    fs::write(&object, "newer").unwrap();
    assert_eq!(read(), b"old");
    write("rules = [{ objects = \"data/a\", consistency = \"etag\" }]\n");
    serving.signal("-HUP");
    log.expect("object.rules");
    assert_eq!(read(), b"newer");
    for wrong in [
        "[{ objects = \"\" }]",
        "[{ objects = \"data\", chunk_size = \"1GiB\" }]",
    ] {
        write(&format!("rules = {wrong}\n"));
        serving.signal("-HUP");
        log.expect("the old one stays in effect");
    }
    fs::write(&object, "newest").unwrap();
    assert_eq!(read(), b"newest");
}

const REFUSED: &str = "Too many open connections";

/// Sends a line to memcached over a new connection; returns the response and
/// the connection. Retries while earlier connections still count.
fn ask(serving: &Serving, line: &str, end: &str) -> (String, TcpStream) {
    let address = serving.announced["memcached"].as_str().unwrap();
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        let sent = write!(stream, "{line}\r\n");
        let (mut response, mut byte) = (Vec::new(), [0]);
        while !response.ends_with(end.as_bytes()) && matches!(stream.read(&mut byte), Ok(1)) {
            response.push(byte[0]);
        }
        let response = String::from_utf8(response).unwrap();
        if sent.is_ok() && response.ends_with(end) && !response.contains(REFUSED) {
            return (response, stream);
        }
    }
}

#[test]
fn sighup_applies_limits_and_names_those_that_need_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let write = |memcached: &str, rest: &str| {
        let listen = "listen = \"127.0.0.1:0\"";
        let text =
            format!("[s3]\nanonymous = \"loopback\"\n[memcached]\n{listen}\n{memcached}\n{rest}");
        fs::write(folder.path().join("floe.toml"), text).unwrap();
    };
    write("", "");
    let (serving, mut log) = start(folder.path());
    let settings = |name: &str| {
        let (all, _) = ask(&serving, "stats settings", "END\r\n");
        let line = all
            .lines()
            .find(|line| line.starts_with(&format!("STAT {name} ")));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    let waits = |serving: &Serving| ask(serving, "flush_all", "\r\n").0;
    assert_eq!(
        (settings("maxconns").as_str(), waits(&serving).as_str()),
        ("1024", "OK\r\n")
    );

    write(
        "max_connections = 1\nflush_all = false\nmax_item_size = \"2KiB\"\nmemory = \"1MiB\"",
        "[origin.requests]\nmax_concurrent = 7\nconnect_timeout_ms = 9\n[server]\ndrain_timeout_seconds = 3\n",
    );
    serving.signal("-HUP");
    let waiting = log.expect("need a restart");
    assert!(
        waiting.contains("memcached.max_item_size, origin.requests.connect_timeout_ms"),
        "{waiting}"
    );
    let taken = log.expect("was reloaded");
    let names = "memcached.flush_all, memcached.max_connections, memcached.memory, \
                 origin.requests.max_concurrent, server.drain_timeout_seconds";
    assert!(taken.contains(names), "{taken}");
    assert_eq!(settings("maxconns"), "1");
    assert_ne!(waits(&serving), "OK\r\n");
    let (_, only) = ask(&serving, "get a", "END\r\n");
    // An unread request could make the client lose the response.
    let address = serving.announced["memcached"].as_str().unwrap();
    let mut rejected = String::new();
    let mut silent = TcpStream::connect(address).unwrap();
    silent.read_to_string(&mut rejected).unwrap();
    assert!(rejected.contains(REFUSED), "{rejected}");

    // Restored: a setting with its original value is no longer listed.
    write("", "");
    serving.signal("-HUP");
    let taken = log.expect("was reloaded");
    assert!(taken.contains(names), "{taken}");
    drop(only);
    assert_eq!(serving.stop(), 0);
}

/// Changes every limit that docs/operations.md lists as reloadable.
#[test]
fn sighup_applies_the_limits_that_the_operations_page_lists() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("* limits, time-outs"));
    let settings: Vec<&str> = line.unwrap().split('`').skip(1).step_by(2).collect();
    let folder = tempfile::tempdir().unwrap();
    let base = "s3.anonymous = \"loopback\"\nmemcached.listen = \"127.0.0.1:0\"\n\
                oxcache.path = \"ox.sock\"\noxcache.bucket = \"demo\"\n\
                nbd.listen = \"off\"\nnbd.path = \"nbd.sock\"\n\
                nbd.exports = [{ name = \"d\", kind = \"null\", size = \"1MiB\" }]\n";
    fs::write(folder.path().join("floe.toml"), base).unwrap();
    let (serving, mut log) = start(folder.path());
    let mut text = base.to_owned();
    for setting in &settings {
        let value = match setting.rsplit('_').next().unwrap() {
            "all" => "false",
            "ram.size" | "rate" | "memcached.memory" => "\"9MiB\"",
            "nbd.memory" => "\"64MiB\"",
            "size" => "\"32KiB\"",
            _ => "9",
        };
        text.push_str(&format!("{setting} = {value}\n"));
    }
    fs::write(folder.path().join("floe.toml"), text).unwrap();
    serving.signal("-HUP");
    let taken = log.expect("was reloaded");
    for setting in &settings {
        assert!(taken.contains(setting), "{setting} is not in {taken}");
    }
    assert_eq!(serving.stop(), 0);
}

#[test]
fn sighup_opens_the_access_log_again() {
    let folder = tempfile::tempdir().unwrap();
    let configure = |log: &str| {
        let text = format!("[s3]\nanonymous = \"loopback\"\naccess_log = \"{log}\"\n");
        fs::write(folder.path().join("floe.toml"), text).unwrap();
    };
    configure("none/access.log");
    let arguments = [
        "serve",
        "--config=floe.toml",
        "--s3-listen=127.0.0.1:0",
        "--device-size=16MiB",
        "--device-zone-size=1MiB",
        "--chunk-write-buffer=8MiB",
        "--tiny-enabled=false",
    ];
    let refused = common::run(folder.path(), &arguments);
    refused.expect(2, &["s3.access_log", "none/access.log"]);

    configure("access.log");
    let (serving, mut log) = start(folder.path());
    let path = |name: &str| folder.path().join(name);
    let lines = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    get(serving.s3, "/demo/first");
    while lines("access.log").is_empty() {
        std::thread::yield_now();
    }
    fs::rename(path("access.log"), path("access.log.1")).unwrap();
    serving.signal("-HUP");
    log.expect("was reloaded");
    get(serving.s3, "/demo/second");
    configure("none/access.log");
    serving.signal("-HUP");
    log.expect("the old one stays in effect");
    get(serving.s3, "/demo/third");
    assert_eq!(serving.stop(), 0);
    // The end waits for the lines.
    let keys = |name: &str| -> Vec<String> {
        let text = lines(name);
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let keys = text
            .lines()
            .map(|text| line(text)["key"].as_str().unwrap().to_owned());
        keys.collect()
    };
    assert_eq!(keys("access.log.1"), ["first"]);
    assert_eq!(keys("access.log"), ["second", "third"]);
}

/// Creates a certificate for `localhost` in `folder`; returns what a client must trust.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("certificate.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

type Private = StreamOwned<ClientConnection, TcpStream>;

fn connect(serving: &Serving, trusted: &CertificateDer<'static>) -> Private {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let address = serving.announced["memcached"].as_str().unwrap();
    StreamOwned::new(session, TcpStream::connect(address).unwrap())
}

fn is_served(stream: &mut Private) -> bool {
    let mut response = [0; 5];
    stream.write_all(b"get a\r\n").is_ok() && stream.read_exact(&mut response).is_ok()
}

#[test]
fn sighup_applies_a_new_certificate_and_keeps_the_old_one_if_it_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[s3]\nanonymous = \"loopback\"\n[memcached]\nlisten = \"127.0.0.1:0\"\n\
                tls_certificate = \"certificate.pem\"\ntls_key = \"key.pem\"\n";
    fs::write(folder.path().join("floe.toml"), text).unwrap();
    let first = certify(folder.path());
    let (serving, mut log) = start(folder.path());
    let mut early = connect(&serving, &first);
    assert!(is_served(&mut early));

    let second = certify(folder.path());
    serving.signal("-HUP");
    log.expect("memcached.tls_certificate, memcached.tls_key");
    assert!(is_served(&mut connect(&serving, &second)));
    assert!(!is_served(&mut connect(&serving, &first)));
    assert!(is_served(&mut early), "it goes on with the old certificate");

    let key = folder.path().join("key.pem");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (broken, named) in [
        (other.signing_key.serialize_pem(), "certificate.pem"),
        ("no key".to_owned(), "key.pem"),
    ] {
        fs::write(&key, broken).unwrap();
        serving.signal("-HUP");
        log.expect("the old one stays in effect");
        let cause = log.expect("because");
        assert!(cause.contains(named), "{cause}");
        assert!(is_served(&mut connect(&serving, &second)));
    }
    assert_eq!(serving.stop(), 0);
}
