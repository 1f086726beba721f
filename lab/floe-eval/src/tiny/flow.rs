//! Runs an engine on a device, driven by `floe::Tiny`, in real time or, if the
//! device is simulated, in virtual time. Each client sends its next request after the response to the
//! last. A miss is followed by a set, as on modelled flash. Every value found
//! is compared with the stored one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use floe::Tier;
use floe::tiny::{TinyConfig, TinyEngine};
use floe::{PutOptions, Tiny};
use floe_core::ByteSize;
use floe_core::hash::KeyHash;
use floe_core::tiny::{Flash, PAGE_BYTES};
use floe_device::config::DeviceKind;
use floe_device::{Clock, DeviceConfig, SharedDevice};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::case::{EngineKind, TinyCase};
use super::driver::{Meter, Outcome};
use super::engines::{self, Run};
use super::figures;
use super::series::{Bins, Counts, Snapshot};
use super::timing::{Latencies, record};
use super::watch::Commands;
use super::workload::{Draw, Stream};
use crate::error::{EvalError, chain};
use crate::metrics::{ProcessProbe, counted_figures};
use crate::run::{ExtraFigure, RunResult, in_virtual_time, until};
use crate::trace::Op;

/// Bytes of a key; the rest of an object is its value.
const KEY_BYTES: u32 = 8;

/// Zones that the driver reserves for metadata.
const METADATA_ZONES: u64 = 2;

/// Interval of progress reports.
const LOOK: Duration = Duration::from_millis(250);

/// Runs a case on its device. Blocks, and must be called outside of any
/// runtime.
pub(super) fn run(run: Run<'_>) -> Result<RunResult, EvalError> {
    let case = run.case;
    case.check()?;
    if case.device.rate.is_some() || case.count_sets.is_some() {
        return Err(EvalError::Option {
            option: "tiny.device",
            reason: "of kind drive runs as fast as its clients; remove rate and count-sets".into(),
        });
    }
    let flash = case.flash(true)?;
    let place = Place::of(case, run.scratch)?;
    let result = if case.is_simulated() {
        in_virtual_time(run.seed, |clock| drive(run, flash, &place, clock))
    } else {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| EvalError::Cache(format!("no runtime: {error}")))?
            .block_on(drive(run, flash, &place, Clock::real()))
    };
    let removed = place.remove();
    let result = result?;
    removed?;
    Ok(result)
}

/// The device, and its file if it has none of its own.
struct Place {
    path: Option<PathBuf>,
    /// A folder that is created and removed.
    scratch: Option<PathBuf>,
}

impl Place {
    fn of(case: &TinyCase, scratch: &Path) -> Result<Self, EvalError> {
        let drive = &case.device.drive;
        if drive.kind != DeviceKind::File || drive.all_paths().next().is_some() {
            return Ok(Place {
                path: drive.path.clone(),
                scratch: None,
            });
        }
        std::fs::create_dir_all(scratch).map_err(EvalError::file("create", scratch))?;
        Ok(Place {
            path: Some(scratch.join("tiny.flash")),
            scratch: Some(scratch.to_owned()),
        })
    }

    fn remove(&self) -> Result<(), EvalError> {
        let Some(scratch) = &self.scratch else {
            return Ok(());
        };
        std::fs::remove_dir_all(scratch).map_err(EvalError::file("remove", scratch))
    }
}

