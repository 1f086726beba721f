//! Pinned objects stay in the cache while others come and go.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_core::chunk::Eviction;
use floe_device::virtual_time;

use super::origin::GatedOrigin;
use super::*;
use crate::object::{PinError, Purge};

const SEED: u64 = 11;
const OBJECT_BYTES: usize = 256 << 10;
const HOT: usize = 8;
const ALL_HOT: u64 = (HOT * OBJECT_BYTES) as u64;
/// Objects of more than a turnover of flash.
const TURNOVER: usize = 400;
/// Objects before the hot ones: the first zones may stay open for long.
const BEFORE: usize = 100;
/// The task that keeps what is pinned looks at zones more often.
const PAUSE: Duration = Duration::from_millis(25);

struct Rig {
    clock: Clock,
    device: SharedDevice,
    origin: Arc<GatedOrigin>,
    folder: tempfile::TempDir,
    /// Pins are in a file. Without virtual time, which supports no saving.
    is_saved: bool,
    consistency: Consistency,
    eviction: Eviction,
    percent: u32,
    cache: Option<ObjectCache>,
    read: usize,
}

fn hot(number: usize) -> ObjectKey {
    ObjectKey::new("bucket", format!("hot/{number}"))
}

fn cold(number: usize) -> ObjectKey {
    ObjectKey::new("bucket", format!("cold/{number}"))
}

/// Bytes that differ from object to object.
fn bytes(seed: usize) -> Bytes {
    vec![seed as u8; OBJECT_BYTES].into()
}

impl Rig {
    fn new(clock: Clock, eviction: Eviction) -> Self {
        let mut origin = GatedOrigin::new();
        origin.piece = 64 << 10;
        Rig {
            device: Arc::new(MemoryDevice::new(Geometry {
                max_append_bytes: 512 << 10,
                ..Geometry::in_place(66, 1 << 20)
            })),
            clock,
            origin: Arc::new(origin),
            folder: tempfile::tempdir().unwrap(),
            is_saved: false,
            consistency: Consistency::Immutable,
            eviction,
            percent: 25,
            cache: None,
            read: 0,
        }
    }

    fn cache(&self) -> &ObjectCache {
        self.cache.as_ref().unwrap()
    }

    async fn try_open(&self) -> Result<ObjectCache, crate::object::ObjectConfigError> {
        let mut config = StoreConfig {
            seed: Some(7),
            ..StoreConfig::default()
        };
        config.chunk.write_buffer = ByteSize::mib(4);
        config.chunk.eviction = self.eviction;
        config.ram.size = ByteSize(0);
        let store = Store::open(Arc::clone(&self.device), self.clock.clone(), &config);
        let config = ObjectConfig {
            chunk_size: ByteSize::kib(64),
            pins: match self.is_saved {
                true => self.folder.path().join("pins.json"),
                false => std::path::PathBuf::new(),
            },
            pinned_percent: self.percent,
            ..super::config(self.consistency)
        };
        let backend: Arc<dyn Backend> = Arc::new(Arc::clone(&self.origin));
        let origin = Origin::from_backend(backend, requests(), self.clock.clone()).unwrap();
        ObjectCache::new(store.await.unwrap(), origin, self.clock.clone(), config)
    }

    async fn open(&mut self) {
        self.cache = Some(self.try_open().await.unwrap());
    }

    /// Opens the cache again, as after a kill unless `is_clean`.
    async fn reopen(&mut self, is_clean: bool) {
        let cache = self.cache.take().unwrap();
        cache.stop().await;
        if is_clean {
            cache.store().close().await.unwrap();
        }
        drop(cache);
        self.open().await;
        // A restart forgets recency, so the task first looks at other zones than before.
        self.clock.sleep(PAUSE).await;
    }

    /// Has the next opening read these pins.
    fn save(&mut self, pins: &str) {
        self.is_saved = true;
        std::fs::write(self.folder.path().join("pins.json"), pins).unwrap();
    }

