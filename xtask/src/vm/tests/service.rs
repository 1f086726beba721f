//! `floe serve` in the guest.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::stage::Stage;
use crate::blackbox::http::Connection;
use crate::blackbox::server::{SMALL_CHUNK, SMALL_ZONE, VOLUME, volume_flags};
use crate::vm::guest::{Echo, Running};
use crate::vm::machine::{Machine, SERVER_PORT, SERVER_PORTS};

/// The longest life of a server.
const LIFE: Duration = Duration::from_secs(3600);

const START_PATIENCE: Duration = Duration::from_secs(180);

/// The servers' folder in the guest. It survives a power cut, as a data directory must.
const FOLDER: &str = "/tmp/floe";

/// The disk of [`FOLDER`].
const FOLDER_DISK: &str = "conv-5";

/// The caches of a server, by the names of their disks. Those of passthrough end in
/// `.char`, or in `.serial` if the drive's serial number names them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) name: &'static str,
    /// Sites that serve at once have different numbers, from 0 to 2.
    pub(super) number: u16,
    /// Of the chunk engine.
    pub(super) cache: &'static str,
    /// Of the tiny engine, if it is on.
    pub(super) tiny: Option<&'static str>,
    pub(super) volume: Option<Volume>,
    /// The server runs as the user `floe`, without capabilities.
    pub(super) is_user: bool,
}

/// A volume, by the names of its disks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volume {
    pub(super) cache: &'static str,
    pub(super) backing: &'static str,
    /// By default a file in the server's folder.
    pub(super) witness: Option<&'static str>,
}

impl Volume {
    pub(super) const fn new(cache: &'static str, backing: &'static str) -> Self {
        Volume {
            cache,
            backing,
            witness: None,
        }
    }
}

/// Runs a command as the systemd unit would.
pub(super) const AS_USER: &[&str] = &[
    "prlimit",
    "--memlock=unlimited",
    "setpriv",
    "--reuid=floe",
    "--regid=floe",
    "--clear-groups",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--no-new-privs",
];

/// The frontends of a site.
#[derive(Clone, Copy, Debug)]
enum Frontend {
    Memcached,
    Admin,
    Nbd,
}

impl Site {
    /// Makes all disks empty.
    pub(super) fn prepare(self, machine: &Machine) -> Result<()> {
        let volume = self.volume.map(|volume| [volume.cache, volume.backing]);
        let own = [Some(self.cache), self.tiny].into_iter().flatten();
        for disk in own.chain(volume.into_iter().flatten()) {
            blank(machine, disk)?;
        }
        Ok(())
    }

    /// The server's folder in the guest.
    pub(super) fn folder(self) -> String {
        format!("{FOLDER}/{}", self.number)
    }

    fn port(self, frontend: Frontend) -> u16 {
        SERVER_PORT + self.number * SERVER_PORTS + frontend as u16
    }

    /// The host's address of memcached.
    pub(super) fn memcached(self, machine: &Machine) -> SocketAddr {
        machine.address(self.port(Frontend::Memcached))
    }

    /// The host's address of NBD.
    pub(super) fn nbd(self, machine: &Machine) -> SocketAddr {
        machine.address(self.port(Frontend::Nbd))
    }

    /// A response of the admin frontend.
    pub(super) fn admin(self, machine: &Machine, path: &str) -> Result<(u16, String)> {
        let mut connection = Connection::open(machine.address(self.port(Frontend::Admin)))?;
        let response = connection.request("GET", path, &[], b"")?;
        let body = String::from_utf8_lossy(&response.body).into_owned();
        Ok((response.status, body))
    }

    pub(super) fn flags(self) -> Vec<String> {
        let path = |disk: &str| match disk.strip_suffix(BY_SERIAL) {
            Some(disk) => {
                let (serial, namespace) = disk.rsplit_once('-').unwrap_or((disk, "1"));
                format!("nvme:{serial}:{namespace}")
            }
            None => format!("/dev/vm/{disk}"),
        };
        let listen = |frontend| format!("0.0.0.0:{}", self.port(frontend));
        let mut flags = vec![
            format!("--data-dir={}", self.folder()),
            format!("--device-path={}", path(self.cache)),
            format!("--chunk-size={SMALL_CHUNK}"),
            "--ram-size=4MiB".to_owned(),
            "--tiny-ram-size=256KiB".to_owned(),
            format!("--memcached-listen={}", listen(Frontend::Memcached)),
            "--memcached-anonymous=true".to_owned(),
            format!("--admin-listen={}", listen(Frontend::Admin)),
            "--admin-public=true".to_owned(),
            "--s3-listen=off".to_owned(),
        ];
        match self.tiny {
            Some(tiny) => flags.push(format!("--tiny-path={}", path(tiny))),
            None => flags.push("--tiny-enabled=false".to_owned()),
        }
        // A zoned drive has its own zones.
        if !is_zoned(self.cache) {
            flags.push(format!("--device-zone-size={SMALL_ZONE}"));
        }
        // Small set-groups, so that most items are on flash.
        match self.tiny {
            Some(tiny) if is_zoned(tiny) => {
                flags.push("--tiny-nemo-set-group-pages=16".to_owned());
            }
            Some(_) => flags.push("--tiny-zone-size=64KiB".to_owned()),
            None => {}
        }
        if let Some(volume) = self.volume {
            let backing = path(volume.backing);
            flags.extend(volume_flags(backing.as_ref(), "write-back", "8MiB"));
            flags.retain(|flag| flag != "--nbd-listen=off");
            flags.push(format!("--nbd-listen={}", listen(Frontend::Nbd)));
            flags.push("--nbd-anonymous=true".to_owned());
            flags.push(format!("--volumes-path={}", path(volume.cache)));
            let witness = volume.witness.map(path);
            flags.extend(witness.map(|path| format!("--volumes-witness={path}")));
        }
        flags
    }
}

