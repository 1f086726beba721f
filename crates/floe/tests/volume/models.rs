//! The models.

use std::sync::Arc;

use floe_core::volume::mode::Mode;
use floe_core::volume::{ByteRange, Extent, Fill, VolumeId};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::sync::Mutex;

use super::locks::{Hold, RangeLocks};
use super::world::{SECTORS, World};

const RUNS: usize = 200;

/// Runs `test` under the checker.
fn check<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    let scheduler = shuttle::scheduler::RandomScheduler::new(RUNS);
    shuttle::Runner::new(scheduler, config).run(move || block_on(test()));
}

/// A lock that is held, as the test counts it.
type Held = (ByteRange, Hold);

/// Takes a lock, holds it for a while, and gives it up. If `leaves`, it goes while it
/// waits.
async fn hold(
    (locks, held): (Arc<Mutex<RangeLocks>>, Arc<Mutex<Vec<Held>>>),
    (range, hold): Held,
    leaves: bool,
) {
    let volume = VolumeId(1);
    let (id, granted) = locks.lock().unwrap().lock(Extent { volume, range }, hold);
    if let Some(granted) = granted {
        if leaves {
            yield_now().await;
            drop(granted);
            locks.lock().unwrap().release(id);
            return;
        }
        granted.await.expect("the sender goes with the lock");
    }
    {
        let mut held = held.lock().unwrap();
        let is_alone = |(other, of): &Held| {
            let can_share = hold == Hold::Shared && *of == Hold::Shared;
            can_share || *of == Hold::Pin || other.intersection(range).is_empty()
        };
        assert!(held.iter().all(is_alone), "{range:?} beside {held:?}");
        held.push((range, hold));
    }
    yield_now().await;
    held.lock().unwrap().retain(|one| *one != (range, hold));
    if hold == Hold::Shared {
        // Others may write from now on, and the block stays.
        locks.lock().unwrap().downgrade(id, Hold::Pin);
        yield_now().await;
        let is_free = locks.lock().unwrap().is_free(Extent { volume, range });
        assert!(!is_free, "a pinned block is free");
    }
    locks.lock().unwrap().release(id);
}

#[test]
fn range_locks_exclude_each_other_and_are_all_granted() {
    check(|| async {
        let locks = Arc::new(Mutex::new(RangeLocks::new(1 << 16)));
        let held = Arc::new(Mutex::new(Vec::new()));
        let range = |start, len| ByteRange::at(start, len);
        let clients = [
            (range(0, 4096), Hold::Exclusive, false),
            (range(0, 512), Hold::Shared, false),
            (range(512, 4096), Hold::Shared, false),
            (range(0, 8192), Hold::Exclusive, true),
            (range(4096, 512), Hold::Exclusive, false),
            (range(0, 4096), Hold::Shared, true),
        ];
        let clients = clients.map(|(range, of, leaves)| {
            let both = (Arc::clone(&locks), Arc::clone(&held));
            spawn(hold(both, (range, of), leaves))
        });
        for client in clients {
            client.await.expect("it ends");
        }
        assert!(!locks.lock().unwrap().has_any_of(VolumeId(1)));
    });
}

/// Spawns a future that has the world.
macro_rules! client {
    ($world:ident, $($body:tt)*) => {{
        let $world = Arc::clone(&$world);
        spawn(async move { $($body)* })
    }};
}

/// Two cleaners and two writers of one block, and a process that may die.
#[test]
fn cleaning_takes_no_write_with_it() {
    for fill in [Fill::Fetch, Fill::Sector] {
        check(move || async move {
            let world = World::new(Mode::WriteBack, fill);
            world.write(0..8, 1).await;
            world.begin();
            let clients = [
                client!(world, world.clean().await; world.clean().await),
                client!(world, world.clean().await),
                client!(world, world.write(0..4, 2).await; world.write(2..4, 3).await),
                client!(world, world.write(4..8, 4).await; world.read(0..8).await),
                client!(
                    world,
                    for _ in 0..4 {
                        yield_now().await;
                        world.die().await
                    }
                ),
            ];
            for client in clients {
                client.await.expect("it ends");
            }
            world.check().await;
        });
    }
}

/// More blocks than there is room for, read and written while others leave.
#[test]
fn no_block_leaves_under_a_request() {
    check(|| async {
        let world = World::new(Mode::WriteThrough, Fill::Fetch);
        for (at, version) in (0..28 * 8).step_by(8).zip(1..) {
            world.write(at..at + 8, version).await;
        }
        world.begin();
        let reclaim = client!(world, world.reclaim().await);
        let clients = [
            client!(
                world,
                for at in (0..80).step_by(8) {
                    world.read(at..at + 8).await
                }
            ),
            client!(
                world,
                for at in (0..SECTORS).step_by(40) {
                    world.read(at..at + 8).await
                }
            ),
            client!(
                world,
                for at in (SECTORS / 2..SECTORS).step_by(24) {
                    world.write(at..at + 8, 100).await;
                }
            ),
        ];
        for client in clients {
            client.await.expect("it ends");
        }
        world.end();
        reclaim.await.expect("it ends");
        let turnover = world.shared.shards[0].lock().cache.statistics().turnover;
        assert!(turnover.evicted + turnover.replaced > 0, "{turnover:?}");
        world.check().await;
    });
}

/// A read that brings a block in, and writes to the block.
#[test]
fn a_fill_takes_no_write_with_it() {
    for mode in Mode::ALL {
        for fill in [Fill::Fetch, Fill::Sector] {
            check(move || async move {
                let world = World::new(mode, fill);
                world.begin();
                let clients = [
                    client!(world, world.read(0..8).await; world.read(0..16).await),
                    client!(world, world.write(2..4, 1).await; world.read(0..8).await),
                    client!(world, world.write(4..9, 2).await),
                ];
                for client in clients {
                    client.await.expect("it ends");
                }
                world.check().await;
            });
        }
    }
}

/// Readers of one missing range.
#[test]
fn a_block_that_two_readers_miss_enters_once() {
    for fill in [Fill::Fetch, Fill::Sector] {
        check(move || async move {
            let world = World::new(Mode::WriteThrough, fill);
            // Past the cache, so that the readers miss.
            world.shared.shards[0]
                .lock()
                .cache
                .set_mode_of(VolumeId(0), Mode::WriteAround);
            world.write(0..16, 1).await;
            world.begin();
            let clients = [
                client!(world, world.read(0..8).await),
                client!(world, world.read(0..8).await),
                client!(world, world.read(4..16).await),
            ];
            for client in clients {
                client.await.expect("it ends");
            }
            let occupancy = world.shared.shards[0].lock().cache.occupancy();
            assert!(occupancy.bytes <= 16 * 512, "{occupancy:?}");
            world.check().await;
        });
    }
}
