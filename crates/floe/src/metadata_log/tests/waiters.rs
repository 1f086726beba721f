//! Waiters that do a log's work, and some that do not.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use floe_device::nvme::Status;
use floe_device::{Device as _, Faulty, Operation};

use super::*;
use crate::runtimes;

type InMemory = Numbers<true>;

async fn begin(device: SharedDevice, clock: Clock) -> (Queue<InMemory>, JoinHandle<()>) {
    begin_log(device, clock).await
}

async fn begin_log<const IN_MEMORY: bool>(
    device: SharedDevice,
    clock: Clock,
) -> (Queue<Numbers<IN_MEMORY>>, JoinHandle<()>) {
    let superblock = superblock(device.geometry(), CacheId([1; 16]));
    let log = Log::begin(device, Durability::Power, superblock, METADATA[0], []).await;
    let numbers = Numbers {
        live: Vec::new(),
        newest: 0,
    };
    start(log.expect("begins"), numbers, clock)
}

async fn send<const IN_MEMORY: bool>(queue: &Queue<Numbers<IN_MEMORY>>, number: u64) -> Receipt {
    queue.place().await.expect("it is open").send(vec![number])
}

fn poll_once(receipt: &mut Receipt) -> bool {
    let polled = pin!(receipt).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(_))
}

/// A drive whose writes take time.
fn drive(clock: &Clock) -> SharedDevice {
    let config = DeviceConfig {
        zone_size: Some(ByteSize(ZONE)),
        max_append: ByteSize(APPEND),
        ..DeviceConfig::sim(ByteSize(8 * ZONE))
    };
    Arc::new(SimDevice::open(&config, clock).expect("a drive"))
}

#[test]
fn a_waiter_that_is_not_polled_keeps_none_waiting() {
    virtual_time::run(1, async |clock: Clock| {
        let (queue, _task) = begin(drive(&clock), clock.clone()).await;
        for leaves in [false, true] {
            let mut first = send(&queue, 1).await;
            let second = send(&queue, 2).await;
            assert!(!poll_once(&mut first), "the drive takes time");
            let kept = (!leaves).then_some(first);
            let started = clock.now();
            second.wait().await.expect("written");
            assert!(clock.now().since(started) < 2 * TICK);
            drop(kept);
        }
        // A waiter that is polled needs no keeper.
        let started = clock.now();
        for number in 3..103 {
            let receipt = send(&queue, number).await;
            receipt.wait().await.expect("written");
        }
        assert!(clock.now().since(started) < 100 * TICK / 4);
    });
}

#[test]
fn a_batch_is_one_group() {
    virtual_time::run(1, async |clock: Clock| {
        let (queue, _task) = begin(drive(&clock), clock.clone()).await;
        let groups = || queue.groups();
        let before = groups();
        let batch = queue.batch();
        let mut receipts = Vec::new();
        for number in 0..100 {
            let mut receipt = send(&queue, number).await;
            assert!(!poll_once(&mut receipt));
            receipts.push(receipt);
        }
        assert_eq!(groups(), before);
        batch.end();
        for receipt in receipts {
            receipt.wait().await.expect("written");
        }
        assert_eq!(groups(), before + 1);
    });
}

#[test]
fn what_is_queued_when_a_log_closes_is_answered() {
    virtual_time::run(1, async |clock: Clock| {
        let (queue, task) = begin(drive(&clock), clock.clone()).await;
        let place = queue.place().await.expect("it is open");
        let late = queue.place().await.expect("it is open");
        let first = send(&queue, 0).await;
        let mut closed = place.demand(Demand::Close);
        assert!(!poll_once(&mut closed), "the drive takes time");
        // It would be the next group's.
        let queued = send(&queue, 1).await;
        first.wait().await.expect("written");
        closed.wait().await.expect("closed");
        let queued = queued.wait().await;
        assert!(matches!(queued, Err(CacheError::Closed)), "{queued:?}");
        let late = late.send(vec![1]).wait().await;
        assert!(matches!(late, Err(CacheError::Closed)), "{late:?}");
        assert!(matches!(queue.place().await, Err(CacheError::Closed)));
        task.await.expect("no panic");
        // A log whose last handle is gone writes what is queued.
        let (queue, task) = begin(drive(&clock), clock.clone()).await;
        let receipt = send(&queue, 1).await;
        drop(queue);
        task.await.expect("no panic");
        receipt.wait().await.expect("written");
    });
}

