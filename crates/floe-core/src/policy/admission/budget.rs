//! Writes at most a fixed number of bytes in any day, spread over the day, and
//! uses the whole budget if enough is offered.
//!
//! CacheLib's `DynamicRandomAP` steers a probability towards an observed write
//! rate; its limit holds on average. This policy has three parts, and the first
//! two are limits that always hold:
//!
//! * **The day.** Admitted bytes are summed in slots of five minutes. The
//!   current slot and the 288 before it cover every window of 24 hours that
//!   ends now, and their sum may not exceed `bytes_per_day`. So no day,
//!   wherever it begins, has more, and bursts add nothing.
//! * **The bucket.** Bytes become available evenly: one budget per 24 hours and
//!   one slot, so that a steady stream just fits the day's sum. Summing by
//!   slots costs 0.35 %. Unused bytes are saved up to `burst`, so that within
//!   any time `t` at most `burst + bytes_per_day * t / day` are written. The
//!   bucket begins empty.
//! * **The probability** selects among the offered values, so that the bucket
//!   serves neither small values alone nor only those that arrive while it has
//!   bytes. It is set so that the bytes offered in the last intervals, by
//!   classes of size, add up to a rate. That rate follows the bucket's level:
//!   the even rate at a tenth full, up to twice that when full. It is capped by
//!   the rate that the day's sum allows for the next two hours, given the slots
//!   that leave it in that time.
//!
//! As in CacheLib (`probabilitySizeDecay`), large values can be admitted with a
//! lower probability than small ones, since hits count per object. With
//! `size_bias` `b`, probability falls with the `b`-th power of the size, and
//! small values gain the bytes that large ones lose.
//!
//! A policy forgets its day when the process ends. Since the bucket begins
//! empty, a day with restarts has at most `bytes_per_day + burst`.

use serde::{Deserialize, Serialize};

use super::probabilistic::Coin;
use crate::policy::error::{PolicyConfigError, check_range};
use crate::{ByteSize, Tick};

const SECOND_NS: u64 = 1_000_000_000;
const SLOT_NS: u64 = 300 * SECOND_NS;
/// Slots of a day, and the slot that is being filled.
const SLOTS: usize = 288 + 1;
/// The time in which the bucket receives one budget.
const PERIOD_NS: u64 = SLOTS as u64 * SLOT_NS;
/// The bucket's level while more is offered than may be written. It leaves room
/// above for savings, and enough below to serve random admissions.
const FILL: f64 = 0.1;
/// Slots of the day's sum to look ahead: two hours, so that a budget spent
/// early ends gradually.
const LOOK_AHEAD: u64 = 24;
/// Intervals in the time that fills the bucket.
const INTERVALS_PER_BURST: u128 = 360;
const INTERVAL_NS_MIN: u64 = 1_000_000;
const INTERVAL_NS_MAX: u64 = 60 * SECOND_NS;
/// Intervals over which the rate of offers is averaged.
const INTERVALS_AVERAGED: f64 = 4.0;
/// One class per power of two.
const CLASSES: usize = 64;

/// `{ kind = "write-budget", bytes_per_day = "500GiB" }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBudgetConfig {
    /// Most bytes to admit in any 24 hours: 1 MiB to 1 EiB. Must be given: a
    /// drive's rated writes per day, divided by the write amplification of the
    /// engine below.
    pub bytes_per_day: ByteSize,
    /// Most bytes to save while less is offered than may be written, and the
    /// largest value that is ever admitted: 4 KiB to `bytes_per_day`. Default:
    /// an hour's share, `bytes_per_day / 24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<ByteSize>,
    /// How much small values are preferred: 0 (not at all) to 1 (probability in
    /// inverse proportion to the size). Default 0.
    #[serde(default)]
    pub size_bias: f64,
}

impl WriteBudgetConfig {
    /// A budget with defaults for the other settings.
    pub fn new(bytes_per_day: ByteSize) -> Self {
        WriteBudgetConfig {
            bytes_per_day,
            burst: None,
            size_bias: 0.0,
        }
    }

    /// The largest value that is ever admitted, in bytes.
    pub fn burst_bytes(&self) -> u64 {
        self.burst
            .map_or(self.bytes_per_day.0 / 24, ByteSize::bytes)
    }

    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        let budget = self.bytes_per_day;
        check_range("bytes_per_day", budget, ByteSize::mib(1), ByteSize(1 << 60))?;
        if let Some(burst) = self.burst {
            check_range("burst", burst, ByteSize::kib(4), budget)?;
        }
        check_range("size_bias", self.size_bias, 0.0, 1.0)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (SLOTS * size_of::<u64>() + CLASSES * size_of::<Class>()) as u64
    }
}

