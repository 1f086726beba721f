//! Items against a model: random operations, flushes, expiry, kills and power
//! cuts. A get returns a value of the model or a miss, and of two
//! compare-and-swaps of one version one succeeds. In a log, items are up to 20
//! times as long as a chunk, and never a mixture.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{in_place, power_switch};
use floe::items::{Decision, Expiry, Found, ItemBuffer, ItemError, NewItem};
use floe::{Cache, CacheError, Item, ItemCache, ItemConfig, Store, StoreConfig};
use floe_core::ByteSize;
use floe_core::chunk::{ChunkConfig, ClruLayout, Eviction};
use floe_device::power::PowerSwitch;
use floe_device::{Clock, virtual_time};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const KEYS: u64 = 80;

/// A blank device for items.
fn new_device() -> PowerSwitch {
    power_switch(in_place(14, 4 << 20))
}

/// The layout of items, and their largest size.
#[derive(Clone, Copy, Debug)]
struct Layout {
    eviction: Eviction,
    clru: ClruLayout,
    chunk: ByteSize,
    max_value: ByteSize,
}

/// Items may exceed a chunk.
const LOG: Layout = Layout {
    eviction: Eviction::Zplru,
    clru: ClruLayout::Auto,
    chunk: ByteSize::kib(64),
    max_value: ByteSize::kib(1300),
};

/// The same, with host GC.
const COLLECTED_LOG: Layout = Layout {
    eviction: Eviction::Clru,
    clru: ClruLayout::Log,
    ..LOG
};

/// An item fits a slot.
const SLOTS: Layout = Layout {
    eviction: Eviction::Clru,
    clru: ClruLayout::Slots,
    chunk: ByteSize::kib(512),
    max_value: ByteSize::kib(400),
};

async fn open(power: &PowerSwitch, clock: &Clock, layout: Layout) -> (Store, ItemCache) {
    let mut config = StoreConfig {
        chunk: ChunkConfig {
            size: layout.chunk,
            eviction: layout.eviction,
            clru_layout: layout.clru,
            write_buffer: ByteSize::mib(3),
            ..ChunkConfig::default()
        },
        seed: Some(7),
        ..StoreConfig::default()
    };
    config.ram.size = ByteSize::kib(300);
    let store = Store::open(power.reopen(), clock.clone(), &config)
        .await
        .expect("the store opens");
    let config = ItemConfig {
        max_value: layout.max_value,
    };
    let items = ItemCache::open(Cache::over(store.clone()), &config)
        .await
        .expect("the items open");
    (store, items)
}

#[derive(Clone, Debug)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    version: u64,
    expiry: u64,
}

/// The allowed items. Items from before a flush are removed.
struct Model {
    items: HashMap<u64, Known>,
    /// Keys whose last change failed: it may have happened or not.
    doubtful: HashSet<u64>,
    /// The second of a delayed flush.
    flush_at: Option<u64>,
    version_max: u64,
    hits: u64,
    gets: u64,
}

impl Model {
    fn pass(&mut self, now: u64) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.items.clear();
            self.flush_at = None;
        }
        self.items
            .retain(|_, known| known.expiry == 0 || known.expiry > now);
    }

    #[track_caller]
    fn check(&mut self, key: u64, found: Option<&Item>) {
        self.gets += 1;
        let Some(found) = found else {
            return;
        };
        self.hits += 1;
        if self.doubtful.contains(&key) {
            return;
        }
        let known = self.items.get(&key);
        let known = known.unwrap_or_else(|| panic!("key {key}: a lie: {found:?}"));
        assert_eq!(found.version, known.version, "key {key}");
        assert_eq!(found.flags, known.flags, "key {key}");
        assert_eq!(u64::from(found.expiry_unix_s), known.expiry, "key {key}");
        assert!(found.value == known.value, "key {key}: other bytes");
    }

    #[track_caller]
    fn stored(&mut self, key: u64, known: Known, now: u64) {
        assert!(known.version > self.version_max, "versions grow");
        self.version_max = known.version;
        self.doubtful.remove(&key);
        if known.expiry != 0 && known.expiry <= now {
            self.items.remove(&key);
        } else {
            self.items.insert(key, known);
        }
    }
}

