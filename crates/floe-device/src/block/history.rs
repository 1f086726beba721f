//! A recording of block devices from which their content after any crash can be built.
//!
//! The driver runs once on recorded devices. Then each moment of the run is a crash
//! point. At a crash point, a device has everything that had completed before the start
//! of its last completed flush. Of each other operation that had started, every sector of
//! 512 bytes survives or is lost. A [`Choice`] decides that.
//!
//! ```
//! # use floe_device::ByteSize;
//! # use floe_device::block::history::{Choice, History, Image};
//! # use floe_device::IoBuf;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let blank = Image::blank(ByteSize::mib(1), 4096).unwrap();
//! let history = History::default();
//! let device = history.record(blank.device(), &blank);
//! device.write(0, IoBuf::copy_of(&[7], 4096).freeze()).await.unwrap();
//! let mut replay = history.replay();
//! for point in replay.points() {
//!     for seed in 0..3 {
//!         let images = replay.images(point, &mut Choice::random(seed));
//!         images[0].device().read(0, IoBuf::zeroed(4096)).await.unwrap();
//!     }
//! }
//! # });
//! ```

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use floe_core::ByteSize;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::memory::{MemoryBlocks, SECTOR_BYTES};
use super::pages::Pages;
use super::{BlockDevice, SharedBlockDevice, blocks_below, check_shape};
use crate::buffer::{IoBuf, IoData};
use crate::config::OpenDeviceError;
use crate::contract::OpFuture;

/// The content of a block device at one moment. Clones share it.
#[derive(Clone)]
pub struct Image {
    pages: Arc<Pages>,
    size: ByteSize,
    block_bytes: u32,
}

impl Image {
    /// Zeros, of `size` bytes in blocks of `block_bytes`.
    ///
    /// # Errors
    /// As [`MemoryBlocks::new`].
    pub fn blank(size: ByteSize, block_bytes: u32) -> Result<Self, OpenDeviceError> {
        check_shape("image", size, block_bytes)?;
        Ok(Image {
            pages: Arc::default(),
            size,
            block_bytes,
        })
    }

    /// A new device in memory with this content.
    pub fn device(&self) -> SharedBlockDevice {
        let base = Arc::clone(&self.pages);
        Arc::new(MemoryBlocks::on(base, self.size, self.block_bytes))
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} in blocks of {})", self.size, self.block_bytes)
    }
}

/// The operations of several block devices in one common order, with their data. Clones
/// share it.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Log>>);

#[derive(Clone, Default)]
struct Log {
    devices: Vec<Image>,
    operations: Vec<Recorded>,
    events: Vec<Event>,
}

#[derive(Clone)]
struct Recorded {
    device: usize,
    change: Change,
    /// The number of the event.
    started: usize,
    /// As `started`. `None` if the operation failed, or its end was not observed: then
    /// it may have happened at any time.
    completed: Option<usize>,
}

#[derive(Clone)]
enum Change {
    Write(u64, IoData),
    /// Of a write of zeros or a discard.
    Zero(Range<u64>),
    Flush,
}

#[derive(Clone, Copy)]
enum Event {
    Started(usize),
    Completed(usize),
}

impl History {
    /// A device that records the operations on `below`, which holds `content` now.
    /// Devices are numbered in the order of these calls.
    pub fn record(&self, below: SharedBlockDevice, content: &Image) -> SharedBlockDevice {
        let mut log = self.0.lock();
        log.devices.push(content.clone());
        Arc::new(RecordedBlocks {
            below,
            device: log.devices.len() - 1,
            history: self.clone(),
        })
    }

    /// The number of starts and completions so far: the crash point of this moment.
    pub fn now(&self) -> usize {
        self.0.lock().events.len()
    }

    /// The crash points of the operations so far.
    pub fn replay(&self) -> Replay {
        let log = self.0.lock().clone();
        let stable = log.devices.iter().map(Stable::new).collect();
        Replay {
            log,
            point: 0,
            stable,
        }
    }

    fn start(&self, device: usize, change: Change) -> usize {
        let mut log = self.0.lock();
        let number = log.operations.len();
        let started = log.events.len();
        log.events.push(Event::Started(number));
        log.operations.push(Recorded {
            device,
            change,
            started,
            completed: None,
        });
        number
    }