/// The keeper reads the zone back, and the waiters write the later groups.
#[test]
fn a_failed_append_moves_a_log_that_is_read_back() {
    virtual_time::run(1, async |clock: Clock| {
        let below = drive(&clock);
        let none = floe_device::Faults::default;
        let device = Arc::new(Faulty::new(below, clock.clone(), 1, none()));
        let (queue, _task) = begin_log::<false>(device.clone(), clock.clone()).await;
        let write_fault = Status::from_result(0x280).expect("no success");
        let resets = || device.counters().snapshot().resets;
        let before = resets();
        for number in 0..20 {
            if number % 5 == 0 {
                device.set(floe_device::Faults {
                    script: vec![(Operation::Append, 0, write_fault)],
                    ..none()
                });
            }
            let (first, second) = (send(&queue, number).await, send(&queue, number).await);
            let (first, second) = tokio::join!(first.wait(), second.wait());
            first.and(second).expect("written");
        }
        assert!(resets() >= before + 4);
    });
}

/// Its waiters see a closed log, and its keeper the panic.
#[test]
fn a_panic_is_that_of_the_log() {
    virtual_time::run(1, async |clock: Clock| {
        let (queue, task) = begin(drive(&clock), clock.clone()).await;
        let (first, second) = (send(&queue, PANICS).await, send(&queue, 1).await);
        for receipt in [first, second] {
            let result = receipt.wait().await;
            assert!(matches!(result, Err(CacheError::Closed)), "{result:?}");
        }
        assert!(task.await.expect_err("it panicked").is_panic());
        assert!(matches!(queue.place().await, Err(CacheError::Closed)));
    });
}

/// A batch defers its own thread and log only, and not a full queue.
#[test]
fn a_batch_delays_no_other_log() {
    virtual_time::run(1, async |clock: Clock| {
        let (queue, _task) = begin(drive(&clock), clock.clone()).await;
        let (other, _other_task) = begin(drive(&clock), clock.clone()).await;
        let _batch = queue.batch();
        let started = clock.now();
        for number in 0..100 {
            let receipt = send(&other, number).await;
            receipt.wait().await.expect("written");
        }
        assert!(clock.now().since(started) < 100 * TICK / 4);
        assert_eq!(queue.groups(), 0);
        let mut receipts = Vec::new();
        for number in 0..3_000 {
            let mut receipt = send(&queue, number).await;
            let _ = poll_once(&mut receipt);
            receipts.push(receipt);
        }
        assert!(queue.groups() > 0);
    });
}

/// The copy of the last block comes also when the log was idle for long before its request.
#[test]
fn the_last_block_gets_its_copy_after_each_idle_time() {
    virtual_time::run(1, async |clock: Clock| {
        let (queue, _task) = begin(drive(&clock), clock.clone()).await;
        let mut lacking = 0;
        for number in 0..20 {
            send(&queue, number).await.wait().await.expect("written");
            // A checkpoint has two copies of its end.
            lacking += u32::from(queue.lacks_copy());
            clock.sleep(number as u32 * TICK + 2 * QUIET_TIME).await;
            assert!(!queue.lacks_copy());
        }
        assert!(lacking > 10);
    });
}

/// A thread of clients begins a group with its own runtime, and ends or sleeps.
#[tokio::test]
async fn a_group_outlives_the_runtime_that_began_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Medium::File(folder.path().join("log")).reopen();
    let (queue, _task) = begin(device, Clock::real()).await;
    for number in 0..50 {
        let mut first = send(&queue, number).await;
        let second = send(&queue, number).await;
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let _own = runtimes::Context::here().own_this_thread();
                poll_once(&mut first);
            });
            if number % 2 == 0 {
                // It is there, and nothing drives it.
                let _ = stopped.recv();
            }
        });
        second.wait().await.expect("written");
        drop(stop);
        thread.join().expect("no panic");
    }
}
