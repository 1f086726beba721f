//! Memory for values in transfer, divided among all connections.
//!
//! * A connection holds at most [`CONNECTION_SHARE`] of it, and no share while
//!   it waits for its first.
//! * A growing value waits while it holds a share. One value at a time may use
//!   the *lane*, which has room for one item of any size. That value always
//!   completes, so growing values cannot deadlock.
//! * While memory is short, transfers below the least rate lose their
//!   connections, the slowest first.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use floe::limit::{Held, Limit};
use floe_core::Tick;
use floe_device::Clock;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::MemcachedConfig;

/// Bytes of one unit.
const UNIT_BYTES: u64 = 1024;

/// The fraction (1/8) of the memory that one connection may hold, unless an item is larger.
const CONNECTION_SHARE: u32 = 8;

/// Bytes of a read of a client that keeps many requests under way.
pub(super) const WIDE_READ_BYTES: usize = 256 << 10;

/// Wide reads take at most this fraction (1/8) of the memory, on top of it.
const WIDE_SHARE: u64 = 8;

/// Grace of a slow transfer while memory is short.
const SHORTAGE_GRACE: Duration = Duration::from_secs(1);

/// Interval at which a connection that waits for memory looks for slow transfers.
const SHORTAGE_INTERVAL: Duration = Duration::from_millis(200);

/// The memory of all connections.
#[derive(Debug)]
pub(super) struct Memory {
    clock: Clock,
    pool: Arc<Limit>,
    /// One permit; see the module's invariants.
    lane: Arc<Semaphore>,
    lane_units: u32,
    /// Reads of many requests at once, of [`WIDE_READ_BYTES`] each.
    wide: Arc<Limit>,
    /// Bytes per second below which a transfer is slow; 0 is never.
    min_rate: AtomicU64,
    transfers: Mutex<Transfers>,
    waits: AtomicU64,
}

#[derive(Debug, Default)]
struct Transfers {
    next_id: u64,
    open: BTreeMap<u64, Arc<TransferState>>,
}

impl Memory {
    pub(super) fn new(config: &MemcachedConfig, clock: Clock) -> Arc<Self> {
        let lane_units = units(config.max_item_size.bytes());
        Arc::new(Memory {
            clock,
            pool: Limit::new(pool_units(config, lane_units)),
            lane: Arc::new(Semaphore::new(1)),
            lane_units,
            wide: Limit::new(wide_reads(config)),
            min_rate: AtomicU64::new(config.min_rate.bytes()),
            transfers: Mutex::default(),
            waits: AtomicU64::new(0),
        })
    }

    /// Applies the limits of `config`. Existing shares stay valid.
    pub(super) fn reload(&self, config: &MemcachedConfig) {
        self.pool.set(pool_units(config, self.lane_units));
        self.wide.set(wide_reads(config));
        self.min_rate.store(config.min_rate.bytes(), Relaxed);
    }

    /// Units of the memory without the lane.
    fn pool_units(&self) -> u32 {
        u32::try_from(self.pool.units()).unwrap_or(u32::MAX)
    }

    /// Times that a connection waited for memory.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Bytes that connections hold.
    pub(super) fn used_bytes(&self) -> u64 {
        let lane = match self.lane.available_permits() {
            0 => self.lane_units as usize,
            _ => 0,
        };
        let wide = self.wide.held() * WIDE_READ_BYTES;
        (self.pool.held() + lane) as u64 * UNIT_BYTES + wide as u64
    }

    /// Room for wide reads, until it is dropped; `None` if there is none.
    pub(super) fn try_wide(&self) -> Option<Held> {
        self.wide.try_hold(1)
    }

    /// Units for `bytes`, at most all there are.
    fn units(&self, bytes: u64) -> u32 {
        units(bytes).min(self.pool_units())
    }

    /// A share of `bytes`, if one is available at once.
    pub(super) fn try_share(&self, account: &Arc<Account>, bytes: u64) -> Option<Share> {
        let units = self.units(bytes);
        let held = account.units.load(Relaxed);
        let most = (self.pool_units() / CONNECTION_SHARE).max(self.lane_units);
        if held > 0 && held.saturating_add(units) > most {
            return None;
        }
        Some(Share::new(account, self.pool.try_hold(units)?, units))
    }

