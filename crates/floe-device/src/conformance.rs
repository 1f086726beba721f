//! The contract of devices, as one suite of checks for every implementation.
//!
//! The checks panic with a message that names the rule. They overwrite the
//! device, which must have at least six zones, each of at least eight times the
//! largest append.

use std::fmt;
use std::sync::Arc;

use floe_core::{Address, ZoneId};

use crate::buffer::{IoBuf, IoData};
use crate::contract::{Placement, SharedDevice, ZoneReport, ZoneState};
use crate::error::{DeviceError, DeviceErrorKind};

/// Runs every check in turn.
///
/// # Panics
/// If the device breaks a rule of its contract.
pub async fn check(device: &SharedDevice) {
    let suite = Suite(Arc::clone(device));
    suite.suits();
    suite.reset_all().await;
    suite.appends_land_in_order_and_read_back().await;
    suite.concurrent_appends_are_disjoint_and_whole().await;
    suite.an_append_that_does_not_fit_changes_nothing().await;
    suite.bad_requests_are_rejected().await;
    suite.open_and_active_limits_hold().await;
    suite.a_finished_zone_is_full_and_readable().await;
    suite.reset_empties_and_zeroes_the_first_block().await;
    suite.reset_under_readers_is_harmless().await;
    suite.reset_after_started_appends_wins().await;
    suite.writes_in_place_follow_the_geometry().await;
    suite.dropped_futures_leave_the_device_usable().await;
    suite.counters_count_each_kind().await;
    suite.flush_succeeds_at_any_time().await;
    suite.durable_appends_are_appends().await;
    suite.reset_all().await;
}

