//! Shutdown: fetched chunks are stored, and no wait is endless.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_device::{Faults, Faulty, virtual_time};

use super::origin::GatedOrigin;
use super::*;

/// Flash is slower than the origin: a reader has the last bytes while the store
/// has no room for them.
#[test]
fn bytes_that_a_reader_got_are_stored_after_a_stop() {
    stops_after_a_read(24, 64 << 10, Duration::from_millis(100));
}

/// Flash stalls for longer than a reader would wait for it.
#[test]
fn bytes_that_a_reader_got_are_stored_after_a_stop_with_stalled_flash() {
    stops_after_a_read(1, 512 << 10, Duration::from_secs(60));
}

/// Stops a cache that was read through, whose origin sends pieces of `piece` bytes.
fn stops_after_a_read(chunks: u64, piece: usize, delay_max: Duration) {
    virtual_time::run(5, |clock| async move {
        let rig = Rig::new(chunks, piece, &clock);
        let cache = rig.open(false).await;
        rig.delay(delay_max);
        assert_eq!(read(&cache, None).await.unwrap(), rig.big);
        assert!(cache.stats().chunks_stored < chunks, "flash is slower");
        cache.stop().await;
        assert_eq!(cache.stats().chunks_stored, chunks);
        cache.store().close().await.unwrap();

        let cache = rig.open(false).await;
        rig.origin.outage.store(true, SeqCst);
        assert_eq!(read(&cache, None).await.unwrap(), rig.big);
    });
}

/// An object of many chunks behind flash that can be slowed down.
struct Rig {
    big: Bytes,
    origin: Arc<GatedOrigin>,
    device: Arc<Faulty>,
    clock: Clock,
}

impl Rig {
    fn new(chunks: u64, piece: usize, clock: &Clock) -> Self {
        let big = pattern(chunks as usize * (512 << 10));
        let mut origin = GatedOrigin::new();
        origin.piece = piece;
        origin.set(&key(), big.clone());
        let memory = Arc::new(MemoryDevice::new(geometry()));
        Rig {
            big,
            origin: Arc::new(origin),
            device: Arc::new(Faulty::new(memory, clock.clone(), 5, Faults::default())),
            clock: clock.clone(),
        }
    }

    /// 24 chunks, which the origin sends faster than flash takes them.
    async fn of_slow_flash(clock: &Clock, cancel_abandoned: bool) -> (Self, ObjectCache) {
        let rig = Rig::new(24, 64 << 10, clock);
        let cache = rig.open(cancel_abandoned).await;
        rig.delay(Duration::from_millis(100));
        (rig, cache)
    }

    async fn open(&self, cancel_abandoned: bool) -> ObjectCache {
        let config = ObjectConfig {
            chunk_size: ByteSize::kib(512),
            coalesce_size: ByteSize::mib(4),
            fetch_window: ByteSize::mib(1),
            cancel_abandoned,
            ..config(Consistency::Immutable)
        };
        let store = store_on(self.device.clone(), self.clock.clone()).await;
        cache_over(store, &Arc::new(self.origin.clone()), config)
    }

    /// Delays every command, by up to `delay_max`.
    fn delay(&self, delay_max: Duration) {
        self.device.set(Faults {
            delays: 1.0,
            delay_max,
            ..Faults::default()
        });
    }
}

/// The bytes are paid for when the last reader leaves with them.
#[test]
fn whole_chunks_are_stored_though_abandoned_fetches_are_cancelled() {
    virtual_time::run(5, |clock| async move {
        let (rig, cache) = Rig::of_slow_flash(&clock, true).await;
        assert_eq!(read(&cache, None).await.unwrap(), rig.big);
        assert!(cache.stats().chunks_stored < 24, "flash is slower");
        clock.sleep(Duration::from_secs(60)).await;
        let stats = cache.stats();
        assert_eq!((stats.chunks_stored, stats.fetches_cancelled), (24, 0));
        let left = (cache.fetches_in_flight(), cache.fetch_memory_used());
        assert_eq!(left, (0, 0));
    });
}

#[test]
fn an_object_is_warm_when_its_bytes_are_stored() {
    virtual_time::run(5, |clock| async move {
        let (rig, cache) = Rig::of_slow_flash(&clock, false).await;
        let size = rig.big.len() as u64;
        let warmed = cache.warm(&key(), 0, |_| true).await.unwrap();
        assert_eq!((warmed.position, warmed.fetched_bytes), (size, size));
        assert_eq!(cache.cached(&key()).await.unwrap().bytes, size);
        let again = cache.warm(&key(), 0, |_| false).await.unwrap();
        assert_eq!((again.position, again.fetched_bytes), (size, 0));
    });
}

/// Virtual time detects a wait that never ends.
#[test]
fn a_stop_does_not_wait_for_a_stalled_origin() {
    for gate_of in [
        |origin: &GatedOrigin| origin.responses.close(),
        |origin: &GatedOrigin| origin.pieces.close(),
    ] {
        virtual_time::run(5, |clock| async move {
            let origin = GatedOrigin::with(&key(), pattern(10_000));
            gate_of(&origin);
            let store = store_on(Arc::new(MemoryDevice::new(geometry())), clock).await;
            let config = config(Consistency::Immutable);
            let cache = cache_over(store, &Arc::new(origin.clone()), config);
            let reader = tokio::spawn({
                let cache = cache.clone();
                async move { read(&cache, None).await }
            });
            settle().await;
            cache.stop().await;
            assert_eq!(cache.fetches_in_flight(), 0);
            reader.abort();
        });
    }
}

#[tokio::test]
async fn misses_are_rejected_after_a_stop() {
    let origin = GatedOrigin::with(&key(), pattern(10_000));
    let cache = cache(&Arc::new(origin.clone()), config(Consistency::Immutable)).await;
    cache.stop().await;
    assert!(matches!(
        read(&cache, None).await,
        Err(ObjectError::Stopped)
    ));
    assert_eq!(origin.gets(), 0);
}
