//! Engines for tiny objects on a large file: a fill of several turnovers, latencies under
//! steady loads once flash is full, and starts after a stop and after a kill.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::AnyError;
use crate::client::{Ask, Client, KEY_BYTES, Request, Tally, Values, mix};
use crate::load::{Measured, all, measured, missing, on_connections, settle};
use crate::server::{Peer, Programs};

/// Bytes of a value: with its key an object has 246 bytes, as in the paper.
const VALUE_BYTES: u32 = 230;

/// Connections that fill, and requests in flight on each.
const FILL_DEPTH: (usize, usize) = (64, 4);

/// Rows of each turnover.
const PARTS: u32 = 2;

/// Gets and sets a second, once flash is full.
const LOADS: [(u32, u32); 3] = [(4_000, 0), (4_000, 10_000), (4_000, 40_000)];

/// Connections that get and that set in a steady load.
const CONNECTIONS: u32 = 8;

/// Keys that are asked for to learn the hit ratio.
const SAMPLE: u64 = 20_000;

/// The part of flash, the newest, that gets ask for.
const NEWEST: f64 = 0.5;

const ENGINES: [&str; 3] = ["nemo", "fairywren", "log"];

/// Flash of each engine, in GiB.
const FLASH_GIB: u64 = 4;

/// Flash of Nemo in a run of its own, in GiB. The others would take hours to fill it.
const LARGE_FLASH_GIB: u64 = 32;

