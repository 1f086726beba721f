//! Floe: a flash cache.
//!
//! A cache keeps what was read on local flash, writes flash in large
//! sequential pieces, and keeps one law: **it may forget; it may never lie.**
//! A read returns the newest acknowledged value or a miss, whatever failed,
//! raced or restarted.
//!
//! | you have | use |
//! |---|---|
//! | keys and values, possibly computed by a slow function | [`Cache`] |
//! | the same with your own types | [`TypedCache`] |
//! | items as in memcached: flags, versions, expiry, compare-and-swap | [`ItemCache`] |
//! | objects in S3, GCS, Azure, HTTP or a directory | [`ObjectCache`] |
//! | your own device, or a simulated one | [`Store`] |
//!
//! ```
//! use floe::{ByteSize, Bytes, Cache, CacheConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("cache.floe");
//! // A sparse file; what a previous process left in it is warm.
//! let cache = Cache::open(&CacheConfig::file(path, ByteSize::gib(1))).await?;
//!
//! cache.put(b"greeting", Bytes::from_static(b"hello")).await?;
//! assert_eq!(cache.get(b"greeting").await?, Some(Bytes::from_static(b"hello")));
//!
//! // However many callers miss a key at once, one of them fetches.
//! let page = cache
//!     .get_or_fetch(b"page", || async {
//!         Ok::<_, std::io::Error>(Bytes::from(vec![1; 100_000]))
//!     })
//!     .await?;
//! assert_eq!(page.len(), 100_000);
//!
//! // Once acknowledged, no crash brings it back.
//! cache.delete(b"greeting").await?;
//! cache.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! All work runs inside the caller's tokio runtime; Floe starts no thread if
//! io_uring is available. Any future may be dropped at any time. Memory is the
//! RAM tier, the write buffer and the index, all bounded by [`CacheConfig`].
//!
//! Must not depend on protocols and command lines. The `floe`
//! command and its S3 frontend are built on it.

mod abort;
pub mod backing;
pub mod cache;
mod chunk;
pub mod config;
pub mod error;
mod gauge;
pub mod inspect;
pub mod items;
pub mod latency;
pub mod limit;
mod machine;
pub mod membership;
mod metadata_log;
pub mod object;
pub mod origin;
pub mod runtimes;
mod slots;
pub mod store;
pub mod tiny;
mod typed;
mod value;
pub mod volume;

pub use bytes::Bytes;
pub use cache::{
    Cache, CacheBuilder, CacheConfig, CacheRecovery, CacheStats, CacheWriter, FetchError,
    OpenCacheError, SharedError, TinyTierConfig,
};
pub use chunk::{ChunkCounts, EngineStats, OpenError, RecoveryReport, ZoneStats};
pub use error::CacheError;
pub use floe_core::ByteSize;
pub use floe_core::chunk::{
    ChunkConfig, ClruLayout, ConfigError, Durability, Eviction, LargeReads,
};
pub use floe_core::policy::admission;
pub use floe_device as device;
pub use floe_device::DeviceConfig;
pub use items::{Item, ItemCache, ItemConfig, ItemError};
pub use metadata_log::WriteBatch;
pub use object::{ObjectCache, ObjectConfig, ObjectKey};
pub use origin::{Origin, OriginConfig};
pub use store::{RamConfig, Store, StoreConfig, StoreStats, ValueReader, ValueWriter};
pub use tiny::{OpenTinyError, Tiny, TinyConfig, TinyRecovery, TinyStats};
pub use typed::{TypedCache, TypedError};
pub use value::{InRam, PutOptions, PutOutcome, ReadFault, Tier, Value};
