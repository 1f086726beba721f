//! Executes an engine's commands in the time of a simulated SSD.
//!
//! The engine has decided on the model already; this executes its commands. A
//! search reads its index pages, then its object pages in parallel. The
//! engine's background commands form one queue in order, with a limit of
//! commands in flight. A zone is reset when all commands queued before it are
//! done and every search that began earlier has ended. Searches find pages of
//! queued commands in memory. If the queue is too long, the next request waits.
//! Its latency counts from its due time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use floe_core::Tick;
use floe_core::ssd::{Command, CommandId, Completion, Interface, Ssd, Statistics};
use floe_core::tiny::{Flash, PAGE_BYTES, PageAddress};
use hdrhistogram::Histogram;

use crate::error::EvalError;
use crate::metrics::histogram;

/// Bytes of one command of an append.
const APPEND_BYTES: u64 = 256 << 10;

/// Lowest id of background commands; searches have lower ones.
const BACKGROUND: u64 = 1 << 40;

/// Most searches in flight.
const SEARCHES_MAX: usize = 4096;

/// Latencies of a stretch.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    /// Latencies of searches that read flash.
    pub(super) search: Histogram<u64>,
    /// Latencies of page reads.
    pub(super) read: Histogram<u64>,
    /// Latencies of write commands.
    pub(super) write: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            search: histogram(),
            read: histogram(),
            write: histogram(),
        }
    }
}

impl Latencies {
    pub(super) fn merge(&mut self, other: &Latencies) {
        // All histograms have the same precision and resize automatically.
        let _ = self.search.add(&other.search);
        let _ = self.read.add(&other.read);
        let _ = self.write.add(&other.write);
    }
}

#[derive(Debug)]
pub(super) struct Timing {
    ssd: Ssd,
    flash: Flash,
    zone_bytes: u64,
    is_zoned: bool,
    handles: Handles,
    /// Reads are simulated.
    has_reads: bool,
    depth: usize,
    now: Tick,
    searches: Vec<Search>,
    idle_searches: Vec<u32>,
    /// Numbers of searches in flight, oldest first.
    under_way: BTreeSet<u64>,
    next_number: u64,
    current: Option<u32>,
    queue: VecDeque<Piece>,
    queued_bytes: u64,
    queued_bytes_max: u64,
    /// Background commands in flight, with their submission time and meaning.
    background: BTreeMap<u64, (Tick, Piece)>,
    next_background: u64,
    zones: Vec<Zone>,
    /// Pages written in place whose write is not done.
    pending: BTreeMap<u32, u32>,
    done: Vec<Completion>,
    broken: Option<String>,
    pub(super) latencies: Latencies,
}

#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// Number of resets in the engine's view.
    generation: u32,
    /// Pages of this generation that are on flash, from its start.
    durable_pages: u32,
}

#[derive(Debug, Default)]
struct Search {
    number: u64,
    due: Tick,
    submitted: Tick,
    /// Pages of each phase that are on flash.
    phases: VecDeque<Vec<PageAddress>>,
    left: u32,
}

#[derive(Clone, Copy, Debug)]
enum Piece {
    Read(PageAddress),
    Append {
        first: PageAddress,
        pages: u32,
        generation: u32,
    },
    InPlace(PageAddress),
    Reset {
        zone: u32,
        /// Searches with lower numbers may read the zone.
        before: u64,
    },
}

impl Piece {
    fn bytes(self) -> u64 {
        let pages = match self {
            Piece::Read(_) | Piece::Reset { .. } => 0,
            Piece::Append { pages, .. } => u64::from(pages),
            Piece::InPlace(_) => 1,
        };
        pages * PAGE_BYTES as u64
    }
}

/// Chooses a reclaim-unit handle for each zone's data: the one with the fewest
/// zones being written. Pages written in place have the first handle.
#[derive(Debug)]
struct Handles {
    /// Zones being written, per handle.
    users: Vec<u32>,
    of_zone: BTreeMap<u32, u16>,
}

impl Handles {
    fn of(&mut self, zone: u32) -> u16 {
        if let Some(handle) = self.of_zone.get(&zone) {
            return *handle;
        }
        let rest = self.users.iter().enumerate().skip(1);
        let least = rest
            .min_by_key(|(_, users)| **users)
            .map_or(0, |(at, _)| at);
        self.users[least] += 1;
        self.of_zone.insert(zone, least as u16);
        least as u16
    }

    fn end(&mut self, zone: u32) {
        if let Some(handle) = self.of_zone.remove(&zone) {
            self.users[usize::from(handle)] -= 1;
        }
    }
}

