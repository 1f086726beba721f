//! Large values, read by many readers and while others stream in.

use std::time::Duration;

use bytes::Bytes;
use floe::device::sim::SimModel;
use floe::device::{Clock, DeviceConfig, SharedDevice, open, virtual_time};
use floe::{ByteSize, ChunkConfig, LargeReads, PutOptions, RamConfig, Store, StoreConfig};

const LEN: usize = 8 << 20;

/// A store without a RAM tier on a zoned drive.
async fn store(clock: &Clock, large_reads: LargeReads) -> (Store, SharedDevice) {
    let chunk = ChunkConfig {
        large_reads,
        ..ChunkConfig::default()
    };
    store_with(clock, chunk).await
}

async fn store_with(clock: &Clock, chunk: ChunkConfig) -> (Store, SharedDevice) {
    let mut config = DeviceConfig::sim(ByteSize::mib(512));
    config.zone_size = Some(ByteSize::kib(17_280));
    config.zone_capacity = Some(ByteSize::kib(17_280));
    config.sim.model = SimModel::Zn540;
    let device = open(&config, clock).expect("a device");
    let config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize(LEN as u64),
            ..chunk
        },
        ram: RamConfig {
            size: ByteSize(0),
            ..RamConfig::default()
        },
        ..StoreConfig::default()
    };
    let opened = Store::open(device.clone(), clock.clone(), &config).await;
    (opened.expect("a store"), device)
}

fn value(number: u8) -> Bytes {
    let bytes = (0..LEN).map(|i| (i / 4096) as u8 ^ (i as u8) ^ number);
    bytes.collect::<Vec<u8>>().into()
}

async fn put(store: &Store, number: u8) {
    let key = [number];
    let put = store.put(&key, value(number), PutOptions::default());
    put.await.expect("room");
}

/// Eight readers of one value at once, then one more.
fn readers_of_one_value(read_ahead: ByteSize) {
    virtual_time::run(1, |clock| async move {
        let chunk = ChunkConfig {
            read_ahead,
            ..ChunkConfig::default()
        };
        let (store, device) = store_with(&clock, chunk).await;
        put(&store, 1).await;
        let before = device.counters().snapshot();
        let readers = (0..8).map(|_| store.get(&[1]));
        for read in futures::future::join_all(readers).await {
            assert_eq!(read.expect("read").expect("there").bytes, value(1));
        }
        let read_bytes = device.counters().snapshot().since(&before).read_bytes;
        assert!(
            read_bytes < 2 * LEN as u64,
            "{read_ahead} to read ahead: {read_bytes} bytes read"
        );
        // A later reader finds no shared read, so it reads flash itself.
        let again = store.get(&[1]).await.expect("read").expect("there");
        assert_eq!(again.bytes, value(1));
        store.close().await.expect("closed");
    });
}

#[test]
fn readers_of_one_value_share_its_reads() {
    readers_of_one_value(ByteSize::mib(64));
}

/// Shared data is in memory once and needs memory once: eight windows of 2 MiB would not fit.
#[test]
fn readers_of_one_value_share_its_room() {
    readers_of_one_value(ByteSize::mib(2));
    readers_of_one_value(ByteSize(0));
}

#[test]
fn a_reader_that_goes_away_leaves_the_others_their_reads() {
    virtual_time::run(2, |clock| async move {
        let (store, _) = store(&clock, LargeReads::First).await;
        put(&store, 1).await;
        let mut first = Box::pin(store.get(&[1]));
        assert!(futures::poll!(first.as_mut()).is_pending());
        let mut second = Box::pin(store.get(&[1]));
        assert!(futures::poll!(second.as_mut()).is_pending());
        // The first reader started the reads that the other waits for.
        drop(first);
        let read = second.await.expect("read").expect("there");
        assert_eq!(read.bytes, value(1));
        store.close().await.expect("closed");
    });
}

/// The latency of a hit while two dozen values stream in.
fn hit_behind_writes(large_reads: LargeReads) -> Duration {
    virtual_time::run(3, |clock| async move {
        let (store, _) = store(&clock, large_reads).await;
        put(&store, 1).await;
        let writers: Vec<_> = (2..26)
            .map(|number| {
                let store = store.clone();
                tokio::spawn(async move { put(&store, number).await })
            })
            .collect();
        clock.sleep(Duration::from_millis(2)).await;
        let start = clock.now();
        let read = store.get(&[1]).await.expect("read").expect("there");
        let took = clock.now().since(start);
        assert_eq!(read.bytes, value(1));
        for writer in writers {
            writer.await.expect("written");
        }
        store.close().await.expect("closed");
        took
    })
}

#[test]
fn reads_go_first_or_in_turn() {
    let first = hit_behind_writes(LargeReads::First);
    let in_turn = hit_behind_writes(LargeReads::InTurn);
    assert_eq!(
        hit_behind_writes(ChunkConfig::default().large_reads),
        in_turn
    );
    assert!(2 * first < in_turn, "{first:?}, {in_turn:?}");
}
