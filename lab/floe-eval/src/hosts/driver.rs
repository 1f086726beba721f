//! Runs a host's clients from one request to the next. Events are clients that
//! wake up, and commands that the device has completed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use floe_core::Tick;
use floe_core::ssd::{Command, CommandId, Completion, Interface, Rejection, Ssd, Statistics};
use floe_device::CounterSnapshot;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::chunks::Chunks;
use super::config::{EvictionPolicy, HostConfig, Placement, Waiters};
use super::drive::Drive;
use super::mover::Mover;
use super::plan::{Plan, prepared};
use super::pool::Pool;
use super::result::{HostProgress, HostResult};
use super::series::Series;
use super::zones::{Place, Written, Zones};
use crate::error::EvalError;
use crate::metrics::Served;
use crate::run::RunResult;
use crate::workload::{Workload, WorkloadSpec};

/// Lowest command id of resets and trims; clients have lower ones.
const ZONE_COMMANDS: u64 = 1 << 32;
pub(super) const ABSENT: u64 = u64::MAX;
const PENDING: u64 = u64::MAX - 1;

pub(super) struct Driver<'a> {
    pub(super) config: &'a HostConfig,
    pub(super) plan: Plan,
    ssd: Ssd,
    drive: Option<Drive>,
    commands: CounterSnapshot,
    /// The drive's place of each append under way, by its command.
    on_drive: BTreeMap<u64, u64>,
    before: Statistics,
    pub(super) now: Tick,
    rng: Xoshiro256PlusPlus,
    workload: Workload,
    left: u64,
    requests_done: u64,
    pub(super) clients: Vec<Client>,
    wakes: BinaryHeap<Reverse<(Tick, u64, u32)>>,
    sequence: u64,
    /// The place of each key's chunk.
    pub(super) index: Vec<u64>,
    /// Clients that wait for a key that another client is fetching.
    key_waiters: BTreeMap<u32, Vec<u32>>,
    pub(super) zones: Zones,
    /// The chunks, with CLRU.
    pub(super) chunks: Option<Chunks>,
    pub(super) mover: Mover,
    pub(super) look_to_evict_at: Tick,
    zone_waiters: VecDeque<u32>,
    zone_wait_max: Duration,
    /// The place of each append of each chunk.
    appended: Vec<u64>,
    writers: Pool,
    readers: Pool,
    copies_free_at: Tick,
    lock_free_at: Tick,
    /// Number of clients that wait for the remote store.
    fetching: u32,
    series: Series,
}

pub(super) struct Client {
    pub(super) key: u32,
    started: Tick,
    /// Time at which the current step began.
    since: Tick,
    step: Step,
    served: Served,
    pub(super) place: Place,
    calls_done: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Lock,
    WaitForKey,
    WaitForZone,
    Fetch,
    Copy,
    WaitForWriter,
    Write,
    Finish,
    WaitForReader,
    Read,
    Complete,
}