impl Timing {
    pub(super) fn new(ssd: Ssd, flash: Flash, has_reads: bool, depth: u32) -> Self {
        let interface = ssd.config().flash().map(|flash| &flash.interface);
        let (is_zoned, handles) = match interface {
            Some(Interface::Conventional(ftl)) => (false, usize::from(ftl.handles)),
            _ => (true, 1),
        };
        let zone_bytes = u64::from(flash.zone_pages) * PAGE_BYTES as u64;
        Timing {
            ssd,
            flash,
            zone_bytes,
            is_zoned,
            handles: Handles {
                users: vec![0; handles],
                of_zone: BTreeMap::new(),
            },
            has_reads,
            depth: depth.max(1) as usize,
            now: Tick::ZERO,
            searches: Vec::new(),
            idle_searches: Vec::new(),
            under_way: BTreeSet::new(),
            next_number: 0,
            current: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            queued_bytes_max: (4 * zone_bytes).max(16 << 20),
            background: BTreeMap::new(),
            next_background: BACKGROUND,
            zones: vec![Zone::default(); flash.zones as usize],
            pending: BTreeMap::new(),
            done: Vec::new(),
            broken: None,
            latencies: Latencies::default(),
        }
    }

    pub(super) fn now(&self) -> Tick {
        self.now
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.ssd.statistics()
    }

    /// Advances time to `due`, and further while the background queue is too
    /// long.
    pub(super) fn advance(&mut self, due: Tick) -> Result<(), EvalError> {
        while self.broken.is_none() {
            let is_behind =
                self.queued_bytes > self.queued_bytes_max || self.under_way.len() > SEARCHES_MAX;
            if !is_behind && self.now >= due {
                break;
            }
            self.submit_background();
            let until = if is_behind { Tick(u64::MAX) } else { due };
            match self.ssd.next_wakeup() {
                Some(at) if at <= until => self.step(at.max(self.now)),
                Some(_) => self.now = until,
                None if is_behind => {
                    self.broken = Some("background work never ends".into());
                }
                None => self.now = due,
            }
        }
        match self.broken.take() {
            None => Ok(()),
            Some(reason) => Err(EvalError::Option {
                option: "tiny.device",
                reason,
            }),
        }
    }

    /// Waits for all commands in flight.
    pub(super) fn drain(&mut self) -> Result<(), EvalError> {
        self.submit_background();
        while let Some(at) = self.ssd.next_wakeup() {
            self.step(at.max(self.now));
            self.submit_background();
        }
        self.advance(self.now)
    }

    fn step(&mut self, until: Tick) {
        let mut done = std::mem::take(&mut self.done);
        self.now = self.ssd.advance_to_completion(until, &mut done);
        for completion in done.drain(..) {
            if completion.id.0 < BACKGROUND {
                self.page_read(completion.id.0 as u32, completion.at);
            } else {
                self.piece_done(completion.id.0, completion.at);
            }
        }
        self.done = done;
        self.submit_background();
    }

    /// Begins a search for a request that was due at `due`.
    pub(super) fn begin(&mut self, due: Tick) {
        if !self.has_reads {
            return;
        }
        let at = self.idle_searches.pop().unwrap_or_else(|| {
            self.searches.push(Search::default());
            self.searches.len() as u32 - 1
        });
        let search = &mut self.searches[at as usize];
        search.number = self.next_number;
        search.due = due;
        search.phases.clear();
        self.under_way.insert(self.next_number);
        self.next_number += 1;
        self.current = Some(at);
    }

    /// Ends the search: all of its reads are known.
    pub(super) fn end(&mut self) {
        let Some(at) = self.current.take() else {
            return;
        };
        if self.searches[at as usize].phases.is_empty() {
            self.under_way.remove(&self.searches[at as usize].number);
            self.idle_searches.push(at);
            return;
        }
        self.next_phase(at, self.now);
    }

    fn next_phase(&mut self, at: u32, now: Tick) {
        loop {
            let search = &mut self.searches[at as usize];
            let Some(pages) = search.phases.pop_front() else {
                let latency = now.since(search.due);
                let number = search.number;
                record(&mut self.latencies.search, latency);
                self.under_way.remove(&number);
                self.idle_searches.push(at);
                return;
            };
            search.left = pages.len() as u32;
            search.submitted = now;
            for page in &pages {
                let command = Command::Read {
                    offset: self.offset(*page),
                    bytes: PAGE_BYTES as u64,
                };
                self.submit(CommandId(u64::from(at)), command);
            }
            if !pages.is_empty() {
                return;
            }
        }
    }

    fn page_read(&mut self, at: u32, now: Tick) {
        let search = &mut self.searches[at as usize];
        record(&mut self.latencies.read, now.since(search.submitted));
        search.left -= 1;
        if search.left == 0 {
            self.next_phase(at, now);
        }
    }

    fn submit_background(&mut self) {
        while self.background.len() < self.depth {
            let Some(&piece) = self.queue.front() else {
                return;
            };
            let is_blocked = match piece {
                Piece::Reset { before, .. } => {
                    let oldest = self.under_way.first();
                    !self.background.is_empty() || oldest.is_some_and(|number| *number < before)
                }
                _ => false,
            };
            let resets = self.background.values();
            let waits_for_reset = matches!(resets.last(), Some((_, Piece::Reset { .. })));
            if is_blocked || waits_for_reset || self.broken.is_some() {
                return;
            }
            self.queue.pop_front();
            let id = self.next_background;
            self.next_background += 1;
            self.background.insert(id, (self.now, piece));
            let command = self.command(piece);
            self.submit(CommandId(id), command);
        }
    }