async fn drive(
    run: Run<'_>,
    flash: Flash,
    place: &Place,
    clock: Clock,
) -> Result<RunResult, EvalError> {
    let Run {
        case,
        name,
        seed,
        experiment,
        progress,
        ..
    } = run;
    let flash_bytes = flash.pages() * PAGE_BYTES as u64;
    let wanted = &case.device.drive;
    let zone_size = wanted.zone_size.unwrap_or(case.zone_size);
    let zones = u64::from(flash.zones) + METADATA_ZONES;
    let device = DeviceConfig {
        path: place.path.clone(),
        size: Some(ByteSize(zones * zone_size.bytes())),
        zone_size: Some(zone_size),
        zone_capacity: Some(case.zone_size),
        ..wanted.clone()
    };
    let device = floe_device::open_drives(&device, &clock).await?;
    let config = config(case, flash_bytes, seed)?;
    let is_virtual = clock.is_virtual();
    let probe = || (!is_virtual).then(ProcessProbe::new);
    let sample = |probe: &mut Option<ProcessProbe>| probe.as_mut().and_then(ProcessProbe::sample);
    let resident_before = sample(&mut probe()).map(|cost| cost.rss_bytes);
    let tiny = Tiny::open(Arc::clone(&device), clock.clone(), &config)
        .await
        .map_err(|error| EvalError::Cache(chain(&error)))?;
    let stream = case.workload.stream(flash_bytes, seed, experiment)?;
    let load = Arc::new(Load::new(tiny, device, clock, stream));
    let mut meter = Meter::new(
        ((case.warm_up + case.measured) * flash_bytes as f64) as u64,
        progress,
    );
    let bytes = |share: f64| (share * flash_bytes as f64) as u64;
    let mut goes_on = load.phase(case, bytes(case.warm_up), &mut meter).await?;
    let begin = load.begin_measuring();
    let counted_before = load.device.counters().snapshot();
    let mut process = probe();
    if goes_on {
        goes_on = load.phase(case, bytes(case.measured), &mut meter).await?;
    }
    let cost = sample(&mut process);
    let counted = load.device.counters().snapshot().since(&counted_before);
    let mut extra = held(&load.tiny, resident_before, cost.map(|cost| cost.rss_bytes));
    let closed = load.tiny.close().await;
    closed.map_err(|error| EvalError::Cache(chain(&error)))?;
    let outcome = load.outcome(begin, flash)?;
    let measured = outcome.end.counts.operations - outcome.begin.counts.operations;
    if !goes_on && measured == 0 {
        return Err(EvalError::Option {
            option: "tiny.warm-up",
            reason: "the trace ended before measuring began; choose a shorter warm-up, a smaller flash-size or more passes".into(),
        });
    }
    let counts = outcome.end.counts.since(&outcome.begin.counts);
    let hits = counts.ram_hits + counts.engine_hits;
    extra.extend(counted_figures(hits, counts.misses, &counted));
    let result = figures::result(name, &outcome, extra);
    Ok(RunResult {
        is_virtual,
        rss_bytes_max: cost.map(|cost| cost.rss_bytes),
        cpu_us_per_request: cost
            .map(|cost| cost.cpu_time.as_secs_f64() * 1e6 / measured.max(1) as f64),
        ..result
    })
}

/// The memory that the driver reports, and the growth of the process since
/// before it was opened.
fn held(tiny: &Tiny, before: Option<u64>, now: Option<u64>) -> Vec<ExtraFigure> {
    let stats = tiny.stats();
    let accounted = stats.memory.total_bytes() + stats.ram_bytes + stats.fences_bytes;
    let growth = before
        .zip(now)
        .map(|(before, now)| now.saturating_sub(before));
    let figure = |metric: &str, unit: &str, value: f64| ExtraFigure {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        value,
    };
    let mut figures = vec![figure("accounted", "B", accounted as f64)];
    if let Some(growth) = growth {
        figures.push(figure("rss_growth", "B", growth as f64));
        let over = growth as f64 / accounted.max(1) as f64;
        figures.push(figure("rss_over_accounted", "ratio", over));
    }
    figures
}

