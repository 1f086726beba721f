//! `floe serve` in the guest.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::blackbox::http::Connection;
use crate::blackbox::server::{SMALL_CHUNK, SMALL_ZONE, VOLUME, volume_flags};
use crate::vm::guest::{Echo, Running};
use crate::vm::machine::{ADMIN_PORT, MEMCACHED_PORT, Machine};
use crate::vm::programs::Programs;

/// The longest life of a server.
const LIFE: Duration = Duration::from_secs(900);

const START_PATIENCE: Duration = Duration::from_secs(180);

/// The server's folder in the guest. It survives a power cut, as a data directory must.
const FOLDER: &str = "/tmp/floe";

/// The disk of [`FOLDER`].
const FOLDER_DISK: &str = "conv-5";

/// A server with memcached, and a volume over NBD. Dropping it kills the server.
pub(super) struct Service(Running);

/// The disks of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disks {
    /// Of the chunk engine.
    pub(super) cache: &'static str,
    /// The cache and the backing device of a volume.
    pub(super) volume: Option<(&'static str, &'static str)>,
    /// Of the tiny engine; a file in memory if `None`.
    pub(super) tiny: Option<&'static str>,
}

impl Disks {
    /// Makes all disks empty, and a file system for the server's folder.
    pub(super) fn prepare(self, machine: &Machine) -> Result<()> {
        let volume = self
            .volume
            .into_iter()
            .flat_map(|(cache, backing)| [cache, backing]);
        for disk in [self.cache].into_iter().chain(self.tiny).chain(volume) {
            let wipe = match is_zoned(disk) {
                true => format!("blkzone reset /dev/vm/{disk}"),
                false => format!("blkdiscard --zeroout /dev/vm/{disk}"),
            };
            machine.guest().shell(&wipe, START_PATIENCE)?;
        }
        let unmount = format!("! mountpoint -q {FOLDER} || umount {FOLDER}");
        let make = format!("{unmount}; mkfs.ext4 -q -F /dev/vm/{FOLDER_DISK}");
        machine.guest().shell(&make, START_PATIENCE).map(drop)
    }
}

impl Service {
    /// Starts the server and waits until it is ready.
    pub(super) fn start(machine: &Machine, programs: &Programs, disks: Disks) -> Result<Self> {
        let path = |disk: &str| format!("/dev/vm/{disk}");
        let floe = programs.word("floe")?;
        let mut flags = vec![
            format!("--data-dir={FOLDER}"),
            format!("--device-path={}", path(disks.cache)),
            format!("--chunk-size={SMALL_CHUNK}"),
            "--ram-size=4MiB".to_owned(),
            "--tiny-ram-size=256KiB".to_owned(),
            format!("--memcached-listen=0.0.0.0:{MEMCACHED_PORT}"),
            "--memcached-anonymous=true".to_owned(),
            format!("--admin-listen=0.0.0.0:{ADMIN_PORT}"),
            "--admin-public=true".to_owned(),
            "--s3-listen=off".to_owned(),
        ];
        match disks.tiny {
            Some(tiny) => flags.push(format!("--tiny-path={}", path(tiny))),
            None => flags.push("--tiny-enabled=false".to_owned()),
        }
        // A zoned drive has its own zones.
        if !is_zoned(disks.cache) {
            flags.push(format!("--device-zone-size={SMALL_ZONE}"));
        }
        if disks.tiny.is_some_and(|tiny| !is_zoned(tiny)) {
            flags.push("--tiny-zone-size=64KiB".to_owned());
        }
        if let Some((cache, backing)) = disks.volume {
            flags.push(format!("--volumes-path={}", path(cache)));
            flags.extend(volume_flags(path(backing).as_ref(), "write-back", "128MiB"));
        }
        let guest = machine.guest();
        let mount = format!(
            "mkdir -p {FOLDER}; mountpoint -q {FOLDER} || mount /dev/vm/{FOLDER_DISK} {FOLDER}"
        );
        guest.shell(&mount, START_PATIENCE)?;
        let mut words = vec![floe, "serve"];
        words.extend(flags.iter().map(String::as_str));
        let service = Service(guest.start(&words, LIFE, Echo::Keep)?);
        let began = Instant::now();
        let is_ready = || {
            let response = Connection::open(machine.admin)
                .and_then(|mut connection| connection.request("GET", "/ready", &[], b""));
            response.is_ok_and(|response| response.status == 200)
        };
        while !is_ready() {
            if service.0.has_ended() || began.elapsed() > START_PATIENCE {
                service.0.wait()?;
                bail!("the server in the guest ended before it was ready");
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(service)
    }

    /// Ends the server by SIGTERM. Its status must be 0.
    pub(super) fn stop(self, machine: &Machine) -> Result<()> {
        machine
            .guest()
            .shell("kill -TERM $(pidof floe)", START_PATIENCE)?;
        self.0.wait().map(drop)
    }
}

fn is_zoned(disk: &str) -> bool {
    disk.starts_with("zns-")
}

/// Connects the volume to `/dev/nbd0` by the kernel's client.
pub(super) fn connect_volume(machine: &Machine) -> Result<()> {
    let script = format!("nbd-client -unix {FOLDER}/nbd.sock -N {VOLUME} -b 512 /dev/nbd0");
    machine.guest().shell(&script, START_PATIENCE).map(drop)
}
