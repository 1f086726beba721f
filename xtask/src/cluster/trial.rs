//! One trial: a cluster under load, with one failure after another.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::faults::{Cluster, DETECTION, FAULTS, Fault, PAIRS, Window, calm};
use super::history::Stale;
use super::load::{ClientOptions, Failed, KINDS, Kind, Load, Served};
use super::mix::{Mixes, Protocol};
use super::network::{Machine, NODES, PROXIES};
use super::objects::{self, Signing};
use super::programs::{self, NUTCRACKER, Node, Program, S3, shipped};

/// A cluster under load.
pub(super) struct Trial {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) protocol: Protocol,
    pub(super) setup: Setup,
    /// It must return a replaced value: a test of the test.
    pub(super) lies: bool,
}

/// A program in front of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Nutcracker,
    Haproxy,
    Envoy,
}

/// The configurations of a cluster.
pub(super) struct Setup {
    /// Of the proxies.
    pub(super) proxy: (Proxy, &'static str),
    /// Of the nodes; `None` for the defaults.
    pub(super) node: Option<&'static str>,
    /// Further options of the nodes.
    pub(super) more: &'static [&'static str],
    pub(super) etcd: bool,
}

/// The next failure of a trial.
enum Turn {
    One(Fault),
    Two([Fault; 2]),
}

/// How long a trial is, and of what load.
#[derive(Clone, Copy)]
pub(super) struct Length<'a> {
    /// Failures of machines before memcached's clients, and before those of S3.
    pub(super) faults: [usize; 2],
    /// The longest failure in milliseconds, without etcd and with it: leases take their time.
    pub(super) longest_ms: [u64; 2],
    /// Some failures are of two machines at once.
    pub(super) has_pairs: bool,
    /// The load goes on, and the failures with it, until so many operations are done.
    pub(super) operations: u64,
    /// The recorded mixes, if there are any.
    pub(super) mixes: Option<&'a Mixes>,
    /// Seed of the load and the failures.
    pub(super) seed: u64,
}

/// The largest part of reads, of writes and of connections that may fail beyond it.
const LATE_SHARE_MAX: f64 = 0.01;

/// The time in which a planted bug must be found.
const PLANTED_TIME: Duration = Duration::from_secs(60);

/// How long attempts are judged during the first failure and after it.
const JUDGED: Duration = Duration::from_millis(1500);

const CLIENTS: usize = 6;

/// The trial of the proxy that lets hot objects spill, and what its configuration then says. It
/// is a comment in the shipped one.
pub(super) const SPILLING: &str = "spilling";
const SPILLING_LINE: &str = "hash-balance-factor 150";

/// The least part of reads that another node must serve where objects spill.
const SPILLED_MIN: f64 = 0.01;

/// The longest time without an answered write, failures included.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The time after the last failure in which the clients of each proxy must write again.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// The figures of a trial.
pub(super) struct Summary {
    operations: u64,
    /// Attempts of each kind that began beyond the detection of every failure.
    judged: [u64; KINDS.len()],
    hit_share: f64,
    refused: u64,
    /// Reads.
    failed: usize,
    /// Those of keys of a node that was down, where no other node has these.
    failed_down: usize,
    /// Further attempts of each kind that failed when proxies must have noticed a failure.
    failed_late: [usize; KINDS.len()],
    faults: usize,
    /// Failures during which another one began or ended.
    overlapping: usize,
    takeovers: Vec<Duration>,
    found: Option<Duration>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(time) = self.found {
            return write!(
                f,
                "the planted bug was found after {:.1} s",
                time.as_secs_f64()
            );
        }
        write!(
            f,
            "{} operations, {} failures of machines, {} of them beside another, 0 stale reads; {:.0} % of \
             reads hit, {} writes refused, {} reads failed, {} of them beyond a failure's detection \
             ({:.2} % of {} reads), and {:.2} % of {} writes and {:.2} % of {} connections{}",
            self.operations,
            self.faults,
            self.overlapping,
            self.hit_share * 100.0,
            self.refused,
            self.failed,
            self.failed_late[Kind::Read as usize],
            self.late_share(Kind::Read) * 100.0,
            self.judged[Kind::Read as usize],
            self.late_share(Kind::Write) * 100.0,
            self.judged[Kind::Write as usize],
            self.late_share(Kind::Open) * 100.0,
            self.judged[Kind::Open as usize],
            match self.failed_down {
                0 => String::new(),
                count => format!(", {count} for keys of a node that was down"),
            },
        )?;
        let seconds = self.takeovers.iter().map(Duration::as_secs_f64);
        match (seconds.clone().reduce(f64::min), seconds.reduce(f64::max)) {
            (Some(least), Some(most)) => {
                write!(f, "; others took over after {least:.1} to {most:.1} s")
            }
            _ => Ok(()),
        }
    }
}

