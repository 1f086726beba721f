//! Volumes whose devices are full: clients get errors, no data is wrong, and the
//! server starts again.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::disk::Disk;
use crate::blackbox::nbd::Endpoint;
use crate::blackbox::scenario::{ENVIRONMENT, Place};
use crate::blackbox::sectors::SECTOR_BYTES;
use crate::blackbox::server::{Server, volume_flags};
use crate::blackbox::volume_load::Part;
use crate::project::Outcome;

/// Three times the cache.
const VOLUME_BYTES: u64 = 48 << 20;

/// Space of the disk that is left at first.
const FREE_BYTES: u64 = 8 << 20;

const CACHE_SIZE: &str = "16MiB";
const CACHE_BYTES: u64 = 16 << 20;
const STEPS: u32 = 2_000;

/// The device whose file system is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Full {
    Backing,
    Cache,
}

/// The file system of the backing file is full.
pub(super) fn backing_full(place: &Place) -> Result<Outcome> {
    in_each_mode(place, Full::Backing)
}

/// The file system of the cache file is full.
pub(super) fn cache_full(place: &Place) -> Result<Outcome> {
    in_each_mode(place, Full::Cache)
}

fn in_each_mode(place: &Place, full: Full) -> Result<Outcome> {
    for mode in ["write-back", "write-through"] {
        let outcome = one_mode(place, full, mode).with_context(|| mode.to_owned())?;
        if outcome != Outcome::Passed {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Passed)
}

fn one_mode(place: &Place, full: Full, mode: &str) -> Result<Outcome> {
    let disk = match Disk::mount(&place.folder)? {
        Ok(disk) => disk,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let ballast = disk.folder.join("ballast");
    let folder_of = |device| match full == device {
        true => &disk.folder,
        false => &place.folder,
    };
    let backing = folder_of(Full::Backing).join(format!("backing-{mode}"));
    let cache = folder_of(Full::Cache).join(format!("cache-{mode}"));
    fs::File::create(&backing)?.set_len(VOLUME_BYTES)?;
    let mut flags = volume_flags(&backing, mode, CACHE_SIZE);
    flags.push(format!("--volumes-path={}", cache.display()));
    if full == Full::Cache {
        // A new file gets its space at once, or none.
        let flags = flags.iter().map(String::as_str);
        let serve: Vec<&str> = ["serve"].into_iter().chain(flags).collect();
        fill_disk(&ballast)?;
        let says = ["cannot create the cache", "--volumes-size"];
        place.assert_fails(&serve, ENVIRONMENT, &says)?;
        ensure!(!cache.exists(), "the rejected cache left a file");
        fs::File::create(&cache)?.set_len(CACHE_BYTES)?;
    }
    let setup = place.setup(flags);
    let sectors = 0..VOLUME_BYTES / SECTOR_BYTES as u64;
    let mut part = Part::new(Endpoint::Unix(place.folder.join("nbd.sock")), sectors);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);

    let server = Server::start(&setup)?;
    if full == Full::Backing {
        fill_disk(&ballast)?;
    }
    let mut client = part.connect()?;
    part.fill(&mut client)?;
    for _ in 0..STEPS {
        part.step(&mut client, &mut random)?;
    }
    part.flush(&mut client)?;
    part.drain(&mut client)?;
    let failed = part.counts.errors;
    drop(client);
    // With the cache written through, the backing device has it all.
    let may_fail = full == Full::Backing || mode == "write-back";
    ensure!(
        (failed > 0) == may_fail,
        "{failed} requests failed on a full disk"
    );
    part.verify().context("on a full disk")?;
    server.stop()?;

    let server = Server::start(&setup).context("starting on a full disk")?;
    part.verify().context("after a restart on a full disk")?;
    server.kill()?;

    fs::remove_file(&ballast)?;
    let server = Server::start(&setup).context("starting with free space")?;
    part.verify().context("after a restart with free space")?;
    let failed = part.counts.errors;
    let mut client = part.connect()?;
    part.fill(&mut client)?;
    part.flush(&mut client)?;
    part.drain(&mut client)?;
    ensure!(part.counts.errors == failed, "writes fail with free space");
    drop(client);
    part.verify().context("after new writes")?;
    server.stop()?;
    Ok(Outcome::Passed)
}

/// Writes `ballast` until it takes all space of the disk but [`FREE_BYTES`].
fn fill_disk(ballast: &Path) -> Result<()> {
    const PIECE_BYTES: usize = 256 << 10;
    let mut file = fs::File::create(ballast)?;
    let mut len = 0;
    while file.write_all(&[1; PIECE_BYTES]).is_ok() {
        len += PIECE_BYTES as u64;
    }
    file.set_len(len - FREE_BYTES)?;
    Ok(file.sync_all()?)
}
