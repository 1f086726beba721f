//! A panic ends as an error or a miss: never as a hang, which virtual time
//! reports as a deadlock, and never as a lie.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{in_place, power_switch};
use floe::{Cache, CacheConfig, CacheError, ChunkConfig, StoreConfig, TinyConfig, TinyTierConfig};
use floe_core::ByteSize;
use floe_core::chunk::Eviction;
use floe_device::power::PowerSwitch;
use floe_device::virtual_time::VirtualTime;
use floe_device::{Clock, Faults, Faulty, Operation};

/// The layout of values, which decides how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Log,
    Slots,
    Tiny,
}

impl Layout {
    fn writes_by(self) -> Operation {
        match self {
            Layout::Log | Layout::Tiny => Operation::Append,
            Layout::Slots => Operation::Write,
        }
    }
}

/// A cache whose device panics on demand.
struct Subject {
    cache: Cache,
    chunks: Arc<Faulty>,
    tiny: Arc<Faulty>,
    clock: Clock,
}

impl Subject {
    async fn open(layout: Layout, powers: &[PowerSwitch; 2], clock: &Clock) -> Subject {
        let eviction = match layout {
            Layout::Slots => Eviction::Clru,
            Layout::Log | Layout::Tiny => Eviction::Zplru,
        };
        let mut store = StoreConfig {
            chunk: ChunkConfig {
                size: ByteSize::kib(64),
                eviction,
                ..ChunkConfig::default()
            },
            seed: Some(7),
            ..StoreConfig::default()
        };
        store.ram.size = ByteSize::kib(64);
        let config = CacheConfig {
            store,
            tiny: (layout == Layout::Tiny).then(|| TinyTierConfig {
                engine: TinyConfig {
                    ram: ByteSize(0),
                    seed: Some(8),
                    ..TinyConfig::default()
                },
                ..TinyTierConfig::default()
            }),
            ..CacheConfig::default()
        };
        let faulty = |power: &PowerSwitch| {
            let below = power.reopen();
            Arc::new(Faulty::new(below, clock.clone(), 1, Faults::default()))
        };
        let (chunks, tiny) = (faulty(&powers[0]), faulty(&powers[1]));
        let mut builder = Cache::builder(&config)
            .device(chunks.clone())
            .clock(clock.clone());
        if layout == Layout::Tiny {
            builder = builder.tiny_device(tiny.clone());
        }
        Subject {
            cache: builder.open().await.expect("the cache opens"),
            chunks,
            tiny,
            clock: clock.clone(),
        }
    }

    async fn put(&self, key: &[u8]) -> Result<(), CacheError> {
        self.cache.put(key, value(key)).await.map(drop)
    }

    /// Lets every ready task run.
    async fn settle(&self) {
        self.clock.sleep(Duration::from_millis(1)).await;
    }

    /// True if `key` is found; its value must be right.
    async fn finds(&self, key: &[u8]) -> bool {
        let found = self.cache.get(key).await.expect("a get succeeds");
        assert!(found.as_ref().is_none_or(|found| *found == value(key)));
        found.is_some()
    }
}

/// 1,800 bytes, a tiny object where there is an engine for them.
fn value(key: &[u8]) -> Bytes {
    key.iter().copied().cycle().take(1800).collect()
}

fn powers() -> [PowerSwitch; 2] {
    [(14, 4 << 20), (20, 128 << 10)].map(|(zones, bytes)| power_switch(in_place(zones, bytes)))
}

fn panic_after(operation: Operation) -> Faults {
    Faults {
        panic_after: Some(operation),
        ..Faults::default()
    }
}

/// Runs two lives of a process, each of which ends without closing the cache.
fn two_lives(
    layout: Layout,
    first: impl AsyncFnOnce(&Subject),
    second: impl AsyncFnOnce(&Subject),
) {
    let powers = powers();
    let hour = Duration::from_secs(3600);
    let first = VirtualTime::new(1).limit(hour).run(async |clock| {
        first(&Subject::open(layout, &powers, &clock).await).await;
    });
    let second = VirtualTime::new(2).limit(hour).run(async |clock| {
        second(&Subject::open(layout, &powers, &clock).await).await;
    });
    assert_eq!((first, second), (Ok(()), Ok(())), "a life hangs");
}

fn lost_batch(layout: Layout) {
    two_lives(
        layout,
        async |subject| {
            subject.put(b"first").await.unwrap();
            subject.cache.flush().await.unwrap();
            subject.chunks.set(panic_after(layout.writes_by()));
            subject.put(b"lost").await.unwrap();
            let flushed = subject.cache.flush().await;
            assert!(
                matches!(flushed, Err(CacheError::NotDurable(_))),
                "{flushed:?}"
            );
            assert!(!subject.finds(b"lost").await);
            let engine = subject.cache.stats().store.engine;
            assert_eq!((engine.counts.puts_dropped, engine.pending_records), (1, 0));

            // The cache goes on. What the panic left on flash is dead once the key is deleted.
            subject.cache.delete(b"lost").await.unwrap();
            subject.put(b"next").await.unwrap();
            // The flush that met the panic cannot know whose value it was, so that one more may
            // report it.
            if subject.cache.flush().await.is_err() {
                subject.cache.flush().await.unwrap();
            }
            assert!(subject.finds(b"first").await && subject.finds(b"next").await);
        },
        async |subject| {
            assert!(!subject.finds(b"lost").await);
            assert!(subject.finds(b"first").await && subject.finds(b"next").await);
        },
    );
}

