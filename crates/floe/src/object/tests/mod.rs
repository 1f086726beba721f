//! Tests of the object cache against an origin that can be stopped at will.

mod flights;
mod law;
mod origin;
mod ranges;

use std::sync::Arc;

use bytes::Bytes;
use floe_core::ByteSize;
use floe_device::Clock;

use super::{ByteRange, Consistency, ObjectCache, ObjectConfig, ObjectError, ObjectKey};
use crate::origin::{Backend, Origin, PutRequest, RequestConfig};
use crate::store::Store;

fn key() -> ObjectKey {
    ObjectKey::new("bucket", "some/object")
}

fn config(consistency: Consistency) -> ObjectConfig {
    ObjectConfig {
        chunk_size: ByteSize(1024),
        consistency,
        coalesce: ByteSize(4096),
        fetch_window: ByteSize::kib(64),
        ..ObjectConfig::default()
    }
}

fn requests() -> RequestConfig {
    RequestConfig {
        attempts: 2,
        backoff_ms: 1,
        backoff_max_ms: 1,
        ..RequestConfig::default()
    }
}

fn cache(backend: &Arc<impl Backend>, config: ObjectConfig) -> ObjectCache {
    cache_over(Store::default(), backend, config)
}

fn cache_over(store: Store, backend: &Arc<impl Backend>, config: ObjectConfig) -> ObjectCache {
    let backend: Arc<dyn Backend> = backend.clone();
    let origin = Origin::from_backend(backend, requests(), Clock::real()).unwrap();
    ObjectCache::new(store, origin, Clock::real(), config).unwrap()
}

async fn read(cache: &ObjectCache, range: Option<ByteRange>) -> Result<Bytes, ObjectError> {
    cache.get(&key(), range).await?.bytes().await
}

/// Lets every task that can go on go on. Only for runtimes with one thread.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn put(bytes: impl Into<Bytes>) -> PutRequest {
    PutRequest::from_bytes(bytes.into())
}
