use floe_core::ByteSize;
use floe_device::virtual_time;

use super::*;

const MIB: u64 = 1 << 20;

/// Room for seven items of 1 MiB besides the lane.
fn memory(clock: &Clock) -> Arc<Memory> {
    let config = MemcachedConfig {
        memory: ByteSize::mib(8),
        ..MemcachedConfig::default()
    };
    Memory::new(&config, clock.clone())
}

fn account() -> Arc<Account> {
    Arc::default()
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_connection_gets_no_more_than_its_part_at_once() {
    virtual_time::run(1, |clock| async move {
        let memory = memory(&clock);
        let account = account();
        let mut shares = Vec::new();
        while let Some(share) = memory.try_share(&account, 1 << 18) {
            shares.push(share);
        }
        assert_eq!(memory.used_bytes(), MIB);
        assert!(memory.try_share(&Arc::default(), 1 << 18).is_some());
        drop(shares);
        assert_eq!(memory.used_bytes(), 0);
        assert!(memory.try_share(&account, MIB).is_some());
    });
}

#[test]
fn memory_above_a_share_is_released() {
    virtual_time::run(1, |clock| async move {
        let memory = memory(&clock);
        let account = account();
        let mut share = memory.try_share(&account, MIB).expect("all is free");
        share.shrink(10);
        assert_eq!(memory.used_bytes(), UNIT_BYTES);
        share.shrink(5000);
        assert_eq!(memory.used_bytes(), UNIT_BYTES);
        drop(share);
        assert_eq!(account.units.load(Relaxed), 0);
    });
}

#[test]
fn values_that_grow_together_all_complete() {
    virtual_time::run(2, |clock| async move {
        let memory = memory(&clock);
        let values = (0..50_u64).map(|number| {
            let (memory, clock) = (Arc::clone(&memory), clock.clone());
            async move {
                let account = account();
                let share = memory.share(&account, MIB / 4, LIMIT).await;
                let mut share = share.expect("there is room in time");
                let transfer = memory.transfer(&account);
                for _ in 0..3 {
                    transfer.moved(MIB / 4);
                    clock.sleep(Duration::from_millis(number % 7)).await;
                    assert!(memory.grow(&mut share, MIB / 4, &transfer, LIMIT).await);
                }
            }
        });
        futures::future::join_all(values).await;
        assert_eq!(memory.used_bytes(), 0);
        // No transfer was slow, so growing together cost no connection and little time.
        assert!(clock.now().since(Tick(0)) < LIMIT);
    });
}

#[test]
fn the_slowest_transfers_end_first_while_memory_is_short() {
    virtual_time::run(3, |clock| async move {
        let memory = memory(&clock);
        let mut held = Vec::new();
        for number in 0..7 {
            let account = account();
            let share = memory.try_share(&account, MIB).expect("there is room");
            let transfer = memory.transfer(&account);
            held.push((number, share, transfer));
        }
        // Two transfers make progress: one slowly, one fast.
        for _ in 0..20 {
            clock.sleep(Duration::from_millis(100)).await;
            held[2].2.moved(10);
            held[4].2.moved(100 << 10);
        }
        let account = account();
        let waits = memory.share(&account, MIB, LIMIT);
        let evicted = std::future::poll_fn(|task| {
            let is_evicted =
                |held: &mut (i32, Share, Transfer)| held.2.poll_evicted(task).is_ready();
            match held.iter_mut().position(is_evicted) {
                Some(place) => Poll::Ready(held.remove(place).0),
                None => Poll::Pending,
            }
        });
        let (share, evicted) = futures::future::join(waits, evicted).await;
        assert!(share.is_some());
        assert_eq!(evicted, 0, "the first of those without progress");
        assert_eq!(held.len(), 6);
        // Two more transfers need two more evictions.
        drop(share);
        memory.evict_slow(3 * 1024);
        let evicted = |held: &[(i32, Share, Transfer)]| -> Vec<i32> {
            let evicted = held
                .iter()
                .filter(|(.., transfer)| transfer.state.is_evicted.load(Relaxed));
            evicted.map(|(number, ..)| *number).collect()
        };
        assert_eq!(evicted(&held), [1, 3, 5]);
        // The fast one stays, even if more units are needed.
        memory.evict_slow(7 * 1024);
        assert_eq!(evicted(&held), [1, 2, 3, 5, 6]);
    });
}

#[test]
fn the_least_rate_counts_from_the_grace_and_not_while_the_server_is_slow() {
    virtual_time::run(4, |clock| async move {
        let memory = memory(&clock);
        let transfer = memory.transfer(&account());
        let grace = Duration::from_secs(30);
        let began = clock.now();
        assert_eq!(transfer.slow_at(grace), Some(began + grace));
        transfer.moved(memory.min_rate.load(Relaxed) * 5);
        let earned = grace + Duration::from_secs(5);
        assert_eq!(transfer.slow_at(grace), Some(began + earned));
        let waiting = transfer.wait();
        clock.sleep(Duration::from_secs(7)).await;
        drop(waiting);
        let waited = earned + Duration::from_secs(7);
        assert_eq!(transfer.slow_at(grace), Some(began + waited));
    });
}