/// Wipes a disk of the guest.
pub(super) fn blank(machine: &Machine, disk: &str) -> Result<()> {
    let disk = disk
        .trim_end_matches(PASSTHROUGH)
        .trim_end_matches(BY_SERIAL);
    let wipe = match is_zoned(disk) {
        true => format!("blkzone reset /dev/vm/{disk}"),
        false => format!("blkdiscard --zeroout /dev/vm/{disk}"),
    };
    machine.guest().shell(&wipe, START_PATIENCE).map(drop)
}

/// A file system for the folders of servers.
pub(super) fn prepare_folders(machine: &Machine) -> Result<()> {
    let unmount = format!("! mountpoint -q {FOLDER} || umount {FOLDER}");
    let make = format!("{unmount}; mkfs.ext4 -q -F /dev/vm/{FOLDER_DISK}");
    machine.guest().shell(&make, START_PATIENCE).map(drop)
}

/// A server with memcached, and a volume over NBD. Dropping it kills the server.
pub(super) struct Service {
    site: Site,
    running: Running,
}

impl Service {
    /// Starts the server and waits until it is ready.
    pub(super) fn start(stage: &Stage, site: Site) -> Result<Self> {
        Service::start_with(stage, site, "")
    }

    /// The same, with further `options` of its volume.
    pub(super) fn start_with(stage: &Stage, site: Site, options: &str) -> Result<Self> {
        let service = Service::spawn_with(stage, site, options)?;
        let began = Instant::now();
        let is_ready = || {
            let response = site.admin(&stage.machine, "/ready");
            response.is_ok_and(|(status, _)| status == 200)
        };
        while !is_ready() {
            if service.running.has_ended() || began.elapsed() > START_PATIENCE {
                service.running.wait()?;
                bail!("the server in the guest ended before it was ready");
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(service)
    }

    /// Starts all servers at once, and waits until they are ready.
    pub(super) fn start_all(stage: &Stage, sites: &[Site]) -> Result<Vec<Self>> {
        on_each(sites, |site| Service::start(stage, *site))
    }

    /// Starts the server.
    pub(super) fn spawn(stage: &Stage, site: Site) -> Result<Self> {
        Service::spawn_with(stage, site, "")
    }

    fn spawn_with(stage: &Stage, site: Site, options: &str) -> Result<Self> {
        let folder = site.folder();
        // Servers may start at once.
        let mount = format!(
            "exec 9>/tmp/floe.lock; flock 9; mkdir -p {FOLDER}; \
             mountpoint -q {FOLDER} || mount /dev/vm/{FOLDER_DISK} {FOLDER}; mkdir -p {folder}"
        );
        let guest = stage.machine.guest();
        guest.shell(&mount, START_PATIENCE)?;
        let mut flags = site.flags();
        for flag in flags
            .iter_mut()
            .filter(|flag| flag.starts_with("--volume="))
        {
            flag.push_str(options);
        }
        let mut words = Vec::new();
        if site.is_user {
            guest.shell(&format!("chown floe {folder}"), START_PATIENCE)?;
            words.extend(AS_USER);
        }
        words.extend([stage.floe()?, "serve", "--strict"]);
        words.extend(flags.iter().map(String::as_str));
        let running = guest.start(&words, LIFE, Echo::Keep)?;
        Ok(Service { site, running })
    }

    /// True if the server has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Ends the server by SIGTERM. Its status must be 0. Returns its log.
    pub(super) fn stop(self, machine: &Machine) -> Result<String> {
        self.signal(machine, "TERM")?;
        self.running.wait()
    }

    /// Kills the server.
    pub(super) fn kill(self, machine: &Machine) -> Result<()> {
        self.signal(machine, "KILL")?;
        let ended = self.running.wait();
        match ended {
            Ok(_) => bail!("the server ended before it was killed"),
            Err(_) => Ok(()),
        }
    }

    fn signal(&self, machine: &Machine, signal: &str) -> Result<()> {
        let folder = self.site.folder();
        let kill =
            format!("pkill -{signal} -f -- '^[^ ]*floe serve --strict --data-dir={folder} '");
        machine.guest().shell(&kill, START_PATIENCE).map(drop)
    }
}

/// Runs `act` on all at once.
pub(super) fn on_each<T: Sync, R: Send>(
    all: &[T],
    act: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(|| act(one))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<R>>| {
            let ended = thread.join();
            ended.map_err(|_| anyhow::anyhow!("a thread of the test panicked"))?
        };
        threads.into_iter().map(join).collect()
    })
}

/// The end of the name of a disk's character device.
const PASSTHROUGH: &str = ".char";

/// The end of the name of a disk that is found by the serial number of its drive, likewise by
/// passthrough.
const BY_SERIAL: &str = ".serial";

fn is_zoned(disk: &str) -> bool {
    disk.starts_with("zns-") || disk == "zloop"
}

/// Connects a site's volume to `/dev/nbd0` by the kernel's client.
pub(super) fn connect_volume(machine: &Machine, site: Site) -> Result<()> {
    let folder = site.folder();
    let script = format!("nbd-client -unix {folder}/nbd.sock -N {VOLUME} -b 512 /dev/nbd0");
    machine.guest().shell(&script, START_PATIENCE).map(drop)
}
