use bytes::Bytes;
use floe_device::Faults;

use super::{Fixture, LARGE_BYTES, with_engine};
use crate::chunk::LargeWriter;
use crate::error::CacheError;
use crate::value::{PutOptions, PutOutcome};

/// A writer of a second value of a key.
async fn replace(fixture: &Fixture) -> LargeWriter {
    fixture.put(b"key", value(1)).await;
    write(fixture, LARGE_BYTES)
}

fn write(fixture: &Fixture, len: usize) -> LargeWriter {
    let options = PutOptions::default();
    fixture.engine.write_large(b"key", len as u64, options)
}

fn value(byte: u8) -> Bytes {
    Bytes::from(vec![byte; LARGE_BYTES])
}

#[test]
fn a_value_replaces_the_older_one_only_when_it_is_finished() {
    with_engine(async |fixture| {
        let mut writer = replace(&fixture).await;
        writer.write(value(2)).await.unwrap();
        assert_eq!(fixture.get(b"key").await, Some(value(1)));
        assert_eq!(writer.finish().await.unwrap(), PutOutcome::Stored);
        assert_eq!(fixture.get(b"key").await, Some(value(2)));
    });
}

#[test]
fn a_writer_that_is_dropped_leaves_the_older_value_and_no_promise() {
    with_engine(async |fixture| {
        let mut writer = replace(&fixture).await;
        writer.write(value(2).slice(..500_000)).await.unwrap();
        assert!(fixture.stats().promised_bytes > 0);
        drop(writer);
        assert_eq!(fixture.get(b"key").await, Some(value(1)));
        let stats = fixture.stats();
        assert_eq!((stats.promised_bytes, stats.counts.streams_aborted), (0, 1));
    });
}

#[test]
fn too_many_or_too_few_bytes_are_an_error() {
    with_engine(async |fixture| {
        let mut writer = write(&fixture, LARGE_BYTES - 1);
        let written = writer.write(value(1)).await;
        assert!(matches!(written, Err(CacheError::WrongLength { .. })));
        let writer = write(&fixture, LARGE_BYTES);
        let finished = writer.finish().await;
        assert!(matches!(finished, Err(CacheError::WrongLength { .. })));
        assert_eq!(fixture.get(b"key").await, None);
    });
}

#[test]
fn a_value_that_cannot_be_written_is_dropped_and_so_is_the_older_one() {
    with_engine(async |fixture| {
        let mut writer = replace(&fixture).await;
        fixture.device.set(Faults {
            append_errors: 1.0,
            ..Faults::default()
        });
        writer.write(value(2)).await.unwrap();
        // The journal has to take the tombstone of the older value.
        fixture.device.set(Faults::default());
        assert_eq!(writer.finish().await.unwrap(), PutOutcome::Dropped);
        assert_eq!(fixture.get(b"key").await, None);
        assert_eq!(fixture.stats().counts.puts_dropped, 1);
    });
}

#[test]
fn values_are_dropped_once_no_value_streams_in_any_more() {
    with_engine(async |fixture| {
        fixture.engine.large.stop();
        assert_eq!(fixture.put(b"key", value(1)).await, PutOutcome::Dropped);
        assert_eq!(fixture.get(b"key").await, None);
    });
}
