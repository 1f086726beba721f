//! The law for a cache of two engines: values change between tiny and large,
//! processes are killed and power is cut.

mod common;

use bytes::Bytes;
use common::{Lives, Put, Subject, in_place, power_switch};
use floe::admission::{AdmissionConfig, ProbabilisticConfig};
use floe::tiny::{TinyConfig, TinyEngine};
use floe::{Cache, CacheConfig, CacheError, ChunkConfig, PutOutcome, StoreConfig, TinyTierConfig};
use floe_core::ByteSize;
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

fn run(engine: TinyEngine, count: u64, operations: u64, power_loss: bool) {
    let lives = Lives {
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
    };
    let powers =
        [(14, 4 << 20), (20, 128 << 10)].map(|(zones, bytes)| power_switch(in_place(zones, bytes)));
    let tiny_config = TinyConfig {
        engine,
        ram: ByteSize::kib(64),
        seed: Some(8),
        ..TinyConfig::default()
    };
    let counts = lives.run(&powers, async |devices, clock| {
        let [chunks, tiny] = &devices[..] else {
            panic!("two devices");
        };
        let config = CacheConfig {
            store: store_config(),
            tiny: Some(TinyTierConfig {
                max_object_size: THRESHOLD,
                engine: tiny_config.clone(),
                ..TinyTierConfig::default()
            }),
            ..CacheConfig::default()
        };
        Cache::builder(&config)
            .device(chunks.clone())
            .tiny_device(tiny.clone())
            .clock(clock)
            .open()
            .await
            .expect("both engines open")
    });
    let tiny_hits = counts.hits - counts.large_hits;
    assert!(tiny_hits > 500 && counts.large_hits > 500, "{counts:?}");
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
