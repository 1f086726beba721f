//! Drives an engine through the RAM tier until enough was written. Each miss is
//! followed by a set. Measures in bins of operations.

use std::path::Path;
use std::time::Instant;

use floe_core::Tick;
use floe_core::hash::{KeyHash, fast_range};
use floe_core::policy::admission::Admission;
use floe_core::tiny::model::Model;
use floe_core::tiny::{Engine, Expiry, Flash, PAGE_BYTES};

use super::case::TinyCase;
use super::progress::TinyProgress;
use super::ram::{Held, RamTier};
use super::series::{Bins, Counts, Snapshot};
use super::timing::Timing;
use super::watch::Watch;
use super::workload::{Draw, PAPER_OBJECT_BYTES, Stream};
use crate::error::EvalError;
use crate::trace::Op;

/// An engine under load.
pub(super) struct Driver<E: Engine> {
    model: Model<E, Watch>,
    ram: Option<RamTier>,
    admission: Admission,
    stream: Stream,
    counts: Counts,
    /// Accesses of each set, if they are counted.
    sets: Vec<u64>,
    /// Nanoseconds from one operation to the next.
    interval_ns: f64,
    now_seconds: u32,
}

/// The raw result of a run.
pub(super) struct Outcome {
    pub(super) bins: Bins,
    /// Counts at the beginning of the measurement.
    pub(super) begin: Snapshot,
    /// Counts at its end.
    pub(super) end: Snapshot,
    pub(super) flash: Flash,
    pub(super) sets: Vec<u64>,
    pub(super) left_out: u64,
    pub(super) skipped: u64,
    /// Live objects on flash at the end; unknown on a device.
    pub(super) live_objects: Option<u64>,
    /// Latencies were measured.
    pub(super) is_timed: bool,
}

impl Outcome {
    /// Snapshots of the measurement, including the last one.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Snapshot> {
        let begin = self.begin.counts.operations;
        let edges = self.bins.edges.iter();
        let edges = edges.filter(move |edge| edge.counts.operations > begin);
        edges.chain(std::iter::once(&self.end))
    }
}

/// Operations between two checks of the progress.
const LOOK_EVERY: u64 = 4096;

impl<E: Engine> Driver<E> {
    pub(super) fn new(
        case: &TinyCase,
        engine: E,
        flash: Flash,
        seed: u64,
        experiment: &Path,
    ) -> Result<Self, EvalError> {
        case.check()?;
        let ssd = case.device.open(flash, seed)?;
        let has_reads = case.device.rate.is_some();
        let depth = case.device.background_depth;
        let timing = ssd.map(|ssd| Timing::new(ssd, flash, has_reads, depth));
        let flash_bytes = flash.pages() * PAGE_BYTES as u64;
        let ram_bytes = (case.ram * flash_bytes as f64) as u64;
        Ok(Driver {
            model: Model::watched(engine, flash, Watch::new(flash, timing)),
            ram: RamTier::new(ram_bytes, PAPER_OBJECT_BYTES as u64),
            admission: Admission::new(&case.admission, seed).map_err(|error| {
                EvalError::Option {
                    option: "tiny.admission",
                    reason: error.to_string(),
                }
            })?,
            stream: case.workload.stream(flash_bytes, seed, experiment)?,
            counts: Counts::default(),
            sets: vec![0; case.count_sets.unwrap_or(0) as usize],
            interval_ns: case.device.rate.map_or(0.0, |rate| 1e9 / rate),
            now_seconds: 0,
        })
    }

