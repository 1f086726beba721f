//! Nodes that share keys through a registry, in virtual time: clients that ask any node,
//! crashes, restarts, partitions from the registry and slow messages. A get returns no value
//! that was replaced before it began, and every key finds an owner again.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{in_place, power_switch};
use floe::items::{ItemBuffer, NewItem};
use floe::membership::{
    Content, Entry, LeaseError, Membership, Place, Registered, Registry, RingHash, Spread, keep,
};
use floe::{Cache, ItemCache, ItemConfig, Store, StoreConfig};
use floe_core::chunk::ChunkConfig;
use floe_core::{ByteSize, Tick};
use floe_device::power::PowerSwitch;
use floe_device::{Clock, virtual_time};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

const NODES: usize = 4;
const KEYS: usize = 24;
const CLIENTS: usize = 16;
const LEASE: Duration = Duration::from_secs(1);

/// The registry's clock runs 7 % faster than the nodes' clocks.
const REGISTRY_HASTE: f64 = 0.93;

#[derive(Default)]
struct Entries {
    revision: u64,
    leases: BTreeMap<u64, (Duration, Tick)>,
    entries: BTreeMap<String, Kept>,
}

struct Kept {
    entry: Entry,
    lease: u64,
    revision: u64,
    modification: u64,
}

impl Entries {
    fn expire(&mut self, now: Tick) {
        self.leases.retain(|_, (_, end)| *end > now);
        let leases = &self.leases;
        self.entries
            .retain(|_, kept| leases.contains_key(&kept.lease));
    }
}

/// A node's way to the registry.
#[derive(Clone)]
struct Link {
    shared: Arc<Mutex<Entries>>,
    cut: Arc<AtomicBool>,
    clock: Clock,
    rng: Arc<Mutex<StdRng>>,
}

impl Link {
    /// A request, and its answer, each of which a partition may swallow.
    async fn call<T>(&self, act: impl FnOnce(&mut Entries, Tick) -> T) -> Result<T, LeaseError> {
        self.travel().await;
        let answer = {
            let now = self.clock.now();
            let entries = &mut *self.shared.lock();
            entries.expire(now);
            act(entries, now)
        };
        self.travel().await;
        Ok(answer)
    }