impl Summary {
    /// The part of the attempts of a kind beyond a failure's detection that failed.
    fn late_share(&self, kind: Kind) -> f64 {
        let kind = kind as usize;
        self.failed_late[kind] as f64 / self.judged[kind].max(1) as f64
    }
}

impl Trial {
    /// Runs the trial, and returns its figures.
    ///
    /// # Errors
    /// A read was stale, too many failed, or the planted bug was not found.
    pub(super) fn run(&self, length: Length<'_>, binary: &Path, folder: &Path) -> Result<Summary> {
        println!("cluster: {}: {}", self.name, self.about);
        let mut cluster = self.start(binary, folder)?;
        programs::wait_for_ring(&cluster.nodes)?;
        if self.protocol == Protocol::S3 {
            objects::strangers_are_refused()?;
        }
        let recorded = length.mixes.map(|mixes| mixes.of(self.protocol));
        let load = Load::new(self.protocol, recorded);
        let port = match self.protocol {
            Protocol::Memcached => NUTCRACKER,
            Protocol::S3 => S3,
        };
        let began = Instant::now();
        let windows = std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let proxy = PROXIES[client % PROXIES.len()].address();
                let options = ClientOptions {
                    proxy: SocketAddr::from((proxy, port)),
                    place: client % PROXIES.len(),
                    signing: Signing::of_client(client),
                    is_recorded: client >= CLIENTS / 2,
                    seed: length.seed * 1000 + client as u64,
                };
                let load = &load;
                scope.spawn(move || load.client(options));
            }
            let windows = self.trouble(&mut cluster, &load, length, began);
            load.ended.store(true, Relaxed);
            windows
        })?;
        let wrong = load.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let owners = match self.is_fixed() && wrong.is_none() {
            true => cluster.owners(&load.failed_keys())?,
            false => HashMap::new(),
        };
        let found = self.lies.then(|| began.elapsed());
        let mut summary = summary(&load, &windows, &owners, found);
        summary.takeovers = cluster.takeovers;
        match (wrong.as_ref(), self.lies) {
            (Some(error), true) if error.is::<Stale>() => Ok(summary),
            (None, true) => bail!("the planted bug was not found"),
            (Some(error), _) => bail!(
                "{error:#}, {:.1} s after the start; failures: {}",
                began.elapsed().as_secs_f64(),
                shown(&windows, began)
            ),
            (None, false) => {
                let judged = self.judge(&load, &windows, length, summary);
                // A proxy says when it thought that a node had failed.
                let said = cluster.proxies.iter().map(Program::log_tail);
                judged.with_context(|| said.collect::<Vec<_>>().join("\n"))
            }
        }
    }

    /// True if the keys of a node that is down have no other one.
    fn is_fixed(&self) -> bool {
        self.setup.proxy.1 == "nutcracker.yml"
    }

    fn judge(
        &self,
        load: &Load<'_>,
        windows: &[Window],
        length: Length<'_>,
        summary: Summary,
    ) -> Result<Summary> {
        ensure!(summary.hit_share > 0.2, "few reads hit: {summary}");
        for kind in KINDS {
            ensure!(
                summary.late_share(kind) <= LATE_SHARE_MAX,
                "too many attempts failed, of kind {kind:?}: {summary}"
            );
        }
        // Some failures of the long form outlast a lease.
        ensure!(
            !(self.setup.etcd && length.has_pairs && summary.takeovers.is_empty()),
            "no node took the keys of another one over: {summary}"
        );
        // Envoy's ring has more points for each node when one is away, which moves objects of
        // others.
        if self.setup.proxy.0 == Proxy::Haproxy {
            unmoved(load, windows, self.name == SPILLING)?;
        }
        Ok(summary)
    }

    fn start(&self, binary: &Path, folder: &Path) -> Result<Cluster> {
        let etcd = self.setup.etcd.then(|| programs::etcd(folder, &[]));
        let etcd = etcd.transpose()?;
        let origin = folder.join("origin");
        std::fs::create_dir_all(origin.join("bucket"))?;
        let nodes = NODES
            .iter()
            .zip([7, 0, -7])
            .map(|(&machine, minutes_off)| Node {
                machine,
                binary: binary.to_owned(),
                folder: folder.to_owned(),
                config: self.setup.node.map(shipped),
                s3_keys: (self.protocol == Protocol::S3).then(objects::keys),
                more: self.options(&origin, machine),
                minutes_off,
            });
        let nodes: Vec<Node> = nodes.collect();
        let running = nodes.iter().map(|node| node.start().map(Some));
        let running = running.collect::<Result<Vec<_>>>()?;
        let (proxy, config) = self.setup.proxy;
        let mut config = shipped(config);
        if self.name == SPILLING {
            let text = std::fs::read_to_string(&config)?;
            let comment = format!("# {SPILLING_LINE}");
            ensure!(text.contains(&comment), "it lacks `{comment}`: {text}");
            config = folder.join("spilling.cfg");
            std::fs::write(&config, text.replace(&comment, SPILLING_LINE))?;
        }
        let start = match proxy {
            Proxy::Nutcracker => programs::nutcracker,
            Proxy::Haproxy => programs::haproxy,
            Proxy::Envoy => programs::envoy,
        };
        let proxies = PROXIES
            .iter()
            .map(|&machine| start(machine, &config, folder));
        Ok(Cluster {
            proxies: proxies.collect::<Result<_>>()?,
            nodes,
            running,
            etcd,
            takeovers: Vec::new(),
        })
    }

    /// The options of a node besides its configuration.
    fn options(&self, origin: &Path, machine: Machine) -> Vec<String> {
        let mut options = vec!["--origin-root".to_owned(), origin.display().to_string()];
        options.extend(self.setup.more.iter().map(|&option| option.to_owned()));
        if self.protocol == Protocol::S3 {
            options.extend(programs::peers(machine.address().into()));
        }
        options
    }

    /// Single failures in turn. With pairs, one of them follows every three; Envoy's trial begins
    /// where HAProxy's, which is too short for all pairs, ends.
    fn turn_of(&self, turn: usize, length: Length<'_>) -> Turn {
        const SINGLES: usize = FAULTS.len() / 2;
        let (round, place) = (turn / (SINGLES + 1), turn % (SINGLES + 1));
        let first = if self.setup.proxy.0 == Proxy::Envoy {
            3
        } else {
            0
        };
        match length.has_pairs && !self.lies {
            false => Turn::One(FAULTS[turn % FAULTS.len()]),
            true if place < SINGLES => Turn::One(FAULTS[(round * SINGLES + place) % FAULTS.len()]),
            true => Turn::Two(PAIRS[(round + first) % PAIRS.len()]),
        }
    }

    /// One failure after another, until the load ends by itself or there were enough.
    fn trouble(
        &self,
        cluster: &mut Cluster,
        load: &Load<'_>,
        length: Length<'_>,
        began: Instant,
    ) -> Result<Vec<Window>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(length.seed);
        let longest_ms = length.longest_ms[usize::from(self.setup.etcd)];
        let mut windows = Vec::new();
        let has_time = |windows: &[Window]| match self.lies {
            true => began.elapsed() < PLANTED_TIME,
            false => {
                let operations = load.counts.operations.load(Relaxed);
                windows.len() < length.faults[usize::from(self.protocol == Protocol::S3)]
                    || operations < length.operations
            }
        };
        calm(load, Duration::from_secs(3));
        // Until the first failure's begin is noticed.
        load.excuse(DETECTION);
        let judged_before = load.judged();
        for turn in 0.. {
            if !has_time(&windows) || load.ended.load(Relaxed) {
                break;
            }
            ensure!(
                load.silence() < SILENCE_MAX,
                "no write was answered for {} s; failures: {}",
                SILENCE_MAX.as_secs(),
                shown(&windows, began)
            );
            let node = rng.random_range(0..cluster.nodes.len());
            let mut time = Duration::from_millis(rng.random_range(1000..longest_ms));
            let mut pause = Duration::from_millis(rng.random_range(1000..longest_ms / 2));
            if turn == 0 && !self.lies {
                // Attempts beyond the detection of its begin, and of its end, are judged.
                time = time.max(DETECTION + JUDGED);
                pause = DETECTION + JUDGED;
            }
            match self.turn_of(turn, length) {
                Turn::One(fault) => windows.push(cluster.suffer(fault, node, time, load)?),
                Turn::Two(faults) => {
                    let other =
                        (node + rng.random_range(1..cluster.nodes.len())) % cluster.nodes.len();
                    windows.extend(cluster.suffer_both(faults, [node, other], time, load)?);
                }
            }
            calm(load, pause);
        }
        let mut judged = load.judged().into_iter().zip(judged_before);
        ensure!(
            self.lies || load.ended.load(Relaxed) || judged.all(|(after, before)| after > before),
            "no read or no write during or after a failure was judged"
        );
        if !self.lies && !load.ended.load(Relaxed) {
            programs::wait_for_ring(&cluster.nodes)?;
            let whole = Instant::now();
            calm(load, Duration::from_secs(1));
            while !load.has_written_since(whole) && !load.ended.load(Relaxed) {
                ensure!(
                    whole.elapsed() < RECOVERY_MAX,
                    "the clients of a proxy write nothing {} s after the last failure",
                    RECOVERY_MAX.as_secs()
                );
                calm(load, Duration::from_millis(50));
            }
        }
        Ok(windows)
    }
}

