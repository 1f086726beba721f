//! Messages between nodes, and nodes that ask each other.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use floe::latency::LatencyModel;
use floe::object::{HeldBytes, ObjectCache, ObjectKey, Peers, WantedBytes};
use floe_core::hash::mix;
use floe_device::Clock;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::spec::NetworkSpec;
use crate::error::EvalError;

/// The network between the nodes of a fleet.
pub(super) struct Network {
    latency: LatencyModel,
    loss: f64,
    cut: f64,
    timeout: Duration,
    seed: u64,
    clock: Clock,
    random: Mutex<Xoshiro256PlusPlus>,
}

impl Network {
    pub(super) fn new(spec: &NetworkSpec, seed: u64, clock: &Clock) -> Result<Self, EvalError> {
        let latency = LatencyModel::new(&spec.latency);
        Ok(Network {
            latency: latency.map_err(|error| EvalError::cache(&error))?,
            loss: spec.loss,
            cut: spec.cut,
            timeout: Duration::from_millis(spec.timeout_ms),
            seed,
            clock: clock.clone(),
            random: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
        })
    }

    /// True if two nodes never reach each other.
    fn is_cut(&self, one: usize, other: usize) -> bool {
        let pair = (one.min(other) as u64) << 32 | one.max(other) as u64;
        let drawn = mix(self.seed ^ mix(pair)) >> 11;
        (drawn as f64 / (1u64 << 53) as f64) < self.cut
    }

    /// The times of a question and its answer, unless one of them is lost.
    fn round_trip(&self) -> Option<Duration> {
        let mut random = self.random.lock();
        let mut way = || {
            let is_lost = random.random::<f64>() < self.loss;
            let time = self.latency.draw(&mut *random, 0).unwrap_or_default();
            (!is_lost).then_some(time)
        };
        Some(way()? + way()?)
    }

    /// The answer of node `to` to a question of node `from`, if it comes in time.
    async fn ask<T>(
        &self,
        from: usize,
        to: Holder,
        answer: impl AsyncFnOnce(ObjectCache) -> T,
    ) -> Option<T> {
        let (to, cache) = to;
        let way = self.round_trip();
        let way = way.filter(|way| !self.is_cut(from, to) && *way <= self.timeout);
        let (Some(way), Some(cache)) = (way, cache) else {
            self.clock.sleep(self.timeout).await;
            return None;
        };
        self.clock.sleep(way).await;
        Some(answer(cache).await)
    }
}

/// The other nodes, as one of them asks them.
pub(super) struct Others {
    pub(super) own: usize,
    pub(super) network: Arc<Network>,
    /// The likeliest holders of an object, with their caches if they are alive.
    pub(super) holders: Box<HoldersOf>,
}

pub(super) type HoldersOf = dyn Fn(&ObjectKey) -> Vec<Holder> + Send + Sync;

/// A node, and its cache if it is alive.
pub(super) type Holder = (usize, Option<ObjectCache>);

impl Others {
    fn of(&self, key: &ObjectKey) -> Vec<Holder> {
        (self.holders)(key)
    }
}

#[async_trait]
impl Peers for Others {
    async fn hold(&self, key: &ObjectKey, offset: u64) -> bool {
        let asking = self.of(key).into_iter().map(|holder| {
            self.network
                .ask(self.own, holder, async |cache: ObjectCache| {
                    cache.holds(key, offset).await
                })
        });
        let answers: FuturesUnordered<_> = asking.collect();
        answers.any(async |answer| answer == Some(true)).await
    }

    async fn read(&self, wanted: WantedBytes<'_>) -> Option<HeldBytes> {
        for holder in self.of(wanted.key) {
            let wanted = wanted.clone();
            let answer = self
                .network
                .ask(self.own, holder, async |cache: ObjectCache| {
                    cache.held_bytes(wanted).await
                });
            if let Some(Some(held)) = answer.await {
                return Some(held);
            }
        }
        None
    }
}
