//! The wrappers: meters, records and injected faults.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use floe_core::ByteSize;
use floe_device::config::{DeviceConfig, DeviceKind};
use floe_device::conformance::pattern;
use floe_device::recorded::Outcome;
use floe_device::{
    Address, Clock, Device, DeviceErrorKind, Faults, Faulty, IoBuf, Metered, Operation, Placement,
    Recorded, SharedDevice, ZoneId, open, virtual_time,
};

const BLOCK: usize = 4096;
const HERE: Placement = Placement(0);

fn device(clock: &Clock, kind: DeviceKind) -> SharedDevice {
    let config = DeviceConfig {
        kind,
        size: Some(ByteSize::mib(8)),
        zone_size: Some(ByteSize::mib(1)),
        ..DeviceConfig::default()
    };
    open(&config, clock).unwrap()
}

#[test]
fn meters_count_latency_bytes_errors_and_operations_in_flight() {
    virtual_time::run(1, |clock| async move {
        let metered = Metered::new(device(&clock, DeviceKind::Sim), clock.clone());
        let meters = Arc::clone(metered.meters());
        let data = pattern(1, 4 * BLOCK);
        let at = metered.append(ZoneId(0), data.clone(), HERE).await.unwrap();
        let reads: Vec<_> = (0..8)
            .map(|_| metered.read(at, IoBuf::zeroed(data.len())))
            .collect();
        assert_eq!(meters.of(Operation::Read).in_flight.load(Relaxed), 8);
        for read in reads {
            read.await.unwrap();
        }
        drop(metered.read(at, IoBuf::zeroed(BLOCK)));
        let beyond = Address::new(ZoneId(99), 0);
        metered
            .read(beyond, IoBuf::zeroed(BLOCK))
            .await
            .unwrap_err();

        let read = meters.of(Operation::Read);
        assert_eq!(read.in_flight.load(Relaxed), 0);
        assert_eq!(read.bytes.load(Relaxed), 8 * data.len() as u64);
        assert_eq!(
            (read.errors.load(Relaxed), read.abandoned.load(Relaxed)),
            (1, 1)
        );
        assert_eq!(read.latency.count(), 9);
        // 70 us of sensing for each, one at a time on one unit.
        let slowest = read.latency.quantile(1.0);
        assert!((560..700).contains(&slowest.as_micros()), "{slowest:?}");
        let append = meters.of(Operation::Append).latency.mean();
        assert!((12..25).contains(&append.as_micros()), "{append:?}");
    });
}

#[test]
fn a_record_is_bounded_complete_and_deterministic() {
    let record = || {
        virtual_time::run(1, |clock| async move {
            let device = device(&clock, DeviceKind::Sim);
            let recorded = Recorded::new(device, clock.clone(), 50);
            for tag in 0..30 {
                let data = pattern(tag, BLOCK);
                let at = recorded.append(ZoneId(2), data, HERE).await.unwrap();
                recorded.read(at, IoBuf::zeroed(BLOCK)).await.unwrap();
            }
            recorded.finish(ZoneId(2)).await.unwrap();
            recorded
                .append(ZoneId(2), pattern(0, BLOCK), HERE)
                .await
                .unwrap_err();
            drop(recorded.reset(ZoneId(2)));
            assert_eq!(recorded.started(), 63);
            recorded.entries()
        })
    };
    let entries = record();
    assert_eq!(entries.len(), 50);
    assert_eq!(entries[0].number, 13);
    let [.., append, read, finish, rejected, reset] = &entries[..] else {
        panic!("there are fifty");
    };
    assert_eq!(
        (append.operation, append.offset),
        (Operation::Append, Some(29 * BLOCK as u64))
    );
    assert_eq!((read.zone, read.bytes), (Some(ZoneId(2)), BLOCK as u64));
    assert!(matches!(finish.outcome, Outcome::Done(end) if end > finish.started));
    assert!(matches!(&rejected.outcome, Outcome::Failed(_, why) if why.contains("full")));
    assert!(matches!(reset.outcome, Outcome::Abandoned(_)));
    assert_eq!(entries, record());
}

