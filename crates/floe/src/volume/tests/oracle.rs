//! A sector oracle: the versions that each sector may read as, under requests that run
//! at once and overlap in any way.

use std::time::Duration;

use floe_core::volume::SECTOR_BYTES;
use floe_core::volume::mode::Mode;
use floe_device::block::history::History;
use floe_device::{Clock, IoBuf, SharedBlockDevice, Sleep};
use futures::stream::{FuturesUnordered, StreamExt as _};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::volume::{Volume, VolumeError};

const SECTOR: usize = SECTOR_BYTES as usize;

/// A write of a sector.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None` after a discard: the sector has any content.
    version: Option<u64>,
    /// When it was issued and acknowledged, counted in events.
    issued: u64,
    acknowledged: u64,
    /// It was acknowledged as durable.
    is_durable: bool,
    /// It ended with an error: it may be there or not.
    has_failed: bool,
}

const PENDING: u64 = u64::MAX;

/// The writes that a sector's content may come from.
#[derive(Clone, Debug)]
struct Sector(Vec<Entry>);

/// The sectors of one volume.
pub(super) struct Oracle {
    /// Bytes of the volume before its first sector here.
    base: u64,
    sectors: Vec<Sector>,
    /// Only sectors before this one are written.
    written_end: usize,
    /// Requests begin and end at multiples of so many sectors.
    unit: usize,
    mix: Mix,
    random: Xoshiro256PlusPlus,
    version: u64,
    /// Counts requests issued and acknowledged.
    events: u64,
    /// When the last flush that was acknowledged had been issued.
    flushed: u64,
    /// Issue of each request that runs.
    running: Vec<u64>,
    /// After a power loss only flushed writes must be there: keep what that needs.
    keeps_flushed: bool,
    /// Requests begin after a while, so that background tasks run between them.
    clock: Option<Clock>,
    recording: Option<Recording>,
}

/// The events of requests, each with the moment of a history at which it happened.
pub(super) struct Recording {
    history: History,
    events: Vec<(usize, Event)>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Issued(Issued),
    Acknowledged(Issued),
}

/// An oracle that goes through the events of a recording.
pub(super) struct Playback {
    oracle: Oracle,
    events: std::iter::Peekable<std::vec::IntoIter<(usize, Event)>>,
}

/// Of 40 requests, those that are not reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) discards: u32,
    pub(super) zeroes: u32,
    pub(super) flushes: u32,
    /// Writes that are durable once they are acknowledged.
    pub(super) durable: u32,
    /// Switches of the cache mode.
    pub(super) switches: u32,
    pub(super) writes: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Mix {
            discards: 1,
            zeroes: 1,
            flushes: 1,
            durable: 1,
            switches: 0,
            writes: 16,
        }
    }
}

/// A request of the oracle.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write { is_durable: bool },
    Zeroes,
    Discard,
    Flush,
    Switch(Mode),
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    kind: Kind,
    first: usize,
    count: usize,
    version: u64,
    issued: u64,
}

impl Oracle {
    pub(super) fn new(bytes: u64, seed: u64) -> Self {
        let zero = Sector(vec![Entry {
            version: Some(0),
            issued: 0,
            acknowledged: 0,
            is_durable: true,
            has_failed: false,
        }]);
        Oracle {
            base: 0,
            sectors: vec![zero; bytes as usize / SECTOR],
            written_end: usize::MAX,
            unit: 1,
            mix: Mix::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            version: 0,
            events: 0,
            flushed: 0,
            running: Vec::new(),
            keeps_flushed: false,
            clock: None,
            recording: None,
        }
    }

    /// An oracle that can also tell what a power loss may leave.
    pub(super) fn with_power_loss(bytes: u64, seed: u64) -> Self {
        Oracle {
            keeps_flushed: true,
            ..Oracle::new(bytes, seed)
        }
    }

    /// Lets requests begin a random time after they are issued.
    pub(super) fn slowed_by(self, clock: &Clock) -> Self {
        let clock = Some(clock.clone());
        Oracle { clock, ..self }
    }

    /// Has the bytes of the volume from `base` on.
    pub(super) fn based_at(self, base: u64) -> Self {
        Oracle { base, ..self }
    }

    /// Leaves the sectors from `written_end` on as they are.
    pub(super) fn writes_below(self, written_end: usize) -> Self {
        Oracle {
            written_end,
            ..self
        }
    }

