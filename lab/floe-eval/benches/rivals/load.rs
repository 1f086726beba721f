//! The load of every peer: a burst of sets, gets from flash, and
//! the mix of Twitter's clusters with a set after every miss.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use floe_eval::tiny::workload::TwitterMix;
use floe_eval::trace::Op;
use serde_json::{Value, json};

use crate::AnyError;
use crate::client::{Ask, Client, KEY_BYTES, Request, Tally, Values, mix};
use crate::server::{Peer, Used};

/// The part of flash that the burst fills: no peer has to evict for want of room.
const BURST: f64 = 0.4;

/// The part of flash that is written before the mix.
const FILLED: f64 = 1.1;

/// Most bytes that are set to write it, as a multiple of it.
const FILL_PASSES: u64 = 4;

/// Set in the numbers of the keys that fill flash; other keys have smaller numbers.
const FILL_KEYS: u64 = 1 << 40;

/// Requests in flight on each connection, and how many of those there are.
const DEPTHS: [(usize, usize); 2] = [(1, 32), (32, 4)];

/// The same of the mix.
const MIX_DEPTH: (usize, usize) = (8, 8);

/// Keys of the mix, as a multiple of what the paper has for each byte of flash.
const MIX_KEYS: f64 = 3.0;

const SEED: u64 = 20;

/// One size of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Bytes of a value; of tiny ones in the mix the mean, with its key.
    pub(crate) value_bytes: u32,
    pub(crate) flash_bytes: u64,
    /// Memory for values and whatever must be in memory to find them.
    pub(crate) memory_bytes: u64,
    mix_requests: usize,
    slice: Duration,
    slices: usize,
}

impl Case {
    pub(crate) fn all(quick: bool) -> [Case; 2] {
        let short = |case: Case| Case {
            mix_requests: case.mix_requests / 5,
            slice: Duration::from_millis(400),
            slices: 2,
            ..case
        };
        let tiny = Case {
            value_bytes: 246,
            flash_bytes: 256 << 20,
            memory_bytes: 64 << 20,
            mix_requests: 1_600_000,
            slice: Duration::from_millis(1000),
            slices: 6,
        };
        let page = Case {
            value_bytes: 4096,
            flash_bytes: 512 << 20,
            ..tiny
        };
        [tiny, page].map(|case| if quick { short(case) } else { case })
    }

    /// New keys only. One part of flash in 256 is a set-group of Floe's.
    pub(crate) fn fill(quick: bool) -> Case {
        let [tiny, _] = Case::all(quick);
        Case {
            value_bytes: 226,
            flash_bytes: if quick { 128 << 20 } else { 1 << 30 },
            ..tiny
        }
    }

    pub(crate) fn is_tiny(&self) -> bool {
        self.value_bytes < 2048
    }

    /// The keys of the burst.
    fn burst(&self) -> Vec<u64> {
        let object = (KEY_BYTES as u64 + u64::from(self.value_bytes)) as f64;
        let count = (self.flash_bytes as f64 * BURST / object) as u64;
        (0..count).map(mix).collect()
    }

    pub(crate) fn request(&self, ask: Ask, key: u64) -> Request {
        Request {
            ask,
            key,
            value_bytes: self.value_bytes,
        }
    }

    /// Requests as those of Twitter's clusters, the sizes of all values equal
    /// if they are not tiny.
    fn mix(&self) -> Result<Vec<Request>, AnyError> {
        // Of a value that is not tiny, as many keys as fit take as much flash.
        let twitter = TwitterMix {
            keys: match self.is_tiny() {
                true => MIX_KEYS,
                false => {
                    MIX_KEYS * floe_eval::tiny::workload::PAPER_OBJECT_BYTES
                        / f64::from(self.value_bytes)
                }
            },
            ..TwitterMix::default()
        };
        let mut stream = twitter.stream(self.flash_bytes, SEED)?;
        let least = KEY_BYTES as u32 + 8;
        let requests = (0..self.mix_requests).map(|_| {
            let draw = stream.draw();
            Request {
                ask: match draw.op {
                    Op::Put => Ask::Set,
                    Op::Delete => Ask::Delete,
                    _ => Ask::Get,
                },
                key: draw.hash.0,
                value_bytes: match self.is_tiny() {
                    true => draw.bytes.max(least) - KEY_BYTES as u32,
                    false => self.value_bytes,
                },
            }
        });
        Ok(requests.collect())
    }
}