    fn complete(&self, number: usize) {
        let mut log = self.0.lock();
        log.operations[number].completed = Some(log.events.len());
        log.events.push(Event::Completed(number));
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({} events)", self.0.lock().events.len())
    }
}

/// A block device whose changes are recorded.
#[derive(Debug)]
struct RecordedBlocks {
    below: SharedBlockDevice,
    device: usize,
    history: History,
}

impl RecordedBlocks {
    fn record(&self, change: Change, start: impl FnOnce() -> OpFuture<()>) -> OpFuture<()> {
        let number = self.history.start(self.device, change);
        let (history, operation) = (self.history.clone(), start());
        OpFuture::new(async move {
            operation.await?;
            history.complete(number);
            Ok(())
        })
    }
}

impl BlockDevice for RecordedBlocks {
    blocks_below!("recorded");

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.below.read(at, buf)
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        let change = Change::Write(at, data.clone());
        self.record(change, || self.below.write(at, data))
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        let change = Change::Zero(range.clone());
        self.record(change, || self.below.write_zeroes(range))
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        let change = Change::Zero(range.clone());
        self.record(change, || self.below.discard(range))
    }

    fn flush(&self) -> OpFuture<()> {
        self.record(Change::Flush, || self.below.flush())
    }
}

/// Builds the content of all devices at crash points. Ascending points are cheap: each
/// costs what was not flushed, if the images of earlier points were dropped.
pub struct Replay {
    log: Log,
    /// Events that have happened.
    point: usize,
    stable: Vec<Stable>,
}

/// A device at the current point.
#[derive(Clone)]
struct Stable {
    image: Image,
    /// Operations that may be lost, in order of starting.
    undecided: Vec<usize>,
}

impl Stable {
    fn new(content: &Image) -> Self {
        Stable {
            image: content.clone(),
            undecided: Vec::new(),
        }
    }
}

impl Replay {
    /// The crash points: numbers of starts and completions that have happened.
    pub fn points(&self) -> RangeInclusive<usize> {
        0..=self.log.events.len()
    }

    /// Operations of the device that may be lost at `point`.
    ///
    /// # Panics
    /// If there is no such point or device.
    pub fn undecided(&mut self, point: usize, device: usize) -> usize {
        self.go_to(point);
        self.stable[device].undecided.len()
    }

    /// The content of every device after a crash at `point`.
    ///
    /// # Panics
    /// If there is no such point.
    pub fn images(&mut self, point: usize, choice: &mut Choice) -> Vec<Image> {
        self.go_to(point);
        choice.begin();
        let mut images = Vec::with_capacity(self.stable.len());
        for stable in &self.stable {
            let mut pages = Pages::over(Arc::clone(&stable.image.pages));
            for &number in &stable.undecided {
                choice.begin_operation();
                self.log.operations[number].apply_some(&mut pages, choice);
            }
            images.push(Image {
                pages: Arc::new(pages),
                ..stable.image.clone()
            });
        }
        images
    }

    fn go_to(&mut self, point: usize) {
        assert!(self.points().contains(&point), "the history has this point");
        if point < self.point {
            self.point = 0;
            self.stable = self.log.devices.iter().map(Stable::new).collect();
        }
        while self.point < point {
            match self.log.events[self.point] {
                Event::Started(number) => self.started(number),
                Event::Completed(number) => self.completed(number),
            }
            self.point += 1;
        }
    }

    fn started(&mut self, number: usize) {
        let operation = &self.log.operations[number];
        if !matches!(operation.change, Change::Flush) {
            self.stable[operation.device].undecided.push(number);
        }
    }

    /// A completed flush makes stable what had completed before it started.
    fn completed(&mut self, number: usize) {
        let operations = &self.log.operations;
        let flush = &operations[number];
        if !matches!(flush.change, Change::Flush) {
            return;
        }
        let Stable { image, undecided } = &mut self.stable[flush.device];
        let pages = Arc::make_mut(&mut image.pages);
        undecided.retain(|&number| {
            let operation = &operations[number];
            let is_stable = operation.completed.is_some_and(|at| at < flush.started);
            if is_stable {
                operation.apply(pages);
            }
            !is_stable
        });
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replay({} of {:?})", self.point, self.points())
    }
}

