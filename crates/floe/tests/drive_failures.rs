//! Failures of a drive: every NVMe status of every operation, zones that become read-only
//! or offline, and zones that cannot be read for a while. They cost values, and no answer is
//! wrong.

mod common;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{in_place, memory, tiny_config, zoned};
use floe::{CacheError, ChunkConfig, PutOptions, Store, StoreConfig, Tiny};
use floe_core::chunk::Eviction;
use floe_core::{ByteSize, Geometry, ZoneId};
use floe_device::nvme::Status;
use floe_device::{
    Address, Clock, Device as _, Faults, Faulty, IoBuf, Operation, Placement, SharedDevice,
    ZoneState, virtual_time,
};

/// The first zones hold metadata.
const METADATA: u32 = 2;

/// A cache under test.
trait Subject: Sized {
    /// A search may read pages of offline zones.
    const READS_OFFLINE: bool = false;

    async fn try_open(device: &SharedDevice, clock: &Clock, eviction: Eviction) -> Option<Self>;

    async fn open(device: &SharedDevice, clock: &Clock, eviction: Eviction) -> Self {
        let opened = Self::try_open(device, clock, eviction).await;
        opened.expect("opens")
    }

    async fn put(&self, key: &str, value: Bytes) -> Result<(), CacheError>;
    async fn get(&self, key: &str) -> Option<Bytes>;
    async fn delete(&self, key: &str) -> Result<(), CacheError>;
    async fn flush(&self) -> Result<(), CacheError>;
    async fn close(self);
    /// Zones out of use.
    fn unwritable(&self) -> u64;
    /// Reads and writes that failed, and values that found no place.
    fn counts(&self) -> [u64; 3];
}

impl Subject for Store {
    async fn try_open(device: &SharedDevice, clock: &Clock, eviction: Eviction) -> Option<Self> {
        let mut config = StoreConfig {
            chunk: ChunkConfig {
                size: ByteSize::kib(64),
                eviction,
                write_buffer: ByteSize::mib(2),
                ..ChunkConfig::default()
            },
            seed: Some(7),
            ..StoreConfig::default()
        };
        config.ram.size = ByteSize(0);
        let opened = Store::open(Arc::clone(device), clock.clone(), &config).await;
        opened.ok()
    }

    async fn put(&self, key: &str, value: Bytes) -> Result<(), CacheError> {
        Store::put(self, key.as_bytes(), value, PutOptions::default())
            .await
            .map(drop)
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        let found = Store::get(self, key.as_bytes()).await.expect("get");
        found.map(|found| found.bytes)
    }

    async fn delete(&self, key: &str) -> Result<(), CacheError> {
        Store::delete(self, key.as_bytes()).await.map(drop)
    }

    async fn flush(&self) -> Result<(), CacheError> {
        Store::flush(self).await
    }

    async fn close(self) {
        // Fails if a write failed.
        let _ = Store::close(&self).await;
    }

    fn unwritable(&self) -> u64 {
        self.stats().engine.zones_retired
    }

    fn counts(&self) -> [u64; 3] {
        let counts = self.stats().engine.counts;
        [counts.read_errors, counts.write_errors, counts.puts_dropped]
    }
}

impl Subject for Tiny {
    const READS_OFFLINE: bool = true;

    async fn try_open(device: &SharedDevice, clock: &Clock, _: Eviction) -> Option<Self> {
        let opened = Tiny::open(Arc::clone(device), clock.clone(), &tiny_config()).await;
        opened.ok()
    }

    async fn put(&self, key: &str, value: Bytes) -> Result<(), CacheError> {
        Tiny::put(self, key.as_bytes(), &value, PutOptions::default()).await
    }

    async fn get(&self, key: &str) -> Option<Bytes> {
        let found = Tiny::get(self, key.as_bytes()).await.expect("get");
        found.map(|found| found.bytes)
    }

    async fn delete(&self, key: &str) -> Result<(), CacheError> {
        Tiny::delete(self, key.as_bytes()).await.map(drop)
    }

    async fn flush(&self) -> Result<(), CacheError> {
        Tiny::flush(self).await
    }

    async fn close(self) {
        // Fails if a write failed.
        let _ = Tiny::close(&self).await;
    }

    fn unwritable(&self) -> u64 {
        self.stats().zones_unwritable
    }

    fn counts(&self) -> [u64; 3] {
        [0; 3]
    }
}