/// Data in which every block differs from every other.
pub fn pattern(tag: u64, len: usize) -> IoData {
    let mut buf = IoBuf::zeroed(len);
    for (i, word) in buf.chunks_exact_mut(8).enumerate() {
        let value = (tag << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        word.copy_from_slice(&value.to_le_bytes());
    }
    buf.freeze()
}

struct Suite(SharedDevice);

const HERE: Placement = Placement(0);

impl Suite {
    fn block(&self) -> usize {
        self.0.geometry().block_size as usize
    }

    fn capacity(&self) -> u64 {
        self.0.geometry().zone_capacity
    }

    fn append_max(&self) -> usize {
        self.0.geometry().max_append_bytes as usize
    }

    fn suits(&self) {
        let geometry = self.0.geometry();
        geometry.validate().expect("the geometry makes sense");
        assert!(geometry.zone_count >= 6, "the suite needs six zones");
        assert!(
            self.capacity() >= 8 * self.append_max() as u64,
            "the suite needs zones of eight appends"
        );
    }

    async fn reset_all(&self) {
        for zone in self.0.geometry().zones() {
            self.0.reset(zone).await.expect("a zone can be reset");
        }
        for zone in self.0.report().await.expect("zones are reported") {
            assert_eq!(
                zone.state,
                ZoneState::Empty,
                "zone {} after reset",
                zone.zone
            );
            assert_eq!(zone.write_pointer, 0, "zone {} after reset", zone.zone);
        }
    }

    async fn reset(&self, zone: ZoneId) {
        self.0.reset(zone).await.expect("a zone can be reset");
    }

    async fn state(&self, zone: ZoneId) -> ZoneReport {
        let report = self.0.report().await.expect("zones are reported");
        assert_eq!(report.len(), self.0.geometry().zone_count as usize);
        assert_eq!(report[zone.index()].zone, zone, "the report is in order");
        report[zone.index()]
    }

    async fn append(&self, zone: ZoneId, data: &IoData) -> Result<Address, DeviceError> {
        self.0.append(zone, data.clone(), HERE).await
    }

    async fn read(&self, at: Address, len: usize) -> IoBuf {
        let buf = self.0.read(at, self.0.allocate(len)).await;
        let buf = buf.expect("written data can be read");
        assert_eq!(buf.len(), len, "a read returns all it was asked for");
        buf
    }

    async fn appends_land_in_order_and_read_back(&self) {
        let zone = ZoneId(0);
        let mut expected = 0;
        let lengths = [1, 3, 2, self.append_max() / self.block(), 1];
        for (tag, blocks) in lengths.into_iter().enumerate() {
            let data = pattern(tag as u64, blocks * self.block());
            let at = self.append(zone, &data).await.expect("there is room");
            assert_eq!(at, Address::new(zone, expected), "one after the other");
            expected += data.len() as u64;
            assert_eq!(self.state(zone).await.write_pointer, expected);
            assert_eq!(self.state(zone).await.state, ZoneState::Open);
            assert!(*self.read(at, data.len()).await == *data, "reads back");
        }
        let all = self.read(Address::new(zone, 0), expected as usize).await;
        let mut offset = 0;
        for (tag, blocks) in lengths.into_iter().enumerate() {
            let data = pattern(tag as u64, blocks * self.block());
            assert!(all[offset..offset + data.len()] == *data, "in one read too");
            offset += data.len();
        }
        self.reset(zone).await;
    }

    async fn concurrent_appends_are_disjoint_and_whole(&self) {
        let zone = ZoneId(1);
        let len = 2 * self.block();
        let count = (self.capacity() / len as u64).min(300);
        let data: Vec<IoData> = (0..count).map(|tag| pattern(tag, len)).collect();
        let started: Vec<_> = data
            .iter()
            .map(|data| self.0.append(zone, data.clone(), HERE))
            .collect();
        let mut places = Vec::new();
        for (append, data) in started.into_iter().zip(&data) {
            let at = append.await.expect("there is room for all");
            assert_eq!(at.zone, zone);
            places.push(at.offset);
            assert!(*self.read(at, len).await == **data, "carries its data");
        }
        places.sort_unstable();
        let expected: Vec<u64> = (0..count).map(|i| i * len as u64).collect();
        assert_eq!(places, expected, "without gaps or overlaps");
        self.reset(zone).await;
    }

    async fn an_append_that_does_not_fit_changes_nothing(&self) {
        let zone = ZoneId(2);
        let mut left = self.capacity();
        while left > self.append_max() as u64 {
            let data = pattern(left, self.append_max());
            self.append(zone, &data).await.expect("there is room");
            left -= data.len() as u64;
        }
        if left as usize > self.block() {
            let data = pattern(7, left as usize - self.block());
            self.append(zone, &data).await.expect("there is room");
        }
        let before = self.state(zone).await;
        let rejected = self.append(zone, &pattern(8, 2 * self.block())).await;
        match rejected.expect_err("two blocks do not fit").kind {
            DeviceErrorKind::ZoneFull { wanted, left } => {
                assert_eq!(
                    (wanted, left),
                    (2 * self.block() as u64, self.block() as u64)
                );
            }
            other => panic!("the zone is full, not {other}"),
        }
        assert_eq!(
            self.state(zone).await,
            before,
            "rejected without side effects"
        );
        let last = pattern(9, self.block());
        let at = self.append(zone, &last).await.expect("one block fits");
        assert_eq!(at.offset + last.len() as u64, self.capacity());
        assert_eq!(
            self.state(zone).await.state,
            ZoneState::Full,
            "filled to the end"
        );
        assert!(*self.read(at, last.len()).await == *last);
        let rejected = self.append(zone, &last).await;
        let kind = rejected.expect_err("a full zone takes nothing").kind;
        assert!(
            matches!(kind, DeviceErrorKind::ZoneFull { left: 0, .. }),
            "{kind}"
        );
        self.reset(zone).await;
    }

    async fn bad_requests_are_rejected(&self) {
        let (zone, block, capacity) = (ZoneId(3), self.block(), self.capacity());
        let beyond = ZoneId(self.0.geometry().zone_count);
        let errors_before = self.0.counters().snapshot().errors;
        let reads = [
            (Address::new(zone, 0), block - 1),
            (Address::new(zone, 0), 0),
            (Address::new(zone, 1), block),
            (Address::new(zone, capacity), block),
            (Address::new(zone, capacity - block as u64), 2 * block),
            (Address::new(zone, u64::MAX - block as u64 + 1), block),
            (Address::new(beyond, 0), block),
            (Address::new(ZoneId(u32::MAX), 0), block),
        ];
        let mut rejected = 0;
        for (at, len) in reads {
            let read = self.0.read(at, IoBuf::zeroed(len)).await.map(drop);
            expect_invalid(read, "read", at, len);
            rejected += 1;
            if self.0.geometry().random_writes {
                let write = self.0.write(at, IoBuf::zeroed(len).freeze(), HERE).await;
                expect_invalid(write, "write", at, len);
                rejected += 1;
            }
        }
        let too_large = self.append_max() + block;
        for (zone, len) in [
            (zone, block / 2),
            (zone, 0),
            (zone, too_large),
            (beyond, block),
        ] {
            let data = IoBuf::zeroed(len).freeze();
            let append = self.0.append(zone, data, HERE).await.map(drop);
            expect_invalid(append, "append", Address::new(zone, 0), len);
            rejected += 1;
        }
        let place = Address::new(beyond, 0);
        expect_invalid(self.0.reset(beyond).await, "reset", place, 0);
        expect_invalid(self.0.finish(beyond).await, "finish", place, 0);
        rejected += 2;
        let errors = self.0.counters().snapshot().errors;
        assert_eq!(
            errors - errors_before,
            rejected,
            "each rejection is counted"
        );
        assert_eq!(self.state(zone).await.state, ZoneState::Empty);
    }

    async fn open_and_active_limits_hold(&self) {
        let geometry = self.0.geometry();
        let limits = [geometry.max_open_zones, geometry.max_active_zones];
        let Some(limit) = limits.into_iter().flatten().min() else {
            return;
        };
        assert!(
            limit + 2 < geometry.zone_count,
            "the suite needs spare zones"
        );
        let block = pattern(1, self.block());
        for zone in (0..limit).map(ZoneId) {
            self.append(zone, &block).await.expect("within the limit");
        }
        let spare = ZoneId(limit);
        self.expect_too_many(spare, limit).await;
        assert_eq!(self.state(spare).await.state, ZoneState::Empty);
        self.append(ZoneId(0), &block).await.expect("open already");

        self.0
            .finish(ZoneId(0))
            .await
            .expect("an open zone can be finished");
        self.append(spare, &block)
            .await
            .expect("finish frees a place");
        self.expect_too_many(ZoneId(limit + 1), limit).await;
        self.reset(spare).await;
        self.append(ZoneId(limit + 1), &block)
            .await
            .expect("reset frees a place");
        self.reset_all().await;
    }

    async fn expect_too_many(&self, zone: ZoneId, limit: u32) {
        let rejected = self.append(zone, &pattern(1, self.block())).await;
        match rejected.expect_err("beyond the limit").kind {
            DeviceErrorKind::TooManyZones(allowed) => assert_eq!(allowed, limit),
            other => panic!("too many zones, not {other}"),
        }
    }

    async fn a_finished_zone_is_full_and_readable(&self) {
        let zone = ZoneId(4);
        let data = pattern(4, 2 * self.block());
        let at = self.append(zone, &data).await.expect("there is room");
        for _ in 0..2 {
            self.0.finish(zone).await.expect("finishing twice is fine");
            assert_eq!(self.state(zone).await.state, ZoneState::Full);
        }
        let kind = self.append(zone, &data).await.expect_err("full").kind;
        assert!(matches!(kind, DeviceErrorKind::ZoneFull { .. }), "{kind}");
        assert!(*self.read(at, data.len()).await == *data);
        self.reset(zone).await;
    }

    async fn reset_empties_and_zeroes_the_first_block(&self) {
        let zone = ZoneId(5);
        for tag in 0..3 {
            let data = pattern(tag, 4 * self.block());
            let at = self.append(zone, &data).await.expect("there is room");
            assert_eq!(at.offset, 0, "a reset zone starts over");
            self.reset(zone).await;
            self.assert_empty(zone).await;
        }
        self.reset(zone).await;
    }

    /// Its first block reads as zeros: no dropped append comes late.
    async fn assert_empty(&self, zone: ZoneId) {
        let state = self.state(zone).await;
        assert_eq!((state.state, state.write_pointer), (ZoneState::Empty, 0));
        let first = self.read(Address::new(zone, 0), self.block()).await;
        assert!(first.iter().all(|&byte| byte == 0), "{zone} is not empty");
    }

    async fn reset_under_readers_is_harmless(&self) {
        let zone = ZoneId(0);
        let data = pattern(1, self.append_max());
        for _ in 0..4 {
            let at = self.append(zone, &data).await.expect("there is room");
            let reads: Vec<_> = (0..64)
                .map(|_| self.0.read(at, self.0.allocate(data.len())))
                .collect();
            let reset = self.0.reset(zone);
            for read in reads {
                if let Ok(buf) = read.await {
                    assert_eq!(buf.len(), data.len(), "a read is whole or fails");
                }
            }
            reset
                .await
                .expect("readers do not keep a zone from being reset");
            let again = self.append(zone, &data).await.expect("the zone is usable");
            assert!(*self.read(again, data.len()).await == *data);
            self.reset(zone).await;
        }
    }

    async fn reset_after_started_appends_wins(&self) {
        let zone = ZoneId(1);
        let data = pattern(2, self.append_max());
        let appends: Vec<_> = (0..4)
            .map(|_| self.0.append(zone, data.clone(), HERE))
            .collect();
        let reset = self.0.reset(zone);
        for append in appends {
            // A device may execute the reset first; then these appends land
            // after it.
            let _ = append.await;
        }
        reset
            .await
            .expect("appends do not keep a zone from being reset");
        self.reset(zone).await;
        let first = self.read(Address::new(zone, 0), self.block()).await;
        assert!(first.iter().all(|&b| b == 0), "no append overtakes a reset");
    }

    async fn writes_in_place_follow_the_geometry(&self) {
        let (zone, block) = (ZoneId(2), self.block() as u64);
        let at = Address::new(zone, self.capacity() - 2 * block);
        let data = pattern(3, 2 * block as usize);
        let written = self.0.write(at, data.clone(), HERE).await;
        if !self.0.geometry().random_writes {
            let kind = written.expect_err("writes in place are not offered").kind;
            assert!(matches!(kind, DeviceErrorKind::Unsupported(_)), "{kind}");
            return;
        }
        written.expect("any block can be written");
        assert!(*self.read(at, data.len()).await == *data);
        let state = self.state(zone).await;
        assert_eq!((state.state, state.write_pointer), (ZoneState::Empty, 0));
        let newer = pattern(4, block as usize);
        self.0
            .write(at, newer.clone(), HERE)
            .await
            .expect("it is written again");
        let both = self.read(at, data.len()).await;
        assert!(
            both[..block as usize] == *newer && both[block as usize..] == data[block as usize..]
        );
        self.reset(zone).await;
    }

    async fn dropped_futures_leave_the_device_usable(&self) {
        let (zone, other) = (ZoneId(3), ZoneId(4));
        let data = pattern(5, 2 * self.block());
        let at = self.append(zone, &data).await.expect("there is room");
        for round in 0..2000_u32 {
            drop(self.0.read(at, self.0.allocate(data.len())));
            drop(self.0.append(other, data.clone(), HERE));
            if round % 16 == 0 {
                // Also a read that is polled before it is dropped.
                let read = self.0.read(at, self.0.allocate(data.len()));
                poll_once(read).await;
            }
            if round % 256 == 0 {
                assert!(*self.read(at, data.len()).await == *data, "still serves");
            }
        }
        // Dropped ones that were started end too, some of them after later ones, and are counted
        // then: until nothing but what is read here is counted.
        const QUIET: u32 = 8;
        let mut quiet = 0;
        for _ in 0..10_000 {
            let before = self.0.counters().snapshot().reads;
            for _ in 0..16 {
                assert!(*self.read(at, data.len()).await == *data, "still serves");
            }
            let counted = self.0.counters().snapshot().reads - before;
            quiet = if counted == 16 { quiet + 1 } else { 0 };
            if quiet == QUIET {
                break;
            }
        }
        assert_eq!(quiet, QUIET, "dropped reads never end");
        self.0.flush().await.expect("still flushes");
        self.reset(other).await;
        self.assert_empty(other).await;
        let again = self
            .append(other, &data)
            .await
            .expect("still takes appends");
        assert!(*self.read(again, data.len()).await == *data);
        self.reset(zone).await;
        self.reset(other).await;
    }

    async fn counters_count_each_kind(&self) {
        let zone = ZoneId(5);
        let before = self.0.counters().snapshot();
        let data = pattern(6, 2 * self.block());
        let at = self.append(zone, &data).await.expect("there is room");
        self.read(at, self.block()).await;
        self.0.finish(zone).await.expect("can be finished");
        self.0.flush().await.expect("can be flushed");
        self.reset(zone).await;
        let counts = self.0.counters().snapshot().since(&before);
        assert_eq!(
            (counts.appends, counts.append_bytes),
            (1, data.len() as u64)
        );
        assert_eq!((counts.reads, counts.read_bytes), (1, self.block() as u64));
        assert_eq!((counts.finishes, counts.flushes, counts.resets), (1, 1, 1));
        assert_eq!((counts.errors, counts.writes), (0, 0));
    }

    async fn flush_succeeds_at_any_time(&self) {
        let zone = ZoneId(0);
        let data = pattern(7, self.block());
        let appends: Vec<_> = (0..16)
            .map(|_| self.0.append(zone, data.clone(), HERE))
            .collect();
        let flushes: Vec<_> = (0..4).map(|_| self.0.flush()).collect();
        for append in appends {
            append.await.expect("there is room");
        }
        for flush in flushes {
            flush.await.expect("a flush succeeds");
        }
        self.reset(zone).await;
    }

    async fn durable_appends_are_appends(&self) {
        let zone = ZoneId(0);
        for tag in 0..4 {
            let data = pattern(tag, self.block());
            let append = match self.0.appends_durably() && tag != 2 {
                true => self.0.append_durably(zone, data.clone(), HERE),
                false => self.0.append(zone, data.clone(), HERE),
            };
            let at = append.await.expect("there is room");
            assert_eq!(at, Address::new(zone, tag * data.len() as u64));
            let read = self.0.read(at, self.0.allocate(data.len())).await;
            assert!(*read.expect("it was appended") == *data, "append {tag}");
        }
        let is_able = self.0.appends_durably();
        let len = self.block() + usize::from(is_able);
        let data = IoBuf::zeroed(len).freeze();
        let append = self.0.append_durably(zone, data, HERE).await.map(drop);
        match append {
            Err(error) if !is_able => {
                assert!(
                    matches!(error.kind, DeviceErrorKind::Unsupported(_)),
                    "{error}"
                );
            }
            append => expect_invalid(append, "append", zone, len),
        }
        self.reset(zone).await;
    }
}

pub(crate) fn expect_invalid(
    result: Result<(), DeviceError>,
    what: &str,
    at: impl fmt::Display,
    len: usize,
) {
    match result {
        Err(error) if matches!(error.kind, DeviceErrorKind::Invalid(_)) => {}
        other => panic!("{what} of {len} bytes at {at} must be rejected as invalid, not {other:?}"),
    }
}

/// Polls a future once and drops it.
pub(crate) async fn poll_once<F: Future + Unpin>(mut future: F) {
    std::future::poll_fn(|cx| {
        let _ = std::pin::Pin::new(&mut future).poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
}
