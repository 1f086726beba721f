//! Reads race with all kinds of writes: a read that begins after a write was
//! acknowledged returns that version or a later one, and never a mixture.

mod jittery;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use floe::device::config::DeviceKind;
use floe::object::Consistency;
use floe::{ByteSize, CacheConfig, ObjectConfig};
use floe_object_store::CachedStore;
use futures::StreamExt;
use jittery::{Jitter, Jittery};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};

const KEYS: usize = 3;
const WRITES: u64 = 150;

/// One key's history. Its writes are sequential, so version `n` is the state
/// that write `n` leaves; version 0 is absent.
struct History {
    path: Path,
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// Every fifth write deletes.
fn is_absent(version: u64) -> bool {
    version.is_multiple_of(5)
}

fn content(version: u64) -> Bytes {
    let length = 1000 + (version * 977 % 6000) as usize;
    let bytes = version.to_le_bytes().into_iter().cycle();
    bytes.take(length).collect()
}

impl History {
    /// Writes one version by a random kind of write.
    async fn write(&self, store: &CachedStore, jitter: &Jitter) {
        let version = self.begun.fetch_add(1, SeqCst) + 1;
        let (path, payload) = (&self.path, content(version));
        let source = Path::from(format!("source/{path}"));
        let result = match jitter.below(5) {
            _ if is_absent(version) && version.is_multiple_of(2) => store.delete(path).await,
            _ if is_absent(version) => {
                let paths = futures::stream::iter([Ok(path.clone())]).boxed();
                let results: Vec<_> = store.delete_stream(paths).collect().await;
                results.into_iter().try_for_each(|result| result.map(drop))
            }
            0 => match store.put_multipart(path).await {
                Ok(mut upload) => {
                    upload.put_part(payload.into()).await.unwrap();
                    upload.complete().await.map(drop)
                }
                Err(error) => Err(error),
            },
            way @ (1 | 2) => {
                while store.put(&source, payload.clone().into()).await.is_err() {}
                // Its bytes and metadata are cached now.
                let _ = read_all(store, &source).await;
                match way {
                    1 => store.copy(&source, path).await,
                    _ => {
                        let renamed = store.rename(&source, path).await;
                        let gone = store.head(&source).await;
                        assert!(renamed.is_err() || is_not_found(&gone), "{gone:?}");
                        renamed
                    }
                }
            }
            _ => store.put(path, payload.into()).await.map(drop),
        };
        if result.is_ok() {
            self.acknowledged.store(version, SeqCst);
        }
    }

    /// Reads by a random kind of read.
    async fn read(&self, store: &CachedStore, jitter: &Jitter) {
        let oldest = self.acknowledged.load(SeqCst);
        let from = jitter.below(900);
        let found = match jitter.below(4) {
            0 => store
                .head(&self.path)
                .await
                .map(|meta| Found::Length(meta.size)),
            1 => {
                let bytes = store.get_range(&self.path, from..from + 40).await;
                bytes.map(|bytes| Found::Part(from, bytes))
            }
            2 => {
                let ranges = [from..from + 8, 0..9000];
                let parts = store.get_ranges(&self.path, &ranges).await;
                parts.map(|parts| {
                    assert_eq!(parts[0], parts[1].slice(from as usize..from as usize + 8));
                    Found::Part(0, parts[1].clone())
                })
            }
            _ => read_all(store, &self.path)
                .await
                .map(|bytes| Found::Part(0, bytes)),
        };
        let newest = self.begun.load(SeqCst);
        let mut possible = oldest..=newest;
        let is_true = match &found {
            Ok(found) => possible.any(|version| !is_absent(version) && found.is_of(version)),
            Err(Error::NotFound { .. }) => possible.any(is_absent),
            // The store failed, or the object kept changing.
            Err(_) => true,
        };
        assert!(is_true, "{found:?} in versions {oldest} to {newest}");
    }
}

#[derive(Debug)]
enum Found {
    Length(u64),
    Part(u64, Bytes),
}

impl Found {
    fn is_of(&self, version: u64) -> bool {
        let whole = content(version);
        match self {
            Found::Length(length) => *length == whole.len() as u64,
            Found::Part(from, bytes) => whole[*from as usize..].starts_with(bytes),
        }
    }
}

async fn read_all(store: &CachedStore, path: &Path) -> object_store::Result<Bytes> {
    store.get(path).await?.bytes().await
}

fn is_not_found<T>(result: &object_store::Result<T>) -> bool {
    matches!(result, Err(Error::NotFound { .. }))
}

async fn race(consistency: Consistency, seed: u64) -> CachedStore {
    let jitter = Jitter::new(seed);
    let origin = Jittery::new(InMemory::new(), jitter.clone());
    let mut config = CacheConfig::default();
    config.device.kind = DeviceKind::Memory;
    config.device.size = Some(ByteSize::mib(64));
    config.device.zone_size = Some(ByteSize::mib(4));
    config.store.chunk.write_buffer = ByteSize::mib(4);
    config.store.ram.size = ByteSize::mib(1);
    let objects = ObjectConfig {
        chunk_size: ByteSize(1024),
        consistency,
        negative_ttl_seconds: 3600,
        ..ObjectConfig::default()
    };
    let store = CachedStore::open(Arc::new(origin), "origin", &config, objects);
    let store = store.await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for key in 0..KEYS {
        let history = Arc::new(History {
            path: Path::from(format!("key/{key}")),
            begun: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        });
        let (own, writer, turns) = (Arc::clone(&history), store.clone(), jitter.clone());
        tasks.spawn(async move {
            for _ in 0..WRITES {
                own.write(&writer, &turns).await;
                turns.wait().await;
            }
        });
        for _ in 0..3 {
            let (own, reader, turns) = (Arc::clone(&history), store.clone(), jitter.clone());
            tasks.spawn(async move {
                while own.begun.load(SeqCst) < WRITES {
                    own.read(&reader, &turns).await;
                    turns.wait().await;
                }
            });
        }
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    store
}

#[tokio::test]
async fn no_read_is_older_than_an_acknowledged_write() {
    for mode in [Consistency::Immutable, Consistency::Ttl, Consistency::Etag] {
        for seed in 0..2 {
            let store = race(mode, seed).await;
            let stats = store.objects().stats();
            assert!(
                stats.reads_hit > 0 && stats.metadata_writes_skipped > 0,
                "{stats:?}"
            );
        }
    }
}