    /// Issues requests in blocks of `block` bytes, of these kinds.
    pub(super) fn issuing(self, block: u32, mix: Mix) -> Self {
        let unit = block as usize / SECTOR;
        Oracle { unit, mix, ..self }
    }

    /// Records the events of requests beside those of devices.
    pub(super) fn recorded_with(self, history: &History) -> Self {
        let recording = Some(Recording {
            history: history.clone(),
            events: Vec::new(),
        });
        Oracle { recording, ..self }
    }

    /// An oracle in the state before the first recorded event.
    ///
    /// # Panics
    /// If nothing was recorded.
    pub(super) fn playback(self) -> Playback {
        let recording = self.recording.expect("events were recorded");
        let bytes = self.sectors.len() * SECTOR;
        Playback {
            oracle: Oracle::with_power_loss(bytes as u64, 0).based_at(self.base),
            events: recording.events.into_iter().peekable(),
        }
    }

    /// Issues `requests`, of which `depth` run at once, and checks every answer. Ends
    /// early if a device is gone; returns whether it did.
    pub(super) async fn run(&mut self, volume: &Volume, requests: usize, depth: usize) -> bool {
        let mut running = FuturesUnordered::new();
        let (mut issued, mut is_gone) = (0, false);
        while (issued < requests && !is_gone) || !running.is_empty() {
            while issued < requests && running.len() < depth && !is_gone {
                let request = self.issue();
                issued += 1;
                running.push(self.carry_out(volume, request));
            }
            let (request, answer) = running.next().await.expect("one runs");
            match answer {
                Ok(answer) => self.end(request, answer),
                Err(error) => {
                    assert!(self.keeps_flushed, "{error}");
                    is_gone = true;
                }
            }
        }
        is_gone
    }

    /// As [`Oracle::run`], on devices that fail requests. Returns the errors of reads,
    /// and those of other requests.
    pub(super) async fn run_with_faults(
        &mut self,
        volume: &Volume,
        requests: usize,
        depth: usize,
    ) -> [Vec<VolumeError>; 2] {
        let mut running = FuturesUnordered::new();
        let mut errors = [Vec::new(), Vec::new()];
        for at in 0..requests + depth {
            if at < requests {
                let request = self.issue();
                running.push(self.carry_out(volume, request));
            }
            if at >= depth
                && let Some((request, answer)) = running.next().await
            {
                match answer {
                    Ok(answer) => self.end(request, answer),
                    Err(error) => {
                        self.fail(request);
                        errors[usize::from(!matches!(request.kind, Kind::Read))].push(error);
                    }
                }
            }
        }
        errors
    }

    /// As [`Oracle::run`], in front of a cache that closes meanwhile, or by clients that go
    /// before they have an answer. Returns the errors.
    pub(super) async fn run_with_departures(
        &mut self,
        volume: &Volume,
        (requests, depth): (usize, usize),
        departures: f64,
    ) -> Vec<VolumeError> {
        let clock = self.clock.clone().expect("requests take time");
        let mut running = FuturesUnordered::new();
        let mut errors = Vec::new();
        for at in 0..requests + depth {
            if at < requests {
                let request = self.issue();
                let goes = self.random.random_bool(departures);
                let after = Duration::from_micros(self.random.random_range(0..3000));
                let after = if goes { after } else { Duration::MAX };
                let gone = clock.sleep(after);
                let answered = self.carry_out(volume, request);
                running.push(async move {
                    tokio::select! {
                        biased;
                        (_, answer) = answered => (request, Some(answer)),
                        () = gone => (request, None),
                    }
                });
            }
            if at >= depth
                && let Some((request, answer)) = running.next().await
            {
                match answer {
                    Some(Ok(answer)) => self.end(request, answer),
                    Some(Err(error)) => {
                        self.fail(request);
                        errors.push(error);
                    }
                    None => self.fail(request),
                }
            }
        }
        errors
    }

    fn fail(&mut self, request: Issued) {
        self.events += 1;
        self.running.retain(|issued| *issued != request.issued);
        for sector in &mut self.sectors[request.first..request.first + request.count] {
            for entry in &mut sector.0 {
                if entry.issued == request.issued {
                    entry.acknowledged = self.events;
                    entry.has_failed = true;
                }
            }
        }
    }

