//! `object_store`'s own tests, over stores in memory and in a directory, in
//! each consistency mode.

use std::sync::Arc;

use floe::object::Consistency;
use floe::{ByteSize, CacheConfig, ObjectConfig};
use floe_object_store::{CachedStore, OpenError};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{ObjectStore, integration};

/// A cache in its own directory, which exists as long as the store.
async fn over(
    origin: Arc<dyn ObjectStore>,
    consistency: Consistency,
) -> (CachedStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CacheConfig::file(folder.path().join("cache"), ByteSize::mib(64));
    config.device.zone_size = Some(ByteSize::mib(4));
    config.store.chunk.write_buffer = ByteSize::mib(4);
    config.store.ram.size = ByteSize::mib(1);
    let objects = ObjectConfig {
        chunk_size: ByteSize::kib(64),
        consistency,
        negative_ttl_seconds: 60,
        ..ObjectConfig::default()
    };
    let store = CachedStore::open(origin, "origin", &config, objects);
    (store.await.unwrap(), folder)
}

const MODES: [Consistency; 3] = [Consistency::Immutable, Consistency::Ttl, Consistency::Etag];

/// The tests that hold over every origin.
async fn is_a_store(store: &CachedStore) {
    integration::put_get_delete_list(store).await;
    integration::get_opts(store).await;
    integration::list_uses_directories_correctly(store).await;
    integration::list_with_delimiter(store).await;
    integration::list_with_offset_exclusivity(store).await;
    integration::rename_and_copy(store).await;
    integration::copy_if_not_exists(store).await;
    integration::copy_rename_nonexistent_object(store).await;
    integration::stream_get(store).await;
}

#[tokio::test]
async fn a_cached_store_in_memory_is_a_store() {
    for mode in MODES {
        let (store, _folder) = over(Arc::new(InMemory::new()), mode).await;
        is_a_store(&store).await;
        integration::put_get_attributes(&store).await;
        integration::put_opts(&store, true).await;
        integration::multipart_race_condition(&store, true).await;
        integration::multipart_out_of_order(&store).await;
        assert!(store.objects().stats().reads_hit > 0);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_cached_directory_is_a_store() {
    for mode in MODES {
        let root = tempfile::tempdir().unwrap();
        let origin = LocalFileSystem::new_with_prefix(root.path()).unwrap();
        let (store, _folder) = over(Arc::new(origin), mode).await;
        is_a_store(&store).await;
        integration::put_opts(&store, false).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn two_stores_of_one_cache_have_different_names() {
    let (first, _folder) = over(Arc::new(InMemory::new()), Consistency::Etag).await;
    let cache = first.objects().store().clone();
    let open = |name| {
        let origin = Arc::new(InMemory::new());
        let objects = ObjectConfig {
            chunk_size: ByteSize::kib(64),
            ..ObjectConfig::default()
        };
        CachedStore::over(origin, name, cache.clone(), objects)
    };
    let (again, other) = (open("origin"), open("other"));
    assert!(matches!(again, Err(OpenError::NameTaken(name)) if name == "origin"));
    assert!(other.is_ok());
    // A clone keeps the name.
    let clone = first.clone();
    drop(first);
    assert!(matches!(open("origin"), Err(OpenError::NameTaken(_))));
    drop(clone);
    assert!(open("origin").is_ok());
}