/// The load of a peer, and the resources that it used.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) used: Used,
    pub(crate) seconds: f64,
}

impl Measured {
    fn new() -> Result<Self, AnyError> {
        Ok(Measured {
            tally: Tally::new()?,
            used: Used {
                hits: Some((0, 0)),
                ..Used::default()
            },
            seconds: 0.0,
        })
    }

    fn add(&mut self, other: &Measured) -> Result<(), AnyError> {
        self.tally.add(&other.tally)?;
        self.used.cpu_seconds += other.used.cpu_seconds;
        self.used.read_bytes += other.used.read_bytes;
        self.used.written_bytes += other.used.written_bytes;
        self.used.hits = (self.used.hits.zip(other.used.hits))
            .map(|((all, flash), (more, more_flash))| (all + more, flash + more_flash));
        self.seconds += other.seconds;
        Ok(())
    }

    pub(crate) fn requests_per_cpu_second(&self) -> f64 {
        self.tally.requests as f64 / self.used.cpu_seconds.max(1e-9)
    }

    fn flash_percent(&self) -> Option<f64> {
        let (all, flash) = self.used.hits?;
        Some(100.0 * flash as f64 / all.max(1) as f64)
    }

    fn bytes_read_each(&self) -> f64 {
        self.used.read_bytes as f64 / self.tally.gets.max(1) as f64
    }

    pub(crate) fn hit_percent(&self) -> f64 {
        100.0 * self.tally.hits as f64 / self.tally.gets.max(1) as f64
    }

    pub(crate) fn write_amplification(&self) -> f64 {
        self.used.written_bytes as f64 / self.tally.accepted_bytes.max(1) as f64
    }
}