fn summary(
    load: &Load<'_>,
    windows: &[Window],
    owners: &HashMap<usize, usize>,
    found: Option<Duration>,
) -> Summary {
    let counts = &load.counts;
    let failed = counts.failed.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |kind: Kind| failed.iter().filter(move |one| one.kind == kind);
    let is_down = |one: &&Failed| windows.iter().any(|window| window.explains(one, owners));
    let down = of(Kind::Read).filter(is_down).count();
    let late = |kind| {
        of(kind)
            .filter(|one| one.is_judged && !is_down(one))
            .count()
    };
    let overlaps = |window: &&Window| {
        windows.iter().any(|other| {
            other.began != window.began && other.began < window.ended && window.began < other.ended
        })
    };
    let (reads, hits) = (counts.reads.load(Relaxed), counts.hits.load(Relaxed));
    Summary {
        operations: counts.operations.load(Relaxed),
        judged: KINDS.map(|kind| counts.judged[kind as usize].load(Relaxed)),
        hit_share: hits as f64 / reads.max(1) as f64,
        refused: counts.refused.load(Relaxed),
        failed: of(Kind::Read).count(),
        failed_down: down,
        failed_late: KINDS.map(late),
        faults: windows.len(),
        overlapping: windows.iter().filter(overlaps).count(),
        takeovers: Vec::new(),
        found,
    }
}