/// The engines, each with its flash in GiB.
pub(crate) fn runs(flash_gib: Option<u64>, quick: bool) -> Vec<(&'static str, u64)> {
    let small = flash_gib.unwrap_or(if quick { 1 } else { FLASH_GIB });
    let mut runs = ENGINES.map(|engine| (engine, small)).to_vec();
    if flash_gib.is_none() && !quick {
        runs.push(("nemo", LARGE_FLASH_GIB));
    }
    runs
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Scale {
    flash_bytes: u64,
    /// Times that the flash is filled.
    turnovers: u32,
    steady: Duration,
}

impl Scale {
    fn new(engine: &str, flash_gib: u64, quick: bool) -> Self {
        let (turnovers, seconds) = if quick { (1, 2) } else { (3, 30) };
        Scale {
            flash_bytes: flash_gib << 30,
            // It takes a sixth as many sets a second as the others.
            turnovers: if engine == "fairywren" { 1 } else { turnovers },
            steady: Duration::from_secs(seconds),
        }
    }
}

/// The rows of some runs, one after the other.
pub(crate) fn run(
    runs: &[(&'static str, u64)],
    quick: bool,
    programs: &Programs,
    folder: &Path,
    mut show: impl FnMut(Value),
) -> Result<(), AnyError> {
    let values = Values::new();
    for &(engine, flash_gib) in runs {
        let folder = tempfile::Builder::new()
            .prefix("scale-")
            .tempdir_in(folder)?;
        let scale = Scale::new(engine, flash_gib, quick);
        let case = Case {
            scale,
            engine,
            values: &values,
            keys: AtomicU64::new(0),
        };
        let start = || Peer::engine(programs, engine, scale.flash_bytes, folder.path());
        case.run(start, &mut show)?;
    }
    Ok(())
}

struct Case<'a> {
    scale: Scale,
    engine: &'static str,
    values: &'a Values,
    /// Keys that were set so far: the numbers below are mixed to keys.
    keys: AtomicU64,
}

impl Case<'_> {
    fn run(
        &self,
        start: impl Fn() -> Result<Peer, AnyError>,
        show: &mut impl FnMut(Value),
    ) -> Result<(), AnyError> {
        let peer = start()?;
        let announced = peer.announced_bytes().map(|bytes| bytes >> 20);
        for part in 1..=self.scale.turnovers * PARTS {
            let mut row = self.fill(&peer, f64::from(part) / f64::from(PARTS))?;
            row["announced_mib"] = json!(announced);
            show(row);
        }
        settle(&peer)?;
        for (gets, sets) in LOADS {
            show(self.steady(&peer, gets, sets)?);
        }
        settle(&peer)?;
        let before = self.hit_percent(&peer, SAMPLE, 0)?;
        let began = Instant::now();
        peer.stop()?;
        let stopped = began.elapsed();
        let peer = self.start_again(&start, "stop", before, Some(stopped), show)?;
        // The kill interrupts what the last sets cause.
        let part = self.scale.flash_bytes / 64;
        self.set(&peer, part)?;
        let before = self.hit_percent(&peer, SAMPLE, 1)?;
        self.set(&peer, part / 16)?;
        drop(peer);
        self.start_again(&start, "kill", before, None, show)?;
        Ok(())
    }

    fn row(&self, figures: Value) -> Value {
        let flash_gib = self.scale.flash_bytes as f64 / f64::from(1 << 30);
        let mut row = json!({ "engine": self.engine, "flash_gib": flash_gib });
        for (name, figure) in figures.as_object().into_iter().flatten() {
            row[name] = figure.clone();
        }
        row
    }

    fn request(&self, ask: Ask, number: u64) -> Request {
        Request {
            ask,
            key: mix(number),
            value_bytes: VALUE_BYTES,
        }
    }

    /// Sets new keys, as many as take `bytes`.
    fn set(&self, peer: &Peer, bytes: u64) -> Result<Tally, AnyError> {
        const BATCH: u64 = 1 << 20;
        let count = bytes / (KEY_BYTES as u64 + u64::from(VALUE_BYTES));
        let end = self.keys.load(Relaxed) + count;
        let mut tally = Tally::new()?;
        while self.keys.load(Relaxed) < end {
            let from = self.keys.load(Relaxed);
            let upto = end.min(from + BATCH);
            let sets: Vec<Request> = (from..upto)
                .map(|number| self.request(Ask::Set, number))
                .collect();
            tally.add(&all(peer, &sets, FILL_DEPTH, self.values)?)?;
            self.keys.store(upto, Relaxed);
        }
        Ok(tally)
    }

    fn fill(&self, peer: &Peer, turnovers: f64) -> Result<Value, AnyError> {
        eprintln!("scale: {}, up to {turnovers} turnovers", self.engine);
        let bytes = self.scale.flash_bytes / u64::from(PARTS);
        let filled = measured(peer, || self.set(peer, bytes))?;
        Ok(self.row(json!({
            "turnovers": turnovers,
            "fill_sets_per_second": (filled.tally.requests as f64 / filled.seconds).round(),
            "fill_sets_per_cpu_second": filled.requests_per_cpu_second().round(),
            "fill_refused": filled.tally.refused,
            "fill_write_amplification": filled.write_amplification(),
            "fill_p99_us": filled.tally.latency_us(0.99),
            "fill_p9999_us": filled.tally.latency_us(0.9999),
            "resident_mib": peer.resident_bytes()? >> 20,
        })))
    }

    /// Keys, of the newest part of flash.
    fn newest(&self) -> std::ops::Range<u64> {
        let object = (KEY_BYTES as u64 + u64::from(VALUE_BYTES)) as f64;
        let keys = self.keys.load(Relaxed);
        let count = (self.scale.flash_bytes as f64 * NEWEST / object) as u64;
        keys.saturating_sub(count)..keys
    }

    /// Gets of the newest keys and sets of new ones, each when it is due: its latency counts
    /// from then.
    fn steady(&self, peer: &Peer, gets: u32, sets: u32) -> Result<Value, AnyError> {
        eprintln!(
            "scale: {}, {gets} gets and {sets} sets a second",
            self.engine
        );
        let newest = self.newest();
        let count = newest.end - newest.start;
        // Other keys than in the load before, which memory has.
        let next_get = AtomicU64::new(u64::from(sets) << 32);
        let get = || {
            let number = mix(next_get.fetch_add(1, Relaxed)) % count;
            self.request(Ask::Get, newest.start + number)
        };
        let set = || self.request(Ask::Set, self.keys.fetch_add(1, Relaxed));
        let mut tallies = Vec::new();
        let end = Instant::now() + self.scale.steady;
        let measured = measured(peer, || {
            let (got, stored) = std::thread::scope(|scope| {
                let sets = scope.spawn(|| match sets {
                    0 => Tally::new(),
                    _ => self.paced(peer, sets, &set),
                });
                (self.paced(peer, gets, &get), sets.join())
            });
            let (mut tally, stored) = (got?, stored.map_err(|_| "a client panicked")??);
            tallies.extend([tally.clone(), stored.clone()]);
            tally.add(&stored)?;
            Ok(tally)
        })?;
        let mut figures = json!({
            "gets_a_second": gets,
            "sets_a_second": sets,
            // How long after their time the last answers came.
            "late_ms": ms(end.elapsed()),
            "refused": measured.tally.refused,
            "hit_percent": measured.hit_percent(),
            "cpu_percent": 100.0 * measured.used.cpu_seconds / measured.seconds,
            "read_mib_a_second": mib_a_second(measured.used.read_bytes, &measured),
            "written_mib_a_second": mib_a_second(measured.used.written_bytes, &measured),
        });
        for (name, tally) in ["get", "set"].into_iter().zip(&tallies) {
            for (quantile, at) in [
                ("p50", 0.5),
                ("p99", 0.99),
                ("p999", 0.999),
                ("p9999", 0.9999),
            ] {
                // Of at least ten longer ones.
                if tally.requests as f64 * (1.0 - at) >= 10.0 {
                    figures[format!("{name}_{quantile}_us")] = json!(tally.latency_us(at));
                }
            }
        }
        Ok(self.row(figures))
    }

    /// Requests at a steady rate, on several connections.
    fn paced(
        &self,
        peer: &Peer,
        per_second: u32,
        next: &(impl Fn() -> Request + Sync),
    ) -> Result<Tally, AnyError> {
        // Late ones are asked together, as by a client that pipelines.
        const TOGETHER_MAX: usize = 64;
        let began = Instant::now();
        let end = began + self.scale.steady;
        let gap = Duration::from_secs(1) * CONNECTIONS / per_second;
        let order = AtomicU64::new(0);
        on_connections(CONNECTIONS as usize, || {
            let mut client = Client::new(peer.connect()?, self.values)?;
            let mut due = began + gap * (order.fetch_add(1, Relaxed) as u32) / CONNECTIONS;
            let mut batch = Vec::with_capacity(TOGETHER_MAX);
            while due < end {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let first = due;
                batch.clear();
                while batch.len() < TOGETHER_MAX && due <= Instant::now() {
                    batch.push(next());
                    due += gap;
                }
                client.ask_due(&batch, first, gap)?;
            }
            Ok(client.tally)
        })
    }

    /// How many of the newest keys are found, of some of them that `seed` draws.
    fn hit_percent(&self, peer: &Peer, sample: u64, seed: u64) -> Result<f64, AnyError> {
        let newest = self.newest();
        let count = newest.end - newest.start;
        let seed = mix(newest.end ^ seed << 32);
        let gets: Vec<Request> = (0..sample)
            .map(|number| newest.start + mix(seed ^ number) % count)
            .map(|number| self.request(Ask::Get, number))
            .collect();
        let lost = missing(peer, &gets, self.values)?.len();
        Ok(100.0 - 100.0 * lost as f64 / sample as f64)
    }

    /// Starts the server on what it left, and asks until half of the hit ratio is back.
    fn start_again(
        &self,
        start: impl Fn() -> Result<Peer, AnyError>,
        after: &str,
        before_percent: f64,
        stopped: Option<Duration>,
        show: &mut impl FnMut(Value),
    ) -> Result<Peer, AnyError> {
        const PATIENCE: Duration = Duration::from_secs(60);
        const STEP: u64 = 256;
        eprintln!("scale: {}, a start after a {after}", self.engine);
        let began = Instant::now();
        let peer = start()?;
        let listens = began.elapsed();
        let cpu_s = peer.used()?.cpu_seconds;
        let mut first_percent = None;
        let mut half = None;
        for seed in 2.. {
            let percent = self.hit_percent(&peer, STEP, seed)?;
            first_percent.get_or_insert(percent);
            half = (percent >= before_percent / 2.0).then(|| began.elapsed());
            if half.is_some() || began.elapsed() > PATIENCE {
                break;
            }
        }
        let half_cpu_s = peer.used()?.cpu_seconds;
        let percent = self.hit_percent(&peer, SAMPLE, 1)?;
        show(self.row(json!({
            "start_after": after,
            "stop_ms": stopped.map(ms),
            "listens_after_ms": ms(listens),
            "opening_cpu_ms": (cpu_s * 1e3).round(),
            "half_of_hits_after_ms": half.map(ms),
            "half_of_hits_cpu_ms": (half_cpu_s * 1e3).round(),
            "hit_percent_before": before_percent,
            "hit_percent_first": first_percent,
            "hit_percent_after": percent,
            "resident_mib": peer.resident_bytes()? >> 20,
        })));
        Ok(peer)
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round()
}

fn mib_a_second(bytes: u64, measured: &Measured) -> f64 {
    let mib = bytes as f64 / f64::from(1 << 20);
    (mib / measured.seconds * 10.0).round() / 10.0
}
