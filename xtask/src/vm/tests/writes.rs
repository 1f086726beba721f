//! Crashes between any two writes: the kernel's log of all writes to a disk is replayed up
//! to moments of a load, each without a part of what was not flushed then.
//!
//! One disk has the caches of all engines and a volume's backing device, so that one log
//! has all of their writes in one order.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::load::{KEPT_MIN, PART_SECTORS, PARTS};
use super::service::{Service, Site, Volume, prepare_folders};
use super::stage::Stage;
use crate::blackbox::nbd::Endpoint;
use crate::blackbox::volume_load::{self, Part};
use crate::crash::items::{self, World};
use crate::vm::guest::Guest;

const PATIENCE: Duration = Duration::from_secs(120);

/// The server whose writes are logged.
const LOGGED: Site = Site {
    name: "logged",
    number: 0,
    cache: "logged-cache",
    tiny: Some("logged-tiny"),
    volume: Some(Volume {
        cache: "logged-volume",
        backing: "logged-backing",
        witness: Some("logged-witness"),
    }),
    is_user: false,
};

/// The server that starts after a crash.
const REPLAYED: Site = Site {
    name: "replayed",
    number: 1,
    cache: "replayed-cache",
    tiny: Some("replayed-tiny"),
    volume: Some(Volume {
        cache: "replayed-volume",
        backing: "replayed-backing",
        witness: Some("replayed-witness"),
    }),
    is_user: false,
};

/// Between two rounds, all writes to the volume are flushed, and the log gets a mark.
const ROUNDS: usize = 12;

const ROUND: Duration = Duration::from_millis(700);

const CRASHES: usize = 30;

const ITEM_CONNECTIONS: u64 = 2;

const FIXED_ITEMS: usize = 1_500;

