//! Damage to the journals: a deleted value never comes back, and damage to one
//! copy of the last block costs nothing else.

mod common;

use std::time::Duration;

use common::{in_place, power_switch};
use floe::tiny::TinyConfig;
use floe::{ByteSize, Bytes, PutOptions, Store, StoreConfig, Tiny};
use floe_core::ZoneId;
use floe_device::{Address, Clock, IoBuf, Placement, SharedDevice, virtual_time};

const BLOCK: usize = 4096;

/// The written blocks of the metadata zone with more of them, the last first.
async fn journal_blocks(device: &SharedDevice) -> Vec<Address> {
    let mut longest = Vec::new();
    for zone in [ZoneId(0), ZoneId(1)] {
        let mut blocks = Vec::new();
        for offset in (0..device.geometry().zone_capacity).step_by(BLOCK) {
            let at = Address::new(zone, offset);
            let read = device.read(at, IoBuf::zeroed(BLOCK)).await.expect("reads");
            if read.iter().all(|byte| *byte == 0) {
                break;
            }
            blocks.insert(0, at);
        }
        if blocks.len() > longest.len() {
            longest = blocks;
        }
    }
    longest
}

/// Spoils the block, counted from the last.
async fn spoil(device: &SharedDevice, from_last: usize) {
    let at = journal_blocks(device).await[from_last];
    let mut block = device.read(at, IoBuf::zeroed(BLOCK)).await.expect("reads");
    block[60] ^= 1;
    let written = device.write(at, block.freeze(), Placement(0)).await;
    written.expect("the damage is done");
}

/// Deletes one of two values of a cache, damages a block of its journal behind
/// a crash, and compares what is left.
macro_rules! assert_deleted_stays_deleted {
    ($geometry:expr, $open:expr, $value:expr) => {
        for from_last in 0..3 {
            virtual_time::run(1, async |clock: Clock| {
                let power = power_switch($geometry);
                let store = $open(power.reopen(), clock.clone()).await.expect("opens");
                for key in [b"deleted", b"another"] {
                    let put = store.put(key, $value, PutOptions::default());
                    put.await.expect("put");
                }
                store.flush().await.expect("flush");
                store.delete(b"deleted").await.expect("durable");
                // The last block gets its copy.
                clock.sleep(Duration::from_millis(100)).await;
                power.crash(1);

                let device = power.reopen();
                spoil(&device, from_last).await;
                let store = $open(device, clock.clone()).await.expect("opens");
                assert!(store.get(b"deleted").await.expect("get").is_none());
                // An earlier block has one copy: all is forgotten with it.
                let another = store.get(b"another").await.expect("get");
                assert_eq!(another.is_some(), from_last < 2);
            });
        }
    };
}

#[test]
fn a_deleted_value_stays_deleted_when_a_last_journal_block_rots() {
    let mut config = StoreConfig {
        seed: Some(1),
        ..StoreConfig::default()
    };
    config.ram.size = ByteSize(0);
    let open = async |device, clock| Store::open(device, clock, &config).await;
    assert_deleted_stays_deleted!(in_place(16, 4 << 20), open, Bytes::from(vec![7; 5000]));
}

#[test]
fn a_deleted_object_stays_deleted_when_a_last_fence_block_rots() {
    let config = TinyConfig {
        seed: Some(1),
        ram: ByteSize(0),
        ..TinyConfig::default()
    };
    let open = async |device, clock| Tiny::open(device, clock, &config).await;
    assert_deleted_stays_deleted!(in_place(12, 64 << 10), open, &[7; 200]);
}