/// One row for each peer.
pub(crate) fn run(case: &Case, peers: &mut [Peer]) -> Result<Vec<Value>, AnyError> {
    let values = Values::new();
    let mut bursts = Vec::new();
    for peer in peers.iter_mut() {
        eprintln!("rivals: {} B, burst, {}", case.value_bytes, peer.name);
        bursts.push(burst(case, peer, &values)?);
    }
    eprintln!("rivals: {} B, gets", case.value_bytes);
    let steady = steady(case, peers, &values)?;
    eprintln!("rivals: {} B, mix", case.value_bytes);
    let [first_halves, mixes] = mixes(case, peers, &values)?;
    let mut rows = Vec::new();
    for (at, peer) in peers.iter().enumerate() {
        let (burst, missing) = &bursts[at];
        let (gets, mix) = (&steady[at], &mixes[at]);
        let mut row = json!({
            "peer": peer.name,
            "value_bytes": case.value_bytes,
            "burst_sets_per_cpu_second": burst.requests_per_cpu_second().round(),
            "burst_refused": burst.tally.refused,
            "burst_missing_percent": missing,
            "mix_first_half_requests_per_cpu_second":
                first_halves[at].requests_per_cpu_second().round(),
            "mix_hit_percent": mix.hit_percent(),
            "mix_requests_per_cpu_second": mix.requests_per_cpu_second().round(),
            "mix_requests_per_second": (mix.tally.requests as f64 / mix.seconds).round(),
            "mix_p50_us": mix.tally.latency_us(0.5),
            "mix_p99_us": mix.tally.latency_us(0.99),
            "mix_p999_us": mix.tally.latency_us(0.999),
            "mix_write_amplification": mix.write_amplification(),
            "resident_mib": (peer.resident_bytes()? >> 20),
        });
        for ((depth, _), measured) in DEPTHS.iter().zip(gets) {
            let figures = [
                (
                    "per_cpu_second",
                    Some(measured.requests_per_cpu_second().round()),
                ),
                ("from_flash_percent", measured.flash_percent()),
                (
                    "device_bytes_each",
                    Some(measured.bytes_read_each().round()),
                ),
                ("hit_percent", Some(measured.hit_percent())),
                ("p50_us", Some(measured.tally.latency_us(0.5))),
                ("p99_us", Some(measured.tally.latency_us(0.99))),
                ("p999_us", Some(measured.tally.latency_us(0.999))),
            ];
            for (name, figure) in figures {
                row[format!("get_depth_{depth}_{name}")] = json!(figure);
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Sets as fast as they go; then looks what is there, and sets what is not
/// again, slowly, so that gets are compared on equal contents.
fn burst(case: &Case, peer: &mut Peer, values: &Values) -> Result<(Measured, f64), AnyError> {
    const PASSES: u32 = 8;
    /// After this time a peer has what it has.
    const PATIENCE: Duration = Duration::from_secs(60);
    const STEP: usize = 512;
    // Of the tiny ones about 30 MB a second in the first pass, half as much in
    // each further one: somewhere there everybody keeps up.
    const PAUSE: Duration = Duration::from_millis(4);
    let keys = case.burst();
    let sets: Vec<Request> = keys
        .iter()
        .map(|&key| case.request(Ask::Set, key))
        .collect();
    let burst = measured(peer, || all(peer, &sets, (32, 4), values))?;
    settle(peer)?;
    let gets = |keys: &[u64]| -> Vec<Request> {
        let keys = keys.iter();
        keys.map(|&key| case.request(Ask::Get, key)).collect()
    };
    let mut missing = missing(peer, &gets(&keys), values)?;
    let missing_percent = 100.0 * missing.len() as f64 / keys.len() as f64;
    let end = Instant::now() + PATIENCE;
    for pass in 0..PASSES {
        if missing.len() * 100 <= keys.len() || !peer.has_flash {
            break;
        }
        if Instant::now() > end {
            eprintln!(
                "rivals: {} is not waited for any longer: gets ask for the keys that it has",
                peer.name
            );
            break;
        }
        let mut client = Client::new(peer.connect()?, values)?;
        for step in missing.chunks(STEP) {
            if Instant::now() > end {
                break;
            }
            let sets: Vec<Request> = step
                .iter()
                .map(|&key| case.request(Ask::Set, key))
                .collect();
            for batch in sets.chunks(32) {
                client.ask(batch, |_| {})?;
            }
            std::thread::sleep(PAUSE * (1 << pass));
        }
        settle(peer)?;
        missing = self::missing(peer, &gets(&keys), values)?;
        eprintln!(
            "rivals: {} lacks {} of {} keys after pass {pass}",
            peer.name,
            missing.len(),
            keys.len()
        );
    }
    let missing: std::collections::HashSet<u64> = missing.into_iter().collect();
    let mut found: Vec<u64> = keys
        .into_iter()
        .filter(|key| !missing.contains(key))
        .collect();
    // Not those that were looked for first: a tier that resists scans keeps
    // them. And not in the order of the sets: who laid them one behind the
    // other would find the next dozens in the page that it has just read. Keys
    // are mixed numbers; sorted they have no such order.
    peer.found = found.split_off(found.len() / 4);
    peer.found.sort_unstable();
    Ok((burst, missing_percent))
}

/// The keys that are not found.
pub(crate) fn missing(
    peer: &Peer,
    gets: &[Request],
    values: &Values,
) -> Result<Vec<u64>, AnyError> {
    let mut client = Client::new(peer.connect()?, values)?;
    let mut missing = Vec::new();
    for gets in gets.chunks(32) {
        client.ask(gets, |request| missing.push(request.key))?;
    }
    Ok(missing)
}

/// Waits until nothing more is written.
pub(crate) fn settle(peer: &Peer) -> Result<(), AnyError> {
    const STEP: Duration = Duration::from_millis(200);
    let (mut last, mut calm) = (peer.used()?.written_bytes, 0);
    for _ in 0..50 {
        std::thread::sleep(STEP);
        let now = peer.used()?.written_bytes;
        calm = if now == last { calm + 1 } else { 0 };
        if calm == 6 {
            break;
        }
        last = now;
    }
    Ok(())
}

/// Keys that a peer has, one after the other and again from the
/// beginning: what was asked for of late is not asked for soon.
fn steady(case: &Case, peers: &[Peer], values: &Values) -> Result<Vec<Vec<Measured>>, AnyError> {
    let mut measured = vec![vec![Measured::new()?; DEPTHS.len()]; peers.len()];
    let next: Vec<AtomicUsize> = peers.iter().map(|_| AtomicUsize::new(0)).collect();
    for slice in 0..case.slices * DEPTHS.len() {
        let which = slice % DEPTHS.len();
        for (at, peer) in in_turns(peers, slice / DEPTHS.len()) {
            if peer.found.is_empty() {
                continue;
            }
            let gets = || timed_gets(case, peer, &next[at], DEPTHS[which], values);
            let gets = without_page_cache(peer, || self::measured(peer, gets))?;
            measured[at][which].add(&gets)?;
        }
    }
    Ok(measured)
}

/// The peers with their places, each `round` begun by another one: what
/// the one before leaves behind is not always the same one's to bear.
fn in_turns(peers: &[Peer], round: usize) -> impl Iterator<Item = (usize, &Peer)> {
    let first = round % peers.len().max(1);
    let places = peers.iter().enumerate();
    places.clone().skip(first).chain(places.take(first))
}

/// Keeps a peer's file out of the page cache while `work` is done. The
/// data of a test fits there, that of a cache on flash does not. Otherwise
/// values of flash would come from memory that no account includes.
fn without_page_cache(
    peer: &Peer,
    work: impl FnOnce() -> Result<Measured, AnyError>,
) -> Result<Measured, AnyError> {
    const EVERY: Duration = Duration::from_millis(10);
    let Some(path) = &peer.cached_file else {
        return work();
    };
    let file = std::fs::File::open(path)?;
    // The kernel drops only pages that are written.
    file.sync_all()?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // Advice: where the kernel does not take it, pages stay.
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                std::thread::sleep(EVERY);
            }
        });
        let measured = work();
        done.store(true, Relaxed);
        measured
    })
}

