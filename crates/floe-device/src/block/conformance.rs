//! The contract of block devices, as one suite of checks for every implementation.
//!
//! The checks panic with a message that names the rule. They overwrite the device.

use std::ops::Range;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::SharedBlockDevice;
use crate::buffer::{IoBuf, IoData};
use crate::conformance::{expect_invalid, pattern, poll_once};

/// Fewest bytes of a device that the suite checks.
pub const SIZE_BYTES_MIN: u64 = 4 << 20;

/// Bytes at the start that most checks use.
const SPAN: u64 = 3 << 20;

/// Runs every check in turn.
///
/// # Panics
/// If the device breaks a rule of its contract, or is smaller than [`SIZE_BYTES_MIN`].
pub async fn check(device: &SharedBlockDevice) {
    let suite = Suite::of(device);
    suite.writes_read_back_and_leave_neighbours_alone().await;
    suite.operations_in_any_order_read_as_a_model().await;
    suite.concurrent_writes_are_whole().await;
    suite.bad_requests_are_rejected().await;
    suite.dropped_futures_leave_the_device_usable().await;
    suite.counters_count_each_kind().await;
    suite.flush_succeeds_at_any_time().await;
}

struct Suite(SharedBlockDevice);

impl Suite {
    fn of(device: &SharedBlockDevice) -> Self {
        let (size, block) = (device.size_bytes(), u64::from(device.block_bytes()));
        assert!((512..=4096).contains(&block) && block.is_power_of_two());
        assert!(size.is_multiple_of(block), "the size is whole blocks");
        assert!(size >= SIZE_BYTES_MIN, "the suite needs 4 MiB");
        assert!(!device.describe().is_empty());
        Suite(Arc::clone(device))
    }

    fn block(&self) -> u64 {
        u64::from(self.0.block_bytes())
    }

    async fn read(&self, range: Range<u64>) -> IoBuf {
        let len = (range.end - range.start) as usize;
        let buf = self.0.read(range.start, self.0.allocate(len)).await;
        let buf = buf.expect("blocks can be read");
        assert_eq!(buf.len(), len, "a read fills all of its buffer");
        buf
    }

    async fn write(&self, at: u64, data: &IoData) {
        let written = self.0.write(at, data.clone()).await;
        written.expect("blocks can be written");
    }

    async fn zero(&self, range: Range<u64>) {
        let zeroed = self.0.write_zeroes(range).await;
        zeroed.expect("zeros can be written");
    }

    /// Also at both ends of the device.
    async fn writes_read_back_and_leave_neighbours_alone(&self) {
        let (block, size) = (self.block(), self.0.size_bytes());
        for (tag, blocks) in [1, 2, 3, 64, 100].into_iter().enumerate() {
            let len = blocks * block;
            let ends = [0, size - len];
            let inside = [SPAN / 2 / block * block + block];
            for at in ends.into_iter().chain(inside) {
                let around = at.saturating_sub(block)..(at + len + block).min(size);
                let old = pattern(90, (around.end - around.start) as usize);
                self.write(around.start, &old).await;
                let data = pattern(tag as u64, len as usize);
                self.write(at, &data).await;
                let mut expected = old.to_vec();
                let skip = (at - around.start) as usize;
                expected[skip..skip + data.len()].copy_from_slice(&data);
                let found = self.read(around).await;
                assert!(*found == *expected, "{len} bytes at {at} read back");
            }
        }
    }

    async fn operations_in_any_order_read_as_a_model(&self) {
        let block = self.block();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        self.zero(0..SPAN).await;
        let mut model = vec![0; SPAN as usize];
        for step in 0..300 {
            let blocks_max = [1, 8, 64, SPAN / block][random.random_range(0..4)];
            let len = random.random_range(1..=blocks_max) * block;
            let at = random.random_range(0..=(SPAN - len) / block) * block;
            let range = at..at + len;
            let part = &mut model[at as usize..(at + len) as usize];
            match random.random_range(0..10) {
                0..5 => {
                    let data = pattern(step, len as usize);
                    match self.0.write_durably(at, data.clone()) {
                        Some(written) if step % 2 == 0 => {
                            written.await.expect("blocks can be written durably");
                        }
                        _ => self.write(at, &data).await,
                    }
                    part.copy_from_slice(&data);
                }
                5 => {
                    self.zero(range).await;
                    part.fill(0);
                }
                6 => {
                    let discarded = self.0.discard(range.clone()).await;
                    discarded.expect("a discard succeeds");
                    self.take_discarded(range, part).await;
                }
                7 => self.0.flush().await.expect("a flush succeeds"),
                _ => assert!(*self.read(range).await == *part, "step {step} at {at}"),
            }
        }
        assert!(*self.read(0..SPAN).await == *model, "all together");
    }