impl<'a> Driver<'a> {
    pub(super) fn new(config: &'a HostConfig, seed: u64) -> Result<Self, EvalError> {
        let device = config.device.config()?;
        let plan = Plan::new(config, &device)?;
        let ssd = prepared(config, device.clone(), seed)?;
        let handles = match device.flash().map(|flash| &flash.interface) {
            Some(Interface::Conventional(ftl)) if config.host.handle_per_zone => ftl.handles,
            _ => 1,
        };
        let host = &config.host;
        let active_max = match plan.is_zoned {
            true => host.active_zones_zoned,
            false => host.active_zones_conventional.unwrap_or(u32::MAX),
        };
        let keys = config.keys();
        let spec = WorkloadSpec {
            distribution: config.distribution.clone(),
            items: keys,
            seed,
        };
        let client = || Client {
            key: 0,
            started: Tick::ZERO,
            since: Tick::ZERO,
            step: Step::Idle,
            served: Served::Other,
            place: Place { zone: 0, slot: 0 },
            calls_done: 0,
        };
        let zones = Zones::new(host, config.zones, plan.slots, active_max, handles);
        let places = plan.slots as usize * config.zones as usize;
        let appended = match plan.appends {
            true => vec![0; places * plan.calls as usize],
            false => Vec::new(),
        };
        let drive = config.drive.as_ref();
        let drive = drive.map(|drive| Drive::open(drive, &plan, config.zones));
        Ok(Driver {
            before: ssd.statistics(),
            ssd,
            drive: drive.transpose()?,
            commands: CounterSnapshot::default(),
            on_drive: BTreeMap::new(),
            now: Tick::ZERO,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x686f_7374),
            workload: Workload::new(&spec)?,
            left: plan.requests,
            requests_done: 0,
            // The last client is the host's garbage collection.
            clients: (0..=host.threads).map(|_| client()).collect(),
            wakes: BinaryHeap::new(),
            sequence: 0,
            index: vec![ABSENT; keys as usize],
            key_waiters: BTreeMap::new(),
            zones: match host.policy == EvictionPolicy::Clru && plan.is_zoned {
                true => zones.keep_spare(),
                false => zones,
            },
            chunks: (host.policy == EvictionPolicy::Clru)
                .then(|| Chunks::new(config.zones, plan.slots)),
            mover: Mover::default(),
            look_to_evict_at: Tick::ZERO,
            zone_waiters: VecDeque::new(),
            zone_wait_max: Duration::ZERO,
            appended,
            writers: Pool::new(host.writers),
            readers: Pool::new(host.readers),
            copies_free_at: Tick::ZERO,
            lock_free_at: Tick::ZERO,
            fetching: 0,
            series: Series::new(config.bin()),
            config,
            plan,
        })
    }

    pub(super) fn run(
        mut self,
        progress: &mut dyn FnMut(HostProgress),
    ) -> Result<HostResult, EvalError> {
        let every = (self.plan.requests / 1000).max(1);
        let mut next_report = every;
        for client in 0..self.config.host.threads {
            self.next_request(client)?;
        }
        let mut done = Vec::new();
        while self.requests_done < self.plan.requests {
            self.step(&mut done)?;
            if self.requests_done >= next_report {
                next_report = self.requests_done + every;
                progress(HostProgress {
                    done: self.requests_done,
                    requests: self.plan.requests,
                });
            }
        }
        Ok(self.result())
    }

    /// Advances time to the next event and handles it.
    fn step(&mut self, done: &mut Vec<Completion>) -> Result<(), EvalError> {
        let wake = self.wakes.peek().map(|Reverse((at, ..))| *at);
        if wake.is_none() && self.ssd.next_wakeup().is_none() {
            return Err(self.deadlock());
        }
        self.now = self
            .ssd
            .advance_to_completion(wake.unwrap_or(Tick::MAX), done);
        for completion in done.drain(..) {
            self.command_completed(completion)?;
        }
        while let Some(&Reverse((at, _, client))) = self.wakes.peek() {
            if at > self.now {
                break;
            }
            self.wakes.pop();
            self.woken(client)?;
        }
        Ok(())
    }

    fn command_completed(&mut self, completion: Completion) -> Result<(), EvalError> {
        let on_drive = self.on_drive.remove(&completion.id.0);
        if on_drive.is_some() && on_drive != completion.appended_at {
            let placed = completion.appended_at;
            return Err(self.broken(&format!(
                "the drive appended at {on_drive:?}, not {placed:?}"
            )));
        }
        let Some(number) = completion.id.0.checked_sub(ZONE_COMMANDS) else {
            return self.call_done(completion.id.0 as u32, completion.appended_at);
        };
        self.zones.emptied(number as u32);
        self.serve_zone_waiters()
    }

    fn woken(&mut self, client: u32) -> Result<(), EvalError> {
        match self.clients[client as usize].step {
            Step::Lock => self.look_up(client),
            Step::Fetch => {
                self.fetching -= 1;
                self.copy(client)
            }
            Step::Copy => self.store(client),
            Step::Complete => self.complete(client),
            step => Err(self.broken(&format!("client {client} was woken in {step:?}"))),
        }
    }

    fn next_request(&mut self, client: u32) -> Result<(), EvalError> {
        if self.left == 0 {
            self.clients[client as usize].step = Step::Idle;
            return Ok(());
        }
        self.left -= 1;
        let key = self.workload.next_id() as u32;
        let now = self.now;
        let state = &mut self.clients[client as usize];
        state.key = key;
        state.started = now;
        let ns = self.config.host.contention_ns;
        if ns == 0 {
            return self.look_up(client);
        }
        let awake = u64::from(self.config.host.threads - self.fetching);
        let held = Duration::from_nanos(ns.saturating_mul(awake));
        self.lock_free_at = self.lock_free_at.max(now) + held;
        self.wake(client, Step::Lock, self.lock_free_at, 0);
        Ok(())
    }

    fn look_up(&mut self, client: u32) -> Result<(), EvalError> {
        let key = self.clients[client as usize].key;
        match self.index[key as usize] {
            PENDING => {
                self.clients[client as usize].step = Step::WaitForKey;
                self.key_waiters.entry(key).or_default().push(client);
                Ok(())
            }
            ABSENT => {
                self.index[key as usize] = PENDING;
                self.clients[client as usize].served = Served::Miss;
                match self.config.host.placement {
                    Placement::HeldDuringFetch => self.want_zone(client),
                    Placement::TakenForWrite => self.fetch(client),
                }
            }
            at => {
                let place = Place {
                    zone: (at >> 32) as u32,
                    slot: at as u32,
                };
                self.zones.pin(place.zone);
                let state = &mut self.clients[client as usize];
                state.served = Served::Hit;
                state.place = place;
                state.step = Step::WaitForReader;
                match self.readers.take(client) {
                    true => self.read(client),
                    false => Ok(()),
                }
            }
        }
    }

    fn fetch(&mut self, client: u32) -> Result<(), EvalError> {
        let remote = &self.config.remote;
        let mean_ns = remote.latency_us * 1000;
        let spread = (mean_ns as f64 * remote.jitter) as u64;
        let latency_ns = mean_ns - spread + self.rng.random_range(0..=2 * spread);
        let overhead_ns = self.config.host.miss_overhead_us * 1000;
        self.fetching += 1;
        self.wake(client, Step::Fetch, self.now, latency_ns + overhead_ns);
        Ok(())
    }

    fn copy(&mut self, client: u32) -> Result<(), EvalError> {
        if let Some(rate) = self.config.host.copy_bytes_per_s {
            let ns = transfer_ns(self.plan.chunk, rate);
            self.wake(client, Step::Copy, self.now, ns);
            return Ok(());
        }
        let ready = self.shared_copy();
        self.wake(client, Step::Copy, ready, 0);
        Ok(())
    }

    /// Time at which the host has copied a chunk to a client, after its other
    /// copies.
    fn shared_copy(&mut self) -> Tick {
        let Some(rate) = self.config.host.copies_bytes_per_s else {
            return self.now;
        };
        let ns = transfer_ns(self.plan.chunk, rate);
        self.copies_free_at = self.copies_free_at.max(self.now) + Duration::from_nanos(ns);
        self.copies_free_at
    }

    fn store(&mut self, client: u32) -> Result<(), EvalError> {
        if self.config.host.placement == Placement::HeldDuringFetch {
            return self.write(client);
        }
        self.clients[client as usize].step = Step::WaitForWriter;
        match self.writers.take(client) {
            true => self.want_zone(client),
            false => Ok(()),
        }
    }

    fn want_zone(&mut self, client: u32) -> Result<(), EvalError> {
        let now = self.now;
        let state = &mut self.clients[client as usize];
        state.step = Step::WaitForZone;
        state.since = now;
        self.zone_waiters.push_back(client);
        self.serve_zone_waiters()
    }

    /// Evicts if it is due, then gives zones to waiting clients.
    pub(super) fn serve_zone_waiters(&mut self) -> Result<(), EvalError> {
        self.resume_moving()?;
        self.evict(false)?;
        while !self.zone_waiters.is_empty() {
            let position = match self.config.host.waiters {
                Waiters::Fifo => 0,
                Waiters::Random => self.rng.random_range(0..self.zone_waiters.len()),
            };
            let client = self.zone_waiters[position];
            let key = self.clients[client as usize].key;
            let Some(place) = self.zones.take(key) else {
                match self.evict(true)? {
                    true => continue,
                    false => break,
                }
            };
            self.zone_waiters.remove(position);
            let state = &mut self.clients[client as usize];
            state.place = place;
            self.zone_wait_max = self.zone_wait_max.max(self.now.since(state.since));
            match self.config.host.placement {
                Placement::HeldDuringFetch => self.fetch(client)?,
                Placement::TakenForWrite => self.write(client)?,
            }
            self.evict(false)?;
        }
        Ok(())
    }

    /// Resets or trims a zone without readers.
    pub(super) fn empty(&mut self, zone: u32) -> Result<(), EvalError> {
        let command = if self.plan.is_zoned {
            Command::Reset { zone }
        } else if self.config.host.trims {
            Command::Trim {
                offset: u64::from(zone) * self.plan.zone_distance,
                bytes: self.plan.zone_distance,
            }
        } else {
            self.zones.emptied(zone);
            return Ok(());
        };
        self.submit(ZONE_COMMANDS + u64::from(zone), command)
    }

    pub(super) fn write(&mut self, client: u32) -> Result<(), EvalError> {
        self.begin_calls(client, Step::Write);
        self.next_call(client)
    }

    pub(super) fn read(&mut self, client: u32) -> Result<(), EvalError> {
        self.begin_calls(client, Step::Read);
        self.next_call(client)
    }

    fn begin_calls(&mut self, client: u32, step: Step) {
        let now = self.now;
        let state = &mut self.clients[client as usize];
        state.step = step;
        state.since = now;
        state.calls_done = 0;
    }

    fn next_call(&mut self, client: u32) -> Result<(), EvalError> {
        let Client {
            place,
            calls_done,
            step,
            ..
        } = self.clients[client as usize];
        let within = u64::from(calls_done) * self.plan.call;
        let bytes = self.plan.call.min(self.plan.chunk - within);
        let zone_start = u64::from(place.zone) * self.plan.zone_distance;
        let planned = zone_start + u64::from(place.slot) * self.plan.chunk + within;
        let number = self.call_number(place, calls_done);
        let command = match step {
            Step::Read => Command::Read {
                offset: self.appended.get(number).copied().unwrap_or(planned),
                bytes,
            },
            _ if self.plan.appends => Command::Append {
                zone: place.zone,
                bytes,
            },
            _ => Command::Write {
                offset: planned,
                bytes,
                handle: self.zones.handle(place.zone),
            },
        };
        self.submit(u64::from(client), command)
    }

    /// The number of a call among all calls of all places.
    fn call_number(&self, place: Place, call: u32) -> usize {
        let place = place.zone as usize * self.plan.slots as usize + place.slot as usize;
        place * self.plan.calls as usize + call as usize
    }

    fn call_done(&mut self, client: u32, appended_at: Option<u64>) -> Result<(), EvalError> {
        let state = &self.clients[client as usize];
        let (place, step, call) = (state.place, state.step, state.calls_done);
        if step == Step::Finish {
            self.zones.filled(place.zone);
            return self.stored(client);
        }
        if let Some(at) = appended_at {
            let number = self.call_number(place, call);
            self.appended[number] = at;
        }
        self.clients[client as usize].calls_done += 1;
        if call + 1 < self.plan.calls {
            return self.next_call(client);
        }
        let latency = self.now.since(self.clients[client as usize].since);
        if step == Step::Read {
            self.series.read(self.now, latency, self.plan.chunk);
            return self.read_done(client);
        }
        self.series.write(self.now, latency, self.plan.chunk);
        match self.zones.written(place) {
            Written::Open => self.stored(client),
            Written::Last if self.plan.is_zoned && !self.plan.fills_zone => {
                self.clients[client as usize].step = Step::Finish;
                self.submit(u64::from(client), Command::Finish { zone: place.zone })
            }
            Written::Last => {
                self.zones.filled(place.zone);
                self.stored(client)
            }
        }
    }

    /// A chunk is on the device: other clients may read it.
    fn stored(&mut self, client: u32) -> Result<(), EvalError> {
        if client == self.config.host.threads {
            return self.moved();
        }
        let Client { key, place, .. } = self.clients[client as usize];
        if let Some(chunks) = &mut self.chunks {
            chunks.insert(place);
        }
        self.index[key as usize] = u64::from(place.zone) << 32 | u64::from(place.slot);
        let waiters = self.key_waiters.remove(&key).unwrap_or_default();
        for waiter in waiters {
            self.look_up(waiter)?;
        }
        if self.config.host.placement == Placement::TakenForWrite
            && let Some(next) = self.writers.give_back()
        {
            self.want_zone(next)?;
        }
        self.serve_zone_waiters()?;
        self.complete(client)
    }

    fn read_done(&mut self, client: u32) -> Result<(), EvalError> {
        if client == self.config.host.threads {
            return self.move_on();
        }
        let place = self.clients[client as usize].place;
        let zone = place.zone;
        if let Some(chunks) = &mut self.chunks {
            chunks.touch(place);
        }
        if let Some(next) = self.readers.give_back() {
            self.read(next)?;
        }
        if self.zones.unpin(zone) {
            self.empty(zone)?;
            // Without a reset or a trim, the zone is empty now.
            self.serve_zone_waiters()?;
        }
        let ready = self.shared_copy();
        let overhead_ns = self.config.host.hit_overhead_us * 1000;
        if ready == self.now && overhead_ns == 0 {
            return self.complete(client);
        }
        self.wake(client, Step::Complete, ready, overhead_ns);
        Ok(())
    }

    fn complete(&mut self, client: u32) -> Result<(), EvalError> {
        let state = &self.clients[client as usize];
        let latency = self.now.since(state.started);
        self.series
            .get(self.now, state.served, latency, self.plan.chunk);
        self.requests_done += 1;
        self.next_request(client)
    }

    fn wake(&mut self, client: u32, step: Step, from: Tick, after_ns: u64) {
        self.clients[client as usize].step = step;
        self.sequence += 1;
        let at = from + Duration::from_nanos(after_ns);
        self.wakes.push(Reverse((at, self.sequence, client)));
    }

    fn submit(&mut self, id: u64, command: Command) -> Result<(), EvalError> {
        self.ssd
            .submit(self.now, CommandId(id), command)
            .map_err(|rejection: Rejection| {
                self.broken(&format!("the device rejected {command:?}: {rejection}"))
            })?;
        count(&mut self.commands, &command, self.plan.is_zoned);
        let Some(drive) = &mut self.drive else {
            return Ok(());
        };
        let wrote_at = drive.carry_out(command)?;
        match (command, wrote_at) {
            (Command::Write { offset, .. }, Some(at)) if at != offset => {
                Err(self.broken(&format!("the drive wrote at {at} for {command:?}")))
            }
            (Command::Append { .. }, Some(at)) => {
                self.on_drive.insert(id, at);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn result(self) -> HostResult {
        let device = self.ssd.statistics().since(&self.before);
        let (whole, distributions, bins) = self.series.end(self.now);
        HostResult {
            run: RunResult {
                name: self.config.name.clone(),
                started_unix_s: 0.0,
                is_virtual: true,
                requests: self.requests_done,
                failed: 0,
                first_failure: None,
                interrupted: false,
                skipped: 0,
                verified_bytes: 0,
                whole,
                distributions,
                bins,
                rss_bytes_max: None,
                cpu_us_per_request: None,
                write_amplification: device.write_amplification(),
                extra: Vec::new(),
                device: None,
                series: Vec::new(),
            },
            device,
            commands: self.drive.as_ref().map_or(self.commands, Drive::counts),
            elapsed_s: self.now.since(Tick::ZERO).as_secs_f64(),
            zone_wait_max_s: self.zone_wait_max.as_secs_f64(),
            moved_chunks: self.mover.moved_chunks,
        }
    }

    fn deadlock(&self) -> EvalError {
        let mut steps: BTreeMap<String, u32> = BTreeMap::new();
        for client in &self.clients[..self.config.host.threads as usize] {
            *steps.entry(format!("{:?}", client.step)).or_default() += 1;
        }
        self.broken(&format!("every client waits: {steps:?}"))
    }

    pub(super) fn broken(&self, why: &str) -> EvalError {
        EvalError::Option {
            option: "host",
            reason: format!(
                "{why}, at {} after {} of {} requests; {}",
                self.now,
                self.requests_done,
                self.plan.requests,
                self.zones.describe()
            ),
        }
    }
}

/// Counts a command as a device counts it.
fn count(counts: &mut CounterSnapshot, command: &Command, is_zoned: bool) {
    match *command {
        Command::Read { bytes, .. } => {
            counts.reads += 1;
            counts.read_bytes += bytes;
        }
        Command::Write { bytes, .. } if !is_zoned => {
            counts.writes += 1;
            counts.write_bytes += bytes;
        }
        Command::Write { bytes, .. } | Command::Append { bytes, .. } => {
            counts.appends += 1;
            counts.append_bytes += bytes;
        }
        Command::Trim { .. } | Command::Reset { .. } => counts.resets += 1,
        Command::Finish { .. } => counts.finishes += 1,
        Command::Flush => counts.flushes += 1,
        Command::Open { .. } | Command::Close { .. } | Command::UpdateHandle { .. } => {}
    }
}

fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let product = u128::from(bytes) * 1_000_000_000;
    (product / u128::from(bytes_per_s.max(1))) as u64
}