    /// Issues `requests`, of which `depth` run at once, and drops those that still run.
    pub(super) async fn run_and_leave(&mut self, volume: &Volume, requests: usize, depth: usize) {
        let mut running = FuturesUnordered::new();
        for _ in 0..requests {
            let request = self.issue();
            running.push(self.carry_out(volume, request));
            while running.len() >= depth {
                let (request, answer) = running.next().await.expect("one runs");
                self.end(request, answer.expect("no device fails"));
            }
        }
    }

    fn carry_out(
        &mut self,
        volume: &Volume,
        request: Issued,
    ) -> impl Future<Output = (Issued, Result<Option<IoBuf>, VolumeError>)> + use<> {
        let micros = match self.random.random_range(0..50) {
            0 => 1_000_000,
            _ => self.random.random_range(0..500),
        };
        let time = Duration::from_micros(micros);
        let sleep = self.clock.as_ref().map(|clock| clock.sleep(time));
        carry_out(volume.clone(), self.base, request, sleep)
    }

    fn issue(&mut self) -> Issued {
        let total = self.sectors.len();
        // Half of the requests go to a sixteenth of the volume.
        let span = match self.random.random_range(0..2) {
            0 => total / 16,
            _ => total,
        };
        let unit = [1, 8, 8, 64][self.random.random_range(0..4)].max(self.unit);
        let longest = [8, 64, 200][self.random.random_range(0..3)];
        let first = self.random.random_range(0..span) / unit * unit;
        let count = self.random.random_range(1..=longest / unit + 1) * unit;
        let count = count.min(total - first);
        let mut kind = self.kind();
        if first + count > self.written_end && !matches!(kind, Kind::Flush | Kind::Switch(_)) {
            kind = Kind::Read;
        }
        self.version += 1;
        let request = Issued {
            kind,
            first,
            count,
            version: self.version,
            issued: self.events + 1,
        };
        self.begin(request);
        request
    }

    fn kind(&mut self) -> Kind {
        let number = self.random.random_range(0..40);
        let mode = Mode::ALL[self.random.random_range(0..Mode::ALL.len())];
        let mix = self.mix;
        let mut end = 0;
        let kinds = [
            (mix.discards, Kind::Discard),
            (mix.zeroes, Kind::Zeroes),
            (mix.flushes, Kind::Flush),
            (mix.durable, Kind::Write { is_durable: true }),
            (mix.switches, Kind::Switch(mode)),
            (mix.writes, Kind::Write { is_durable: false }),
        ];
        let kind = kinds.into_iter().find(|(share, _)| {
            end += share;
            number < end
        });
        kind.map_or(Kind::Read, |(_, kind)| kind)
    }

    fn begin(&mut self, request: Issued) {
        self.record(Event::Issued(request));
        self.events += 1;
        self.running.push(request.issued);
        if let Some(version) = request.written() {
            let sectors = request.first..request.first + request.count;
            for sector in &mut self.sectors[sectors] {
                sector.0.push(Entry {
                    version,
                    issued: request.issued,
                    acknowledged: PENDING,
                    is_durable: false,
                    has_failed: false,
                });
            }
        }
    }

    fn record(&mut self, event: Event) {
        if let Some(Recording { history, events }) = &mut self.recording {
            events.push((history.now(), event));
        }
    }

    fn end(&mut self, request: Issued, answer: Option<IoBuf>) {
        self.record(Event::Acknowledged(request));
        self.events += 1;
        self.running.retain(|issued| *issued != request.issued);
        let oldest = self.running.iter().copied().min().unwrap_or(self.events);
        let is_durable = matches!(request.kind, Kind::Write { is_durable: true });
        if is_durable || matches!(request.kind, Kind::Flush) {
            self.flushed = self.flushed.max(request.issued);
        }
        let needed_since = match self.keeps_flushed {
            true => oldest.min(self.flushed),
            false => oldest,
        };
        let sectors = &mut self.sectors[request.first..request.first + request.count];
        if let (Kind::Read, Some(buf)) = (request.kind, &answer) {
            for (at, (sector, bytes)) in sectors.iter().zip(buf.chunks_exact(SECTOR)).enumerate() {
                sector.check(bytes, acknowledged_by(request.issued), request.first + at);
            }
        }
        if request.written().is_some() {
            for sector in sectors {
                let mut entries = sector.0.iter_mut();
                let entry = entries.find(|entry| entry.issued == request.issued);
                let entry = entry.expect("it was issued");
                entry.acknowledged = self.events;
                entry.is_durable = is_durable;
                sector.forget_before(needed_since);
            }
        }
    }

