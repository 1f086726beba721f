//! Scenarios on a small file system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::answers::{get, same};
use crate::blackbox::origin::{OBJECT_BYTES, Origin};
use crate::blackbox::scenario::{ENVIRONMENT, Place};
use crate::blackbox::server::Server;
use crate::project::{self, Outcome};

/// Size of the file system, including its metadata.
const DISK_MIB: u64 = 128;

/// The cache is much larger than its disk. Values that cannot be written are
/// not cached, every response is correct, and freed space is used.
pub(super) fn full(place: &Place) -> Result<Outcome> {
    // Zone by zone, and slot by slot.
    for policy in ["zplru", "clru"] {
        let outcome = full_under(place, policy).with_context(|| policy.to_owned())?;
        if outcome != Outcome::Passed {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Passed)
}

fn full_under(place: &Place, policy: &str) -> Result<Outcome> {
    // Twice the capacity of the rest of the disk.
    const OBJECTS: usize = (DISK_MIB << 20) as usize / OBJECT_BYTES;
    const FEW: usize = OBJECTS / 20;
    const BALLAST_MIB: u64 = DISK_MIB / 2;
    let disk = match Disk::mount(&place.folder)? {
        Ok(disk) => disk,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let ballast = disk.folder.join("ballast");
    fs::write(&ballast, vec![1; (BALLAST_MIB << 20) as usize])?;
    let origin = Origin::start()?;
    let mut setup = place.setup(origin.flags());
    setup.cache_size = "512MiB".to_owned();
    setup.more.push(format!("--chunk-eviction={policy}"));
    setup.more.push(format!(
        "--device-path={}",
        disk.folder.join("cache.floe").display()
    ));
    let server = Server::start(&setup)?;
    let key = |index: usize| format!("object-{index}");
    let read = |server: &Server, count: usize| -> Result<u64> {
        let before = origin.requests();
        for index in 0..count {
            same(&get(server, &key(index))?, &key(index), 0).context(key(index))?;
        }
        Ok(origin.requests() - before)
    };
    read(&server, OBJECTS)?;
    let counted = |name| server.metric(name, &[""]);
    ensure!(
        counted("floe_chunk_write_errors_total")? > 0.0,
        "nothing told that the disk was full"
    );
    // Values that fit the rest of the disk are still cached, zone by zone.
    read(&server, FEW)?;
    let missed = read(&server, FEW)?;
    // A slot has the size of the largest value, but takes only as much of the
    // disk as was written to it: little may fit when slots are rewritten.
    ensure!(
        policy == "clru" || missed * 4 <= FEW as u64,
        "{missed} of {FEW} reads went to the origin while there was room for all"
    );
    fs::remove_file(&ballast)?;
    read(&server, OBJECTS).context("after space was freed")?;
    server.stop()?;
    let server = Server::start(&setup).context("starting on a full disk")?;
    read(&server, OBJECTS).context("after a restart")?;
    server.stop()?;
    Ok(Outcome::Passed)
}

/// Preallocation detects at startup that the disk is too small, and takes no space.
pub(super) fn too_small(place: &Place) -> Result<Outcome> {
    let disk = match Disk::mount(&place.folder)? {
        Ok(disk) => disk,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let path = disk.folder.join("cache.floe");
    let flag = format!("--device-path={}", path.display());
    place.assert_fails(
        &[
            "serve",
            &flag,
            "--device-size=512MiB",
            "--device-zone-size=4MiB",
            "--device-preallocate=true",
        ],
        ENVIRONMENT,
        &["512MiB", "free", "size", "cache.floe"],
    )?;
    let left = fs::metadata(&path).map_or(0, |found| found.len());
    ensure!(left == 0, "the rejected cache left a file of {left} bytes");
    Ok(Outcome::Passed)
}

/// A small file system, unmounted on drop.
pub(super) struct Disk {
    pub(super) folder: PathBuf,
}

impl Disk {
    /// An ext4 in a file if possible, otherwise a tmpfs. The inner error says
    /// why neither is possible.
    pub(super) fn mount(place: &Path) -> Result<Result<Disk, String>> {
        if fs::metadata("/proc/self")?.uid() != 0 {
            return Ok(Err("only root can mount a file system".to_owned()));
        }
        let folder = place.join("disk");
        fs::create_dir_all(&folder)?;
        if Self::mount_ext4(place, &folder).is_err() {
            let mut command = Command::new("mount");
            command
                .args(["-t", "tmpfs", "-o", &format!("size={DISK_MIB}m"), "tmpfs"])
                .arg(&folder);
            if let Err(error) = project::output(&mut command) {
                return Ok(Err(format!("no file system can be mounted: {error:#}")));
            }
        }
        Ok(Ok(Disk { folder }))
    }

    fn mount_ext4(place: &Path, folder: &Path) -> Result<()> {
        let image = place.join("disk.img");
        fs::File::create(&image)?.set_len(DISK_MIB << 20)?;
        // Reserves no blocks for root, who runs the server here.
        let mut make = Command::new("mkfs.ext4");
        project::output(make.args(["-q", "-m", "0"]).arg(&image))?;
        let mut mount = Command::new("mount");
        project::output(mount.args(["-o", "loop"]).arg(&image).arg(folder))?;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A killed server may still use it: then the kernel unmounts it later.
        let mut unmount = Command::new("umount");
        if let Err(error) = project::output(unmount.arg("--lazy").arg(&self.folder)) {
            eprintln!("faults: {} stays mounted: {error:#}", self.folder.display());
        }
    }
}
