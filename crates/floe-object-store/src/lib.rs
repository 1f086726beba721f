//! Floe in front of any [`object_store`]: reads of DataFusion, Delta Lake,
//! Lance and other users of `object_store` 0.13 are cached on local flash.
//!
//! ```
//! use std::sync::Arc;
//!
//! use floe::{ByteSize, CacheConfig, ObjectConfig};
//! use floe_object_store::CachedStore;
//! use object_store::memory::InMemory;
//! use object_store::{ObjectStore, ObjectStoreExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("cache.floe");
//! let origin = Arc::new(InMemory::new());
//! let cache = CacheConfig::file(path, ByteSize::gib(1));
//! let store = CachedStore::open(origin, "memory", &cache, ObjectConfig::default()).await?;
//!
//! store.put(&"a/b".into(), "hello".into()).await?;
//! assert_eq!(store.get(&"a/b".into()).await?.bytes().await?, "hello");
//! store.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`ObjectConfig::consistency`](floe::ObjectConfig::consistency) determines
//! when cached metadata is used without a request to the store. Writes through
//! a [`CachedStore`] are visible at once in every mode; the mode matters for
//! objects that other clients change. Files that never change under one name,
//! such as those of Delta Lake and Iceberg, are read without any request with
//! [`Immutable`](floe::object::Consistency::Immutable).
//!
//! Must not depend on engines, devices or a particular store.

mod convert;
mod origin;
mod store;
mod upload;

pub use object_store;
pub use store::{CachedStore, OpenError};