fn timed_gets(
    case: &Case,
    peer: &Peer,
    next: &AtomicUsize,
    (depth, connections): (usize, usize),
    values: &Values,
) -> Result<Tally, AnyError> {
    let end = Instant::now() + case.slice;
    on_connections(connections, || {
        let mut client = Client::new(peer.connect()?, values)?;
        let mut batch = Vec::with_capacity(depth);
        while Instant::now() < end {
            let at = next.fetch_add(depth, Relaxed);
            batch.clear();
            batch.extend(
                (at..at + depth)
                    .map(|at| case.request(Ask::Get, peer.found[at % peer.found.len()])),
            );
            client.ask(&batch, |_| {})?;
        }
        Ok(client.tally)
    })
}

/// Sets new keys until each peer has written its flash once over: a cache that runs is full,
/// and a file that was never written costs its file system more. A peer drops what it is given
/// faster than it writes, so it gets time after each part, and more parts.
fn fill_flash(case: &Case, peers: &[Peer], values: &Values) -> Result<(), AnyError> {
    const PARTS: u64 = 64;
    const PATIENCE: Duration = Duration::from_secs(60);
    // Some 30 MB of 4 KiB a second, half as much of tiny ones.
    const PAUSE: Duration = Duration::from_millis(300);
    let object = KEY_BYTES as u64 + u64::from(case.value_bytes);
    let wanted = (case.flash_bytes as f64 * FILLED) as u64;
    let part = wanted / object / PARTS;
    for peer in peers.iter().filter(|peer| peer.has_flash) {
        let end = Instant::now() + PATIENCE;
        let before = peer.used()?.written_bytes;
        let mut written = 0;
        for number in 0..PARTS * FILL_PASSES {
            if number >= PARTS {
                if written >= wanted || Instant::now() > end {
                    break;
                }
                // It drops some: slower.
                std::thread::sleep(PAUSE);
            }
            let keys = number * part..(number + 1) * part;
            let sets = keys.map(|number| case.request(Ask::Set, mix(FILL_KEYS | number)));
            let sets: Vec<Request> = sets.collect();
            all(peer, &sets, DEPTHS[1], values)?;
            written = peer.used()?.written_bytes - before;
        }
        settle(peer)?;
        written = peer.used()?.written_bytes - before;
        if written < wanted {
            eprintln!(
                "rivals: {} has written {} % of its flash before the mix",
                peer.name,
                written * 100 / case.flash_bytes
            );
        }
    }
    Ok(())
}

