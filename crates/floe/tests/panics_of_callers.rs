//! A panic in a caller's own code reaches that caller, and poisons nothing: the
//! functions, types and origins that a user passes to the library.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use common::{in_place, memory};
use floe::items::{Decision, ItemBuffer, NewItem};
use floe::object::{ObjectConfig, ObjectError, ObjectMeta};
use floe::origin::emulated::{EmulatedConfig, EmulatedOrigin, SizeRule};
use floe::origin::{Backend, GetRequest, OriginError, OriginRead, RequestConfig};
use floe::{
    Cache, CacheConfig, ItemCache, ItemConfig, ObjectCache, ObjectKey, Origin, PutOptions,
    TypedCache,
};
use floe_core::ByteSize;
use floe_device::Clock;
use floe_device::virtual_time::VirtualTime;
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize, Serializer};

/// Runs `test` over a blank cache. One that hangs fails.
fn with_cache(test: impl AsyncFnOnce(Cache, Clock)) {
    let hour = VirtualTime::new(1).limit(Duration::from_secs(3600));
    let run = hour.run(async |clock: Clock| {
        let mut config = CacheConfig::default();
        config.store.chunk.size = ByteSize::mib(1);
        config.store.seed = Some(7);
        let cache = Cache::builder(&config)
            .device(memory(in_place(14, 4 << 20)))
            .clock(clock.clone())
            .open();
        test(cache.await.expect("the cache opens"), clock).await;
    });
    assert_eq!(run, Ok(()), "it hangs");
}

/// Runs `work`, which must panic, in a task of its own.
async fn panics<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) {
    let ended = tokio::spawn(work).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
}

#[test]
fn a_fetch_that_panics_leaves_its_key_to_a_waiting_caller() {
    with_cache(async |cache, clock| {
        let first = cache.clone();
        let leader = tokio::spawn(async move {
            let fetch = || async {
                clock.sleep(Duration::from_millis(1)).await;
                assert!(clock.unix_seconds() == 0, "injected panic");
                Ok::<_, std::io::Error>(Bytes::new())
            };
            first.get_or_fetch(b"key", fetch).await
        });
        tokio::task::yield_now().await;
        let value = Bytes::from_static(b"value");
        let fetch = || async { Ok::<_, std::io::Error>(value.clone()) };
        let fetched = cache.get_or_fetch(b"key", fetch).await.unwrap();
        assert_eq!(fetched, value);
        assert!(leader.await.is_err_and(|error| error.is_panic()));
        assert_eq!(cache.get(b"key").await.unwrap(), Some(value));
    });
}

/// A small value, and one that is streamed onto flash while it arrives.
#[test]
fn a_value_whose_writer_panics_is_not_stored() {
    with_cache(async |cache, _| {
        for len in [2000, 900_000] {
            let older = Bytes::from(vec![1; len]);
            cache.put(b"key", older.clone()).await.unwrap();
            let writing = cache.store().clone();
            panics(async move {
                let options = PutOptions::default();
                let writer = writing.writer(b"key", len as u64, options).await;
                let half = Bytes::from(vec![2; len / 2]);
                writer.unwrap().write(half).await.unwrap();
                panic!("injected panic");
            })
            .await;
            cache.flush().await.unwrap();
            assert_eq!(cache.get(b"key").await.unwrap(), Some(older));
        }
        cache.close().await.unwrap();
    });
}

/// Bytes whose owner reads their key from the cache when it is dropped, and
/// panics.
struct Owner {
    bytes: Vec<u8>,
    cache: Cache,
    dropped: Arc<AtomicU8>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // In a thread of its own, so that a deadlock fails the test.
        let (sender, receiver) = channel();
        let cache = self.cache.clone();
        std::thread::spawn(move || sender.send(cache.get_ram(b"key").is_ok()));
        if receiver.recv_timeout(Duration::from_secs(10)) == Ok(true) {
            self.dropped.fetch_add(1, SeqCst);
        }
        panic!("injected panic");
    }
}

#[test]
fn bytes_whose_owner_panics_are_dropped_after_the_lock_and_harm_no_other_caller() {
    with_cache(async |cache, _| {
        let dropped = Arc::new(AtomicU8::new(0));
        let put_owned = async || {
            let owner = Owner {
                bytes: vec![1; 2000],
                cache: cache.clone(),
                dropped: Arc::clone(&dropped),
            };
            let value = Bytes::from_owner(owner);
            cache.put(b"key", value).await.unwrap();
        };
        let newer = Bytes::from(vec![2; 2000]);
        // Only the RAM tier holds it.
        put_owned().await;
        cache.flush().await.unwrap();
        cache.put(b"key", newer.clone()).await.unwrap();
        assert_eq!(dropped.load(SeqCst), 1);
        // The write buffer holds it.
        put_owned().await;
        cache.put(b"key", newer.clone()).await.unwrap();
        cache.flush().await.unwrap();
        assert_eq!(dropped.load(SeqCst), 2);
        assert_eq!(cache.get(b"key").await.unwrap(), Some(newer));
        put_owned().await;
        cache.flush().await.unwrap();
        cache.delete(b"key").await.unwrap();
        assert_eq!(dropped.load(SeqCst), 3);
        assert_eq!(cache.get(b"key").await.unwrap(), None);
        // The RAM tier evicts it.
        put_owned().await;
        cache.flush().await.unwrap();
        assert!(cache.store().resize_ram(ByteSize::kib(4)));
        assert_eq!(dropped.load(SeqCst), 4);
        assert_eq!(cache.get(b"key").await.unwrap().unwrap(), vec![1; 2000]);
        cache.close().await.unwrap();
    });
}

