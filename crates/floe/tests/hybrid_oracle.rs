//! The law for a cache of two engines: values change between tiny and large,
//! processes are killed and power is cut.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use common::{Lives, Put, Subject, in_place, power_switch};
use floe::admission::{AdmissionConfig, ProbabilisticConfig};
use floe::items::{Expiry, ItemBuffer, ItemConfig, ItemError, ItemState, NewItem, PutNow};
use floe::tiny::{TinyConfig, TinyDurability, TinyEngine};
use floe::{
    Cache, CacheConfig, CacheError, ChunkConfig, ItemCache, PutOutcome, StoreConfig, TinyTierConfig,
};
use floe_core::ByteSize;
use floe_device::{Clock, Faulty};
use rand::RngExt;

const THRESHOLD: ByteSize = ByteSize::kib(2);

impl Subject for Cache {
    const WRITES_PIECES: bool = true;

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        Cache::get(self, key).await
    }

    async fn put(&self, put: Put<'_>) -> Result<bool, CacheError> {
        let Put {
            key,
            value,
            options,
            in_pieces,
        } = put;
        let admission = if in_pieces {
            let mut writer = self.writer(key, value.len() as u64, options).await?;
            let half = value.len() / 2;
            writer.write(value.slice(..half)).await?;
            writer.write(value.slice(half..)).await?;
            writer.finish().await?
        } else {
            self.put_with(key, value, options).await?
        };
        Ok(admission != PutOutcome::Dropped)
    }

    async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        Cache::delete(self, key).await.map(drop)
    }

    async fn close(&self) {
        // Fails if the power is off.
        let _ = Cache::close(self).await;
    }
}

/// Items that are put without waiting where that is possible.
#[derive(Clone)]
struct Items {
    items: ItemCache,
    clock: Clock,
    puts: Arc<Puts>,
}

/// Puts by their [`PutNow`].
#[derive(Debug, Default)]
struct Puts {
    stored: AtomicU64,
    begun: AtomicU64,
    waiting: AtomicU64,
}

/// A refusal for lack of room is `None`.
fn stored<T>(result: Result<T, ItemError>) -> Result<Option<T>, CacheError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ItemError::NoRoom) => Ok(None),
        Err(ItemError::Cache(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

impl Subject for Items {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CacheError> {
        let found = stored(self.items.get(key).await)?.flatten();
        Ok(found.map(|item| item.value))
    }

    async fn put(&self, put: Put<'_>) -> Result<bool, CacheError> {
        let Put {
            key,
            value,
            options,
            ..
        } = put;
        let ttl = options
            .ttl
            .map(|ttl| ttl.as_secs() + self.clock.unix_seconds());
        let expiry = ttl.map_or(Expiry::Never, |at| Expiry::At(at as u32));
        let item = NewItem {
            flags: 0,
            expiry,
            state: ItemState::default(),
            value: &value[..],
        };
        // Few would have to wait.
        let put = match value.len() % 8 {
            3 => Some(PutNow::WouldWait),
            _ => stored(self.items.put_now(key, &item))?,
        };
        let Some(put) = put else {
            return Ok(false);
        };
        match put {
            PutNow::Stored(_) => {
                self.puts.stored.fetch_add(1, Relaxed);
                Ok(true)
            }
            PutNow::Begun(_, end) => {
                self.puts.begun.fetch_add(1, Relaxed);
                if value.len().is_multiple_of(2) {
                    // A put that is dropped here was never polled.
                    tokio::task::yield_now().await;
                }
                Ok(stored(end.await)?.is_some())
            }
            PutNow::WouldWait => {
                self.puts.waiting.fetch_add(1, Relaxed);
                let item = NewItem {
                    flags: item.flags,
                    expiry: item.expiry,
                    state: item.state,
                    value: ItemBuffer::from(&value[..]),
                };
                Ok(stored(self.items.put(key, item).await)?.is_some())
            }
        }
    }

    async fn delete(&self, key: &[u8]) -> Result<(), CacheError> {
        stored(self.items.delete(key).await).map(drop)
    }

    async fn close(&self) {
        // Fails if the power is off.
        let _ = self.items.cache().close().await;
    }
}

fn store_config() -> StoreConfig {
    let mut config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            write_buffer: ByteSize::mib(3),
            ..ChunkConfig::default()
        },
        // Every third value is declined.
        admission: AdmissionConfig::Probabilistic(ProbabilisticConfig {
            probability: 2.0 / 3.0,
        }),
        seed: Some(7),
        ..StoreConfig::default()
    };
    config.ram.size = ByteSize::kib(600);
    config
}