    /// The power was lost, or the process died: requests that ran may have taken effect
    /// or not. Only flushed writes must be there after a power loss.
    pub(super) fn crash(&mut self, lost_power: bool) {
        let since = self.since(lost_power);
        self.events += 1;
        self.running.clear();
        for sector in &mut self.sectors {
            // Of its own sectors a durable write is as good as a flush.
            sector.forget(|entry| entry.acknowledged <= since || entry.is_durable);
            // All that may be there has the same age from now on: a read that returns
            // one of them is right.
            for entry in &mut sector.0 {
                entry.acknowledged = self.events;
                entry.is_durable = true;
                entry.has_failed = false;
            }
        }
        self.flushed = self.events;
    }

    /// The process died, and the power may fail before the next flush: requests that ran may
    /// have taken effect or not.
    pub(super) fn die(&mut self) {
        self.events += 1;
        self.running.clear();
        let entries = self.sectors.iter_mut().flat_map(|sector| &mut sector.0);
        for entry in entries.filter(|entry| entry.acknowledged == PENDING) {
            entry.acknowledged = self.events;
            entry.has_failed = true;
        }
    }

    /// Requests that were acknowledged by then must be there after a crash now.
    fn since(&self, lost_power: bool) -> u64 {
        match lost_power {
            true => self.flushed,
            false => self.events,
        }
    }

    /// Reads all sectors that it has.
    pub(super) async fn verify(&mut self, volume: &Volume) {
        let step = 1 << 20;
        let bytes = self.sectors.len() * SECTOR;
        for at in (0..bytes as u64).step_by(step) {
            let len = step.min(bytes - at as usize);
            let buf = volume.read_at(at, len).await.expect("no device fails");
            self.settle_all(at, &buf);
        }
    }

    /// Reads all of the backing device, which must have everything.
    pub(super) async fn verify_backing(&mut self, backing: &SharedBlockDevice) {
        let step = 1 << 20;
        for at in (0..backing.size_bytes()).step_by(step) {
            let len = step.min((backing.size_bytes() - at) as usize);
            let buf = backing.read(at, IoBuf::zeroed(len)).await;
            self.check_all(at, &buf.expect("no device fails"));
        }
    }

    fn check_all(&self, at: u64, buf: &[u8]) {
        let first = at as usize / SECTOR;
        for (at, bytes) in buf.chunks_exact(SECTOR).enumerate() {
            self.sectors[first + at].check(bytes, acknowledged_by(self.events), first + at);
        }
    }

    /// Checks sectors while no request runs: what they read as now they must read as
    /// until they are written.
    fn settle_all(&mut self, at: u64, buf: &[u8]) {
        self.check_all(at, buf);
        let since = self.since(self.keeps_flushed);
        let first = at as usize / SECTOR;
        for (at, bytes) in buf.chunks_exact(SECTOR).enumerate() {
            let sector = &mut self.sectors[first + at];
            // A write that failed may be read, and be lost with the process; one that was
            // not flushed with the power.
            let is_open = |entry: &Entry| {
                let may_be_lost = entry.acknowledged > since && !entry.is_durable;
                entry.version.is_none() || entry.has_failed || may_be_lost
            };
            if sector.0.iter().any(is_open) {
                continue;
            }
            let version = version_of(bytes);
            let last = sector.0.iter().rev();
            let found = last.copied().find(|entry| entry.version == version);
            sector
                .0
                .retain(|entry| Some(entry.issued) == found.map(|found| found.issued));
        }
    }
}

impl Playback {
    /// Goes on to the moment `point` of the history. Points ascend.
    pub(super) fn go_to(&mut self, point: usize) {
        while let Some((_, event)) = self.events.next_if(|(at, _)| *at <= point) {
            match event {
                Event::Issued(request) => self.oracle.begin(request),
                Event::Acknowledged(request) => self.oracle.end(request, None),
            }
        }
    }