/// Rejected values by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetRejections {
    /// Values larger than `burst`, which are never admitted.
    pub too_large: u64,
    /// Values rejected at random, to match the rate.
    pub chance: u64,
    /// Values for which the bucket had too few bytes.
    pub pace: u64,
    /// Values that would have exceeded the day's budget.
    pub day: u64,
}

/// Admits values within a budget. Takes 4 KiB.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    day: Day,
    bucket: Bucket,
    odds: Odds,
    coin: Coin,
    /// The latest time seen; `None` before the first call.
    now: Option<Tick>,
    rejections: BudgetRejections,
}

impl WriteBudget {
    pub(super) fn new(config: &WriteBudgetConfig, seed: u64) -> Self {
        WriteBudget {
            day: Day::new(config.bytes_per_day.0),
            bucket: Bucket::new(config.bytes_per_day.0, config.burst_bytes()),
            odds: Odds::new(config),
            coin: Coin::new(seed),
            now: None,
            rejections: BudgetRejections::default(),
        }
    }

    pub(super) fn admit(&mut self, bytes: u64, now: Tick) -> bool {
        self.advance(now);
        if bytes > self.bucket.burst_bytes {
            self.rejections.too_large += 1;
            return false;
        }
        self.odds.offer(bytes);
        if !self.coin.falls(self.odds.probability(bytes)) {
            self.rejections.chance += 1;
            return false;
        }
        if bytes > self.bucket.level_bytes() {
            self.rejections.pace += 1;
            return false;
        }
        if bytes > self.day.left_bytes() {
            self.rejections.day += 1;
            return false;
        }
        self.bucket.take(bytes);
        self.day.add(bytes);
        true
    }

    fn advance(&mut self, now: Tick) {
        let before = *self.now.get_or_insert(now);
        if now <= before {
            return;
        }
        self.now = Some(now);
        let elapsed_ns = now.0 - before.0;
        self.bucket.fill(elapsed_ns);
        self.day.advance(now);
        if self.odds.interval_is_over(elapsed_ns) {
            let rate = self.bucket.rate_wanted().min(self.day.rate_left());
            self.odds.set(rate);
        }
    }

    /// The probability with which a value of `bytes` is admitted now, if bucket
    /// and day allow it.
    pub fn probability(&self, bytes: u64) -> f64 {
        self.odds.probability(bytes)
    }

    /// Bytes that could be admitted at once.
    pub fn available_bytes(&self) -> u64 {
        self.bucket.level_bytes().min(self.day.left_bytes())
    }

    /// Bytes admitted in the last 24 hours, and up to five minutes more.
    pub fn day_bytes(&self) -> u64 {
        self.day.sum
    }

    /// Rejected values by reason.
    pub fn rejections(&self) -> BudgetRejections {
        self.rejections
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.day.slots.len() * size_of::<u64>() + self.odds.classes.len() * size_of::<Class>())
            as u64
    }
}

/// Bytes admitted in the last day, by slots.
#[derive(Clone, Debug)]
struct Day {
    budget: u64,
    /// A ring: slot number `n` is at `n % SLOTS`.
    slots: Box<[u64]>,
    /// The sum of the slots, at most `budget`.
    sum: u64,
    /// The number of the slot that is being filled.
    slot: u64,
}

impl Day {
    fn new(budget: u64) -> Self {
        Day {
            budget,
            slots: vec![0; SLOTS].into(),
            sum: 0,
            slot: 0,
        }
    }

    fn advance(&mut self, now: Tick) {
        let slot = now.0 / SLOT_NS;
        let passed = (slot - self.slot).min(SLOTS as u64);
        for ahead in 1..=passed {
            let oldest = &mut self.slots[((self.slot + ahead) % SLOTS as u64) as usize];
            self.sum -= std::mem::take(oldest);
        }
        self.slot = slot;
    }

    fn left_bytes(&self) -> u64 {
        self.budget - self.sum
    }

    fn add(&mut self, bytes: u64) {
        self.slots[(self.slot % SLOTS as u64) as usize] += bytes;
        self.sum += bytes;
    }

    /// Bytes per second that can be sustained for [`LOOK_AHEAD`] slots within
    /// the budget, given the slots that leave the window in that time.
    fn rate_left(&self) -> f64 {
        let mut room = self.left_bytes();
        let mut rate = f64::INFINITY;
        for ahead in 1..=LOOK_AHEAD {
            room += self.slots[((self.slot + ahead) % SLOTS as u64) as usize];
            rate = rate.min(room as f64 / ahead as f64);
        }
        rate * SECOND_NS as f64 / SLOT_NS as f64
    }
}