/// A device whose zones fail on demand.
fn drive(geometry: Geometry, clock: &Clock) -> (Arc<Faulty>, SharedDevice) {
    let faulty = Faulty::new(memory(geometry), clock.clone(), 1, Faults::default());
    let faulty = Arc::new(faulty);
    (Arc::clone(&faulty), faulty)
}

fn data_zones(faulty: &Faulty) -> impl Iterator<Item = ZoneId> + use<> {
    (METADATA..faulty.geometry().zone_count).map(ZoneId)
}

/// Operations that failed in the device.
fn failures(faulty: &Faulty) -> u64 {
    faulty.counters().snapshot().errors
}

/// The value of a version of a key, which names both.
fn value(key: u32, version: u32, bytes: usize) -> Bytes {
    let name = format!("{key}.{version}.");
    Bytes::from(name.repeat(bytes / name.len() + 1).into_bytes()).slice(..bytes)
}

fn name(key: u32) -> String {
    format!("key-{key}")
}

/// Checks each key: it has this version, or is missing. Returns the number of hits.
async fn assert_true<S: Subject>(
    subject: &S,
    keys: impl Iterator<Item = u32>,
    version: Option<u32>,
    bytes: usize,
) -> u32 {
    let mut hits = 0;
    for key in keys {
        let Some(found) = subject.get(&name(key)).await else {
            continue;
        };
        hits += 1;
        let is_right = version.is_some_and(|version| found == value(key, version, bytes));
        let start = String::from_utf8_lossy(&found[..16]);
        assert!(is_right, "key {key}: {start}, not version {version:?}");
    }
    hits
}

async fn fill<S: Subject>(
    subject: &S,
    keys: impl Iterator<Item = u32>,
    version: u32,
    bytes: usize,
) {
    for key in keys {
        let value = value(key, version, bytes);
        subject.put(&name(key), value).await.expect("put");
    }
    subject.flush().await.expect("flush");
}

/// An engine with a geometry of which a few zones get full.
#[derive(Clone, Copy, Debug)]
struct Setup {
    geometry: fn() -> Geometry,
    eviction: Eviction,
    keys: u32,
    bytes: usize,
}

const LOG: Setup = Setup {
    geometry: || zoned(24, 1 << 20),
    eviction: Eviction::Zplru,
    keys: 240,
    bytes: 20_000,
};
const HOST_GC: Setup = Setup {
    eviction: Eviction::Clru,
    ..LOG
};
const SLOTS: Setup = Setup {
    geometry: || in_place(24, 1 << 20),
    eviction: Eviction::Clru,
    ..LOG
};
const NEMO: Setup = Setup {
    geometry: || zoned(24, 64 << 10),
    eviction: Eviction::Fifo,
    keys: 1600,
    bytes: 400,
};

/// Runs a test on every engine.
macro_rules! on_each_engine {
    ($test:ident) => {
        for setup in [LOG, HOST_GC, SLOTS] {
            virtual_time::run(1, async |clock: Clock| $test::<Store>(clock, setup).await);
        }
        virtual_time::run(1, async |clock: Clock| $test::<Tiny>(clock, NEMO).await);
    };
}

/// A drive with a closed cache, which has version 0 of all keys.
async fn filled<S: Subject>(clock: &Clock, setup: Setup) -> (Arc<Faulty>, SharedDevice) {
    let (faulty, device) = drive((setup.geometry)(), clock);
    let subject = S::open(&device, clock, setup.eviction).await;
    fill(&subject, 0..setup.keys, 0, setup.bytes).await;
    subject.close().await;
    (faulty, device)
}

/// Opens the cache twice, and checks that keys have these versions or are missing.
async fn has_only<S: Subject>(
    (device, clock): (&SharedDevice, &Clock),
    setup: Setup,
    expected: &[(Range<u32>, Option<u32>)],
) {
    for _ in 0..2 {
        let subject = S::open(device, clock, setup.eviction).await;
        for (keys, version) in expected {
            assert_true(&subject, keys.clone(), *version, setup.bytes).await;
        }
        subject.close().await;
    }
}

async fn delete_all<S: Subject>(subject: &S, keys: Range<u32>) {
    for key in keys {
        subject.delete(&name(key)).await.expect("durable");
    }
}

/// The first opening can neither read nor reset some zones. Values in them that are deleted
/// or overwritten meanwhile do not come back when the zones are readable again.
#[test]
fn values_of_a_zone_that_was_unreadable_for_a_while_stay_away() {
    on_each_engine!(unreadable_for_a_while);
}