/// Errors, flips and torn appends out of `count` rounds with these faults.
async fn provoke(clock: Clock, seed: u64, faults: Faults, count: u64) -> (u64, u64, u64) {
    let faulty = Faulty::new(device(&clock, DeviceKind::Memory), clock, seed, faults);
    let (mut errors, mut flipped, mut torn) = (0, 0, 0);
    for tag in 0..count {
        let zone = ZoneId((tag % 4) as u32);
        faulty.enable(false);
        faulty.reset(zone).await.unwrap();
        faulty.enable(true);
        let data = pattern(tag, 4 * BLOCK);
        if faulty.append(zone, data.clone(), HERE).await.is_err() {
            errors += 1;
        }
        faulty.enable(false);
        let written = faulty.report().await.unwrap()[zone.index()].write_pointer;
        let at = Address::new(zone, 0);
        let stored = faulty.read(at, IoBuf::zeroed(data.len())).await.unwrap();
        torn += u64::from(written > 0 && *stored != *data);
        faulty.enable(true);
        match faulty.read(at, IoBuf::zeroed(data.len())).await {
            Err(_) => errors += 1,
            Ok(read) => {
                let bits: u32 = read
                    .iter()
                    .zip(&stored[..])
                    .map(|(a, b)| (a ^ b).count_ones())
                    .sum();
                assert!(bits <= 1, "at most one bit flips");
                flipped += u64::from(bits);
            }
        }
    }
    (errors, flipped, torn)
}

#[test]
fn faults_have_their_rates_and_follow_the_seed() {
    let faults = Faults {
        read_errors: 0.1,
        append_errors: 0.1,
        torn_writes: 0.2,
        bit_flips: 0.3,
        delays: 0.5,
        delay_max: Duration::from_millis(1),
        ..Faults::default()
    };
    let outcome = |seed| {
        let faults = faults.clone();
        virtual_time::run(seed, |clock| provoke(clock, seed, faults, 2000))
    };
    let (errors, flipped, torn) = outcome(5);
    // 2000 * (0.1 + 0.1 + 0.9 * 0.2), 2000 * 0.9 * 0.3, 2000 * 0.9 * 0.2
    assert!((680..840).contains(&errors), "{errors}");
    assert!((470..610).contains(&flipped), "{flipped}");
    assert!((300..420).contains(&torn), "{torn}");
    assert_eq!(outcome(5), (errors, flipped, torn));
    assert_ne!(outcome(6), (errors, flipped, torn));
}

#[test]
fn bad_zones_fail_and_so_does_everything_after_a_number_of_operations() {
    virtual_time::run(1, |clock| async move {
        let below = device(&clock, DeviceKind::Memory);
        let faulty = Faulty::new(below, clock, 1, Faults::default());
        let data = pattern(1, BLOCK);
        faulty.set(Faults {
            bad_zones: vec![ZoneId(3)],
            ..Faults::default()
        });
        faulty.append(ZoneId(2), data.clone(), HERE).await.unwrap();
        let error = faulty
            .append(ZoneId(3), data.clone(), HERE)
            .await
            .unwrap_err();
        assert!(matches!(error.kind, DeviceErrorKind::Io(_)) && error.zone == Some(ZoneId(3)));

        faulty.set(Faults {
            fail_after: Some(2),
            ..Faults::default()
        });
        faulty.append(ZoneId(2), data.clone(), HERE).await.unwrap();
        faulty.flush().await.unwrap();
        for _ in 0..3 {
            faulty.flush().await.unwrap_err();
        }
        assert_eq!(faulty.injected(), 4);
    });
}

#[test]
fn a_torn_write_in_place_keeps_the_old_blocks_behind_the_tear() {
    virtual_time::run(1, |clock| async move {
        let below = device(&clock, DeviceKind::Memory);
        let faults = Faults {
            torn_writes: 1.0,
            ..Faults::default()
        };
        let at = Address::new(ZoneId(0), 0);
        let (old, new) = (pattern(1, 8 * BLOCK), pattern(2, 8 * BLOCK));
        let mut kept = std::collections::BTreeSet::new();
        for seed in 0..100 {
            below.write(at, old.clone(), HERE).await.unwrap();
            let faulty = Faulty::new(Arc::clone(&below), clock.clone(), seed, faults.clone());
            faulty.write(at, new.clone(), HERE).await.unwrap_err();
            let read = below.read(at, IoBuf::zeroed(old.len())).await.unwrap();
            let news =
                (0..8).take_while(|i| read[i * BLOCK..][..BLOCK] == new[i * BLOCK..][..BLOCK]);
            let news = news.count();
            assert!(
                read[news * BLOCK..] == old[news * BLOCK..],
                "the rest is as it was"
            );
            kept.insert(news);
        }
        assert_eq!(
            kept.into_iter().collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>()
        );
    });
}