    /// Runs the warm-up and the measurement.
    pub(super) fn run(
        mut self,
        case: &TinyCase,
        flash: Flash,
        progress: &mut dyn FnMut(TinyProgress),
    ) -> Result<Outcome, EvalError> {
        let flash_bytes = flash.pages() as f64 * PAGE_BYTES as f64;
        let mut bins = Bins::new(self.snapshot());
        let warm = Phase {
            bytes: (case.warm_up * flash_bytes) as u64,
            operations_max: case.operations_max,
        };
        let measured = Phase {
            bytes: (case.measured * flash_bytes) as u64,
            operations_max: case.operations_max,
        };
        let mut meter = Meter::new(warm.bytes + measured.bytes, progress);
        let mut goes_on = self.phase(&warm, &mut bins, &mut meter)?;
        self.close_bin(&mut bins);
        bins.start_measuring();
        let begin = self.snapshot();
        self.sets.fill(0);
        if goes_on {
            goes_on = self.phase(&measured, &mut bins, &mut meter)?;
        }
        if let Some(timing) = &mut self.model.watcher().timing {
            timing.drain()?;
        }
        let end = self.snapshot();
        self.close_bin(&mut bins);
        if !goes_on && end.counts.operations == begin.counts.operations {
            return Err(EvalError::Option {
                option: "tiny.warm-up",
                reason: format!(
                    "the trace ended after {} operations, before measuring began; choose a shorter warm-up, a smaller flash-size or more passes",
                    end.counts.operations
                ),
            });
        }
        let live_objects = Some(self.model.count_live_objects(self.now_seconds));
        Ok(Outcome {
            live_objects,
            bins,
            begin,
            end,
            flash,
            sets: self.sets,
            left_out: self.stream.left_out(),
            skipped: self.stream.skipped(),
            is_timed: case.device.rate.is_some(),
        })
    }

    /// Runs until enough bytes were accepted; false if the trace ended.
    fn phase(
        &mut self,
        phase: &Phase,
        bins: &mut Bins,
        meter: &mut Meter<'_>,
    ) -> Result<bool, EvalError> {
        let accepted = |driver: &Self| driver.model.statistics().bytes_in;
        let bytes_upto = accepted(self) + phase.bytes;
        let operations_upto = match phase.operations_max {
            Some(max) => self.counts.operations + max,
            None => u64::MAX,
        };
        while accepted(self) < bytes_upto && self.counts.operations < operations_upto {
            let until = (self.counts.operations + LOOK_EVERY).min(operations_upto);
            while self.counts.operations < until {
                let Some(draw) = self.stream.draw()? else {
                    return Ok(false);
                };
                self.operation(draw)?;
                if bins.is_over(self.counts.operations) {
                    self.close_bin(bins);
                }
            }
            meter.show(accepted(self), self.counts.operations);
        }
        Ok(true)
    }

    fn close_bin(&mut self, bins: &mut Bins) {
        let snapshot = self.snapshot();
        let latencies = match &mut self.model.watcher().timing {
            Some(timing) => std::mem::take(&mut timing.latencies),
            None => Default::default(),
        };
        bins.push(snapshot, latencies);
    }

    fn snapshot(&mut self) -> Snapshot {
        let watch = self.model.watcher();
        let commands = watch.commands;
        let (device, now) = match &watch.timing {
            Some(timing) => (Some(timing.statistics()), timing.now()),
            None => (None, Tick::ZERO),
        };
        Snapshot {
            counts: self.counts,
            commands,
            device,
            now,
            engine: self.model.statistics(),
            memory: self.model.memory(),
        }
    }

    fn operation(&mut self, draw: Draw) -> Result<(), EvalError> {
        // Time never goes back, although a trace's may: an expired object must
        // not come back.
        self.now_seconds = self.now_seconds.max(draw.now_seconds);
        self.counts.operations += 1;
        if !self.sets.is_empty() {
            let set = fast_range(draw.hash.0, self.sets.len());
            self.sets[set] += 1;
        }
        let due = Tick((self.counts.operations as f64 * self.interval_ns) as u64);
        if let Some(timing) = &mut self.model.watcher().timing {
            timing.advance(due)?;
        }
        match draw.op {
            Op::Get => self.get(draw, due)?,
            Op::Put => {
                self.counts.sets += 1;
                self.store(draw);
            }
            Op::Delete => {
                self.counts.deletes += 1;
                if let Some(ram) = &mut self.ram {
                    ram.remove(draw.hash);
                }
                self.model.delete(draw.hash, self.now_seconds);
            }
        }
        Ok(())
    }