    /// Waits for a share of `bytes`, for a connection that holds none; `None` after `limit`.
    pub(super) async fn share(
        &self,
        account: &Arc<Account>,
        bytes: u64,
        limit: Duration,
    ) -> Option<Share> {
        debug_assert_eq!(account.units.load(Relaxed), 0, "it holds and waits");
        if let Some(share) = self.try_share(account, bytes) {
            return Some(share);
        }
        self.waits.fetch_add(1, Relaxed);
        let units = self.units(bytes);
        let mut hold = pin!(Arc::clone(&self.pool).hold(units));
        let mut deadline = self.clock.sleep(limit);
        loop {
            self.evict_slow(units);
            tokio::select! {
                biased;
                held = &mut hold => return Some(Share::new(account, held, units)),
                () = &mut deadline => return None,
                () = self.clock.sleep(SHORTAGE_INTERVAL) => {}
            }
        }
    }

    /// Adds `bytes` to the share of an arriving value; `false` if they are not
    /// available within `limit`.
    pub(super) async fn grow(
        &self,
        share: &mut Share,
        bytes: u64,
        transfer: &Transfer,
        limit: Duration,
    ) -> bool {
        if share.lane.is_some() {
            return true;
        }
        let units = self.units(bytes);
        if let Some(more) = self.pool.try_hold(units) {
            share.add(more, units);
            return true;
        }
        self.waits.fetch_add(1, Relaxed);
        let _waiting = transfer.wait();
        let mut more = pin!(Arc::clone(&self.pool).hold(units));
        let mut lane = pin!(Arc::clone(&self.lane).acquire_owned());
        let mut deadline = self.clock.sleep(limit);
        loop {
            self.evict_slow(units);
            tokio::select! {
                biased;
                more = &mut more => {
                    share.add(more, units);
                    return true;
                }
                lane = &mut lane => {
                    share.lane = lane.ok();
                    return share.lane.is_some();
                }
                () = &mut deadline => return false,
                () = self.clock.sleep(SHORTAGE_INTERVAL) => {}
            }
        }
    }

    /// Registers a transfer until it is dropped.
    pub(super) fn transfer(self: &Arc<Self>, account: &Arc<Account>) -> Transfer {
        let state = Arc::new(TransferState {
            account: Arc::clone(account),
            progress: Mutex::new(Progress::new(self.clock.now())),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let mut transfers = self.transfers.lock();
        let id = transfers.next_id;
        transfers.next_id += 1;
        transfers.open.insert(id, Arc::clone(&state));
        drop(transfers);
        Transfer {
            memory: Arc::clone(self),
            id,
            state,
        }
    }

    /// Evicts the slowest transfers until evictions release `needed` units.
    fn evict_slow(&self, needed: u32) {
        let (now, min_rate) = (self.clock.now(), self.min_rate.load(Relaxed));
        let mut slow: Vec<(u64, Arc<TransferState>)> = Vec::new();
        let mut coming = 0;
        for transfer in self.transfers.lock().open.values() {
            let held = transfer.account.units.load(Relaxed);
            if transfer.is_evicted.load(Relaxed) {
                coming += held;
            } else if let Some(rate) = transfer.progress.lock().rate(now)
                && held > 0
                && rate < min_rate
            {
                slow.push((rate, Arc::clone(transfer)));
            }
        }
        slow.sort_by_key(|(rate, _)| *rate);
        for (_, transfer) in slow {
            if coming >= needed {
                return;
            }
            coming += transfer.account.units.load(Relaxed);
            transfer.evict();
        }
    }
}

/// The configuration guarantees room for two items, but a reload may have
/// changed it since the lane was sized.
fn pool_units(config: &MemcachedConfig, lane_units: u32) -> usize {
    let units = units(config.memory.bytes()).saturating_sub(lane_units);
    units.max(lane_units) as usize
}

fn wide_reads(config: &MemcachedConfig) -> usize {
    (config.memory.bytes() / WIDE_SHARE) as usize / WIDE_READ_BYTES
}

impl MemcachedConfig {
    /// Most bytes for values in transfer and for reads of many requests at once.
    pub fn memory_bytes_max(&self) -> u64 {
        self.memory.bytes() + (wide_reads(self) * WIDE_READ_BYTES) as u64
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES).max(1)).unwrap_or(u32::MAX)
}

/// The memory of one connection.
#[derive(Debug, Default)]
pub(super) struct Account {
    units: AtomicU32,
}

/// Memory of one connection, until dropped.
#[derive(Debug)]
pub(super) struct Share {
    account: Arc<Account>,
    held: Held,
    units: u32,
    lane: Option<OwnedSemaphorePermit>,
}

impl Share {
    fn new(account: &Arc<Account>, held: Held, units: u32) -> Self {
        account.units.fetch_add(units, Relaxed);
        Share {
            account: Arc::clone(account),
            held,
            units,
            lane: None,
        }
    }