    /// Opens the cache and reads the hot objects.
    async fn open_hot(&mut self) {
        self.open().await;
        self.churn(BEFORE).await;
        for number in 0..HOT {
            self.origin.set(&hot(number), bytes(number));
            self.read_whole(&hot(number)).await;
        }
    }

    async fn read_whole(&self, key: &ObjectKey) -> Bytes {
        let read = self.cache().get(key, None).await.unwrap();
        read.bytes().await.unwrap()
    }

    /// Reads objects that the cache does not have.
    async fn churn(&mut self, objects: usize) {
        for _ in 0..objects {
            self.read += 1;
            let key = cold(self.read);
            // Their lengths differ, so that every zone fills in the end.
            let bytes = bytes(self.read).slice(self.read * 7919 % (OBJECT_BYTES / 2)..);
            self.origin.set(&key, bytes.clone());
            assert_eq!(self.read_whole(&key).await, bytes);
            self.origin.remove(&key);
            self.clock.sleep(PAUSE).await;
        }
        self.cache().store().flush().await.unwrap();
    }

    async fn cached_bytes(&self, key: &ObjectKey) -> u64 {
        let cached = self.cache().cached(key).await;
        cached.map_or(0, |cached| cached.bytes)
    }

    async fn hot_bytes(&self) -> u64 {
        let mut all = 0;
        for number in 0..HOT {
            all += self.cached_bytes(&hot(number)).await;
        }
        all
    }

    fn limit_bytes(&self) -> u64 {
        self.device.geometry().total_capacity() / 100 * u64::from(self.percent)
    }
}

/// Runs `test` with the hot objects in virtual time, with each policy that evicts zones.
fn with_each_policy(percent: u32, test: impl AsyncFn(&mut Rig)) {
    for eviction in [Eviction::Zplru, Eviction::Fifo, Eviction::Sieve] {
        virtual_time::run(SEED, async |clock| {
            let mut rig = Rig::new(clock, eviction);
            rig.percent = percent;
            rig.open_hot().await;
            test(&mut rig).await;
        });
    }
}