    /// Checks a discarded range, and takes over its content.
    async fn take_discarded(&self, range: Range<u64>, model: &mut [u8]) {
        let block = self.block() as usize;
        let found = self.read(range).await;
        for (old, new) in model.chunks(block).zip(found.chunks(block)) {
            let is_zero = new.iter().all(|byte| *byte == 0);
            assert!(old == new || is_zero, "a discarded block is old or zeros");
        }
        model.copy_from_slice(&found);
    }

    async fn concurrent_writes_are_whole(&self) {
        let len = 2 * self.block();
        let data: Vec<_> = (0..300).map(|tag| pattern(tag, len as usize)).collect();
        let places = || (0..).step_by(len as usize);
        let started: Vec<_> = places()
            .zip(&data)
            .map(|(at, data)| self.0.write(at, data.clone()))
            .collect();
        for write in started {
            write.await.expect("all can be written");
        }
        let reads: Vec<_> = places()
            .zip(&data)
            .map(|(at, data)| self.0.read(at, self.0.allocate(data.len())))
            .collect();
        for (read, data) in reads.into_iter().zip(&data) {
            assert!(*read.await.expect("all can be read") == **data);
        }
    }

    async fn bad_requests_are_rejected(&self) {
        let (block, size) = (self.block(), self.0.size_bytes());
        let before = self.0.counters().snapshot();
        let mut rejected = 0;
        for (at, len) in [
            (0, block / 2),
            (0, 0),
            (block / 2, block),
            (size, block),
            (size - block, 2 * block),
            (u64::MAX - block + 1, block),
            (u64::MAX - block + 1, 2 * block),
        ] {
            let bytes = len as usize;
            let buf = IoBuf::zeroed(bytes);
            expect_invalid(self.0.read(at, buf).await.map(drop), "read", at, bytes);
            let data = IoBuf::zeroed(bytes).freeze();
            expect_invalid(self.0.write(at, data).await, "write", at, bytes);
            let range = at..at.saturating_add(len);
            let zeroed = self.0.write_zeroes(range.clone()).await;
            expect_invalid(zeroed, "write_zeroes", at, bytes);
            expect_invalid(self.0.discard(range).await, "discard", at, bytes);
            rejected += 4;
        }
        let counts = self.0.counters().snapshot().since(&before);
        assert_eq!(counts.errors, rejected, "each rejection is counted");
        assert_eq!((counts.reads, counts.writes), (0, 0), "before any I/O");
    }

    async fn dropped_futures_leave_the_device_usable(&self) {
        let data = pattern(5, 4 * self.block() as usize);
        let len = data.len() as u64;
        let before = self.0.counters().snapshot();
        for round in 0..500 {
            let at = round % 8 * len;
            drop(self.0.write(at, data.clone()));
            drop(self.0.read(at, self.0.allocate(data.len())));
            drop(self.0.write_zeroes(8 * len..9 * len));
            drop(self.0.discard(9 * len..10 * len));
            if round % 16 == 0 {
                poll_once(self.0.read(at, self.0.allocate(data.len()))).await;
                poll_once(self.0.write(at, data.clone())).await;
                drop(self.0.flush());
            }
        }
        self.write(16 * len, &data).await;
        self.0.flush().await.expect("still flushes");
        for reads in 500 + 32.. {
            let counts = self.0.counters().snapshot().since(&before);
            if (counts.reads, counts.writes, counts.flushes) == (reads, 1033, 33) {
                break;
            }
            assert!(reads < 100_000, "all are carried out: {counts:?}");
            let found = self.read(16 * len..17 * len).await;
            assert!(*found == *data, "still serves");
        }
    }

    async fn counters_count_each_kind(&self) {
        let block = self.block();
        let before = self.0.counters().snapshot();
        let data = pattern(6, 2 * block as usize);
        self.write(0, &data).await;
        self.read(0..block).await;
        self.0.flush().await.expect("can be flushed");
        let counts = self.0.counters().snapshot().since(&before);
        assert_eq!((counts.reads, counts.read_bytes), (1, block));
        assert_eq!((counts.writes, counts.write_bytes), (1, 2 * block));
        assert_eq!((counts.flushes, counts.errors), (1, 0));
        self.zero(0..4 * block).await;
        let counts = self.0.counters().snapshot().since(&before);
        assert_eq!(counts.write_bytes, 6 * block, "zeros count as writes");
    }

    async fn flush_succeeds_at_any_time(&self) {
        let data = pattern(7, self.block() as usize);
        let started: Vec<_> = (0..16)
            .flat_map(|n| [self.0.write(n * self.block(), data.clone()), self.0.flush()])
            .collect();
        for operation in started {
            operation.await.expect("each of them succeeds");
        }
    }
}
