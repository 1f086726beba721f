use bytes::Bytes;
use floe_device::Faults;

use super::{Fixture, LARGE_BYTES, with_engine};
use crate::value::PutOutcome;

/// Puts more than the device holds.
async fn overfill(fixture: &Fixture) {
    for key in 0..200u32 {
        let value = Bytes::from(vec![key as u8; LARGE_BYTES]);
        let outcome = fixture.put(&key.to_le_bytes(), value).await;
        assert_eq!(outcome, PutOutcome::Stored);
    }
}

#[test]
fn writes_go_on_while_zones_are_freed_for_them() {
    with_engine(async |fixture| {
        overfill(&fixture).await;
        let stats = fixture.stats();
        assert!(stats.counts.zones_evicted > 20, "{stats:?}");
        let newest = fixture.get(&199u32.to_le_bytes()).await;
        assert_eq!(newest, Some(Bytes::from(vec![199; LARGE_BYTES])));
        fixture.engine.close().await.unwrap();
    });
}

#[test]
fn a_zone_that_cannot_be_emptied_is_retired_and_writes_go_on() {
    with_engine(async |fixture| {
        overfill(&fixture).await;
        fixture.device.set(Faults {
            reset_errors: 1.0,
            ..Faults::default()
        });
        while fixture.stats().zones_retired == 0 {
            let value = Bytes::from(vec![7; LARGE_BYTES]);
            fixture.put(b"key", value).await;
        }
        fixture.device.set(Faults::default());
        overfill(&fixture).await;
        fixture.engine.close().await.unwrap();
    });
}

#[test]
fn a_reader_keeps_its_zone_from_being_emptied() {
    with_engine(async |fixture| {
        let value = Bytes::from(vec![9; LARGE_BYTES]);
        fixture.put(b"key", value.clone()).await;
        let crate::chunk::Lookup::Flash(found) = fixture.engine.lookup(b"key").unwrap() else {
            panic!("the value is on flash");
        };
        let reader = fixture
            .engine
            .read_large(b"key", found, 0..LARGE_BYTES as u64);
        let reader = reader.await.unwrap();
        overfill(&fixture).await;
        assert_eq!(reader.collect().await, Some(value));
    });
}