/// Cuts the disk and the disk of replays into slices, the first below the log.
const PREPARE: &str = "
export DM_DISABLE_UDEV=1
for disk in logged replayed writes; do blkdiscard --zeroout /dev/vm/$disk; done
slices() {
  at=0
  for slice in cache=64 tiny=31 volume=16 witness=1 backing=16; do
    name=$2-${slice%=*}
    sectors=$((${slice#*=} * 2048))
    dmsetup create $name --table \"0 $sectors linear $1 $at\"
    ln -sf /dev/mapper/$name /dev/vm/$name
    at=$((at + sectors))
  done
}
sectors=$(blockdev --getsz /dev/vm/logged)
dmsetup create log --table \"0 $sectors log-writes /dev/vm/logged /dev/vm/writes\"
slices /dev/mapper/log logged
slices /dev/vm/replayed replayed
";

const PIN: &str = "taskset -ap -c 0 $(pgrep -f '^[^ ]*floe serve')";

const CLOSE_LOG: &str = "
export DM_DISABLE_UDEV=1
for slice in cache tiny volume witness backing; do dmsetup remove --retry logged-$slice; done
dmsetup remove --retry log
";

/// A load on the logged server, and what it promised at each mark of the log.
struct Load {
    items: World,
    parts: Vec<Part>,
    marks: Vec<Mark>,
}

/// The states that a crash after this moment must leave.
struct Mark {
    items: items::Moment,
    parts: Vec<volume_load::Moment>,
}

impl Load {
    fn new(stage: &Stage) -> Self {
        let part = |number| {
            let server = Endpoint::Tcp(LOGGED.nbd(&stage.machine));
            Part::new(server, number * PART_SECTORS..(number + 1) * PART_SECTORS)
        };
        Load {
            items: World::new(0, FIXED_ITEMS, 300),
            parts: (0..PARTS).map(part).collect(),
            marks: Vec::new(),
        }
    }

    /// Drives all connections for a while, flushes the volume and marks the log.
    fn round(&mut self, stage: &Stage, seed: u64) -> Result<()> {
        let address = LOGGED.memcached(&stage.machine);
        let stop = AtomicBool::new(false);
        let (items, stop) = (&self.items, &stop);
        items.fill(address)?;
        thread::scope(|scope| {
            for number in 0..ITEM_CONNECTIONS {
                scope.spawn(move || items.drive(address, seed ^ number, stop));
            }
            let parts: Vec<_> = (0..)
                .zip(&mut self.parts)
                .map(|(number, part)| scope.spawn(move || drive(part, seed ^ number, stop)))
                .collect();
            thread::sleep(ROUND);
            stop.store(true, Ordering::Relaxed);
            parts.into_iter().try_for_each(|part| {
                let ended = part.join();
                ended.map_err(|_| io::Error::other("a thread of the test panicked"))?
            })
        })
        .context("the load on the volume")?;
        self.items.verdicts.truthful()?;
        self.marks.push(Mark {
            items: self.items.moment(),
            parts: self.parts.iter().map(Part::moment).collect(),
        });
        let mark = format!("dmsetup message log 0 mark round-{}", self.marks.len());
        stage.machine.guest().shell(&mark, PATIENCE).map(drop)
    }

    /// Judges the server of a replay after the mark number `mark`, counted from 1. Returns the
    /// share of the fixed items that is there.
    fn judge(&self, stage: &Stage, mark: usize) -> Result<f64> {
        let mark = &self.marks[mark - 1];
        for (part, then) in self.parts.iter().zip(&mark.parts) {
            let server = Endpoint::Tcp(REPLAYED.nbd(&stage.machine));
            part.since(then, server).verify().context("the volume")?;
        }
        let address = REPLAYED.memcached(&stage.machine);
        let kept = self.items.hits(address, &self.items.fixed)?;
        self.items.judge_since(address, &mark.items)?;
        self.items.verdicts.truthful()?;
        Ok(kept)
    }
}

/// Reads and writes until `stop`, then flushes.
fn drive(part: &mut Part, seed: u64, stop: &AtomicBool) -> io::Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut client = part.connect()?;
    while !stop.load(Ordering::Relaxed) {
        part.step(&mut client, &mut random)?;
    }
    part.drain(&mut client)?;
    part.flush(&mut client)?;
    part.drain(&mut client)
}

/// Logs the writes of a load, and judges the caches that crashes within it leave.
pub(super) fn replays(stage: &Stage) -> Result<()> {
    let guest = stage.machine.guest();
    prepare_folders(&stage.machine)?;
    guest.shell(PREPARE, PATIENCE)?;
    let service = Service::start(stage, LOGGED)?;
    // On one processor flushes end in the order in which they began, as in the log.
    guest.shell(PIN, PATIENCE)?;
    let mut load = Load::new(stage);
    for round in 0..ROUNDS as u64 {
        load.round(
            stage,
            stage.seed.wrapping_mul(1_000_003).wrapping_add(round << 8),
        )?;
    }
    service.kill(&stage.machine)?;
    guest.shell(CLOSE_LOG, PATIENCE)?;
    let (entries, marks) = list(guest)?;
    ensure!(marks.len() == ROUNDS, "the log has {} marks", marks.len());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(stage.seed);
    for crash in 1..=CRASHES {
        // After the first mark, so that the caches are there.
        let at = random.random_range(marks[0] + 1..=entries);
        let seed = random.random();
        let mark = marks.partition_point(|mark| *mark < at);
        let kept = crash_at(stage, &load, at, mark, seed)
            .with_context(|| format!("crash {crash}, after {at} of {entries} entries"))?;
        ensure!(
            kept >= KEPT_MIN,
            "crash {crash}: the restart was not warm: hits {kept:.3}"
        );
    }
    // A drive that says that it has flushed, and has lost what was written since the mark before.
    let lost = crash_at(stage, &load, marks[ROUNDS - 2], ROUNDS, 0);
    let is_lie = |error: &anyhow::Error| {
        let kind = error.root_cause().downcast_ref().map(io::Error::kind);
        kind == Some(io::ErrorKind::InvalidData)
    };
    let found = match lost {
        Err(found) if is_lie(&found) => found,
        Err(other) => return Err(other.context("a replay without the writes of a round")),
        Ok(_) => bail!("the flushed writes of a round were lost, and nothing was found"),
    };
    println!("vm:   flushed writes that were lost on purpose are found: {found:#}");
    println!(
        "vm:   {CRASHES} crashes within {entries} writes and flushes, no lie; seed {}",
        stage.seed
    );
    Ok(())
}

/// Starts a server on what a crash leaves, in what it takes for another boot, and judges it.
fn crash_at(stage: &Stage, load: &Load, entries: usize, mark: usize, seed: u64) -> Result<f64> {
    let disk = "/dev/vm/replayed";
    let replay = format!(
        "rm -rf {}
         blockdev --flushbufs {disk}
         blkdiscard --force --zeroout {disk}
         {} --seed {seed} /dev/vm/writes {disk} {entries}
         blockdev --flushbufs {disk}
         cat /proc/sys/kernel/random/uuid > /tmp/boot
         mount --bind /tmp/boot /proc/sys/kernel/random/boot_id",
        REPLAYED.folder(),
        command("replay"),
    );
    stage.machine.guest().shell(&replay, PATIENCE)?;
    let service = Service::start(stage, REPLAYED)?;
    let judged = load.judge(stage, mark);
    service.kill(&stage.machine)?;
    judged
}

/// The number of entries in the log, and the indexes of its marks.
fn list(guest: Guest) -> Result<(usize, Vec<usize>)> {
    let listed = guest.shell(&format!("{} /dev/vm/writes", command("list")), PATIENCE)?;
    let mut entries = None;
    let mut marks = Vec::new();
    for line in listed.lines() {
        match line.split_once(' ') {
            Some(("entries", count)) => entries = Some(count.parse()?),
            Some((index, mark)) if mark.starts_with("round-") => marks.push(index.parse()?),
            _ => {}
        }
    }
    Ok((entries.context("no number of entries")?, marks))
}

/// The beginning of a command that reads the log; the agent is this program.
fn command(task: &str) -> String {
    format!("/proc/1/exe vm-writes {task}")
}