async fn unreadable_for_a_while<S: Subject>(clock: Clock, setup: Setup) {
    let Setup { keys, bytes, .. } = setup;
    let (faulty, device) = filled::<S>(&clock, setup).await;
    let bad_zones: Vec<_> = data_zones(&faulty).step_by(2).collect();
    faulty.set(Faults {
        bad_zones,
        ..Faults::default()
    });
    let subject = S::open(&device, &clock, setup.eviction).await;
    delete_all(&subject, 0..keys / 2).await;
    let overwritten = keys / 2..keys / 2 + 10;
    fill(&subject, overwritten.clone(), 1, bytes).await;
    subject.close().await;

    faulty.set(Faults::default());
    let expected = [
        (0..keys / 2, None),
        (overwritten.clone(), Some(1)),
        (overwritten.end..keys, Some(0)),
    ];
    has_only::<S>((&device, &clock), setup, &expected).await;
}

/// The process dies after each number of operations, and the next life can neither read nor
/// reset the zones that the first had written. What is deleted meanwhile does not come back,
/// although a set-group may have been written without a note of it.
#[test]
fn values_of_a_life_that_ended_anywhere_stay_away() {
    on_each_engine!(ended_anywhere);
}

async fn ended_anywhere<S: Subject>(clock: Clock, setup: Setup) {
    let bytes = setup.bytes;
    let keys = setup.keys / 10;
    let ends = |operations| Faults {
        fail_after: Some(operations),
        ..Faults::default()
    };
    for operations in 0..80 {
        let (faulty, device) = drive((setup.geometry)(), &clock);
        S::open(&device, &clock, setup.eviction).await.close().await;
        let subject = S::open(&device, &clock, setup.eviction).await;
        faulty.set(ends(operations));
        for key in 0..keys {
            // Fails from some operation on.
            let _ = subject.put(&name(key), value(key, 0, bytes)).await;
        }
        let _ = subject.flush().await;
        drop(subject);

        faulty.set(Faults {
            bad_zones: data_zones(&faulty).collect(),
            ..Faults::default()
        });
        let subject = S::open(&device, &clock, setup.eviction).await;
        delete_all(&subject, 0..keys).await;
        faulty.set(ends(0));
        drop(subject);

        faulty.set(Faults::default());
        has_only::<S>((&device, &clock), setup, &[(0..keys, None)]).await;
    }
}

/// A drive fails while the cache runs: half of the zones are offline at once.
#[test]
fn zones_that_go_offline_at_once_cost_their_values_and_no_others() {
    on_each_engine!(offline_at_run_time);
}

async fn offline_at_run_time<S: Subject>(clock: Clock, setup: Setup) {
    let Setup { keys, bytes, .. } = setup;
    let (faulty, device) = filled::<S>(&clock, setup).await;
    let subject = S::open(&device, &clock, setup.eviction).await;
    let offline: Vec<_> = data_zones(&faulty).step_by(2).collect();
    for &zone in &offline {
        faulty.fail_zone(zone, ZoneState::Offline);
    }
    let before = failures(&faulty);
    // Two rounds, of which the first meets the zones.
    let small = keys / 8;
    fill(&subject, 0..small, 1, bytes).await;
    fill(&subject, 0..small, 2, bytes).await;
    let met = failures(&faulty) - before;
    let is_bounded = S::READS_OFFLINE || met <= 12;
    assert!(
        is_bounded,
        "{setup:?}: {met} operations met an offline zone"
    );
    assert_eq!(subject.unwritable(), offline.len() as u64, "{setup:?}");
    let kept = assert_true(&subject, 0..small, Some(2), bytes).await;
    assert_eq!(
        kept, small,
        "{setup:?}: later values are in zones that work"
    );
    let hits = assert_true(&subject, small..keys, Some(0), bytes).await;
    assert!(hits > 0, "{setup:?}: the other zones serve");
    delete_all(&subject, small..small * 2).await;
    assert_true(&subject, small..small * 2, None, bytes).await;
    subject.close().await;

    // The drive is back, with what it had.
    for &zone in &offline {
        faulty.restore_zone(zone);
    }
    let expected = [
        (0..small, Some(2)),
        (small..small * 2, None),
        (small * 2..keys, Some(0)),
    ];
    has_only::<S>((&device, &clock), setup, &expected).await;
    let subject = S::open(&device, &clock, setup.eviction).await;
    assert_eq!(subject.unwritable(), 0, "{setup:?}");
    subject.close().await;
}