/// The failures, by seconds since `began`, for a message.
fn shown(windows: &[Window], began: Instant) -> String {
    let all = windows.iter().map(|window| {
        let at = |when: Instant| when.saturating_duration_since(began).as_secs_f64();
        let (from, to) = (at(window.began), at(window.ended));
        let name = NODES[window.node].name;
        format!("{:?} of {name} from {from:.1} s to {to:.1} s", window.fault)
    });
    all.collect::<Vec<_>>().join(", ")
}

/// The largest share of requests for objects whose node had not failed that another node served,
/// or that had no answer: a check of HAProxy may time out on a busy machine.
const MOVED_MAX: f64 = 0.001;

/// A read that began so shortly before the first failure may have met it.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Objects of nodes that did not fail were served by the same node throughout, and no request for
/// one failed. Where objects spill, others must have served them, too.
fn unmoved(load: &Load<'_>, windows: &[Window], spills: bool) -> Result<()> {
    let served = load
        .served_by
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(first) = windows.first() else {
        return Ok(());
    };
    let mut owners = vec![None; load.keys];
    let is_early = |one: &&Served| one.when + UNDER_WAY < first.began;
    for one in served.iter().filter(is_early) {
        owners[one.key] = Some(one.node.clone());
    }
    let has_failed = |owner: &str, when: Instant| {
        windows.iter().any(|window| {
            let near = window.began..window.ended + DETECTION;
            NODES[window.node].name == owner && near.contains(&when)
        })
    };
    let mut stayed = 0;
    let mut moved = Vec::new();
    for one in served.iter() {
        match &owners[one.key] {
            Some(owner) if *owner == one.node => stayed += 1,
            Some(owner) if !has_failed(owner, one.when) => moved.push((owner, one)),
            _ => {}
        }
    }
    let reads = stayed + moved.len();
    if spills {
        let share = moved.len() as f64 / reads.max(1) as f64;
        ensure!(
            share > SPILLED_MIN,
            "{} of {reads} reads spilled",
            moved.len()
        );
        return Ok(());
    }
    let failed = load.counts.failed.lock();
    let failed = failed.unwrap_or_else(PoisonError::into_inner);
    let is_unaffected = |one: &&Failed| {
        let was_well = |owner: &str| {
            let end = one.when + UNDER_WAY;
            !has_failed(owner, one.when) && !has_failed(owner, end)
        };
        let mut owners = one.keys.iter().map(|&key| owners[key].as_deref());
        one.kind != Kind::Open && owners.all(|owner| owner.is_some_and(was_well))
    };
    let unaffected = failed.iter().filter(is_unaffected).count();
    ensure!(
        unaffected as f64 <= MOVED_MAX * reads as f64,
        "{unaffected} requests for objects whose node had not failed had no answer, beside {reads} \
         reads; failures: {}",
        shown(windows, first.began)
    );
    let Some((owner, one)) = moved.first() else {
        return Ok(());
    };
    ensure!(
        moved.len() as f64 <= MOVED_MAX * reads as f64,
        "{} of {reads} reads of objects whose node had not failed were served by another one, first \
         object {} of {owner} by {}, {:.1} s after the first failure; failures: {}",
        moved.len(),
        one.key,
        one.node,
        (one.when - first.began).as_secs_f64(),
        shown(windows, first.began)
    );
    Ok(())
}
