//! Tests of the object cache with an origin whose requests can be held back.

mod cache_only;
mod clients;
mod flights;
mod forwards;
mod law;
mod neighbours;
mod origin;
mod peers;
mod pins;
mod purges;
mod ranges;
mod rules;
mod stopping;
mod threads;
mod virtual_time;

use std::sync::Arc;

use bytes::Bytes;
use floe_core::{ByteSize, Geometry};
use floe_device::{Clock, MemoryDevice, SharedDevice};

use super::{ByteRange, Consistency, ObjectCache, ObjectConfig, ObjectError, ObjectKey};
use crate::origin::{Backend, Origin, PutRequest, RequestConfig};
use crate::store::{Store, StoreConfig};

fn key() -> ObjectKey {
    ObjectKey::new("bucket", "some/object")
}

fn config(consistency: Consistency) -> ObjectConfig {
    ObjectConfig {
        chunk_size: ByteSize(1024),
        consistency,
        coalesce_size: ByteSize(4096),
        fetch_window: ByteSize::kib(64),
        ..ObjectConfig::default()
    }
}

fn requests() -> RequestConfig {
    RequestConfig {
        max_attempts: 2,
        backoff_ms: 1,
        max_backoff_ms: 1,
        seed: Some(0),
        ..RequestConfig::default()
    }
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

/// A small store on a device in memory.
async fn store() -> Store {
    store_on(Arc::new(MemoryDevice::new(geometry())), Clock::real()).await
}

fn geometry() -> Geometry {
    Geometry {
        max_append_bytes: 512 << 10,
        ..Geometry::in_place(14, 4 << 20)
    }
}

async fn store_on(device: SharedDevice, clock: Clock) -> Store {
    let mut config = StoreConfig {
        seed: Some(7),
        ..StoreConfig::default()
    };
    config.chunk.size = ByteSize::mib(1);
    config.chunk.write_buffer = ByteSize::mib(4);
    config.ram.size = ByteSize::mib(1);
    Store::open(device, clock, &config).await.unwrap()
}

async fn cache(backend: &Arc<impl Backend>, config: ObjectConfig) -> ObjectCache {
    cache_over(store().await, backend, config)
}

fn cache_over(store: Store, backend: &Arc<impl Backend>, config: ObjectConfig) -> ObjectCache {
    let backend: Arc<dyn Backend> = backend.clone();
    let clock = store.clock().clone();
    let origin = Origin::from_backend(backend, requests(), clock.clone()).unwrap();
    ObjectCache::new(store, origin, clock, config).unwrap()
}

async fn read(cache: &ObjectCache, range: Option<ByteRange>) -> Result<Bytes, ObjectError> {
    cache.get(&key(), range).await?.bytes().await
}

/// Yields until every runnable task has run. Only for single-threaded runtimes.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn put(bytes: impl Into<Bytes>) -> PutRequest {
    PutRequest::from_bytes(bytes.into())
}