    fn add(&mut self, more: Held, units: u32) {
        self.account.units.fetch_add(units, Relaxed);
        self.held.merge(more);
        self.units += units;
    }

    /// Releases the excess over `bytes`.
    pub(super) fn shrink(&mut self, bytes: u64) {
        self.lane = None;
        let excess = self.units.saturating_sub(units(bytes));
        if let Some(excess_held) = self.held.split(excess as usize) {
            drop(excess_held);
            self.account.units.fetch_sub(excess, Relaxed);
            self.units -= excess;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.units.fetch_sub(self.units, Relaxed);
    }
}

/// A transfer between a client and the server, during which the server waits for the client.
#[derive(Debug)]
pub(super) struct Transfer {
    memory: Arc<Memory>,
    id: u64,
    state: Arc<TransferState>,
}

#[derive(Debug)]
struct TransferState {
    account: Arc<Account>,
    progress: Mutex<Progress>,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
}

impl TransferState {
    fn evict(&self) {
        self.is_evicted.store(true, Relaxed);
        self.waker.wake();
    }
}

#[derive(Debug)]
struct Progress {
    /// Advanced by the time that the client waited for the server.
    began: Tick,
    moved_bytes: u64,
    last: Tick,
    /// Bytes since `window_began`; the next window begins after at least [`SHORTAGE_GRACE`].
    window_bytes: u64,
    window_began: Tick,
    /// Bytes per second in the previous window.
    rate: Option<u64>,
    /// The client waits for the server.
    is_waiting: bool,
}

impl Progress {
    fn new(now: Tick) -> Self {
        Progress {
            began: now,
            moved_bytes: 0,
            last: now,
            window_bytes: 0,
            window_began: now,
            rate: None,
            is_waiting: false,
        }
    }

    fn moved(&mut self, bytes: u64, now: Tick) {
        self.moved_bytes += bytes;
        self.window_bytes += bytes;
        self.last = now;
        let lasts = now.since(self.window_began);
        if lasts >= SHORTAGE_GRACE {
            let per_second = u128::from(self.window_bytes) * 1000 / lasts.as_millis().max(1);
            self.rate = Some(u64::try_from(per_second).unwrap_or(u64::MAX));
            self.window_bytes = 0;
            self.window_began = now;
        }
    }

    /// Recent bytes per second; `None` within the grace and while the client
    /// waits for the server.
    fn rate(&self, now: Tick) -> Option<u64> {
        match now.since(self.last) >= SHORTAGE_GRACE {
            _ if self.is_waiting => None,
            true => Some(0),
            false => self.rate,
        }
    }
}

impl Transfer {
    /// Records progress.
    pub(super) fn moved(&self, bytes: u64) {
        let now = self.memory.clock.now();
        self.state.progress.lock().moved(bytes, now);
    }

    /// The time at which the transfer is below the least rate since its
    /// beginning, not counting `grace`.
    pub(super) fn slow_at(&self, grace: Duration) -> Option<Tick> {
        let rate = self.memory.min_rate.load(Relaxed);
        if rate == 0 {
            return None;
        }
        let progress = self.state.progress.lock();
        let earned_ns = u128::from(progress.moved_bytes) * 1_000_000_000 / u128::from(rate);
        let earned = Duration::from_nanos(u64::try_from(earned_ns).unwrap_or(u64::MAX));
        Some(progress.began + grace.saturating_add(earned))
    }

    /// Ready when the transfer is evicted.
    pub(super) fn poll_evicted(&self, task: &mut Context<'_>) -> Poll<()> {
        self.state.waker.register(task.waker());
        match self.state.is_evicted.load(Relaxed) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// The client waits for the server until the guard is dropped.
    fn wait(&self) -> Waiting<'_> {
        self.state.progress.lock().is_waiting = true;
        Waiting {
            transfer: self,
            since: self.memory.clock.now(),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.memory.transfers.lock().open.remove(&self.id);
    }
}

struct Waiting<'a> {
    transfer: &'a Transfer,
    since: Tick,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.transfer.memory.clock.now();
        let mut progress = self.transfer.state.progress.lock();
        progress.began = progress.began + now.since(self.since);
        progress.last = now;
        progress.window_began = now;
        progress.window_bytes = 0;
        progress.is_waiting = false;
    }
}

#[cfg(test)]
mod tests;
