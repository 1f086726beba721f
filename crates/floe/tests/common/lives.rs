//! Lives of a process that end at random moments: in virtual time, where a failing seed
//! always fails, or on a drive.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use floe::{CacheError, PutOptions};
use floe_device::power::PowerSwitch;
use floe_device::{
    Clock, DeviceConfig, Faults, Faulty, OpenDeviceError, SharedDevice, virtual_time,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Builder;

use super::oracle::{Counts, Oracle, Part, Version};

/// Virtual time between the starts of two lives; longer than any life.
const LIFE: Duration = Duration::from_secs(1000);

/// Time between attempts to open a drive.
const REQUESTS_END: Duration = Duration::from_millis(20);

/// A value to write.
pub(crate) struct Put<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Bytes,
    pub(crate) options: PutOptions,
    pub(crate) in_pieces: bool,
}

/// A cache under test.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>, CacheError>> + Send;
    /// Stores a value. Returns whether it was stored; if not, the key has none.
    fn put(&self, put: Put<'_>) -> impl Future<Output = Result<bool, CacheError>> + Send;
    /// Values may be written in pieces, too.
    const WRITES_PIECES: bool = false;
    fn delete(&self, key: &[u8]) -> impl Future<Output = Result<(), CacheError>> + Send;
    /// Parts of values are read, too.
    const READS_PARTS: bool = false;
    /// Reads a part of a value; `None` if the result is unknown.
    fn get_part(&self, _: &[u8], _: Range<u64>) -> impl Future<Output = Option<Part>> + Send {
        std::future::ready(None)
    }
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The number and length of lives, and their faults.
#[derive(Clone)]
pub(crate) struct Lives {
    /// In virtual time half of them, unless `FLOE_FULL` is set.
    pub(crate) count: u64,
    /// Concurrent clients, each with its own keys.
    pub(crate) clients: u64,
    /// In real time each client has a thread.
    pub(crate) on_threads: bool,
    /// Most operations of a life.
    pub(crate) operations: u64,
    pub(crate) keys_per_client: u64,
    /// Draws the size of a value.
    pub(crate) sizes: fn(&mut StdRng) -> usize,
    /// The power is cut. Otherwise the process is killed, and every
    /// completed write survives.
    pub(crate) power_loss: bool,
    /// Faults after the cache is open.
    pub(crate) faults: Option<Faults>,
}

impl Lives {
    /// Opens the cache on the devices of `powers` in many lives, and returns the counts.
    pub(crate) fn run<S: Subject>(
        &self,
        powers: &[PowerSwitch],
        open: impl AsyncFn(Vec<Arc<Faulty>>, Clock) -> S,
    ) -> Counts {
        let oracle = Arc::new(Oracle::new(self.sizes, powers));
        let is_full = std::env::var_os("FLOE_FULL").is_some();
        let count = if is_full {
            self.count
        } else {
            self.count.div_ceil(2)
        };
        for life in 1..=count {
            self.live(powers, &oracle, life, &open);
        }
        let counts = oracle.counts();
        println!("{counts:?}");
        counts
    }

    /// One life: opens the cache, works, and stops at a random moment.
    fn live<S: Subject>(
        &self,
        powers: &[PowerSwitch],
        oracle: &Arc<Oracle>,
        life: u64,
        open: impl AsyncFn(Vec<Arc<Faulty>>, Clock) -> S,
    ) {
        let seed = first_seed() + life;
        let below: Vec<_> = powers.iter().map(PowerSwitch::reopen).collect();
        virtual_time::run(seed, async |clock: Clock| {
            // Time must not go back between lives.
            clock.sleep(LIFE * life as u32).await;
            let late = Faults {
                delays: 0.7,
                delay_max: Duration::from_micros(900),
                ..Faults::default()
            };
            let faulty: Vec<_> = (seed..)
                .zip(below)
                .map(|(seed, below)| {
                    Arc::new(Faulty::new(below, clock.clone(), seed, late.clone()))
                })
                .collect();
            let cache = open(faulty.clone(), clock.clone()).await;
            if let Some(faults) = &self.faults {
                for device in &faulty {
                    device.set(Faults {
                        delays: late.delays,
                        delay_max: late.delay_max,
                        ..faults.clone()
                    });
                }
            }
            self.work(&cache, &clock, oracle, life, powers).await;
        });
    }

    /// Opens the cache on a drive in many lives that end as by a kill, in real time.
    pub(crate) fn run_on_drive<S: Subject>(
        &self,
        drive: &DeviceConfig,
        open: impl AsyncFn(Vec<Arc<Faulty>>, Clock) -> S,
    ) -> Counts {
        let devices = async |clock: &Clock| loop {
            match floe_device::open(drive, clock) {
                // The kernel still ends requests of the life before.
                Err(OpenDeviceError::InUse(_)) => clock.sleep(REQUESTS_END).await,
                opened => break vec![opened.expect("the drive opens")],
            }
        };
        self.run_in_real_time(&[], devices, open)
    }

    /// As [`run`](Lives::run), in real time.
    pub(crate) fn run_on_threads<S: Subject>(
        &self,
        powers: &[PowerSwitch],
        open: impl AsyncFn(Vec<Arc<Faulty>>, Clock) -> S,
    ) -> Counts {
        let devices = async |_: &Clock| powers.iter().map(PowerSwitch::reopen).collect();
        self.run_in_real_time(powers, devices, open)
    }

    fn run_in_real_time<S: Subject>(
        &self,
        powers: &[PowerSwitch],
        devices: impl AsyncFn(&Clock) -> Vec<SharedDevice>,
        open: impl AsyncFn(Vec<Arc<Faulty>>, Clock) -> S,
    ) -> Counts {
        let oracle = Arc::new(Oracle::new(self.sizes, powers));
        for life in 1..=self.count {
            let mut builder = match self.on_threads {
                true => Builder::new_multi_thread(),
                false => Builder::new_current_thread(),
            };
            builder.worker_threads(self.clients as usize);
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let clock = Clock::real();
                let faulty = |device| Faulty::new(device, clock.clone(), life, Faults::default());
                let devices = devices(&clock).await.into_iter();
                let devices = devices.map(|device| Arc::new(faulty(device)));
                let cache = open(devices.collect(), clock.clone()).await;
                self.work(&cache, &clock, &oracle, life, powers).await;
            });
        }
        let counts = oracle.counts();
        println!("{counts:?}");
        counts
    }

    /// Checks all keys, and then lets clients work until a random moment.
    async fn work<S: Subject>(
        &self,
        cache: &S,
        clock: &Clock,
        oracle: &Arc<Oracle>,
        life: u64,
        powers: &[PowerSwitch],
    ) {
        let seed = first_seed() + life;
        // Checks all survivors before an overwrite.
        for key in 0..self.clients * self.keys_per_client {
            let name = name(key);
            let now_s = clock.unix_seconds();
            oracle.check(key, now_s, true, cache.get(&name)).await;
        }
        let mut random = StdRng::seed_from_u64(seed);
        if self.power_loss {
            for power in powers {
                power.crash_after(random.random_range(1..self.operations), seed);
            }
        }
        let clients: Vec<_> = (0..self.clients)
            .map(|id| {
                let client = Client {
                    cache: cache.clone(),
                    clock: clock.clone(),
                    oracle: Arc::clone(oracle),
                    first_key: id * self.keys_per_client,
                    keys: self.keys_per_client,
                    random: StdRng::seed_from_u64(seed ^ id << 40),
                };
                tokio::spawn(client.work(life, self.operations / self.clients))
            })
            .collect();
        let cut_off = Duration::from_micros(random.random_range(0..self.operations * 400));
        let work = async {
            for client in clients {
                client.await.expect("a client does not panic");
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = clock.sleep(cut_off) => {}
        }
        let turned_away = oracle.counts().turned_away;
        if life.is_multiple_of(3) {
            cache.close().await;
            // Interrupted clients may find the cache closed.
            oracle.forget_turned_away(turned_away);
        }
    }
}