    fn command(&mut self, piece: Piece) -> Command {
        let page_bytes = PAGE_BYTES as u64;
        match piece {
            Piece::Read(page) => Command::Read {
                offset: self.offset(page),
                bytes: page_bytes,
            },
            Piece::Append { first, pages, .. } if self.is_zoned => Command::Append {
                zone: self.flash.zone_of(first),
                bytes: u64::from(pages) * page_bytes,
            },
            Piece::Append { first, pages, .. } => {
                let zone = self.flash.zone_of(first);
                let handle = self.handles.of(zone);
                if (first.0 + pages).is_multiple_of(self.flash.zone_pages) {
                    self.handles.end(zone);
                }
                Command::Write {
                    offset: self.offset(first),
                    bytes: u64::from(pages) * page_bytes,
                    handle,
                }
            }
            Piece::InPlace(page) => Command::Write {
                offset: self.offset(page),
                bytes: page_bytes,
                handle: 0,
            },
            Piece::Reset { zone, .. } if self.is_zoned => Command::Reset { zone },
            Piece::Reset { zone, .. } => Command::Trim {
                offset: u64::from(zone) * self.zone_bytes,
                bytes: self.zone_bytes,
            },
        }
    }

    fn submit(&mut self, id: CommandId, command: Command) {
        if let Err(rejection) = self.ssd.submit(self.now, id, command) {
            self.broken
                .get_or_insert(format!("the drive rejected {command:?}: {rejection}"));
        }
    }

    fn piece_done(&mut self, id: u64, now: Tick) {
        let Some((submitted, piece)) = self.background.remove(&id) else {
            return;
        };
        self.queued_bytes -= piece.bytes();
        if piece.bytes() > 0 {
            record(&mut self.latencies.write, now.since(submitted));
        }
        match piece {
            Piece::Append {
                first,
                pages,
                generation,
            } => {
                let end = first.0 % self.flash.zone_pages + pages;
                let zone = &mut self.zones[self.flash.zone_of(first) as usize];
                if zone.generation == generation {
                    zone.durable_pages = zone.durable_pages.max(end);
                }
            }
            Piece::InPlace(page) => {
                if let Some(count) = self.pending.get_mut(&page.0) {
                    *count -= 1;
                    if *count == 0 {
                        self.pending.remove(&page.0);
                    }
                }
            }
            Piece::Read(_) | Piece::Reset { .. } => {}
        }
    }

    fn offset(&self, page: PageAddress) -> u64 {
        u64::from(page.0) * PAGE_BYTES as u64
    }

    fn is_on_flash(&self, page: PageAddress) -> bool {
        if self.pending.contains_key(&page.0) {
            return false;
        }
        let zone = self.zones[self.flash.zone_of(page) as usize];
        self.flash.in_place || page.0 % self.flash.zone_pages < zone.durable_pages
    }

    fn enqueue(&mut self, piece: Piece) {
        self.queued_bytes += piece.bytes();
        self.queue.push_back(piece);
    }

    pub(super) fn read(&mut self, pages: &[PageAddress], for_search: bool) {
        if !self.has_reads {
            return;
        }
        let on_flash = pages.iter().copied().filter(|page| self.is_on_flash(*page));
        let on_flash: Vec<PageAddress> = on_flash.collect();
        match self.current {
            Some(at) if for_search => {
                if !on_flash.is_empty() {
                    self.searches[at as usize].phases.push_back(on_flash);
                }
            }
            _ => on_flash
                .into_iter()
                .for_each(|page| self.enqueue(Piece::Read(page))),
        }
    }

    pub(super) fn appended(&mut self, first: PageAddress, pages: usize) {
        let zone = self.zones[self.flash.zone_of(first) as usize];
        let step = (APPEND_BYTES / PAGE_BYTES as u64) as usize;
        for from in (0..pages).step_by(step) {
            self.enqueue(Piece::Append {
                first: PageAddress(first.0 + from as u32),
                pages: step.min(pages - from) as u32,
                generation: zone.generation,
            });
        }
    }

    pub(super) fn written_in_place(&mut self, page: PageAddress) {
        *self.pending.entry(page.0).or_default() += 1;
        self.enqueue(Piece::InPlace(page));
    }

    pub(super) fn reset(&mut self, zone: u32) {
        let state = &mut self.zones[zone as usize];
        state.generation += 1;
        state.durable_pages = 0;
        self.enqueue(Piece::Reset {
            zone,
            before: self.next_number,
        });
    }
}

pub(super) fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    // The histogram resizes to hold any value.
    let _ = latencies.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}