/// Draws sizes up to slightly more than allowed.
fn random_value(random: &mut StdRng, max: u64) -> Vec<u8> {
    let max = usize::try_from(max).unwrap();
    let len = match random.random_range(0..40) {
        0 | 1 => 0,
        // Sizes around a chunk, the largest small value and the largest item.
        2 => [64 << 10, 256 << 10, max][random.random_range(0..3)] - random.random_range(0..40),
        3 => random.random_range(65_000..max + max / 8),
        4..12 => random.random_range(1000..20_000),
        _ => random.random_range(1..300),
    };
    let mut value = vec![0; len];
    random.fill(&mut value[..]);
    value
}

fn random_expiry(random: &mut StdRng, now: u64) -> Expiry {
    match random.random_range(0..8) {
        0 => Expiry::from_exptime(-1, now),
        1 | 2 => Expiry::from_exptime(random.random_range(1..200), now),
        3 => Expiry::from_exptime(
            i64::try_from(now).unwrap() + random.random_range(-9..200),
            now,
        ),
        _ => Expiry::Never,
    }
}

fn unix(expiry: Expiry) -> u64 {
    match expiry {
        Expiry::Never => 0,
        Expiry::At(at) => u64::from(at),
        Expiry::Past => 1,
    }
}

/// One random operation; an error means that the device has failed.
async fn operation(
    items: &ItemCache,
    clock: &Clock,
    model: &mut Model,
    random: &mut StdRng,
) -> Result<(), ItemError> {
    let number = random.random_range(0..KEYS);
    let name = format!("key-{number}");
    let key = name.as_bytes();
    let now = clock.unix_seconds();
    model.pass(now);
    match random.random_range(0..100) {
        0..30 => {
            let max = items.value_bytes_max();
            let value = random_value(random, max);
            let flags = random.random_range(0..3);
            let expiry = random_expiry(random, now);
            let new = NewItem {
                flags,
                expiry,
                ..NewItem::new(ItemBuffer::from(&value[..]))
            };
            if value.len() as u64 > max {
                // The put is rejected without effect.
                let rejected = items.put(key, new).await;
                assert!(matches!(rejected, Err(ItemError::TooLarge { .. })));
                return Ok(());
            }
            // Until the acknowledgement the change may have happened or not.
            model.doubtful.insert(number);
            let version = items.put(key, new).await?;
            let expiry = unix(expiry);
            let known = Known {
                value,
                flags,
                version,
                expiry,
            };
            model.stored(number, known, now);
        }
        30..45 => append(items, model, random, number).await?,
        45..55 => {
            let expiry = random_expiry(random, now);
            let before = model.items.get(&number).cloned();
            let touched = items.update(key, |present| {
                model.check(number, present);
                match present {
                    None => Decision::Keep(false),
                    Some(item) => {
                        let new = NewItem {
                            expiry,
                            ..NewItem::copy_of(item)
                        };
                        Decision::Amend(new, true)
                    }
                }
            });
            let touched = touched.await;
            let was_doubtful = !model.doubtful.insert(number);
            let was_there = touched?.result;
            if !was_doubtful {
                model.doubtful.remove(&number);
            }
            if let Some(mut known) = before.filter(|_| was_there && !was_doubtful) {
                known.expiry = unix(expiry);
                model.items.insert(number, known);
                model.pass(now);
            }
        }
        55..65 => {
            model.doubtful.insert(number);
            items.delete(key).await?;
            model.doubtful.remove(&number);
            model.items.remove(&number);
            assert_eq!(items.get(key).await?, None, "key {number}");
        }
        65 if random.random_bool(0.3) => {
            // A failed flush may have happened or not, and so may a delayed one.
            model.flush_at = None;
            items.flush_all(None).await?;
            model.items.clear();
        }
        66 if random.random_bool(0.3) => {
            let at = now + random.random_range(1..60);
            model.flush_at = None;
            items.flush_all(Some(u32::try_from(at).unwrap())).await?;
            model.flush_at = Some(at);
        }
        65..75 => {
            let seconds = random.random_range(0..20);
            clock.sleep(Duration::from_secs(seconds)).await;
        }
        75..85 => match items.get_ram(key)? {
            Found::Hit(item) => model.check(number, Some(&item)),
            Found::Miss => model.check(number, None),
            Found::OnFlash { .. } => {}
        },
        _ => {
            let found = items.get(key).await?;
            model.check(number, found.as_ref());
        }
    }
    Ok(())
}