#[test]
fn pinned_objects_outlive_turnovers_and_restarts_until_they_are_unpinned() {
    with_each_policy(25, async |rig| {
        let eviction = rig.eviction;
        // A pin also covers objects that are already cached.
        rig.cache().pin("bucket", "hot/", None).await.unwrap();
        rig.churn(2 * TURNOVER).await;
        assert_eq!(rig.hot_bytes().await, ALL_HOT, "{eviction:?}");
        assert_eq!(rig.cached_bytes(&cold(BEFORE)).await, 0);
        rig.save(r#"[{"bucket": "bucket", "prefix": "hot/"}]"#);
        for is_clean in [true, false] {
            rig.reopen(is_clean).await;
            let pins = rig.cache().pins();
            assert_eq!((pins.len(), &*pins[0].prefix), (1, "hot/"));
            rig.churn(TURNOVER).await;
            assert_eq!(rig.hot_bytes().await, ALL_HOT, "{eviction:?} {is_clean}");
        }
        let kept = rig.cache().pins()[0].kept_bytes;
        assert!((ALL_HOT..ALL_HOT + 16 * 4096).contains(&kept), "{kept}");
        assert_eq!(rig.cache().pinned_bytes(), kept);
        let gets = rig.origin.gets.load(SeqCst);
        for number in 0..HOT {
            assert_eq!(rig.read_whole(&hot(number)).await, bytes(number));
        }
        assert_eq!(rig.origin.gets.load(SeqCst), gets);
        rig.is_saved = false;
        rig.reopen(false).await;
        assert_eq!(rig.cache().pins(), []);
        rig.cache().pin("bucket", "hot/", None).await.unwrap();
        rig.churn(TURNOVER).await;
        assert!(rig.cache().unpin("bucket", "hot/").await.unwrap());
        assert!(!rig.cache().unpin("bucket", "hot/").await.unwrap());
        rig.churn(2 * TURNOVER).await;
        // SIEVE's hand has passed the zones that were read, and seldom returns.
        if eviction != Eviction::Sieve {
            assert_eq!(rig.hot_bytes().await, 0, "{eviction:?}");
        }
        assert_eq!(rig.cache().pinned_bytes(), 0);
        // A pin after the last one was removed is kept too.
        rig.read_whole(&hot(0)).await;
        rig.cache().pin("bucket", "hot/0", None).await.unwrap();
        rig.churn(2 * TURNOVER).await;
        let first = rig.cached_bytes(&hot(0)).await;
        assert_eq!(first, OBJECT_BYTES as u64, "{eviction:?}");
    });
}

#[test]
fn above_its_cap_a_pin_keeps_nothing_more() {
    virtual_time::run(SEED, |clock| async move {
        let mut rig = Rig::new(clock, Eviction::Zplru);
        rig.open_hot().await;
        let cap = ALL_HOT / 4;
        let pin = rig.cache().pin("bucket", "hot/", Some(cap)).await.unwrap();
        assert_eq!((pin.cap_bytes, pin.kept_bytes), (cap, 0));
        rig.churn(3 * TURNOVER).await;
        let pin = &rig.cache().pins()[0];
        assert!(pin.kept_bytes <= cap, "{pin:?}");
        let hot_bytes = rig.hot_bytes().await;
        assert!((cap / 4..=cap).contains(&hot_bytes), "{hot_bytes} of {cap}");
        assert!(rig.cache().stats().pinned_bytes_left > 0);
        // A longer pin counts for its own objects.
        rig.cache().pin("bucket", "hot/3", None).await.unwrap();
        rig.read_whole(&hot(3)).await;
        rig.churn(3 * TURNOVER).await;
        assert_eq!(rig.cached_bytes(&hot(3)).await, OBJECT_BYTES as u64);
        // The cap of a pin can change.
        let less = rig.cache().pin("bucket", "hot/", Some(1)).await.unwrap();
        assert_eq!((less.cap_bytes, rig.cache().pins().len()), (1, 2));
        rig.churn(2 * TURNOVER).await;
        assert_eq!(rig.cache().pins()[0].kept_bytes, 0);
        assert_eq!(rig.hot_bytes().await, OBJECT_BYTES as u64);
    });
}

#[test]
fn writes_go_on_when_everything_is_pinned() {
    with_each_policy(50, async |rig| {
        let eviction = rig.eviction;
        rig.cache().pin("bucket", "", None).await.unwrap();
        let before = rig.cache().store().stats();
        rig.churn(4 * TURNOVER).await;
        let stats = rig.cache().store().stats();
        assert!(
            rig.cache().pinned_bytes() <= rig.limit_bytes(),
            "{} {}",
            rig.cache().pinned_bytes(),
            rig.limit_bytes()
        );
        assert_eq!(stats.engine.counts.puts_dropped, 0);
        let own = rig.cache().stats();
        let again = own.pinned_bytes_written;
        assert!(own.pinned_bytes_left > 0, "{own:?}");
        let pinned = rig.cache().pinned_bytes();
        assert!(
            pinned > rig.limit_bytes() / 2,
            "{eviction:?}: {pinned} of {}",
            rig.limit_bytes()
        );
        // At most the share that is kept is written again in each turnover.
        let written = stats.device.written_bytes() - before.device.written_bytes();
        assert!(
            again < written * 55 / 100,
            "{eviction:?}: {again} of {written}"
        );
    });
}

/// Without new objects nothing is written for ever, also while others are read and the pinned
/// ones have their turn to be evicted all the time.
#[test]
fn reads_alone_cause_no_writes() {
    with_each_policy(50, async |rig| {
        let eviction = rig.eviction;
        // Small ones: what they take on flash counts.
        let small = |number: usize| ObjectKey::new("bucket", format!("hot/small/{number}"));
        rig.churn(TURNOVER).await;
        for number in 0..500 {
            rig.origin.set(&small(number), bytes(number).slice(..1000));
            rig.read_whole(&small(number)).await;
        }
        for number in 0..HOT {
            rig.read_whole(&hot(number)).await;
        }
        rig.cache().pin("bucket", "hot/", None).await.unwrap();
        rig.churn(2 * TURNOVER).await;
        let last = rig.read;
        let kept: Vec<_> = (last - 60..=last).map(cold).collect();
        let written = || rig.cache().store().stats().device.written_bytes();
        let before = written();
        for _ in 0..200 {
            for key in &kept {
                // It may be evicted: then it costs a request, which finds nothing.
                let _ = rig.cache().get(key, None).await;
            }
            rig.clock.sleep(PAUSE).await;
        }
        let pinned = rig.cache().pinned_bytes();
        let more = written() - before;
        assert!(more <= 2 * pinned, "{eviction:?}: {more} for {pinned}");
    });
}

/// Reads of all others change the order of eviction all the time.
#[test]
fn pinned_objects_that_are_not_read_outlive_others_that_are() {
    with_each_policy(25, async |rig| {
        rig.cache().pin("bucket", "hot/", None).await.unwrap();
        for step in 0..2 * TURNOVER {
            for number in (0..250).step_by(25) {
                let key = cold((rig.read + step % 25).saturating_sub(number));
                // It may be evicted: then it costs a request, which finds nothing.
                if let Ok(read) = rig.cache().get(&key, None).await {
                    let _ = read.bytes().await;
                }
            }
            rig.churn(1).await;
        }
        assert_eq!(rig.hot_bytes().await, ALL_HOT, "{:?}", rig.eviction);
        let written = rig.cache().stats().pinned_bytes_written;
        assert!(written <= 6 * ALL_HOT, "{:?}: {written}", rig.eviction);
    });
}

#[test]
fn only_what_a_read_could_use_is_kept() {
    virtual_time::run(SEED, |clock| async move {
        let mut rig = Rig::new(clock, Eviction::Zplru);
        rig.open_hot().await;
        rig.cache().pin("bucket", "hot/", None).await.unwrap();
        rig.churn(2 * TURNOVER).await;
        // One is overwritten and read again, one is deleted, the others are purged.
        rig.cache().put(&hot(0), put(bytes(100))).await.unwrap();
        assert_eq!(rig.read_whole(&hot(0)).await, bytes(100));
        rig.cache().delete(&hot(1)).await.unwrap();
        for number in 2..HOT {
            let purge = Purge::Object {
                bucket: "bucket".into(),
                key: format!("hot/{number}"),
            };
            rig.cache().purge(&[purge]).await.unwrap();
        }
        rig.churn(3 * TURNOVER).await;
        let kept = rig.cache().pins()[0].kept_bytes;
        assert!(kept < 2 * OBJECT_BYTES as u64, "{kept}");
        assert_eq!(rig.hot_bytes().await, OBJECT_BYTES as u64);
        assert_eq!(rig.read_whole(&hot(0)).await, bytes(100));
        assert!(rig.cache().get(&hot(1), None).await.is_err());
        rig.origin.set(&hot(2), bytes(102));
        assert_eq!(rig.read_whole(&hot(2)).await, bytes(102));
    });
}

/// Random reads, writes, deletes and purges of pinned objects in each mode, with kills: what was
/// written last is read, however often its zones were written over.
#[test]
fn pinned_objects_obey_the_law_through_writes_purges_and_kills() {
    use rand::{RngExt, SeedableRng};
    for (seed, consistency) in [Consistency::Immutable, Consistency::Ttl, Consistency::Etag]
        .into_iter()
        .enumerate()
    {
        virtual_time::run(seed as u64, |clock| async move {
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed as u64);
            let mut rig = Rig::new(clock, Eviction::Fifo);
            rig.consistency = consistency;
            rig.percent = 50;
            rig.save(r#"[{"bucket": "bucket", "prefix": "hot/"}]"#);
            rig.open_hot().await;
            let mut written = 0;
            let mut versions: [Option<usize>; HOT] = std::array::from_fn(Some);
            for step in HOT..1_200 {
                let number = random.random_range(0..HOT);
                let key = hot(number);
                match random.random_range(0..100) {
                    0..3 => {
                        rig.cache().put(&key, put(bytes(step))).await.unwrap();
                        versions[number] = Some(step);
                    }
                    3 => {
                        rig.cache().delete(&key).await.unwrap();
                        versions[number] = None;
                    }
                    4 => {
                        // A writer past the cache, then a purge.
                        rig.origin.set(&key, bytes(step));
                        versions[number] = Some(step);
                        let (bucket, key) = ("bucket".to_owned(), key.key().to_owned());
                        let purge = Purge::Object { bucket, key };
                        rig.cache().purge(&[purge]).await.unwrap();
                    }
                    5 => {
                        written += rig.cache().stats().pinned_bytes_written;
                        rig.reopen(step % 2 == 0).await;
                    }
                    6..40 => match versions[number] {
                        Some(version) => assert_eq!(rig.read_whole(&key).await, bytes(version)),
                        None => assert!(rig.cache().get(&key, None).await.is_err()),
                    },
                    _ => rig.churn(3).await,
                }
            }
            written += rig.cache().stats().pinned_bytes_written;
            assert!(written > ALL_HOT, "{written}");
        });
    }
}

#[tokio::test]
async fn pins_are_saved_bounded_and_refused_where_nothing_can_be_kept() {
    let mut rig = Rig::new(Clock::real(), Eviction::Clru);
    rig.open().await;
    let refused = rig.cache().pin("bucket", "", None).await;
    assert!(matches!(refused, Err(PinError::Impossible)));
    let mut rig = Rig::new(Clock::real(), Eviction::Zplru);
    rig.is_saved = true;
    rig.open().await;
    for (bucket, prefix) in [("", "a"), ("b", "\0"), ("b", &*"x".repeat(2000))] {
        let refused = rig.cache().pin(bucket, prefix, None).await;
        assert!(matches!(refused, Err(PinError::Name)), "{refused:?}");
    }
    for number in 0..64 {
        let prefix = format!("{number}/{}", "long/".repeat(number));
        rig.cache().pin("bucket", &prefix, Some(5)).await.unwrap();
    }
    let refused = rig.cache().pin("bucket", "another", None).await;
    assert!(matches!(refused, Err(PinError::TooMany)));
    // One that is there can change.
    rig.cache().pin("bucket", "0/", Some(6)).await.unwrap();
    let pins = rig.cache().pins();
    rig.reopen(false).await;
    assert_eq!(rig.cache().pins(), pins);
    // A change that cannot be saved is none.
    std::fs::create_dir(rig.folder.path().join("pins.json.new")).unwrap();
    let unsaved = rig.cache().unpin("bucket", "0/").await;
    assert!(matches!(unsaved, Err(PinError::Save { .. })), "{unsaved:?}");
    assert_eq!(rig.cache().pins(), pins);
}

#[test]
fn a_file_that_holds_something_else_is_named() {
    virtual_time::run(SEED, |clock| async move {
        for content in [
            "junk",
            "{}",
            r#"[{"bucket": "b"}]"#,
            r#"[{"bucket": "", "prefix": ""}]"#,
            r#"[{"bucket": "b", "prefix": "p", "cap_bytes": -1}]"#,
            &"x".repeat(2 << 20),
        ] {
            let mut rig = Rig::new(clock.clone(), Eviction::Zplru);
            rig.save(content);
            let path = rig.folder.path().join("pins.json");
            let error = rig.try_open().await.unwrap_err().to_string();
            assert!(error.starts_with("object.pins = "), "{error}");
            assert!(error.contains("pin again"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    });
}