/// The engine's settings, the same as on the model.
fn config(case: &TinyCase, flash_bytes: u64, seed: u64) -> Result<TinyConfig, EvalError> {
    Ok(TinyConfig {
        engine: match case.engine {
            EngineKind::Nemo => TinyEngine::Nemo,
            EngineKind::Log => TinyEngine::Log,
            EngineKind::Set => TinyEngine::Set,
            EngineKind::Kangaroo => TinyEngine::Kangaroo,
            EngineKind::Fairywren => TinyEngine::FairyWren,
        },
        nemo: engines::nemo(case)?,
        log: engines::log(case)?,
        set: engines::set(case)?,
        kangaroo: engines::kangaroo(case)?,
        fairywren: engines::fairywren(case)?,
        ram: ByteSize((case.ram * flash_bytes as f64) as u64),
        admission: case.admission.clone(),
        format: true,
        seed: Some(seed),
        ..TinyConfig::default()
    })
}

/// State that the clients share.
struct Load {
    tiny: Tiny,
    device: SharedDevice,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    stream: Stream,
    counts: Counts,
    /// Bytes of keys and values that the engine accepted.
    bytes_in: u64,
    bytes_upto: u64,
    operations_upto: u64,
    trace_is_over: bool,
    bins: Bins,
    latencies: Latencies,
}

impl State {
    /// The next request of this phase.
    fn draw(&mut self) -> Result<Option<Draw>, EvalError> {
        if self.bytes_in >= self.bytes_upto || self.counts.operations >= self.operations_upto {
            return Ok(None);
        }
        let draw = self.stream.draw()?;
        self.trace_is_over = draw.is_none();
        self.counts.operations += u64::from(draw.is_some());
        Ok(draw)
    }
}

impl Load {
    fn new(tiny: Tiny, device: SharedDevice, clock: Clock, stream: Stream) -> Self {
        let begin = snapshot(&tiny, &device, &clock, Counts::default());
        Load {
            tiny,
            device,
            clock,
            state: Mutex::new(State {
                stream,
                counts: Counts::default(),
                bytes_in: 0,
                bytes_upto: 0,
                operations_upto: 0,
                trace_is_over: false,
                bins: Bins::new(begin),
                latencies: Latencies::default(),
            }),
        }
    }

    /// Runs all clients until `bytes` more were accepted; false if the trace
    /// ended.
    async fn phase(
        self: &Arc<Self>,
        case: &TinyCase,
        bytes: u64,
        meter: &mut Meter<'_>,
    ) -> Result<bool, EvalError> {
        {
            let mut state = self.state.lock();
            state.bytes_upto = state.bytes_in + bytes;
            let most = case.operations_max.unwrap_or(u64::MAX);
            state.operations_upto = state.counts.operations.saturating_add(most);
        }
        let mut clients = JoinSet::new();
        for _ in 0..case.device.clients.max(1) {
            clients.spawn(Arc::clone(self).work(case.device.settle));
        }
        loop {
            let ended = tokio::select! {
                biased;
                ended = clients.join_next() => ended,
                () = self.clock.sleep(LOOK) => {
                    let (bytes, operations) = {
                        let state = self.state.lock();
                        (state.bytes_in, state.counts.operations)
                    };
                    meter.show(bytes, operations);
                    continue;
                }
            };
            match ended {
                None => break,
                Some(Ok(worked)) => worked?,
                Some(Err(error)) => return Err(EvalError::Cache(chain(&error))),
            }
        }
        self.close_bin(true);
        Ok(!self.state.lock().trace_is_over)
    }

    /// One client.
    async fn work(self: Arc<Self>, settles: bool) -> Result<(), EvalError> {
        loop {
            let Some(draw) = self.state.lock().draw()? else {
                return Ok(());
            };
            match draw.op {
                Op::Get => self.get(draw).await?,
                Op::Put => {
                    self.state.lock().counts.sets += 1;
                    self.put(draw).await?;
                }
                Op::Delete => {
                    self.state.lock().counts.deletes += 1;
                    let deleted = self.tiny.delete(&key(draw.hash)).await;
                    deleted.map_err(|error| EvalError::Cache(chain(&error)))?;
                }
            }
            if settles {
                until(&self.clock, || self.tiny.is_idle()).await?;
            }
            self.close_bin(false);
        }
    }