#[test]
fn a_batch_in_a_log_is_given_up() {
    lost_batch(Layout::Log);
}

#[test]
fn a_batch_in_slots_is_given_up() {
    lost_batch(Layout::Slots);
}

/// A zone whose opening panicked is not waited for.
fn lost_opening(layout: Layout) {
    two_lives(
        layout,
        async |subject| {
            // A zone of unknown content is reset before it is opened.
            subject.chunks.set(panic_after(Operation::Reset));
            subject.put(b"key").await.unwrap();
            subject.cache.flush().await.unwrap();
            assert!(subject.finds(b"key").await);
            subject.cache.close().await.unwrap();
        },
        async |subject| assert!(subject.finds(b"key").await),
    );
}

#[test]
fn a_zone_of_a_log_that_is_being_opened_is_given_up() {
    lost_opening(Layout::Log);
}

#[test]
fn a_zone_that_is_being_divided_into_slots_is_given_up() {
    lost_opening(Layout::Slots);
}

#[test]
fn a_zone_that_is_being_closed_is_given_up() {
    two_lives(
        Layout::Log,
        async |subject| {
            subject.put(b"key").await.unwrap();
            subject.chunks.set(panic_after(Operation::Finish));
            subject.cache.close().await.unwrap();
        },
        async |subject| assert!(subject.finds(b"key").await),
    );
}

#[test]
fn a_reclaimer_that_panics_poisons_the_cache() {
    two_lives(
        Layout::Log,
        async |subject| {
            let large = Bytes::from(vec![7; 60_000]);
            let mut rejected = None;
            for key in 0..4000u32 {
                if key == 1500 {
                    // By now each zone was written: resets are the reclaimer's.
                    subject.chunks.set(panic_after(Operation::Reset));
                }
                if let Err(error) = subject.cache.put(&key.to_le_bytes(), large.clone()).await {
                    rejected = Some(error);
                    break;
                }
            }
            assert!(
                matches!(rejected, Some(CacheError::Poisoned)),
                "{rejected:?}"
            );
            subject.cache.delete(b"first").await.unwrap();
            // Values that no zone took are counted, not waited for.
            subject.cache.flush().await.unwrap();
            let _ = subject.cache.close().await;
        },
        async |subject| {
            subject.put(b"key").await.unwrap();
            assert!(subject.finds(b"key").await);
        },
    );
}

/// Stores two values, of which a task panics that was to note the delete of one.
async fn lose_a_delete(subject: &Subject, device: &Faulty, operation: Operation) {
    for key in [&b"first"[..], b"key"] {
        subject.put(key).await.unwrap();
    }
    subject.cache.flush().await.unwrap();
    device.set(panic_after(operation));
    let deleted = subject.cache.delete(b"key").await;
    assert!(deleted.is_err(), "{deleted:?}");
}

/// The journal's work, and the task of the tables of slots: puts fail, gets go on.
#[test]
fn a_task_that_notes_deletes_and_panics_poisons_the_cache() {
    for layout in [Layout::Log, Layout::Slots] {
        two_lives(
            layout,
            async |subject| {
                lose_a_delete(subject, &subject.chunks, layout.writes_by()).await;
                assert!(!subject.finds(b"key").await);
                // The delete fails before the watcher of the journal knows of the panic.
                subject.settle().await;
                let put = subject.put(b"late").await;
                assert!(matches!(put, Err(CacheError::Poisoned)), "{put:?}");
                assert!(!subject.finds(b"late").await);
                assert!(subject.finds(b"first").await);
                // It may fail; it must end.
                let _ = subject.cache.close().await;
            },
            async |subject| assert!(subject.finds(b"first").await),
        );
    }
}

#[test]
fn a_tiny_engine_whose_task_panics_neither_takes_nor_serves_objects() {
    two_lives(
        Layout::Tiny,
        async |subject| {
            subject.put(b"first").await.unwrap();
            subject.put(b"gone").await.unwrap();
            subject.cache.flush().await.unwrap();
            subject.cache.delete(b"gone").await.unwrap();
            subject.put(b"key").await.unwrap();
            subject.tiny.set(panic_after(Operation::Append));
            let flushed = subject.cache.flush().await;
            assert!(matches!(flushed, Err(CacheError::Poisoned)), "{flushed:?}");
            let put = subject.put(b"late").await;
            assert!(matches!(put, Err(CacheError::Poisoned)), "{put:?}");
            let found = subject.cache.get(b"first").await;
            assert!(matches!(found, Err(CacheError::Poisoned)), "{found:?}");
            // Values that are not tiny go on.
            let large = Bytes::from(vec![7; 10_000]);
            assert!(
                subject
                    .cache
                    .store()
                    .put(b"large", large, floe::PutOptions::default())
                    .await
                    .is_ok()
            );
            assert!(subject.cache.close().await.is_err());
        },
        async |subject| {
            assert!(subject.finds(b"first").await);
            assert!(!subject.finds(b"gone").await);
        },
    );
}

#[test]
fn a_panicked_tiny_journal_rejects_writes_that_need_a_fence() {
    two_lives(
        Layout::Tiny,
        async |subject| {
            lose_a_delete(subject, &subject.tiny, Operation::Append).await;
            assert!(subject.cache.delete(b"first").await.is_err());
            let _ = subject.cache.close().await;
        },
        async |subject| {
            // Neither delete was acknowledged: both answers are right, and a wrong value is none.
            subject.finds(b"first").await;
            subject.put(b"key").await.unwrap();
            assert!(subject.finds(b"key").await);
        },
    );
}
