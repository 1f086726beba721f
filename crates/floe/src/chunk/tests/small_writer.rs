use std::time::Duration;

use bytes::Bytes;
use floe_device::Faults;
use futures::FutureExt as _;

use super::with_engine;
use crate::error::CacheError;
use crate::value::PutOptions;

const OLD: Bytes = Bytes::from_static(b"old");
const NEW: Bytes = Bytes::from_static(b"new");

#[test]
fn a_value_is_served_from_its_put_on_and_a_drain_writes_it() {
    with_engine(async |fixture| {
        fixture.put(b"key", OLD).await;
        assert_eq!(fixture.get(b"key").await, Some(OLD));
        assert_eq!(fixture.stats().pending_records, 1);
        fixture.engine.small.drain().await.unwrap();
        let stats = fixture.stats();
        assert_eq!((stats.pending_records, stats.live_records), (0, 1));
        assert_eq!(fixture.get(b"key").await, Some(OLD));
    });
}

#[test]
fn a_value_that_is_replaced_before_its_write_is_not_written() {
    with_engine(async |fixture| {
        fixture.put(b"key", OLD).await;
        fixture.put(b"key", NEW).await;
        fixture.engine.small.drain().await.unwrap();
        assert_eq!(fixture.get(b"key").await, Some(NEW));
        assert_eq!(fixture.stats().counts.puts_superseded, 1);
        assert_eq!(fixture.stats().live_records, 1);
    });
}

#[test]
fn a_put_that_is_dropped_while_it_waits_for_room_leaves_nothing() {
    with_engine(async |fixture| {
        let room = fixture.engine.buffer.try_reserve(u64::MAX);
        let mut put = Box::pin(fixture.engine.put(b"key", NEW, PutOptions::default()));
        assert!((&mut put).now_or_never().is_none());
        drop((put, room));
        assert_eq!(fixture.get(b"key").await, None);
        assert_eq!(fixture.stats().pending_records, 0);
        assert!(fixture.engine.buffer.try_reserve(u64::MAX).is_some());
    });
}

#[test]
fn a_value_that_no_zone_takes_is_a_miss_and_counted() {
    with_engine(async |fixture| {
        fixture.device.set(Faults {
            append_errors: 1.0,
            ..Faults::default()
        });
        fixture.put(b"key", NEW).await;
        fixture.engine.small.drain().await.unwrap();
        assert_eq!(fixture.get(b"key").await, None);
        assert_eq!(fixture.stats().counts.puts_dropped, 1);
        assert!(fixture.engine.buffer.try_reserve(u64::MAX).is_some());
    });
}

#[test]
fn a_put_after_the_end_of_the_task_fails_and_stores_nothing() {
    with_engine(async |fixture| {
        fixture.engine.env.stop();
        fixture.engine.small.wake();
        fixture.engine.clock().sleep(Duration::from_millis(1)).await;
        let put = fixture.engine.put(b"key", NEW, PutOptions::default()).await;
        assert!(matches!(put, Err(CacheError::Closed)), "{put:?}");
        assert_eq!(fixture.get(b"key").await, None);
        fixture.engine.small.drain().await.unwrap();
    });
}
