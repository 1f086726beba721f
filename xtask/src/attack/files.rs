//! Foreign and damaged files in place of the cache's.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::blackbox::content;
use crate::blackbox::http::Connection;
use crate::blackbox::memcached::Client;
use crate::blackbox::scenario::Place;
use crate::blackbox::server::Server;

const SMALL: [&str; 2] = ["--device-size=64MiB", "--device-zone-size=4MiB"];

/// A rejected file is unchanged, in bytes and length.
pub(super) fn foreign_files(place: &Place) -> Result<()> {
    let path = place.folder.join("letter.txt");
    let letter = content("letter", 0, 1_700);
    fs::write(&path, &letter)?;
    let device = format!("--device-path={}", path.display());
    let tiny = format!("--tiny-path={}", path.display());
    for arguments in [
        vec!["serve", &device, SMALL[0], SMALL[1]],
        vec!["format", &device, SMALL[0], SMALL[1]],
        vec![
            "serve",
            &tiny,
            "--strict",
            "--tiny-size=64MiB",
            SMALL[0],
            SMALL[1],
        ],
    ] {
        assert_rejected(place, &arguments)?;
        ensure!(
            fs::read(&path)? == letter,
            "`floe {}` changed the file",
            arguments.join(" ")
        );
    }
    Ok(())
}

/// Data that begins past the place of a superblock.
pub(super) fn behind_a_hole(place: &Place) -> Result<()> {
    let path = place.folder.join("sparse");
    let data = content("sparse", 0, 8_192);
    let mut file = File::create(&path)?;
    file.set_len(64 << 20)?;
    file.seek(SeekFrom::Start(20 << 20))?;
    file.write_all(&data)?;
    drop(file);
    let device = format!("--device-path={}", path.display());
    assert_rejected(place, &["serve", &device, SMALL[0], SMALL[1]])?;
    let mut found = vec![0; data.len()];
    File::open(&path)?.read_exact_at(&mut found, 20 << 20)?;
    ensure!(found == data, "foreign data was changed");
    Ok(())
}

/// Directories, pipes and character devices are rejected, and nothing hangs.
pub(super) fn no_files(place: &Place) -> Result<()> {
    let folder = place.folder.join("folder");
    fs::create_dir(&folder)?;
    let pipe = place.folder.join("pipe");
    let mut make = std::process::Command::new("mkfifo");
    crate::project::run(make.arg(&pipe))?;
    for path in [folder.as_path(), &pipe, Path::new("/dev/null")] {
        let device = format!("--device-path={}", path.display());
        assert_rejected(place, &["serve", &device, SMALL[0], SMALL[1]])
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn assert_rejected(place: &Place, arguments: &[&str]) -> Result<()> {
    let output = place.floe(arguments)?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        matches!(output.status.code(), Some(2 | 3)) && !messages.contains("panicked"),
        "`floe {}`: {}\n{messages}",
        arguments.join(" "),
        output.status
    );
    Ok(())
}

/// `floe check` reports the damage, and S3 is served all the same.
pub(super) fn damaged_tiny(place: &Place) -> Result<()> {
    let server = Server::start(&place.setup(Vec::new()))?;
    let mut client = Client::open(server.memcached)?;
    for number in 0..2_000 {
        client.store("set", &format!("key-{number}"), &[b'v'; 200], None)?;
    }
    drop(client);
    server.stop()?;
    let tiny = place.folder.join("tiny.floe");
    let file = File::options().write(true).open(&tiny)?;
    // Damages both metadata zones, whatever their size, so that no object is recoverable.
    let length = file.metadata()?.len();
    for at in (0..length.min(256 << 20)).step_by(4096) {
        file.write_all_at(&[0x5a; 64], at)?;
    }
    drop(file);
    let data = format!("--data-dir={}", place.folder.display());
    let checked = place.floe(&["check", &data, SMALL[0], SMALL[1]])?;
    // Without superblocks the file is no cache at all, which is not damage.
    let messages = String::from_utf8_lossy(&checked.stderr);
    ensure!(
        matches!(checked.status.code(), Some(3 | 4)) && messages.contains("tiny.floe"),
        "`floe check` over a damaged tiny.floe: {}\n{}{}",
        checked.status,
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    fs::create_dir_all(place.folder.join("origin/demo"))?;
    fs::write(place.folder.join("origin/demo/o"), b"served")?;
    let server = Server::start(&place.setup(Vec::new())).context("with a damaged tiny.floe")?;
    let response = Connection::open(server.s3)?.request("GET", "/demo/o", &[], b"")?;
    ensure!(response.body == b"served", "status {}", response.status);
    server.stop()
}

/// The second copy is used.
pub(super) fn damaged_superblock(place: &Place) -> Result<()> {
    let bucket = place.folder.join("origin/demo");
    fs::create_dir_all(&bucket)?;
    fs::write(bucket.join("o"), b"served")?;
    let setup = place.setup(Vec::new());
    let server = Server::start(&setup)?;
    let get = |server: &Server| -> Result<()> {
        let response = Connection::open(server.s3)?.request("GET", "/demo/o", &[], b"")?;
        ensure!(response.body == b"served", "status {}", response.status);
        Ok(())
    };
    get(&server)?;
    server.stop()?;
    let cache = place.folder.join("cache.floe");
    let file = File::options().write(true).open(&cache)?;
    file.write_all_at(&[0x5a; 4096], 0)?;
    drop(file);
    let server = Server::start(&setup).context("with a damaged first superblock")?;
    get(&server)?;
    server.stop()
}