async fn append(
    items: &ItemCache,
    model: &mut Model,
    random: &mut StdRng,
    number: u64,
) -> Result<(), ItemError> {
    let name = format!("key-{number}");
    let more = vec![random.random_range(0..=255); random.random_range(1..50)];
    let before = model.items.get(&number).cloned();
    let appended = items.update(name.as_bytes(), |present| {
        model.check(number, present);
        let Some(item) = present else {
            return Decision::Keep(false);
        };
        let mut value = ItemBuffer::new(item.value.len() + more.len());
        value.fill(&item.value);
        value.fill(&more);
        let new = NewItem {
            value,
            ..NewItem::copy_of(item)
        };
        Decision::Put(new, true)
    });
    let appended = appended.await;
    let was_doubtful = !model.doubtful.insert(number);
    match appended {
        Ok(updated) if updated.result => {
            let version = updated.version.expect("it was stored");
            let Some(mut known) = before.filter(|_| !was_doubtful) else {
                model.version_max = version;
                return Ok(());
            };
            known.value.extend(&more);
            known.version = version;
            model.stored(number, known, 0);
            Ok(())
        }
        Ok(_) | Err(ItemError::TooLarge { .. }) => {
            if !was_doubtful {
                model.doubtful.remove(&number);
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn lives(layout: Layout, lives: u64, operations: u64) {
    virtual_time::run(1, |clock: Clock| async move {
        let power = new_device();
        let mut model = Model {
            items: HashMap::new(),
            doubtful: HashSet::new(),
            flush_at: None,
            version_max: 0,
            hits: 0,
            gets: 0,
        };
        for life in 0..lives {
            let mut random = StdRng::seed_from_u64(life);
            let (store, items) = open(&power, &clock, layout).await;
            if life % 3 == 1 {
                power.crash_after(random.random_range(1..operations), life);
            }
            for _ in 0..operations {
                match operation(&items, &clock, &mut model, &mut random).await {
                    Ok(()) => {}
                    Err(ItemError::Cache(CacheError::NotDurable(_) | CacheError::Closed)) => break,
                    Err(ItemError::NoRoom) if power.is_off() => break,
                    Err(error) => panic!("{error}"),
                }
            }
            match life % 3 {
                0 => store.close().await.expect("it closes"),
                1 => power.crash(life),
                // A kill.
                _ => {}
            }
        }
        let (hits, gets) = (model.hits, model.gets);
        assert!(hits * 5 > gets, "it forgets too much: {hits} of {gets}");
    });
}

#[test]
fn items_in_a_log() {
    lives(LOG, 12, 1200);
}

#[test]
fn items_in_a_log_that_is_collected() {
    lives(COLLECTED_LOG, 12, 600);
}

#[test]
fn items_in_slots() {
    lives(SLOTS, 12, 800);
}

#[test]
fn one_of_two_compare_and_swaps_wins() {
    virtual_time::run(3, |clock: Clock| async move {
        let power = new_device();
        let (_store, items) = open(&power, &clock, LOG).await;
        for round in 0u64..200 {
            let seen = items
                .put(b"shared", NewItem::new(ItemBuffer::from(&b"0"[..])))
                .await
                .unwrap();
            let racers: Vec<_> = (0..8u64)
                .map(|racer| {
                    let items = items.clone();
                    tokio::spawn(async move {
                        let swap = |present: Option<&Item>| match present {
                            Some(item) if item.version == seen => {
                                let value = racer.to_string();
                                let value = ItemBuffer::from(value.as_bytes());
                                Decision::Put(NewItem::new(value), true)
                            }
                            _ => Decision::Keep(false),
                        };
                        items.update(b"shared", swap).await.unwrap().result
                    })
                })
                .collect();
            let mut winners = Vec::new();
            for (racer, handle) in racers.into_iter().enumerate() {
                if handle.await.unwrap() {
                    winners.push(racer);
                }
            }
            let [winner] = winners[..] else {
                panic!("round {round}: {winners:?} won");
            };
            let item = items.get(b"shared").await.unwrap().expect("it is there");
            assert_eq!(item.value, winner.to_string());
        }
    });
}

#[test]
fn counters_that_many_change_lose_nothing() {
    virtual_time::run(4, |clock: Clock| async move {
        let power = new_device();
        let (_store, items) = open(&power, &clock, LOG).await;
        let zero = NewItem::new(ItemBuffer::from(&b"0"[..]));
        items.put(b"count", zero).await.unwrap();
        let adders: Vec<_> = (0..10)
            .map(|_| {
                let items = items.clone();
                tokio::spawn(async move {
                    for _ in 0..50 {
                        let add = |present: Option<&Item>| {
                            let text = std::str::from_utf8(&present.unwrap().value).unwrap();
                            let next = (text.parse::<u64>().unwrap() + 1).to_string();
                            let value = ItemBuffer::from(next.as_bytes());
                            Decision::Put(NewItem::new(value), ())
                        };
                        items.update(b"count", add).await.unwrap();
                    }
                })
            })
            .collect();
        for adder in adders {
            adder.await.unwrap();
        }
        assert_eq!(items.get(b"count").await.unwrap().unwrap().value, "500");
    });
}

#[test]
fn flushed_items_stay_away_and_lost_records_forget_everything() {
    virtual_time::run(5, |clock: Clock| async move {
        let power = new_device();
        let item = || NewItem::new(ItemBuffer::from(&b"value"[..]));
        let (store, items) = open(&power, &clock, LOG).await;
        items.put(b"old", item()).await.unwrap();
        items.flush_all(None).await.unwrap();
        assert_eq!(items.get(b"old").await.unwrap(), None);
        let before = items.put(b"new", item()).await.unwrap();
        let at = u32::try_from(clock.unix_seconds() + 10).unwrap();
        items.flush_all(Some(at)).await.unwrap();
        store.flush().await.unwrap();
        drop((store, items));

        let (store, items) = open(&power, &clock, LOG).await;
        assert_eq!(items.get(b"old").await.unwrap(), None);
        let found = items.get(b"new").await.unwrap().expect("it is warm");
        assert_eq!(found.version, before);
        assert!(items.put(b"newer", item()).await.unwrap() > before);
        store.flush().await.unwrap();
        clock.sleep(Duration::from_secs(11)).await;
        assert_eq!(items.get(b"new").await.unwrap(), None);
        assert_eq!(items.get(b"newer").await.unwrap(), None);
        let after = items.put(b"last", item()).await.unwrap();
        // The records' task has run, and they are on flash.
        clock.sleep(Duration::from_secs(5)).await;
        store.flush().await.unwrap();
        drop((store, items));

        let (store, items) = open(&power, &clock, LOG).await;
        assert_eq!(items.get(b"new").await.unwrap(), None);
        assert!(items.get(b"last").await.unwrap().is_some());
        for record in [b"I0", b"I1"] {
            assert!(store.remove(record).await.unwrap());
        }
        drop((store, items));
        let (_store, items) = open(&power, &clock, LOG).await;
        assert_eq!(items.get(b"last").await.unwrap(), None);
        assert!(items.put(b"last", item()).await.unwrap() > after);
    });
}

/// Items of equal bytes, whose flags give their length.
async fn write_long(items: ItemCache, number: u8) {
    let mut random = StdRng::seed_from_u64(number.into());
    for round in 0..120 {
        let key = [b'k', random.random_range(0..3)];
        let len = random.random_range(200_000..1_300_000);
        let value = vec![number.wrapping_mul(61).wrapping_add(round); len];
        let item = NewItem {
            flags: u32::try_from(len).unwrap(),
            ..NewItem::new(ItemBuffer::from(&value[..]))
        };
        items.put(&key, item).await.unwrap();
    }
}

/// Counts hits until the writers are done.
async fn read_long(items: ItemCache, number: u8, done: Arc<AtomicBool>) -> u64 {
    let mut random = StdRng::seed_from_u64((100 + number).into());
    let mut hits = 0;
    while !done.load(SeqCst) {
        let key = [b'k', random.random_range(0..3)];
        if let Some(item) = items.get(&key).await.unwrap() {
            hits += 1;
            let first = item.value[0];
            assert_eq!(item.value.len(), item.flags as usize, "of another length");
            assert!(item.value.iter().all(|&byte| byte == first), "a mix of two");
        }
        tokio::task::yield_now().await;
    }
    hits
}

/// Writers and readers of a few long items race while the cache evicts: every
/// item found was written as a whole.
fn long_items_race(layout: Layout) {
    virtual_time::run(6, |clock: Clock| async move {
        let power = new_device();
        let (_store, items) = open(&power, &clock, layout).await;
        let writers: Vec<_> = (0..4u8)
            .map(|number| tokio::spawn(write_long(items.clone(), number)))
            .collect();
        let done = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..4u8)
            .map(|number| tokio::spawn(read_long(items.clone(), number, Arc::clone(&done))))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        done.store(true, SeqCst);
        let mut hits = 0;
        for reader in readers {
            hits += reader.await.unwrap();
        }
        assert!(hits > 50, "only {hits} gets hit");
    });
}

#[test]
fn long_items_are_never_a_mix() {
    long_items_race(LOG);
    long_items_race(COLLECTED_LOG);
}
