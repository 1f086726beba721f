//! Faults of block devices.

use std::sync::Arc;
use std::time::Duration;

use floe_core::ByteSize;
use floe_device::conformance::pattern;
use floe_device::{
    BlockDevice, Clock, DeviceErrorKind, Faults, Faulty, IoBuf, MemoryBlocks, virtual_time,
};

const BLOCK: usize = 512;
const SIZE: u64 = 1 << 20;

fn faulty(clock: &Clock, seed: u64, faults: Faults) -> Faulty<MemoryBlocks> {
    let memory = MemoryBlocks::new(ByteSize(SIZE), BLOCK as u32).unwrap();
    Faulty::new(Arc::new(memory), clock.clone(), seed, faults)
}

/// Outcomes of 200 operations of each kind: whether they succeeded.
async fn outcomes(device: &Faulty<MemoryBlocks>) -> [Vec<bool>; 4] {
    let mut outcomes: [Vec<bool>; 4] = Default::default();
    for _ in 0..200 {
        let read = device.read(0, IoBuf::zeroed(BLOCK)).await.is_ok();
        let write = device.write(0, pattern(1, BLOCK)).await.is_ok();
        let zeroes = device.write_zeroes(0..512).await.is_ok();
        let flush = device.flush().await.is_ok();
        let results = [read, write, zeroes, flush];
        outcomes
            .iter_mut()
            .zip(results)
            .for_each(|(all, one)| all.push(one));
    }
    outcomes
}

#[test]
fn errors_have_their_rates_by_kind_and_follow_the_seed() {
    virtual_time::run(1, |clock| async move {
        let faults = || Faults {
            read_errors: 0.1,
            write_errors: 0.5,
            ..Faults::default()
        };
        let first = outcomes(&faulty(&clock, 3, faults())).await;
        assert_eq!(first, outcomes(&faulty(&clock, 3, faults())).await);
        assert_ne!(first, outcomes(&faulty(&clock, 4, faults())).await);
        let failed = first.map(|all| all.iter().filter(|ok| !**ok).count());
        assert!((5..50).contains(&failed[0]), "{failed:?}");
        assert!((60..140).contains(&failed[1]), "{failed:?}");
        assert!((60..140).contains(&failed[2]), "{failed:?}");
        assert_eq!(failed[3], 0);
    });
}

#[test]
fn everything_fails_after_a_number_of_operations() {
    virtual_time::run(1, |clock| async move {
        let faults = Faults {
            fail_after: Some(2),
            ..Faults::default()
        };
        let device = faulty(&clock, 1, faults);
        device.write(0, pattern(1, BLOCK)).await.unwrap();
        device.flush().await.unwrap();
        for _ in 0..3 {
            let kind = device.discard(0..512).await.unwrap_err().kind;
            assert!(matches!(kind, DeviceErrorKind::Io(_)), "{kind}");
        }
        assert_eq!(device.counters().snapshot().errors, 3);
        assert_eq!(device.injected(), 3);
    });
}

#[test]
fn a_torn_write_keeps_the_old_blocks_behind_the_tear() {
    virtual_time::run(1, |clock| async move {
        let (old, new) = (pattern(1, 16 * BLOCK), pattern(2, 16 * BLOCK));
        let mut tears = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let device = faulty(&clock, seed, Faults::default());
            device.write(0, old.clone()).await.unwrap();
            device.set(Faults {
                torn_writes: 1.0,
                ..Faults::default()
            });
            device.write(0, new.clone()).await.unwrap_err();
            let found = device.read(0, IoBuf::zeroed(old.len())).await.unwrap();
            let is_new =
                |block: &usize| found[block * BLOCK..][..BLOCK] == new[block * BLOCK..][..BLOCK];
            let tear = (0..16).take_while(is_new).count();
            assert!(found[tear * BLOCK..] == old[tear * BLOCK..]);
            tears.insert(tear);
        }
        assert!(tears.len() > 5, "tears at different blocks: {tears:?}");
    });
}

#[test]
fn a_lost_write_succeeds_and_a_flipped_bit_is_one() {
    virtual_time::run(1, |clock| async move {
        let device = faulty(&clock, 1, Faults::default());
        let old = pattern(1, 8 * BLOCK);
        device.write(0, old.clone()).await.unwrap();
        device.set(Faults {
            lost_writes: 1.0,
            bit_flips: 1.0,
            ..Faults::default()
        });
        device.write(0, pattern(2, 8 * BLOCK)).await.unwrap();
        device.write_zeroes(0..512).await.unwrap();
        let found = device.read(0, IoBuf::zeroed(old.len())).await.unwrap();
        let differing = found.iter().zip(&*old).map(|(a, b)| (a ^ b).count_ones());
        assert_eq!(differing.sum::<u32>(), 1);
    });
}

#[test]
fn delays_are_drawn_up_to_the_longest() {
    virtual_time::run(1, |clock| async move {
        let delay_max = Duration::from_millis(10);
        let faults = Faults {
            delays: 1.0,
            delay_max,
            ..Faults::default()
        };
        let device = faulty(&clock, 1, faults);
        for _ in 0..20 {
            let before = clock.now();
            device.flush().await.unwrap();
            let took = clock.now().since(before);
            assert!(!took.is_zero() && took <= delay_max, "{took:?}");
        }
    });
}
