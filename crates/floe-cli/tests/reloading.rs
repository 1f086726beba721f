//! SIGHUP: what a running server takes of a changed configuration.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use common::{Serving, floe, get};

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

/// Whether memcached's users have this name and password.
fn authenticates(serving: &Serving, password: &str) -> bool {
    let address = serving.announced["memcached"].as_str().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let value = format!("ann {password}");
    write!(stream, "set x 0 0 {}\r\n{value}\r\n", value.len()).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).is_ok() && &answer == b"STORED"
}

#[test]
fn sighup_takes_what_needs_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "info", "a-first-secret", "one", "");
    let mut command = floe(folder.path());
    command
        .args(["serve", "--json", "--config", "floe.toml"])
        .args(["--s3-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
        .args(["--device-size=16MiB", "--device-zone-size=1MiB"])
        .args(["--chunk-write-buffer=8MiB", "--tiny-enabled=false"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let (serving, stderr) = Serving::read(&mut command);
    let mut log = BufReader::new(stderr).lines();
    let mut said = |part: &str| {
        let found = log
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains(part));
        assert!(found.is_some(), "`{part}` is not logged");
    };
    assert!(authenticates(&serving, "one") && !authenticates(&serving, "two"));

    write(
        folder.path(),
        "debug",
        "a-second-secret",
        "two",
        "[object]\nttl_s = 7\n",
    );
    serving.signal("-HUP");
    said("object.ttl_s");
    said("s3.keys, memcached.auth_file, log.level");
    assert!(authenticates(&serving, "two") && !authenticates(&serving, "one"));

    // A bad configuration changes nothing, and ends nothing.
    for (level, password, rest) in [
        ("loud==", "three", ""),
        ("info", "", ""),
        ("info", "three", "[nonsense]\n"),
    ] {
        write(folder.path(), level, "a-third-secret", password, rest);
        serving.signal("-HUP");
        said("the old one stays in force");
        assert!(authenticates(&serving, "two") && !authenticates(&serving, "three"));
    }
    assert_eq!(get(serving.admin, "/health").0, 200);
    assert_eq!(serving.stop(), 0);
}