    async fn get(&self, draw: Draw) -> Result<(), EvalError> {
        let began = self.clock.now();
        let found = self.tiny.get(&key(draw.hash)).await;
        let found = found.map_err(|error| EvalError::Cache(chain(&error)))?;
        let took = self.clock.now().since(began);
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.counts.gets += 1;
            match &found {
                None => state.counts.misses += 1,
                Some(found) => {
                    state.counts.bytes_out += u64::from(KEY_BYTES) + found.bytes.len() as u64;
                    let in_ram = found.tier == Tier::Ram;
                    state.counts.ram_hits += u64::from(in_ram);
                    state.counts.engine_hits += u64::from(!in_ram);
                }
            }
            if found.as_ref().is_none_or(|found| found.tier != Tier::Ram) {
                record(&mut state.latencies.search, took);
            }
        }
        let Some(found) = found else {
            return self.put(draw).await;
        };
        if found.bytes[..] != *value(draw.hash, found.bytes.len()) {
            return Err(EvalError::WrongBytes {
                key: format!("{:016x}", draw.hash.0),
                offset: 0,
            });
        }
        Ok(())
    }

    async fn put(&self, draw: Draw) -> Result<(), EvalError> {
        let value = value(draw.hash, draw.bytes.saturating_sub(KEY_BYTES) as usize);
        let ttl = (draw.ttl_seconds > 0).then(|| Duration::from_secs(draw.ttl_seconds.into()));
        let options = PutOptions::default().with_ttl(ttl);
        let put = self.tiny.put(&key(draw.hash), &value, options).await;
        put.map_err(|error| EvalError::Cache(chain(&error)))?;
        self.state.lock().bytes_in += u64::from(KEY_BYTES) + value.len() as u64;
        Ok(())
    }

    /// Ends a bin if it is due or `now` is set.
    fn close_bin(&self, now: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if now || state.bins.is_over(state.counts.operations) {
            let snapshot = snapshot(&self.tiny, &self.device, &self.clock, state.counts);
            let latencies = std::mem::take(&mut state.latencies);
            state.bins.push(snapshot, latencies);
        }
    }

    fn begin_measuring(&self) -> Snapshot {
        let mut state = self.state.lock();
        state.bins.start_measuring();
        snapshot(&self.tiny, &self.device, &self.clock, state.counts)
    }

    fn outcome(self: Arc<Self>, begin: Snapshot, flash: Flash) -> Result<Outcome, EvalError> {
        let Ok(load) = Arc::try_unwrap(self) else {
            return Err(EvalError::Cache("a client goes on after its end".into()));
        };
        let state = load.state.into_inner();
        let end = state.bins.edges.last().cloned();
        Ok(Outcome {
            end: end.unwrap_or_else(|| begin.clone()),
            begin,
            live_objects: None,
            bins: state.bins,
            flash,
            sets: Vec::new(),
            left_out: state.stream.left_out(),
            skipped: state.stream.skipped(),
            is_timed: true,
        })
    }
}

fn snapshot(tiny: &Tiny, device: &SharedDevice, clock: &Clock, counts: Counts) -> Snapshot {
    let stats = tiny.stats();
    let device = device.counters().snapshot();
    let page = PAGE_BYTES as u64;
    Snapshot {
        counts,
        commands: Commands {
            writes: device.appends + device.writes,
            pages_written: (device.append_bytes + device.write_bytes) / page,
            pages_read: device.read_bytes / page,
            resets: device.resets,
        },
        engine: stats.engine,
        memory: stats.memory,
        device: None,
        now: clock.now(),
    }
}

fn key(hash: KeyHash) -> [u8; KEY_BYTES as usize] {
    hash.0.to_le_bytes()
}

/// The bytes of every object of this hash, which identify it.
fn value(hash: KeyHash, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    let word = hash.0.rotate_left(17).to_le_bytes();
    for (out, byte) in value.iter_mut().zip(word.iter().cycle()) {
        *out = *byte;
    }
    value
}
