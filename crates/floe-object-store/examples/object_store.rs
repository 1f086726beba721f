//! Floe in front of a store of `object_store`: a directory here, and likewise
//! S3, GCS and Azure. `lab/datafusion` runs DataFusion over one.
//!
//! `cargo run -p floe-object-store --example object_store`

use std::sync::Arc;
use std::time::Duration;

use floe::object::Consistency;
use floe::{ByteSize, CacheConfig, ObjectConfig};
use floe_object_store::CachedStore;
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let origin = Arc::new(LocalFileSystem::new_with_prefix(folder.path())?);
    let cache = CacheConfig::file(folder.path().join("cache.floe"), ByteSize::gib(1));
    let objects = ObjectConfig {
        // Changed objects get new names.
        consistency: Consistency::Immutable,
        ..ObjectConfig::default()
    };
    let store = CachedStore::open(origin, "example", &cache, objects).await?;

    let path = Path::from("data/part-0");
    store.put(&path, vec![7; 10_000_000].into()).await?;
    // The first read fetches the range, and the cache stores it in the background.
    for _ in 0..100 {
        let bytes = store.get_range(&path, 5_000_000..5_100_000).await?;
        assert_eq!(bytes, vec![7; 100_000]);
        let stats = store.objects().stats();
        println!("{} reads hit, {} missed", stats.reads_hit, stats.reads_miss);
        if stats.reads_hit > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.objects().stats().reads_hit, 1);
    store.close().await?;
    Ok(())
}
