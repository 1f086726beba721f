use bytes::Bytes;

use super::with_engine;

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