/// The two halves of the mix on full flash, in turns: in the first one, the keys of the mix
/// take the place of others. Values that are read from flash come from flash. What a peer
/// does between its turns counts, too: one may store values once they are idle for a while.
fn mixes(case: &Case, peers: &[Peer], values: &Values) -> Result<[Vec<Measured>; 2], AnyError> {
    fill_flash(case, peers, values)?;
    let requests = case.mix()?;
    let (first, second) = requests.split_at(requests.len() / 2);
    let half = |requests: &[Request]| -> Result<Vec<Measured>, AnyError> {
        let before = peers
            .iter()
            .map(Peer::used)
            .collect::<Result<Vec<_>, _>>()?;
        let mut results = vec![Measured::new()?; peers.len()];
        let per_slice = requests.len().div_ceil(case.slices);
        for (round, slice) in requests.chunks(per_slice).enumerate() {
            for (at, peer) in in_turns(peers, round) {
                let slice = || measured(peer, || all(peer, slice, MIX_DEPTH, values));
                results[at].add(&without_page_cache(peer, slice)?)?;
            }
        }
        for (at, peer) in peers.iter().enumerate() {
            settle(peer)?;
            results[at].used = peer.used()?.since(&before[at]);
        }
        Ok(results)
    };
    Ok([half(first)?, half(second)?])
}

/// Carries out every request; a get that misses is followed by a set.
pub(crate) fn all(
    peer: &Peer,
    requests: &[Request],
    (depth, connections): (usize, usize),
    values: &Values,
) -> Result<Tally, AnyError> {
    let next = AtomicUsize::new(0);
    on_connections(connections, || {
        let mut client = Client::new(peer.connect()?, values)?;
        let mut missed = Vec::new();
        loop {
            let at = next.fetch_add(depth, Relaxed);
            let Some(batch) = requests.get(at..requests.len().min(at + depth)) else {
                return Ok(client.tally);
            };
            client.ask(batch, |request| {
                missed.push(Request {
                    ask: Ask::Set,
                    ..*request
                });
            })?;
            client.ask(&missed, |_| {})?;
            missed.clear();
        }
    })
}

/// The resources that a peer uses while `work` is done.
pub(crate) fn measured(
    peer: &Peer,
    work: impl FnOnce() -> Result<Tally, AnyError>,
) -> Result<Measured, AnyError> {
    let before = peer.used()?;
    let began = Instant::now();
    let tally = work().map_err(|error| format!("{}: {error}", peer.name))?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Measured {
        tally,
        used: peer.used()?.since(&before),
        seconds,
    })
}

/// The same on several connections at once.
pub(crate) fn on_connections(
    connections: usize,
    work: impl Fn() -> Result<Tally, AnyError> + Sync,
) -> Result<Tally, AnyError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(&work)).collect();
        let mut tally = Tally::new()?;
        for thread in threads {
            tally.add(&thread.join().map_err(|_| "a client panicked")??)?;
        }
        Ok(tally)
    })
}
