//! `cargo xtask faults`: invalid input, a misbehaving origin and a damaged
//! device, against the real server. It must give clear errors, keep serving,
//! and never return wrong bytes.

mod answers;
mod disk;
mod volumes;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::answers::{get, same, server_error};
use crate::blackbox::content;
use crate::blackbox::origin::{Behaviour, Origin};
use crate::blackbox::scenario::{self, ENVIRONMENT, Options, Place, Scenario, USAGE, passed};
use crate::blackbox::server::Server;

const SCENARIOS: &[Scenario] = &[
    ("an unknown setting", |p| passed(unknown_setting(p))),
    ("a chunk larger than a zone", |p| passed(chunk_over_zone(p))),
    ("a device that is too small", |p| {
        passed(device_too_small(p))
    }),
    ("a device with foreign data", |p| passed(foreign_data(p))),
    ("a port that is taken", |p| passed(port_taken(p))),
    ("an origin that is down", |p| passed(origin_down(p))),
    ("an origin that is slow", |p| passed(origin_slow(p))),
    ("an origin whose bodies break off", |p| {
        passed(origin_short(p))
    }),
    ("an origin whose objects change", |p| {
        passed(origin_changing(p))
    }),
    ("flash that returns other bytes", |p| {
        passed(flash_corrupted(p))
    }),
    ("a disk that is full", disk::full),
    ("a disk too small for a preallocated cache", disk::too_small),
    (
        "a volume whose backing file cannot grow",
        volumes::backing_full,
    ),
    ("a volume whose cache file cannot grow", volumes::cache_full),
    ("junk on the wire", |p| passed(junk(p))),
];

/// Runs all scenarios, even after a failure.
pub fn run(options: &Options) -> Result<()> {
    scenario::run("faults", SCENARIOS, options)
}

fn unknown_setting(place: &Place) -> Result<()> {
    fs::write(
        place.folder.join("bad.toml"),
        "[device]\nzone_sise = \"64MiB\"\n",
    )?;
    place.assert_fails(
        &["config", "check", "bad.toml"],
        USAGE,
        &["zone_sise", "zone_size", "bad.toml:2"],
    )
}

fn chunk_over_zone(place: &Place) -> Result<()> {
    let flags = [
        "serve",
        "--device-size=1GiB",
        "--device-zone-size=4MiB",
        "--chunk-size=8MiB",
    ];
    place.assert_fails(&flags, USAGE, &["chunk.size", "8MiB"])
}

fn device_too_small(place: &Place) -> Result<()> {
    let zones = &["use zones of at least 128KiB (device.zone_size)"];
    place.assert_fails(&["serve", "--device-size=1MiB"], USAGE, zones)?;
    let device = &["a device of at least 768KiB (device.size)"];
    place.assert_fails(&["serve", "--device-size=512KiB"], USAGE, device)
}

fn foreign_data(place: &Place) -> Result<()> {
    let path = place.folder.join("precious");
    let precious = content("precious", 0, 64 << 20);
    fs::write(&path, &precious)?;
    let flag = format!("--device-path={}", path.display());
    place.assert_fails(
        &["serve", &flag, "--device-zone-size=4MiB"],
        ENVIRONMENT,
        &["precious"],
    )?;
    ensure!(fs::read(&path)? == precious, "foreign data was changed");
    Ok(())
}

fn port_taken(place: &Place) -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let flag = format!("--s3-listen={address}");
    let flags = [
        "serve",
        "--device-size=64MiB",
        "--device-zone-size=4MiB",
        &flag,
        "--memcached-listen=off",
        "--admin-listen=127.0.0.1:0",
    ];
    place.assert_fails(&flags, ENVIRONMENT, &[&address])
}

fn behind_origin(place: &Place) -> Result<(Origin, Server)> {
    let origin = Origin::start()?;
    let server = Server::start(&place.setup(origin.flags()))?;
    Ok((origin, server))
}

fn origin_down(place: &Place) -> Result<()> {
    let (origin, server) = behind_origin(place)?;
    origin.be(Behaviour::Down);
    server_error(&get(&server, "a")?).context("while the origin is down")?;
    origin.be(Behaviour::Well);
    same(&get(&server, "a")?, "a", 0).context("after the origin came back")?;
    origin.be(Behaviour::Down);
    same(&get(&server, "a")?, "a", 0).context("a hit while the origin is down")?;
    server.stop()
}