impl Recorded {
    fn apply(&self, pages: &mut Pages) {
        match &self.change {
            Change::Write(at, data) => pages.write(*at, data),
            Change::Zero(range) => pages.zero(range.clone()),
            Change::Flush => {}
        }
    }

    /// Applies the sectors that survive.
    fn apply_some(&self, pages: &mut Pages, choice: &mut Choice) {
        let sector = SECTOR_BYTES as u64;
        let range = match &self.change {
            Change::Write(at, data) => *at..*at + data.len() as u64,
            Change::Zero(range) => range.clone(),
            Change::Flush => return,
        };
        if matches!(choice, Choice::All) {
            return self.apply(pages);
        }
        for at in range.clone().step_by(SECTOR_BYTES) {
            if !choice.keeps() {
                continue;
            }
            match &self.change {
                Change::Write(_, data) => {
                    let from = (at - range.start) as usize;
                    pages.write(at, &data[from..from + SECTOR_BYTES]);
                }
                Change::Zero(_) => pages.zero(at..at + sector),
                Change::Flush => {}
            }
        }
    }
}

/// Decides which sectors survive of the operations that may be lost.
#[derive(Clone, Debug)]
pub enum Choice {
    /// All of them.
    All,
    /// None of them.
    Nothing,
    /// Some, by seed: half of the operations survive or are lost as a whole.
    Random(RandomChoice),
    /// Every combination in turn.
    Exhaustive(ExhaustiveChoice),
}

/// See [`Choice::Random`].
#[derive(Clone, Debug)]
pub struct RandomChoice {
    random: Xoshiro256PlusPlus,
    kept_share: f64,
    whole: Option<bool>,
}

/// See [`Choice::Exhaustive`].
#[derive(Clone, Debug, Default)]
pub struct ExhaustiveChoice {
    /// The decisions of the current image, in order.
    decisions: Vec<bool>,
    /// Decisions made in the image that is being built.
    made: usize,
    /// Later decisions are always "lost".
    decisions_max: usize,
}

impl Choice {
    /// A random choice.
    pub fn random(seed: u64) -> Self {
        Choice::Random(RandomChoice {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            kept_share: 0.0,
            whole: None,
        })
    }

    /// The first of all combinations of the first `decisions_max` sectors. All later
    /// sectors are lost.
    pub fn exhaustive(decisions_max: usize) -> Self {
        Choice::Exhaustive(ExhaustiveChoice {
            decisions_max,
            ..ExhaustiveChoice::default()
        })
    }

    /// Moves on to the next combination of the same point; false after the last one. A
    /// choice that is not exhaustive has one.
    pub fn next_combination(&mut self) -> bool {
        let Choice::Exhaustive(ExhaustiveChoice { decisions, .. }) = self else {
            return false;
        };
        while decisions.pop_if(|kept| *kept).is_some() {}
        match decisions.last_mut() {
            Some(kept) => {
                *kept = true;
                true
            }
            None => false,
        }
    }

    /// Begins the images of one point.
    fn begin(&mut self) {
        match self {
            Choice::Random(choice) => {
                let shares = [0.0, 0.1, 0.5, 0.9, 1.0];
                choice.kept_share = shares[choice.random.random_range(0..shares.len())];
            }
            Choice::Exhaustive(choice) => choice.made = 0,
            Choice::All | Choice::Nothing => {}
        }
    }

    fn begin_operation(&mut self) {
        if let Choice::Random(choice) = self {
            let is_whole: bool = choice.random.random();
            choice.whole = is_whole.then(|| choice.random.random_bool(choice.kept_share));
        }
    }

    fn keeps(&mut self) -> bool {
        match self {
            Choice::All => true,
            Choice::Nothing => false,
            Choice::Random(choice) => choice
                .whole
                .unwrap_or_else(|| choice.random.random_bool(choice.kept_share)),
            Choice::Exhaustive(choice) => {
                if choice.made == choice.decisions_max {
                    return false;
                }
                if choice.made == choice.decisions.len() {
                    choice.decisions.push(false);
                }
                choice.made += 1;
                choice.decisions[choice.made - 1]
            }
        }
    }
}
