//! Draws requests: operation, size, address and time.

use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::workload::{Distribution, Workload, WorkloadSpec};

/// One request to the only volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) time_ns: u64,
    pub(super) is_write: bool,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Everything that determines the requests.
pub(super) struct Spec {
    pub(super) requests: u64,
    pub(super) seed: u64,
    /// Share of the requests that read.
    pub(super) read_share: f64,
    pub(super) classes: Vec<ClassSpec>,
    /// Share of the requests that follow the last one of their class.
    pub(super) sequential_share: f64,
    pub(super) pace: Pace,
}

/// Requests of one size, which have addresses of their own.
pub(super) struct ClassSpec {
    pub(super) bytes: u64,
    /// Share of the reads, and of the writes, that have this size.
    pub(super) share_of_reads: f64,
    pub(super) share_of_writes: f64,
    /// Places of this size, and the distribution of accesses over them.
    pub(super) places: u64,
    pub(super) distribution: Distribution,
}

/// The time of requests: bursts, and pauses between them.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) gap_ns: u64,
    pub(super) burst_requests: u64,
    pub(super) pause_ns: u64,
}

impl Pace {
    /// Requests at equal distances.
    pub(super) const fn even(gap_ns: u64) -> Self {
        Pace {
            gap_ns,
            burst_requests: u64::MAX,
            pause_ns: 0,
        }
    }
}

/// A stream of requests.
pub(super) struct Generator {
    spec: Spec,
    classes: Vec<Class>,
    rng: Xoshiro256PlusPlus,
    drawn: u64,
    time_ns: u64,
}

struct Class {
    start: u64,
    places: Workload,
    last: u64,
}

/// Classes begin at multiples of this.
const ALIGNMENT: u64 = 1 << 20;

impl Generator {
    /// # Errors
    /// When a distribution makes no sense.
    pub(super) fn new(spec: Spec) -> Result<Self, String> {
        let (mut classes, mut start) = (Vec::new(), 0_u64);
        for (class, number) in spec.classes.iter().zip(1..) {
            let places = Workload::new(&WorkloadSpec {
                distribution: class.distribution.clone(),
                items: class.places,
                seed: spec.seed ^ number,
            });
            classes.push(Class {
                start,
                places: places.map_err(|error| error.to_string())?,
                last: 0,
            });
            let end = class.places.checked_mul(class.bytes);
            let end = end.and_then(|bytes| {
                start
                    .checked_add(bytes)?
                    .checked_next_multiple_of(ALIGNMENT)
            });
            start = end.ok_or("the addresses exceed 2^64 bytes")?;
        }
        Ok(Generator {
            rng: Xoshiro256PlusPlus::seed_from_u64(spec.seed),
            spec,
            classes,
            drawn: 0,
            time_ns: 0,
        })
    }

    fn time(&mut self) -> u64 {
        let pace = &self.spec.pace;
        if self.drawn > 0 {
            let is_pause = self.drawn.is_multiple_of(pace.burst_requests);
            self.time_ns += if is_pause { pace.pause_ns } else { pace.gap_ns };
        }
        self.drawn += 1;
        self.time_ns
    }

    /// The number of a class for a read or a write.
    fn class(&mut self, is_write: bool) -> usize {
        let mut left: f64 = self.rng.random();
        let share = |class: &ClassSpec| match is_write {
            true => class.share_of_writes,
            false => class.share_of_reads,
        };
        let found = self.spec.classes.iter().position(|class| {
            left -= share(class);
            left < 0.0
        });
        found.unwrap_or(0)
    }
}

impl Iterator for Generator {
    type Item = Drawn;

    fn next(&mut self) -> Option<Drawn> {
        if self.drawn == self.spec.requests {
            return None;
        }
        let time_ns = self.time();
        let is_write = self.rng.random::<f64>() >= self.spec.read_share;
        let number = self.class(is_write);
        let is_sequential = self.rng.random::<f64>() < self.spec.sequential_share;
        let (spec, class) = (&self.spec.classes[number], &mut self.classes[number]);
        class.last = match is_sequential {
            true => (class.last + 1) % spec.places,
            false => class.places.next_id(),
        };
        Some(Drawn {
            time_ns,
            is_write,
            offset: class.start + class.last * spec.bytes,
            length: spec.bytes,
        })
    }
}