    /// Judges the content of the volume after a power loss, or the death of the process,
    /// at this moment.
    pub(super) fn judge(&self, content: &[u8], lost_power: bool) -> Result<(), String> {
        let since = self.oracle.since(lost_power);
        let is_there = |entry: &Entry| entry.acknowledged <= since || entry.is_durable;
        let sectors = self.oracle.sectors.iter().zip(content.chunks_exact(SECTOR));
        for (number, (sector, bytes)) in sectors.enumerate() {
            sector.judge(bytes, is_there, number)?;
        }
        Ok(())
    }
}

impl Issued {
    /// The content that it writes, if it writes: a version, or any after a discard.
    fn written(&self) -> Option<Option<u64>> {
        match self.kind {
            Kind::Write { .. } => Some(Some(self.version)),
            Kind::Zeroes => Some(Some(0)),
            Kind::Discard => Some(None),
            Kind::Read | Kind::Flush | Kind::Switch(_) => None,
        }
    }
}

impl Sector {
    /// True if no write that `is_there` was issued after this one was acknowledged.
    fn is_possible(&self, entry: &Entry, is_there: impl Fn(&Entry) -> bool) -> bool {
        let has_succeeded = |other: &&Entry| other.acknowledged != PENDING && !other.has_failed;
        let acknowledged = self.0.iter().filter(has_succeeded);
        let mut later = acknowledged.filter(|other| other.issued > entry.acknowledged);
        !later.any(is_there)
    }

    /// Checks the content of a sector, which later writes than those that `is_there`
    /// may have changed.
    fn check(&self, bytes: &[u8], is_there: impl Fn(&Entry) -> bool, number: usize) {
        if let Err(violation) = self.judge(bytes, is_there, number) {
            panic!("{violation}");
        }
    }

    fn judge(
        &self,
        bytes: &[u8],
        is_there: impl Fn(&Entry) -> bool,
        number: usize,
    ) -> Result<(), String> {
        let possible: Vec<_> = self
            .0
            .iter()
            .filter(|entry| self.is_possible(entry, &is_there))
            .map(|entry| entry.version)
            .collect();
        if possible.contains(&None) {
            return Ok(());
        }
        match version_of(bytes) {
            None => Err(format!("sector {number} is torn")),
            Some(found) if possible.contains(&Some(found)) => Ok(()),
            Some(found) => Err(format!(
                "sector {number} reads as version {found}, not one of {possible:?}"
            )),
        }
    }

    /// Forgets writes that are superseded for every reader from `since` on.
    fn forget_before(&mut self, since: u64) {
        self.forget(|entry| entry.acknowledged <= since);
    }

    fn forget(&mut self, is_there: impl Fn(&Entry) -> bool) {
        let before = self.clone();
        self.0.retain(|entry| before.is_possible(entry, &is_there));
    }
}

fn acknowledged_by(since: u64) -> impl Fn(&Entry) -> bool {
    move |entry| entry.acknowledged <= since
}

/// The version that fills `bytes`: a mixture is no version.
fn version_of(bytes: &[u8]) -> Option<u64> {
    let (version, rest) = bytes.split_first_chunk::<8>()?;
    // Every word equals the next one.
    let is_alike = bytes.get(..rest.len()) == Some(rest);
    is_alike.then(|| u64::from_le_bytes(*version))
}

fn filled(version: u64, count: usize) -> IoBuf {
    let mut buf = IoBuf::zeroed(count * SECTOR);
    let (words, _) = buf.as_chunks_mut::<8>();
    words.fill(version.to_le_bytes());
    buf
}

async fn carry_out(
    volume: Volume,
    base: u64,
    request: Issued,
    sleep: Option<Sleep>,
) -> (Issued, Result<Option<IoBuf>, VolumeError>) {
    if let Some(sleep) = sleep {
        sleep.await;
    }
    let at = base + (request.first * SECTOR) as u64;
    let len = request.count * SECTOR;
    let result = match request.kind {
        Kind::Read => volume.read_at(at, len).await.map(Some),
        Kind::Write { is_durable } => {
            let data = filled(request.version, request.count).freeze();
            volume.write_at(at, data, is_durable).await.map(|()| None)
        }
        Kind::Zeroes => volume
            .write_zeroes(at, len as u64, false)
            .await
            .map(|()| None),
        Kind::Discard => volume.discard(at, len as u64).await.map(|()| None),
        Kind::Flush => volume.flush().await.map(|()| None),
        Kind::Switch(mode) => volume.set_mode(mode).await.map(|()| None),
    };
    (request, result)
}