    fn get(&mut self, draw: Draw, due: Tick) -> Result<(), EvalError> {
        self.counts.gets += 1;
        if let Some(ram) = &mut self.ram
            && let Some(held) = ram.get(draw.hash, self.now_seconds)
        {
            self.counts.ram_hits += 1;
            self.counts.bytes_out += u64::from(held.bytes);
            self.admission.note_hit(draw.hash, self.now());
            return Ok(());
        }
        if let Some(timing) = &mut self.model.watcher().timing {
            timing.begin(due);
        }
        let read_before = self.model.watcher().commands.pages_read;
        let found = self.model.get(draw.hash, self.now_seconds);
        let pages = self.model.watcher().commands.pages_read - read_before;
        if let Some(timing) = &mut self.model.watcher().timing {
            timing.end();
        }
        match found {
            Some(bytes) => {
                self.counts.engine_hits += 1;
                self.counts.flash_hits += u64::from(pages > 0);
                self.counts.flash_hit_pages += pages;
                self.counts.bytes_out += u64::from(bytes);
                self.admission.note_hit(draw.hash, self.now());
                self.keep(
                    draw.hash,
                    Held {
                        bytes,
                        // The engine has its expiry and checks it at the next
                        // search.
                        expires: Expiry::NEVER,
                        is_clean: true,
                    },
                    draw.ttl_seconds,
                );
            }
            None => {
                self.counts.misses += 1;
                self.counts.miss_pages += pages;
                self.store(draw);
            }
        }
        Ok(())
    }

    fn store(&mut self, draw: Draw) {
        let expires = match draw.ttl_seconds {
            0 => Expiry::NEVER,
            ttl => Expiry(self.now_seconds.saturating_add(ttl)),
        };
        let held = Held {
            bytes: draw.bytes,
            expires,
            is_clean: false,
        };
        self.keep(draw.hash, held, 0);
    }

    /// Inserts an object into the RAM tier, if there is one, and writes the
    /// objects that it evicts. An object found on flash that may expire is not
    /// inserted.
    fn keep(&mut self, hash: KeyHash, held: Held, ttl_seconds: u32) {
        let (seconds, now) = (self.now_seconds, self.now());
        let (model, admission) = (&mut self.model, &mut self.admission);
        let mut write = |hash, left: Held| {
            if left.is_clean || left.expires.is_over(seconds) {
                return;
            }
            if admission.admit(hash, u64::from(left.bytes), now) {
                model.put(hash, left.bytes, left.expires, seconds);
            } else {
                // The rejected value supersedes the key's copies on flash all
                // the same.
                model.delete(hash, seconds);
            }
        };
        match &mut self.ram {
            None => write(hash, held),
            Some(_) if held.is_clean && ttl_seconds > 0 => {}
            Some(ram) => ram
                .insert(hash, held)
                .for_each(|(hash, left)| write(hash, left)),
        }
    }

    /// The workload's own time.
    fn now(&self) -> Tick {
        Tick::from_seconds(self.now_seconds)
    }
}

/// The length of a phase.
struct Phase {
    bytes: u64,
    operations_max: Option<u64>,
}

/// Reports progress a few times per second.
pub(super) struct Meter<'a> {
    bytes: u64,
    shown: Instant,
    progress: &'a mut dyn FnMut(TinyProgress),
}

impl<'a> Meter<'a> {
    pub(super) fn new(bytes: u64, progress: &'a mut dyn FnMut(TinyProgress)) -> Self {
        Meter {
            bytes,
            shown: Instant::now(),
            progress,
        }
    }

    pub(super) fn show(&mut self, bytes_done: u64, operations: u64) {
        if self.shown.elapsed().as_millis() < 250 {
            return;
        }
        self.shown = Instant::now();
        (self.progress)(TinyProgress {
            bytes_done,
            bytes: self.bytes,
            operations,
        });
    }
}