    async fn travel(&self) {
        let time = self.rng.lock().random_range(0..20_000);
        self.clock.sleep(Duration::from_micros(time)).await;
        if self.cut.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

fn end_of(now: Tick, time: Duration) -> Tick {
    now + time.mul_f64(REGISTRY_HASTE)
}

impl Registry for Link {
    async fn grant(&self, time: Duration) -> Result<u64, LeaseError> {
        self.call(|entries, now| {
            entries.revision += 1;
            let id = entries.revision;
            entries.leases.insert(id, (time, end_of(now, time)));
            id
        })
        .await
    }

    async fn renew(&self, lease: u64) -> Result<bool, LeaseError> {
        self.call(|entries, now| {
            let found = entries.leases.get_mut(&lease);
            found.map(|(time, end)| *end = end_of(now, *time)).is_some()
        })
        .await
    }

    async fn revoke(&self, lease: u64) -> Result<(), LeaseError> {
        self.call(|entries, now| {
            entries.leases.remove(&lease);
            entries.expire(now);
        })
        .await
    }

    async fn register(
        &self,
        name: &str,
        entry: &Entry,
        lease: u64,
    ) -> Result<Option<u64>, LeaseError> {
        let registered = self.call(|entries, _| {
            if let Some(kept) = entries.entries.get(name) {
                return (kept.lease == lease).then_some(kept.revision);
            }
            if !entries.leases.contains_key(&lease) {
                return None;
            }
            entries.revision += 1;
            let revision = entries.revision;
            let kept = Kept {
                entry: entry.clone(),
                lease,
                revision,
                modification: revision,
            };
            entries.entries.insert(name.to_owned(), kept);
            Some(revision)
        });
        registered.await
    }

    async fn replace(&self, entry: &Registered, _lease: u64) -> Result<bool, LeaseError> {
        let known = (entry.revision, entry.modification);
        self.call(|entries, _| {
            entries.revision += 1;
            let modification = entries.revision;
            let kept = entries.entries.get_mut(&entry.name);
            let kept = kept.filter(|kept| (kept.revision, kept.modification) == known);
            kept.map(|kept| {
                kept.entry = entry.entry.clone();
                kept.modification = modification;
            })
            .is_some()
        })
        .await
    }

    async fn members(&self) -> Result<(u64, Vec<Registered>), LeaseError> {
        self.call(|entries, _| {
            let all = entries.entries.iter();
            let all = all.map(|(name, kept)| Registered {
                name: name.clone(),
                entry: kept.entry.clone(),
                revision: kept.revision,
                modification: kept.modification,
            });
            (entries.revision, all.collect())
        })
        .await
    }
}

/// A node's items.
#[derive(Clone)]
struct Items(ItemCache);

impl Content for Items {
    fn membership(&self) -> &Membership {
        self.0.cache().store().membership()
    }

    async fn begin_era(&self) -> Result<(), LeaseError> {
        Ok(self.0.flush_all(None).await?)
    }

    async fn settle(&self) -> Result<(), LeaseError> {
        Ok(self.0.settle_ring().await?)
    }
}

struct Node {
    place: Place,
    power: PowerSwitch,
    link: Link,
    running: RefCell<Option<Running>>,
    /// Grows with every crash: no answer of an earlier life counts.
    life: Cell<u64>,
}

struct Running {
    items: ItemCache,
    stop: CancellationToken,
    keeper: tokio::task::JoinHandle<()>,
}

impl Node {
    fn new(index: usize, shared: &Arc<Mutex<Entries>>, clock: &Clock, seed: u64) -> Self {
        Node {
            place: Place {
                name: format!("n{index}"),
                weight: 1,
                spread: Spread {
                    hash: RingHash::Nutcracker,
                    ..Spread::default()
                },
                lease: LEASE,
                forgets_after_gaps: index.is_multiple_of(2),
            },
            power: power_switch(in_place(14, 4 << 20)),
            link: Link {
                shared: Arc::clone(shared),
                cut: Arc::default(),
                clock: clock.clone(),
                rng: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
            },
            running: RefCell::default(),
            life: Cell::new(0),
        }
    }

    async fn start(&self, clock: &Clock) {
        let mut config = StoreConfig {
            chunk: ChunkConfig {
                size: ByteSize::kib(64),
                write_buffer: ByteSize::mib(3),
                ..ChunkConfig::default()
            },
            seed: Some(7),
            ..StoreConfig::default()
        };
        config.ram.size = ByteSize::kib(300);
        let device = self.power.reopen();
        let store = Store::open(device, clock.clone(), &config).await.unwrap();
        store.membership().set_identity(self.place.identity());
        store.membership().await_ring();
        store.membership().withdraw();
        let items = ItemConfig {
            max_value: ByteSize::kib(1),
        };
        let items = ItemCache::open(Cache::over(store), &items).await.unwrap();
        let stop = CancellationToken::new();
        let keeper = {
            let (place, link, stop) = (self.place.clone(), self.link.clone(), stop.clone());
            let (content, clock) = (Items(items.clone()), clock.clone());
            tokio::spawn(async move { keep(&place, &link, &content, &clock, &stop).await })
        };
        *self.running.borrow_mut() = Some(Running {
            items,
            stop,
            keeper,
        });
    }

    /// Ends without a word to the registry, as in a crash.
    fn crash(&self, seed: u64) {
        if let Some(running) = self.running.borrow_mut().take() {
            running.keeper.abort();
            self.life.set(self.life.get() + 1);
            self.power.crash(seed);
        }
    }

    /// Gives its place up, then ends.
    async fn leave(&self) {
        let running = self.running.borrow_mut().take();
        if let Some(running) = running {
            running.stop.cancel();
            let _ = running.keeper.await;
            self.life.set(self.life.get() + 1);
            let _ = running.items.cache().store().close().await;
        }
    }

    fn items(&self) -> Option<(ItemCache, u64)> {
        let running = self.running.borrow();
        let items = running.as_ref()?.items.clone();
        Some((items, self.life.get()))
    }
}

/// A write of a key: `None` is a delete. Without an end it was not acknowledged.
struct Write {
    value: Option<u64>,
    start: Tick,
    end: Option<Tick>,
}

#[derive(Default)]
struct History {
    keys: Vec<Vec<Write>>,
    values: u64,
    gets: u64,
    hits: u64,
    acknowledged: u64,
}

impl History {
    /// A get between `start` and now returned `value`.
    #[track_caller]
    fn check(&mut self, key: usize, value: u64, start: Tick) {
        self.hits += 1;
        let writes = &self.keys[key];
        let found = writes.iter().find(|write| write.value == Some(value));
        let found = found.unwrap_or_else(|| panic!("key {key}: {value} was never written"));
        let Some(end) = found.end else { return };
        let replaced = writes
            .iter()
            .find(|write| write.start > end && write.end.is_some_and(|end| end < start));
        if let Some(by) = replaced {
            panic!(
                "key {key}: {value}, written until {end:?}, was replaced by {:?} from {:?} to {:?}, \
                 and read from {start:?} on",
                by.value, by.start, by.end
            );
        }
    }
}

struct World {
    clock: Clock,
    nodes: Vec<Node>,
    history: RefCell<History>,
    ended: Cell<bool>,
}

impl World {
    async fn client(self: Rc<Self>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while !self.ended.get() {
            let key = rng.random_range(0..KEYS);
            let node = &self.nodes[rng.random_range(0..NODES)];
            let start = self.clock.now();
            // Some messages are under way for longer than a lease.
            let most = if rng.random_ratio(1, 50) { 3000 } else { 10 };
            let there = Duration::from_millis(rng.random_range(0..=most));
            let back = Duration::from_millis(rng.random_range(0..=10));
            self.operate(&mut rng, node, key, start, (there, back))
                .await;
        }
    }

    async fn operate(
        &self,
        rng: &mut StdRng,
        node: &Node,
        key: usize,
        start: Tick,
        (there, back): (Duration, Duration),
    ) {
        let name = format!("key-{key}");
        let kind = rng.random_range(0..10);
        let written = (kind < 5).then(|| {
            let history = &mut *self.history.borrow_mut();
            history.values += 1;
            let value = (kind < 4).then_some(history.values);
            history.keys[key].push(Write {
                value,
                start,
                end: None,
            });
            (history.keys[key].len() - 1, value)
        });
        self.clock.sleep(there).await;
        let Some((items, life)) = node.items() else {
            return;
        };
        let found = match written {
            Some((_, Some(value))) => {
                let value = NewItem::new(ItemBuffer::from(&value.to_le_bytes()[..]));
                items.put(name.as_bytes(), value).await.map(|_| None)
            }
            Some((_, None)) => items.delete(name.as_bytes()).await.map(|_| None),
            None => items.get(name.as_bytes()).await,
        };
        self.clock.sleep(back).await;
        if node.life.get() != life {
            return;
        }
        let history = &mut *self.history.borrow_mut();
        match (written, found) {
            (Some((write, _)), Ok(_)) => {
                history.acknowledged += 1;
                history.keys[key][write].end = Some(self.clock.now());
            }
            (None, Ok(found)) => {
                history.gets += 1;
                if let Some(item) = found {
                    let value = u64::from_le_bytes(item.value[..].try_into().unwrap());
                    history.check(key, value, start);
                }
            }
            (_, Err(_)) => {}
        }
    }

    /// Troubles of one node after another.
    async fn trouble(&self, rng: &mut StdRng, rounds: u32) {
        for _ in 0..rounds {
            let pause = Duration::from_millis(rng.random_range(0..4000));
            self.clock.sleep(pause).await;
            let node = &self.nodes[rng.random_range(0..NODES)];
            let time = Duration::from_millis(rng.random_range(0..4000));
            match rng.random_range(0..4) {
                0 => {
                    node.crash(rng.random());
                    self.clock.sleep(time).await;
                    node.start(&self.clock).await;
                }
                1 => {
                    node.leave().await;
                    self.clock.sleep(time).await;
                    node.start(&self.clock).await;
                }
                _ => {
                    node.link.cut.store(true, SeqCst);
                    self.clock.sleep(time).await;
                    node.link.cut.store(false, SeqCst);
                }
            }
        }
    }

    /// Each key has exactly one owner.
    #[track_caller]
    fn expect_owners(&self) {
        for key in 0..KEYS {
            let name = format!("key-{key}");
            let owners = self.nodes.iter().filter(|node| {
                let items = node.items().map(|(items, _)| items);
                items.is_some_and(|items| Items(items).membership().admit(name.as_bytes()).is_ok())
            });
            assert_eq!(owners.count(), 1, "{name}");
        }
    }
}

fn run(seed: u64) {
    virtual_time::run(seed, |clock: Clock| async move {
        let mut rng = StdRng::seed_from_u64(seed);
        let shared = Arc::new(Mutex::new(Entries::default()));
        let node = |index| Node::new(index, &shared, &clock, seed + index as u64);
        let world = Rc::new(World {
            nodes: (0..NODES).map(node).collect(),
            clock: clock.clone(),
            history: RefCell::new(History {
                keys: (0..KEYS).map(|_| Vec::new()).collect(),
                ..History::default()
            }),
            ended: Cell::new(false),
        });
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                for node in &world.nodes {
                    node.start(&clock).await;
                }
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|_| {
                        let client = Rc::clone(&world).client(rng.random());
                        tokio::task::spawn_local(client)
                    })
                    .collect();
                world.trouble(&mut rng, 40).await;
                world.ended.set(true);
                for client in clients {
                    client.await.unwrap();
                }
                // Without trouble the ring settles.
                clock.sleep(LEASE * 12).await;
                world.expect_owners();
                {
                    let history = world.history.borrow();
                    assert!(history.acknowledged > 500, "{}", history.acknowledged);
                    assert!(history.hits > 200, "{} of {}", history.hits, history.gets);
                }
                for node in &world.nodes {
                    node.leave().await;
                }
            })
            .await;
    });
}

#[test]
fn no_get_returns_what_another_node_has_replaced() {
    for seed in 0..6 {
        run(seed * 100);
    }
}