/// Zones that are offline at opening are left alone, and their values stay away if the drive
/// comes back.
#[test]
fn zones_that_are_offline_at_opening_are_neither_read_nor_reset() {
    on_each_engine!(offline_at_opening);
}

async fn offline_at_opening<S: Subject>(clock: Clock, setup: Setup) {
    let Setup { keys, bytes, .. } = setup;
    let (faulty, device) = filled::<S>(&clock, setup).await;
    let offline: Vec<_> = data_zones(&faulty).skip(1).step_by(2).collect();
    for &zone in &offline {
        faulty.fail_zone(zone, ZoneState::Offline);
    }
    let before = failures(&faulty);
    let subject = S::open(&device, &clock, setup.eviction).await;
    assert_eq!(subject.unwritable(), offline.len() as u64, "{setup:?}");
    assert_true(&subject, 0..keys, Some(0), bytes).await;
    let (deleted, overwritten) = (0..keys / 4, keys / 4..keys / 2);
    delete_all(&subject, deleted.clone()).await;
    fill(&subject, overwritten.clone(), 1, bytes).await;
    let kept = assert_true(&subject, overwritten.clone(), Some(1), bytes).await;
    assert_eq!(kept, overwritten.len() as u32, "{setup:?}");
    subject.close().await;
    assert_eq!(failures(&faulty) - before, 0, "{setup:?}");

    offline.iter().for_each(|&zone| faulty.restore_zone(zone));
    let expected = [
        (overwritten.end..keys, Some(0)),
        (overwritten, Some(1)),
        (deleted, None),
    ];
    has_only::<S>((&device, &clock), setup, &expected).await;
}

/// Read-only zones serve their values, are never written or reset, and what is deleted in
/// them stays deleted.
#[test]
fn read_only_zones_serve_until_their_values_are_replaced() {
    on_each_engine!(read_only);
}

async fn read_only<S: Subject>(clock: Clock, setup: Setup) {
    let Setup { keys, bytes, .. } = setup;
    let (faulty, device) = filled::<S>(&clock, setup).await;
    let subject = S::open(&device, &clock, setup.eviction).await;
    let before_hits = assert_true(&subject, 0..keys, Some(0), bytes).await;
    subject.close().await;

    let read_only: Vec<_> = data_zones(&faulty).step_by(2).collect();
    for &zone in &read_only {
        faulty.fail_zone(zone, ZoneState::ReadOnly);
    }
    let before = failures(&faulty);
    let subject = S::open(&device, &clock, setup.eviction).await;
    assert_eq!(subject.unwritable(), read_only.len() as u64, "{setup:?}");
    let hits = assert_true(&subject, 0..keys, Some(0), bytes).await;
    let tables_change = setup.eviction == Eviction::Clru && device.geometry().random_writes;
    assert!(
        tables_change || hits == before_hits,
        "{setup:?}: {hits} of {before_hits}"
    );
    let (deleted, overwritten) = (0..keys / 8, keys / 8..keys / 4);
    delete_all(&subject, deleted.clone()).await;
    fill(&subject, overwritten.clone(), 1, bytes).await;
    subject.close().await;
    assert_eq!(failures(&faulty) - before, 0, "{setup:?}");
    let expected = [
        (overwritten.clone(), Some(1)),
        (deleted, None),
        (overwritten.end..keys, Some(0)),
    ];
    has_only::<S>((&device, &clock), setup, &expected).await;
    read_only.iter().for_each(|&zone| faulty.restore_zone(zone));
    has_only::<S>((&device, &clock), setup, &expected).await;
}

/// Deletes of values in read-only zones fill the journal. Then such zones are given up, and
/// deletes go on.
#[test]
fn deletes_from_read_only_zones_do_not_fill_the_journal() {
    let setup = Setup {
        geometry: || zoned(200, 256 << 10),
        eviction: Eviction::Zplru,
        keys: 8000,
        bytes: 400,
    };
    virtual_time::run(1, async |clock: Clock| {
        let (faulty, device) = filled::<Store>(&clock, setup).await;
        let half = faulty.geometry().zone_count / 2;
        let read_only: Vec<_> = data_zones(&faulty).take_while(|at| at.0 < half).collect();
        let zones = read_only.iter();
        zones.for_each(|&zone| faulty.fail_zone(zone, ZoneState::ReadOnly));
        let subject = <Store as Subject>::open(&device, &clock, setup.eviction).await;
        delete_all::<Store>(&subject, 0..setup.keys).await;
        assert!(
            subject.stats().engine.counts.zones_evicted > 0,
            "none is given up"
        );
        Subject::close(subject).await;
        has_only::<Store>((&device, &clock), setup, &[(0..setup.keys, None)]).await;
        let zones = read_only.iter();
        zones.for_each(|&zone| faulty.restore_zone(zone));
        has_only::<Store>((&device, &clock), setup, &[(0..setup.keys, None)]).await;
    });
}