fn lives(count: u64, operations: u64, power_loss: bool) -> Lives {
    Lives {
        clients: 4,
        on_threads: false,
        count,
        operations,
        keys_per_client: 500,
        sizes: |random| {
            if random.random_ratio(3, 4) {
                random.random_range(16..900)
            } else {
                random.random_range(2_000..40_000)
            }
        },
        power_loss,
        faults: None,
    }
}

/// Runs lives of a cache that `with` makes of each opened [`Cache`].
fn run_with<S: Subject>(
    lives: &Lives,
    (engine, durability): (TinyEngine, TinyDurability),
    with: impl AsyncFn(Cache, Clock) -> S,
) {
    let powers =
        [(14, 4 << 20), (20, 128 << 10)].map(|(zones, bytes)| power_switch(in_place(zones, bytes)));
    let config = CacheConfig {
        store: store_config(),
        tiny: Some(TinyTierConfig {
            max_object_size: THRESHOLD,
            engine: TinyConfig {
                engine,
                durability,
                ram: ByteSize::kib(64),
                seed: Some(8),
                ..TinyConfig::default()
            },
            ..TinyTierConfig::default()
        }),
        ..CacheConfig::default()
    };
    let open = async |devices: Vec<Arc<Faulty>>, clock: Clock| {
        let [chunks, tiny] = &devices[..] else {
            panic!("two devices");
        };
        let cache = Cache::builder(&config)
            .device(chunks.clone())
            .tiny_device(tiny.clone())
            .clock(clock.clone())
            .open()
            .await
            .expect("both engines open");
        with(cache, clock).await
    };
    let counts = match lives.on_threads {
        true => lives.run_on_threads(&powers, open),
        false => lives.run(&powers, open),
    };
    let tiny_hits = counts.hits - counts.large_hits;
    assert!(tiny_hits > 500 && counts.large_hits > 500, "{counts:?}");
}

fn run(engine: TinyEngine, count: u64, operations: u64, power_loss: bool) {
    let kind = (engine, TinyDurability::default());
    let lives = lives(count, operations, power_loss);
    run_with(&lives, kind, async |cache, _| cache);
}

/// Runs lives of items, which are put in all ways.
fn run_items(lives: &Lives, durability: TinyDurability) {
    let puts = Arc::<Puts>::default();
    let kind = (TinyEngine::Nemo, durability);
    run_with(lives, kind, async |cache, clock| {
        let config = ItemConfig::default();
        let items = ItemCache::open(cache, &config).await;
        Items {
            items: items.expect("the items open"),
            clock,
            puts: Arc::clone(&puts),
        }
    });
    let counts = [&puts.stored, &puts.begun, &puts.waiting];
    let are_many = counts.iter().all(|count| count.load(Relaxed) > 300);
    assert!(are_many, "{puts:?}");
}

#[test]
fn killed() {
    run(TinyEngine::Nemo, 8, 8_000, false);
}

#[test]
fn power_lost() {
    run(TinyEngine::Nemo, 12, 4_000, true);
}

#[test]
fn killed_with_an_engine_that_forgets() {
    run(TinyEngine::Log, 8, 8_000, false);
}

#[test]
fn power_lost_with_an_engine_that_forgets() {
    run(TinyEngine::Set, 12, 4_000, true);
}

#[test]
fn items_killed() {
    run_items(&lives(8, 8_000, false), TinyDurability::default());
}

#[test]
fn items_power_lost() {
    run_items(&lives(12, 4_000, true), TinyDurability::default());
}

#[test]
fn items_without_fences_killed() {
    run_items(&lives(8, 8_000, false), TinyDurability::None);
}

/// Eight clients on as many threads. `FLOE_FULL` runs a hundred times as many operations.
#[test]
fn items_power_lost_on_threads() {
    let is_full = std::env::var_os("FLOE_FULL").is_some();
    let lives = Lives {
        clients: 8,
        on_threads: true,
        keys_per_client: 200,
        ..lives(12, if is_full { 200_000 } else { 2_000 }, true)
    };
    run_items(&lives, TinyDurability::default());
}