fn origin_slow(place: &Place) -> Result<()> {
    let (origin, server) = behind_origin(place)?;
    origin.be(Behaviour::Slow(Duration::from_secs(5)));
    let began = Instant::now();
    server_error(&get(&server, "a")?).context("from a slow origin")?;
    let took = began.elapsed();
    ensure!(
        took < Duration::from_secs(10),
        "two attempts of 1 s each took {took:?}"
    );
    origin.be(Behaviour::Well);
    same(&get(&server, "a")?, "a", 0).context("after the origin woke up")?;
    server.stop()
}

fn origin_short(place: &Place) -> Result<()> {
    let (origin, server) = behind_origin(place)?;
    origin.be(Behaviour::Short);
    for _ in 0..3 {
        // A broken connection is allowed, a shorter object is not.
        if let Ok(response) = get(&server, "a")
            && response.status == 200
        {
            same(&response, "a", 0).context("while bodies break off")?;
        }
    }
    origin.be(Behaviour::Well);
    same(&get(&server, "a")?, "a", 0).context("after the origin recovered")?;
    let before = origin.requests();
    same(&get(&server, "a")?, "a", 0)?;
    ensure!(origin.requests() == before, "a whole object was not cached");
    server.stop()
}

fn origin_changing(place: &Place) -> Result<()> {
    const READS: usize = 40;
    let origin = Origin::start()?;
    let mut setup = place.setup(origin.flags());
    setup.consistency = "etag";
    let server = Server::start(&setup)?;
    origin.be(Behaviour::Changing);
    for _ in 0..READS {
        let since = origin.version();
        let Ok(response) = get(&server, "a") else {
            continue;
        };
        if response.status == 200 {
            let one_version = (since..=origin.version()).any(|v| same(&response, "a", v).is_ok());
            ensure!(
                one_version,
                "an answer is none of the versions {since} to {}",
                origin.version()
            );
        }
    }
    origin.be(Behaviour::Well);
    same(&get(&server, "a")?, "a", origin.version()).context("after the changes ended")?;
    server.stop()
}

fn flash_corrupted(place: &Place) -> Result<()> {
    const OBJECTS: usize = 20;
    let origin = Origin::start()?;
    let setup = place.setup(origin.flags());
    let server = Server::start(&setup)?;
    let key = |index: usize| format!("object-{index}");
    for index in 0..OBJECTS {
        same(&get(&server, &key(index))?, &key(index), 0)?;
    }
    server.stop()?;
    let server = Server::start(&setup)?; // nothing is left in write buffers
    let damaged = damage(&place.folder.join("cache.floe"))?;
    ensure!(damaged > 0, "found nothing to damage");
    let before = origin.requests();
    for index in 0..OBJECTS {
        same(&get(&server, &key(index))?, &key(index), 0).context("from damaged flash")?;
    }
    ensure!(
        origin.requests() > before,
        "damaged flash was believed, or was not read"
    );
    server.stop()
}

/// Flips a bit in every written block outside the two metadata zones.
fn damage(cache: &Path) -> Result<u64> {
    const BLOCK: usize = 4096;
    const METADATA_BYTES: u64 = 2 * (4 << 20);
    let mut file = fs::File::options().read(true).write(true).open(cache)?;
    let length = file.metadata()?.len();
    let mut block = vec![0; BLOCK];
    let (mut at, mut damaged) = (METADATA_BYTES, 0);
    while at + BLOCK as u64 <= length {
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut block)?;
        if block.iter().any(|byte| *byte != 0) {
            block[BLOCK / 3] ^= 0x10;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&block)?;
            damaged += 1;
        }
        at += BLOCK as u64;
    }
    file.sync_all()?;
    Ok(damaged)
}

fn junk(place: &Place) -> Result<()> {
    let (_origin, server) = behind_origin(place)?;
    let pieces: [&[u8]; 5] = [
        b"\0\xff\xfe\x01 nothing that is HTTP\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /b/k HTTP/1.1\r\nHost: x\r\nRange: bytes=18446744073709551615-0\r\n\r\n",
        b"GET /%zz%00%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    for piece in pieces {
        for address in [server.s3, server.admin] {
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_millis(300)))?;
            // The server may close the connection before it has read everything.
            let _ = stream.write_all(piece);
            let _ = stream.read(&mut [0; 1024]);
        }
    }
    same(&get(&server, "a")?, "a", 0).context("after the junk")?;
    server.stop()
}