/// With a damaged journal everything is forgotten, also what lies in zones that cannot be
/// reset then.
#[test]
fn a_damaged_journal_forgets_zones_that_cannot_be_reset() {
    on_each_engine!(damaged_journal);
}

async fn damaged_journal<S: Subject>(clock: Clock, setup: Setup) {
    let Setup { keys, bytes, .. } = setup;
    // Journals are overwritten here, also where the engine may not.
    let geometry = Geometry {
        random_writes: true,
        ..(setup.geometry)()
    };
    let setup = match setup.eviction {
        Eviction::Clru if !(setup.geometry)().random_writes => return,
        _ => setup,
    };
    let (faulty, device) = drive(geometry, &clock);
    let subject = S::open(&device, &clock, setup.eviction).await;
    fill(&subject, 0..keys, 0, bytes).await;
    delete_all(&subject, 0..keys).await;
    subject.close().await;
    let states = [ZoneState::ReadOnly, ZoneState::Offline];
    for (zone, state) in data_zones(&faulty).zip(states.into_iter().cycle()) {
        if zone.0 % 3 != 0 {
            faulty.fail_zone(zone, state);
        }
    }
    for zone in [ZoneId(0), ZoneId(1)] {
        for block in 1..8 {
            let at = Address::new(zone, block * 4096);
            let read = device.read(at, IoBuf::zeroed(4096)).await.expect("reads");
            if read[..8].iter().any(|byte| *byte != 0) && block < 4 {
                let mut bytes = IoBuf::copy_of(&read, 4096);
                bytes[60] ^= 1;
                let damaged = device.write(at, bytes.freeze(), Placement(0)).await;
                damaged.expect("the damage is done");
            }
        }
    }
    has_only::<S>((&device, &clock), setup, &[(0..keys, None)]).await;
    data_zones(&faulty).for_each(|zone| faulty.restore_zone(zone));
    has_only::<S>((&device, &clock), setup, &[(0..keys, None)]).await;
}

/// The versions that each key may have; `None` is a deleted one.
#[derive(Default)]
struct Ledger(HashMap<u32, Vec<Option<u32>>>);

impl Ledger {
    /// Writes or deletes a key. After an error it may have either version.
    async fn change<S: Subject>(&mut self, subject: &S, key: u32, to: Option<u32>, bytes: usize) {
        let changed = match to {
            Some(version) => subject.put(&name(key), value(key, version, bytes)).await,
            None => subject.delete(&name(key)).await,
        };
        let allowed = self.0.entry(key).or_default();
        if changed.is_ok() {
            allowed.clear();
        }
        allowed.push(to);
    }

    /// Checks every key. Returns the number of hits.
    async fn check<S: Subject>(&self, subject: &S, bytes: usize, why: &str) -> u32 {
        let mut hits = 0;
        for (&key, allowed) in &self.0 {
            let Some(found) = subject.get(&name(key)).await else {
                continue;
            };
            hits += 1;
            let mut versions = allowed.iter().flatten();
            let is_right = versions.any(|&version| found == value(key, version, bytes));
            let start = String::from_utf8_lossy(&found[..16]);
            assert!(is_right, "{why}: key {key}: {start} is none of {allowed:?}");
        }
        hits
    }
}

/// The result of a case of the table below.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    injected: u64,
    hits: u32,
    read_errors: u64,
    write_errors: u64,
    dropped: u64,
    unwritable: u64,
}

