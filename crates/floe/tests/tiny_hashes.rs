//! Keys with any hash: users choose keys, so no hash may have a special meaning in the journal.

mod common;

use common::{in_place, memory, open_tiny as open};
use floe::PutOptions;
use floe_core::hash::{HashSeed, KeyHash};
use floe_device::{Clock, virtual_time};

/// An overwrite survives a crash, and other keys survive with it, whatever the key's hash.
#[test]
fn an_overwrite_outlives_a_crash_whatever_the_hash_is() {
    // Version 1 of the format reserved the last 131,072 hashes for instances.
    let instances = |n| [u64::MAX - 0xffff + n, u64::MAX - 0x1_ffff + n];
    for hash in (0..3).flat_map(|n| [n, u64::MAX - n].into_iter().chain(instances(n))) {
        virtual_time::run(1, async |clock: Clock| {
            let device = memory(in_place(12, 64 << 10));
            let cache = open(&device, &clock).await;
            let key = key_of(HashSeed(cache.identity()), hash);
            let others: Vec<_> = (0..40).map(|n| format!("key-{n}").into_bytes()).collect();
            for key in others.iter().chain([&key]) {
                let put = cache.put(key, b"older", PutOptions::default());
                put.await.expect("put");
            }
            cache.flush().await.expect("flush");
            cache
                .put(&key, b"newer", PutOptions::default())
                .await
                .expect("put");
            // The process dies while the newer value is in memory.
            drop(cache);

            let cache = open(&device, &clock).await;
            let found = cache.get(&key).await.expect("get");
            let value = found.map(|found| found.bytes);
            assert_ne!(value.as_deref(), Some(&b"older"[..]), "{hash:#x} came back");
            for key in &others {
                let found = cache.get(key).await.expect("get");
                assert!(found.is_some(), "{hash:#x} took others with it");
            }
        });
    }
}

/// The key of eight bytes with this hash: XXH3 mixes such keys by invertible steps.
fn key_of(seed: HashSeed, hash: u64) -> Vec<u8> {
    let zeros = unmixed(KeyHash::of(seed, &[0; 8]).0);
    // The halves of a key are mixed in reverse order.
    let key = (unmixed(hash) ^ zeros).rotate_left(32).to_le_bytes();
    assert_eq!(KeyHash::of(seed, &key).0, hash);
    key.to_vec()
}

/// Inverts the mix of XXH3 for a key of eight bytes.
fn unmixed(hash: u64) -> u64 {
    const PRIME: u64 = 0x9fb2_1c65_1e98_df25;
    // Newton's method: each step doubles the number of correct bits, which starts at three.
    let inverse = (0..5).fold(PRIME, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(PRIME.wrapping_mul(x)))
    });
    let hash = hash ^ hash >> 28 ^ hash >> 56;
    let hash = hash.wrapping_mul(inverse);
    let hash = (hash ^ ((hash >> 35) + 8)).wrapping_mul(inverse);
    // This step is its own inverse after as many rounds as there are bits, less one.
    (0..63).fold(hash, |h, _| h ^ h.rotate_left(49) ^ h.rotate_left(24))
}