/// `FLOE_ORACLE_SEED` selects the first seed, for long searches.
fn first_seed() -> u64 {
    let given = std::env::var("FLOE_ORACLE_SEED");
    given.map_or(0, |seed| {
        seed.parse().expect("FLOE_ORACLE_SEED is a number")
    })
}

fn name(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// One of several concurrent clients, each with its own keys.
struct Client<S> {
    cache: S,
    clock: Clock,
    oracle: Arc<Oracle>,
    first_key: u64,
    keys: u64,
    random: StdRng,
}

impl<S: Subject> Client<S> {
    async fn work(mut self, life: u64, operations: u64) {
        for step in 0..operations {
            let draw = self.random.random::<f64>().powi(2);
            let key = self.first_key + (draw * self.keys as f64) as u64;
            let done = match self.random.random_range(0..100) {
                0..45 => self.put(key, life << 20 | step << 1 | 1).await,
                45..53 => self.delete(key).await,
                53..56 => {
                    poll_once(self.cache.get(&name(key))).await;
                    Ok(())
                }
                56..70 if S::READS_PARTS => {
                    self.get_part(key).await;
                    Ok(())
                }
                _ => {
                    let now_s = self.clock.unix_seconds();
                    let name = name(key);
                    let get = self.cache.get(&name);
                    self.oracle.check(key, now_s, false, get).await;
                    Ok(())
                }
            };
            match done {
                Ok(()) | Err(CacheError::NotDurable(_)) => {}
                Err(CacheError::Closed) => return self.oracle.turned_away(),
                Err(error) => panic!("key {key}: {error}"),
            }
        }
    }

    async fn put(&mut self, key: u64, number: u64) -> Result<(), CacheError> {
        let seconds = self.random.random_range(1..4);
        let ttl = self.random.random_ratio(1, 4).then_some(seconds);
        let version = Version {
            number,
            // The cache may expire the value up to a second early.
            gone_at_s: ttl.map_or(u64::MAX, |ttl| self.clock.unix_seconds() + ttl + 1),
        };
        self.oracle.begin(key, version);
        let (name, value) = (name(key), self.oracle.value(key, number));
        let ttl = ttl.map(Duration::from_secs);
        // Users may drop a future at any await point.
        let is_dropped = self.random.random_ratio(1, 40);
        let put = self.cache.put(Put {
            key: &name,
            value,
            options: PutOptions::default().with_ttl(ttl),
            in_pieces: S::WRITES_PIECES && self.random.random_bool(0.1),
        });
        if is_dropped {
            poll_once(put).await;
            return Ok(());
        }
        let taken = put.await?;
        self.oracle.acknowledge(key, taken.then_some(version));
        Ok(())
    }

    /// A range anywhere, possibly past the value's end.
    async fn get_part(&mut self, key: u64) {
        let start = self.random.random_range(0..1_100_000);
        let part = start..start + self.random.random_range(0..300_000);
        let name = name(key);
        let get = self.cache.get_part(&name, part.clone());
        self.oracle.check_part(key, part, get).await;
    }

    async fn delete(&self, key: u64) -> Result<(), CacheError> {
        self.cache.delete(&name(key)).await?;
        self.oracle.acknowledge(key, None);
        Ok(())
    }
}

async fn poll_once<F: Future>(future: F) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
}
