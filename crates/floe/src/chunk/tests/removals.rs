use std::time::Duration;

use bytes::Bytes;
use floe_device::Device as _;
use futures::future::try_join_all;
use futures::poll;

use super::with_engine;
use crate::metadata_log::Batch;

#[test]
fn a_removal_that_is_dropped_becomes_durable_with_the_next_group() {
    with_engine(async |fixture| {
        let engine = &fixture.engine;
        for key in [b"key", b"two"] {
            fixture.put(key, Bytes::from_static(b"value")).await;
        }
        engine.small.drain().await.unwrap();

        let (was_served, tombstones) = engine.begin_remove(b"key").unwrap();
        assert!(was_served && !tombstones.is_empty());
        assert_eq!(fixture.get(b"key").await, None);
        drop(tombstones);

        let hash = engine.env.hash(b"key");
        assert!(!engine.journal.pending(hash).is_empty());
        assert!(engine.remove(b"two").await.unwrap());
        assert!(engine.journal.pending(hash).is_empty());
    });
}

#[test]
fn the_tombstones_of_a_batch_share_a_group() {
    with_engine(async |fixture| {
        let engine = &fixture.engine;
        for number in 0..8u8 {
            fixture.put(&[number], Bytes::from_static(b"value")).await;
        }
        engine.small.drain().await.unwrap();
        // Appends for removals of four keys, between which the journal could begin.
        let remove = async |first: u8, batch: Option<Batch>| {
            let before = fixture.device.counters().snapshot();
            let mut removals = Vec::new();
            for number in first..first + 4 {
                let mut removal = Box::pin(async move { engine.remove(&[number]).await });
                if poll!(&mut removal).is_pending() {
                    removals.push(removal);
                }
                engine.env.clock.sleep(Duration::from_micros(50)).await;
            }
            if let Some(batch) = batch {
                assert_eq!(removals.len(), 4);
                batch.end();
            }
            try_join_all(removals).await.unwrap();
            fixture.device.counters().snapshot().since(&before).appends
        };
        assert_eq!(remove(0, None).await, 4);
        let batch = engine.batch();
        assert!(batch.is_some());
        assert_eq!(remove(4, batch).await, 1);
    });
}