/// Bytes that may be written, growing evenly. Counted exactly, in parts of `1 /
/// PERIOD_NS` bytes: each nanosecond adds `budget` such parts.
#[derive(Clone, Debug)]
struct Bucket {
    budget: u64,
    burst_bytes: u64,
    level: u128,
}

impl Bucket {
    fn new(budget: u64, burst_bytes: u64) -> Self {
        Bucket {
            budget,
            burst_bytes,
            level: 0,
        }
    }

    fn full(&self) -> u128 {
        u128::from(self.burst_bytes) * u128::from(PERIOD_NS)
    }

    fn fill(&mut self, elapsed_ns: u64) {
        let more = u128::from(self.budget) * u128::from(elapsed_ns);
        self.level = (self.level + more).min(self.full());
    }

    fn level_bytes(&self) -> u64 {
        (self.level / u128::from(PERIOD_NS)) as u64
    }

    /// Takes `bytes`, which must not exceed the level.
    fn take(&mut self, bytes: u64) {
        self.level -= u128::from(bytes) * u128::from(PERIOD_NS);
    }

    /// Bytes per second to admit so that the level settles at [`FILL`]: the
    /// even rate there, less below it, up to twice as much above it.
    fn rate_wanted(&self) -> f64 {
        let even = self.budget as f64 * SECOND_NS as f64 / PERIOD_NS as f64;
        let level = self.level as f64 / self.full() as f64;
        if level < FILL {
            even * level / FILL
        } else {
            even * (1.0 + (level - FILL) / (1.0 - FILL))
        }
    }
}

/// Values with sizes between two powers of two.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// Probability relative to other classes.
    weight: f64,
    /// Bytes offered in this interval.
    offered_bytes: f64,
    /// Averaged rate of offers in bytes per second.
    rate: f64,
}

/// Probabilities by class, set once per interval.
#[derive(Clone, Debug)]
struct Odds {
    /// By size, hence by falling weight.
    classes: Box<[Class]>,
    /// The probability of a class is its weight times this factor, at most one.
    factor: f64,
    interval_ns: u64,
    elapsed_ns: u64,
}

impl Odds {
    fn new(config: &WriteBudgetConfig) -> Self {
        let fill_ns = u128::from(config.burst_bytes()) * u128::from(PERIOD_NS)
            / u128::from(config.bytes_per_day.0);
        let interval_ns = (fill_ns / INTERVALS_PER_BURST) as u64;
        let class = |log2: usize| Class {
            weight: (-config.size_bias * log2 as f64).exp2(),
            offered_bytes: 0.0,
            rate: 0.0,
        };
        Odds {
            classes: (0..CLASSES).map(class).collect(),
            // No offers are known yet: the bucket alone decides.
            factor: f64::INFINITY,
            interval_ns: interval_ns.clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX),
            elapsed_ns: 0,
        }
    }

    fn class(bytes: u64) -> usize {
        bytes.max(1).ilog2() as usize
    }

    fn offer(&mut self, bytes: u64) {
        self.classes[Self::class(bytes)].offered_bytes += bytes as f64;
    }

    fn probability(&self, bytes: u64) -> f64 {
        (self.classes[Self::class(bytes)].weight * self.factor).min(1.0)
    }

    fn interval_is_over(&mut self, elapsed_ns: u64) -> bool {
        self.elapsed_ns = self.elapsed_ns.saturating_add(elapsed_ns);
        self.elapsed_ns >= self.interval_ns
    }

    /// Ends the interval: sets probabilities with which `rate` bytes per second
    /// of the expected offers are admitted.
    fn set(&mut self, rate: f64) {
        let seconds = self.elapsed_ns as f64 / SECOND_NS as f64;
        let intervals = self.elapsed_ns as f64 / self.interval_ns as f64;
        let share = (intervals / INTERVALS_AVERAGED).min(1.0);
        for class in &mut self.classes {
            let rate = std::mem::take(&mut class.offered_bytes) / seconds;
            class.rate += (rate - class.rate) * share;
        }
        self.elapsed_ns = 0;
        self.factor = self.solve(rate);
    }

    /// The factor with which the classes' rates add up to `rate`; infinite if
    /// all of them together do not reach it. Classes of high weight reach
    /// probability one first, and then contribute all of their bytes.
    fn solve(&self, mut rate: f64) -> f64 {
        for (at, class) in self.classes.iter().enumerate() {
            let rest = &self.classes[at..];
            let weighted: f64 = rest.iter().map(|class| class.weight * class.rate).sum();
            if weighted <= 0.0 {
                return f64::INFINITY;
            }
            let factor = rate.max(0.0) / weighted;
            if factor * class.weight <= 1.0 {
                return factor;
            }
            rate -= class.rate;
        }
        f64::INFINITY
    }
}
