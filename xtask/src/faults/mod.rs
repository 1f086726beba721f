//! `cargo xtask faults`: bad input, an ill origin, a damaged device, given to
//! the real server. It must answer clearly, keep serving, and never lie.

mod disk;
mod origin;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::origin::{Mood, OBJECT_BYTES, Origin};
use crate::blackbox::content;
use crate::blackbox::http::{Connection, Response};
use crate::blackbox::server::{SMALL_CHUNK, SMALL_ZONE, Server, Setup, log_tail};
use crate::project::{self, Outcome, Profile};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only the scenarios whose names contain one of these words.
    pub only: Vec<String>,
    /// Use the debug build.
    #[arg(long)]
    pub debug: bool,
    /// Use this binary instead of building one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Fail where a scenario is not possible on this machine.
    #[arg(long)]
    pub require: bool,
}

type Scenario = fn(&Place) -> Result<Outcome>;

const SCENARIOS: &[(&str, Scenario)] = &[
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
    ("junk on the wire", |p| passed(junk(p))),
];

/// Most scenarios are possible everywhere.
fn passed(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Passed)
}

/// Runs every scenario, even where one fails.
pub fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        // Started from other folders, too.
        Some(given) => given
            .canonicalize()
            .with_context(|| given.display().to_string())?,
        None => project::build_floe(Profile::from_flag(options.debug))?,
    };
    let mut failed = Vec::new();
    for (name, scenario) in SCENARIOS {
        if !options.only.is_empty() && !options.only.iter().any(|word| name.contains(word.as_str()))
        {
            continue;
        }
        let folder = tempfile::Builder::new()
            .prefix("faults-")
            .tempdir_in(project::scratch()?)?;
        let place = Place {
            binary: binary.clone(),
            folder: folder.path().to_path_buf(),
        };
        match scenario(&place) {
            Ok(Outcome::Passed) => println!("faults: {name}: as it should be"),
            Ok(skipped) => skipped.settle(&format!("faults: {name}"), options.require)?,
            Err(error) => {
                println!(
                    "faults: {name}: FAILED: {error:#}\n{}",
                    log_tail(&place.folder)
                );
                failed.push(*name);
            }
        }
    }
    ensure!(
        failed.is_empty(),
        "{} scenarios failed: {}",
        failed.len(),
        failed.join("; ")
    );
    Ok(())
}

/// A scenario's binary and its own folder.
struct Place {
    binary: PathBuf,
    folder: PathBuf,
}

impl Place {
    fn setup(&self, more: Vec<String>) -> Setup {
        Setup {
            binary: self.binary.clone(),
            data_dir: self.folder.clone(),
            cache_size: "64MiB".to_owned(),
            zone_size: SMALL_ZONE,
            chunk_size: SMALL_CHUNK,
            ram_size: "0".to_owned(),
            consistency: "immutable",
            more,
        }
    }

    /// Runs `floe` with `arguments` until it ends by itself.
    fn floe(&self, arguments: &[&str]) -> Result<Output> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let mut child = Command::new(&self.binary)
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                bail!("`floe {}` neither refused nor ended", arguments.join(" "));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(child.wait_with_output()?)
    }

    /// `floe` must refuse with `status` and an error that contains `words`.
    fn refuses(&self, arguments: &[&str], status: i32, words: &[&str]) -> Result<()> {
        let output = self.floe(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(status),
            "expected exit status {status}, got {}:\n{said}",
            output.status
        );
        for word in words {
            ensure!(
                said.contains(word),
                "the error does not say {word:?}:\n{said}"
            );
        }
        ensure!(!said.contains("panicked"), "it panicked:\n{said}");
        Ok(())
    }
}

/// Wrong usage or configuration.
const USAGE: i32 = 2;
/// The machine is in the way.
const ENVIRONMENT: i32 = 3;

fn unknown_setting(place: &Place) -> Result<()> {
    fs::write(
        place.folder.join("bad.toml"),
        "[device]\nzone_sise = \"64MiB\"\n",
    )?;
    place.refuses(
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
    place.refuses(&flags, USAGE, &["chunk.size", "8MiB"])
}

fn device_too_small(place: &Place) -> Result<()> {
    place.refuses(&["serve", "--device-size=1MiB"], USAGE, &["1MiB", "device"])
}

fn foreign_data(place: &Place) -> Result<()> {
    let path = place.folder.join("precious");
    let precious = content("precious", 0, 64 << 20);
    fs::write(&path, &precious)?;
    let flag = format!("--device-path={}", path.display());
    place.refuses(
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
    place.refuses(&flags, ENVIRONMENT, &[&address])
}

fn origin_down(place: &Place) -> Result<()> {
    let origin = Origin::start()?;
    let server = Server::start(&place.setup(origin.flags()))?;
    origin.be(Mood::Down);
    let response = get(&server, "a")?;
    ensure!(
        (500..600).contains(&response.status),
        "status {} while the origin is down",
        response.status
    );
    ensure!(
        text(&response).contains("<Code>"),
        "no S3 error: {}",
        text(&response)
    );
    origin.be(Mood::Well);
    same(&get(&server, "a")?, "a", 0).context("after the origin came back")?;
    origin.be(Mood::Down);
    same(&get(&server, "a")?, "a", 0).context("a hit while the origin is down")?;
    server.stop()
}

fn origin_slow(place: &Place) -> Result<()> {
    let origin = Origin::start()?;
    let server = Server::start(&place.setup(origin.flags()))?;
    origin.be(Mood::Slow(Duration::from_secs(5)));
    let began = Instant::now();
    let response = get(&server, "a")?;
    let took = began.elapsed();
    ensure!(
        (500..600).contains(&response.status),
        "status {} from a slow origin",
        response.status
    );
    ensure!(
        took < Duration::from_secs(10),
        "two attempts of 1 s each took {took:?}"
    );
    origin.be(Mood::Well);
    same(&get(&server, "a")?, "a", 0).context("after the origin woke up")?;
    server.stop()
}

fn origin_short(place: &Place) -> Result<()> {
    let origin = Origin::start()?;
    let server = Server::start(&place.setup(origin.flags()))?;
    origin.be(Mood::Short);
    for _ in 0..3 {
        // A broken connection is an honest answer, a shorter object is not.
        if let Ok(response) = get(&server, "a")
            && response.status == 200
        {
            same(&response, "a", 0).context("while bodies break off")?;
        }
    }
    origin.be(Mood::Well);
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
    origin.be(Mood::Changing);
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
    origin.be(Mood::Well);
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

/// Flips a bit in every written block but those of the two metadata zones.
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
    let origin = Origin::start()?;
    let server = Server::start(&place.setup(origin.flags()))?;
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
            // The server may hang up before it has read everything.
            let _ = stream.write_all(piece);
            let _ = stream.read(&mut [0; 1024]);
        }
    }
    same(&get(&server, "a")?, "a", 0).context("after the junk")?;
    server.stop()
}

fn get(server: &Server, key: &str) -> Result<Response> {
    Ok(Connection::open(server.s3)?.request("GET", &format!("/bucket/{key}"), &[], b"")?)
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// `response` must be the whole of version `version` of `key`.
fn same(response: &Response, key: &str, version: u32) -> Result<()> {
    ensure!(
        response.status == 200,
        "status {}: {}",
        response.status,
        text(response)
    );
    let wanted = content(&format!("/bucket/{key}"), version, OBJECT_BYTES);
    ensure!(
        response.body == wanted,
        "wrong bytes ({} of them)",
        response.body.len()
    );
    Ok(())
}