/// A type that cannot be encoded if its number is 0.
#[derive(Debug, PartialEq, Deserialize)]
struct Fragile(u32);

impl Serialize for Fragile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 > 0, "injected panic");
        serializer.serialize_newtype_struct("Fragile", &self.0)
    }
}

#[test]
fn a_type_that_panics_leaves_the_older_value() {
    with_cache(async |cache, _| {
        let typed = TypedCache::<u32, Fragile>::new(cache, "fragile").unwrap();
        typed.put(&1, &Fragile(7)).await.unwrap();
        let other = typed.clone();
        panics(async move { other.put(&1, &Fragile(0)).await }).await;
        assert_eq!(typed.get(&1).await.unwrap(), Some(Fragile(7)));
        let other = typed.clone();
        panics(async move {
            let fetch = || async { Ok::<_, std::io::Error>(Fragile(0)) };
            other.get_or_fetch(&2, fetch).await
        })
        .await;
        let fetch = || async { Ok::<_, std::io::Error>(Fragile(8)) };
        assert_eq!(typed.get_or_fetch(&2, fetch).await.unwrap(), Fragile(8));
    });
}

#[test]
fn an_update_that_panics_leaves_the_item_and_the_next_update_runs() {
    with_cache(async |cache, _| {
        let config = ItemConfig {
            max_value: ByteSize::kib(64),
        };
        let items = ItemCache::open(cache, &config).await.unwrap();
        let version = items.put(b"key", NewItem::new(ItemBuffer::new(0))).await;
        let other = items.clone();
        panics(async move {
            let decide = |_: Option<&_>| -> Decision<()> { panic!("injected panic") };
            other.update(b"key", decide).await
        })
        .await;
        let found = |item: Option<&floe::Item>| Decision::Keep(item.map(|item| item.version));
        let updated = items.update(b"key", found).await.unwrap();
        assert_eq!(updated.result, Some(version.unwrap()));
    });
}

/// An emulated origin that panics once if it is told to.
struct PanickingOrigin {
    below: EmulatedOrigin,
    panics_in: AtomicU8,
}

const NOTHING: u8 = 0;
const REQUEST: u8 = 1;
const BODY: u8 = 2;

impl PanickingOrigin {
    fn panic_in(&self, part: u8) {
        let is_due = self
            .panics_in
            .compare_exchange(part, NOTHING, SeqCst, SeqCst);
        assert!(is_due.is_err(), "injected panic");
    }
}

#[async_trait]
impl Backend for PanickingOrigin {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        self.panic_in(REQUEST);
        let read = self.below.get(key, request).await?;
        let is_due = self.panics_in.swap(NOTHING, SeqCst) == BODY;
        let body = read
            .body
            .inspect(move |_| assert!(!is_due, "injected panic"));
        Ok(OriginRead {
            body: body.boxed(),
            ..read
        })
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        self.panic_in(REQUEST);
        self.below.head(key, request).await
    }
}

fn panicking_origin(clock: &Clock) -> (Arc<PanickingOrigin>, Origin) {
    let config = EmulatedConfig {
        size: SizeRule::Fixed {
            bytes: ByteSize::kib(100),
        },
        ..EmulatedConfig::default()
    };
    let backend = Arc::new(PanickingOrigin {
        below: EmulatedOrigin::new(config, clock.clone()).unwrap(),
        panics_in: AtomicU8::new(NOTHING),
    });
    let requests = RequestConfig {
        max_concurrent: 1,
        ..RequestConfig::default()
    };
    let origin = Origin::from_backend(
        Arc::<PanickingOrigin>::clone(&backend),
        requests,
        clock.clone(),
    );
    (backend, origin.unwrap())
}

fn key() -> ObjectKey {
    ObjectKey::new("bucket", "object")
}

async fn read_origin(origin: Origin) -> Vec<Bytes> {
    let read = origin.get(&key(), GetRequest::default()).await.unwrap();
    read.body.try_collect().await.unwrap()
}

#[test]
fn an_origin_that_panics_gives_its_place_to_the_next_request() {
    with_cache(async |_, clock| {
        let (backend, origin) = panicking_origin(&clock);
        let whole = read_origin(origin.clone()).await;
        for part in [REQUEST, BODY] {
            backend.panics_in.store(part, SeqCst);
            panics(read_origin(origin.clone())).await;
            assert_eq!(read_origin(origin.clone()).await, whole);
        }
    });
}

#[test]
fn objects_whose_fetch_panics_are_fetched_again() {
    for part in [REQUEST, BODY] {
        with_cache(async |cache, clock| {
            let (backend, origin) = panicking_origin(&clock);
            let whole = read_origin(origin.clone()).await.concat();
            let store = cache.store().clone();
            let config = ObjectConfig {
                chunk_size: ByteSize::kib(64),
                ..ObjectConfig::default()
            };
            let objects = ObjectCache::new(store, origin, clock, config).unwrap();
            let read = async || objects.get(&key(), None).await?.bytes().await;
            backend.panics_in.store(part, SeqCst);
            match read().await {
                Ok(bytes) => assert_eq!(bytes, whole),
                Err(error) => assert!(matches!(error, ObjectError::Stopped), "{error}"),
            }
            assert_eq!(backend.panics_in.load(SeqCst), NOTHING);
            assert_eq!(read().await.unwrap(), whole);

            let change = objects.change(vec![key()], async { panic!("injected panic") });
            let changed: Result<(), _> = change.await;
            assert!(matches!(changed, Err(ObjectError::Stopped)));
            assert_eq!(read().await.unwrap(), whole);
            objects.stop().await;
        });
    }
}