/// Some operations of a kind fail with a status, in zones of values or anywhere.
async fn fails_with<S: Subject>(
    clock: Clock,
    setup: Setup,
    (operation, status): (Operation, Status),
    spares_metadata: bool,
) -> Outcome {
    let Setup { keys, bytes, .. } = setup;
    let why = &format!("{:?}, {operation}, {status}", setup.eviction);
    let (faulty, device) = drive((setup.geometry)(), &clock);
    let mut ledger = Ledger::default();
    let subject = S::open(&device, &clock, setup.eviction).await;
    for key in 0..keys {
        ledger.change(&subject, key, Some(0), bytes).await;
    }
    let spared_zones = match spares_metadata {
        true => vec![ZoneId(0), ZoneId(1)],
        false => Vec::new(),
    };
    faulty.set(Faults {
        script: [0, 2, 3, 7].map(|nth| (operation, nth, status)).into(),
        spared_zones,
        ..Faults::default()
    });
    for key in 0..keys {
        let to = match key % 3 {
            0 => None,
            _ => Some(1),
        };
        ledger.change(&subject, key, to, bytes).await;
    }
    // It may fail.
    let _ = subject.flush().await;
    ledger.check(&subject, bytes, why).await;
    // Background tasks retire zones.
    clock.sleep(Duration::from_secs(1)).await;
    let [read_errors, write_errors, dropped] = subject.counts();
    let mut outcome = Outcome {
        injected: faulty.injected(),
        unwritable: subject.unwritable(),
        read_errors,
        write_errors,
        dropped,
        hits: 0,
    };
    subject.close().await;
    // The failures of an opening.
    faulty.set(Faults {
        script: [1, 4].map(|nth| (operation, nth, status)).into(),
        ..Faults::default()
    });
    if let Some(subject) = S::try_open(&device, &clock, setup.eviction).await {
        ledger.check(&subject, bytes, why).await;
        ledger.change(&subject, 1, None, bytes).await;
        ledger.change(&subject, 2, Some(2), bytes).await;
        subject.close().await;
    }
    faulty.set(Faults::default());
    for zone in faulty.geometry().zones() {
        faulty.restore_zone(zone);
    }
    let subject = S::open(&device, &clock, setup.eviction).await;
    outcome.hits = ledger.check(&subject, bytes, why).await;
    subject.close().await;
    outcome
}

/// Every status of every operation, in every engine: no answer is wrong, a failed read is a
/// miss, a failed append moves its values elsewhere, and a zone that became read-only or
/// offline is retired.
#[test]
fn no_status_of_any_operation_gives_a_wrong_answer() {
    let small = |setup: Setup, geometry: fn() -> Geometry, keys, bytes| Setup {
        geometry,
        keys,
        bytes,
        ..setup
    };
    let log = small(LOG, || zoned(10, 512 << 10), 60, 24_000);
    let slots = small(SLOTS, || in_place(6, 1 << 20), 40, 5_000);
    let nemo = small(NEMO, || zoned(12, 64 << 10), 300, 900);
    let operations = [
        Operation::Flush,
        Operation::Finish,
        Operation::Reset,
        Operation::Write,
        Operation::Append,
        Operation::Read,
    ];
    for operation in operations {
        let (mut of_log, mut of_slots, mut of_nemo) = (0, 0, 0);
        for (number, status) in Status::named().enumerate() {
            let spares = number % 2 == 0 || status.fault().unwritable().is_some();
            let case = (operation, status);
            let run = |clock| fails_with::<Store>(clock, log, case, spares);
            let outcome = virtual_time::run(1, run);
            let is_unwritable = status.fault().unwritable().is_some();
            let is_hit = outcome.injected > 0;
            match operation {
                Operation::Read if spares => assert!(outcome.read_errors > 0, "{case:?}"),
                Operation::Append if spares => assert!(outcome.write_errors > 0, "{case:?}"),
                _ => {}
            }
            let of_zone = !matches!(operation, Operation::Write | Operation::Flush);
            if is_unwritable && is_hit && of_zone {
                assert!(outcome.unwritable > 0, "{case:?}: {outcome:?}");
            }
            assert_eq!(outcome.dropped, 0, "{case:?}: {outcome:?}");
            assert!(outcome.hits > 0, "{case:?}: {outcome:?}");
            of_log += outcome.injected;
            let run = |clock| fails_with::<Store>(clock, slots, case, spares);
            of_slots += virtual_time::run(1, run).injected;
            let run = |clock| fails_with::<Tiny>(clock, nemo, case, spares);
            of_nemo += virtual_time::run(1, run).injected;
        }
        // No engine over zones writes in place. Slots are never finished, and set-groups fill
        // their zones here.
        let writes = operation == Operation::Write;
        assert_eq!(of_log > 0, !writes, "{operation}");
        let finishes = operation == Operation::Finish;
        assert_eq!(of_nemo > 0, !writes && !finishes, "{operation}");
        assert_eq!(of_slots > 0, !finishes, "{operation}");
    }
}
