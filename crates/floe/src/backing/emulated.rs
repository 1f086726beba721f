//! A backing device with the latencies and rates of slow storage, in front of a block
//! device in memory. It runs in real and in virtual time.
//!
//! The model is a set of drives with stripes, and parity if it is a RAID5. A write of less
//! than a row of stripes reads the old data and parity first. Each drive has a queue. An
//! access occupies it as long as its rate or its bandwidth demands, or, for a drive that
//! serves one access at a time, for its latency and transfer.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use floe_core::{ByteSize, Tick};
use floe_device::{BlockDevice, Clock, Counters, IoBuf, IoData, OpFuture, SharedBlockDevice};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::latency::{LatencyError, LatencyModel, LatencyRule};

/// The storage that an emulated backing device resembles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmulatedPreset {
    /// A RAID5 of nine discs of 7200 rpm, as in figure 2a of the I/O-cache paper. Seek
    /// (8.5 ms), half a turn (4.16 ms) and 270 MB/s are those of Seagate's data sheet of
    /// the Exos X18. Deviation, stripe and write penalty are ours.
    #[default]
    HddArray,
    /// A RAID5 of nine SATA SSDs, as in figure 2 of the I/O-cache paper. Its table 1 has
    /// 93,000 reads/s, 30,000 writes/s and reads of 150 µs. Deviations, latencies of
    /// writes and flushes, bandwidths, stripe and write penalty are ours.
    Raid5SataSsd,
    /// A network volume. 3,000 accesses/s and 125 MiB/s are the published baseline of AWS
    /// EBS gp3. The latencies are ours.
    CloudVolume,
    /// An NVDIMM. Table 1 of the I/O-cache paper has 1.9 million reads/s, 560,000
    /// writes/s and reads of less than 1 µs. Bandwidths are these rates in blocks of
    /// 4 KiB; the latency of writes is ours.
    Nvdimm,
}

floe_core::names! {
    EmulatedPreset: "an emulated backing device" {
        HddArray => "hdd-array",
        Raid5SataSsd => "raid5-sata-ssd",
        CloudVolume => "cloud-volume",
        Nvdimm => "nvdimm",
    }
}

/// An emulated backing device: a preset, and settings that differ from it. As text, the
/// preset's name and an inline table: `nvdimm { write_iops = 1000000 }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmulatedConfig {
    /// The storage that it resembles.
    pub preset: EmulatedPreset,
    /// Latency of a read of one drive.
    pub read: Option<LatencyRule>,
    /// Latency of a write of one drive.
    pub write: Option<LatencyRule>,
    /// Latency of a flush.
    pub flush: Option<LatencyRule>,
    /// Reads per second of one drive; 0 if it serves one access at a time.
    pub read_iops: Option<f64>,
    /// Writes per second of one drive; 0 if it serves one access at a time.
    pub write_iops: Option<f64>,
    /// Bytes read per second of one drive.
    pub read_bandwidth: Option<ByteSize>,
    /// Bytes written per second of one drive.
    pub write_bandwidth: Option<ByteSize>,
    /// Drives.
    pub drives: Option<u32>,
    /// One drive in each row of stripes has parity.
    pub parity: Option<bool>,
    /// Consecutive bytes on one drive.
    pub stripe: Option<ByteSize>,
    /// An access has no latency if it continues the drive's last one, or skips at most a
    /// stripe.
    pub sequential_is_free: Option<bool>,
    /// The seed of the latencies.
    pub seed: u64,
}

impl From<EmulatedPreset> for EmulatedConfig {
    fn from(preset: EmulatedPreset) -> Self {
        EmulatedConfig {
            preset,
            ..EmulatedConfig::default()
        }
    }
}

impl FromStr for EmulatedConfig {
    type Err = EmulatedError;

    fn from_str(text: &str) -> Result<Self, EmulatedError> {
        let wrong = |cause: String| EmulatedError::Text {
            text: text.to_owned(),
            cause,
        };
        let (name, settings) = match text.split_once('{') {
            Some((name, rest)) => (name, format!("settings = {{{rest}")),
            None => (text, "settings = {}".to_owned()),
        };
        let preset: EmulatedPreset = name
            .trim()
            .parse()
            .map_err(|error| wrong(format!("{error}")))?;
        #[derive(Deserialize)]
        struct Line {
            settings: EmulatedConfig,
        }
        let line: Line =
            toml::from_str(&settings).map_err(|error| wrong(error.message().to_owned()))?;
        Ok(EmulatedConfig {
            preset,
            ..line.settings
        })
    }
}

/// The reason why an emulated backing device cannot be made, and the cure.
#[derive(Debug, thiserror::Error)]
pub enum EmulatedError {
    /// A latency makes no sense.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// A setting makes no sense.
    #[error("`{name} = {value}` of an emulated backing device must be {range}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that make sense.
        range: &'static str,
    },
    /// The text describes no device.
    #[error(
        "`{text}` is no emulated backing device ({cause}); write a preset, such as `nvdimm`, or `nvdimm {{ drives = 2 }}`"
    )]
    Text {
        /// The text.
        text: String,
        /// The cause.
        cause: String,
    },
}

/// A block device that answers as late as slow storage would.
///
/// In real time, waits have the resolution of tokio's timer: a millisecond.
pub struct Emulated {
    below: SharedBlockDevice,
    clock: Clock,
    preset: EmulatedPreset,
    array: Mutex<Array>,
}

impl Emulated {
    /// Puts the latencies of `config` in front of `below`.
    ///
    /// # Errors
    /// If a setting makes no sense.
    pub fn new(
        below: SharedBlockDevice,
        clock: Clock,
        config: &EmulatedConfig,
    ) -> Result<Self, EmulatedError> {
        Ok(Emulated {
            below,
            clock,
            preset: config.preset,
            array: Mutex::new(Array::new(config)?),
        })
    }

    /// Ends `operation` when the array has accessed `range`. The device below rejects a
    /// range that lies outside.
    fn access<T: Send + 'static>(
        &self,
        access: Access,
        range: Range<u64>,
        operation: OpFuture<T>,
    ) -> OpFuture<T> {
        if range.end > self.below.size_bytes() {
            return operation;
        }
        let end = self.array.lock().access(self.clock.now(), access, range);
        self.delay(end, operation)
    }

    fn delay<T: Send + 'static>(&self, end: Tick, operation: OpFuture<T>) -> OpFuture<T> {
        let sleep = self.clock.sleep_until(end);
        OpFuture::new(async move {
            sleep.await;
            operation.await
        })
    }
}

impl BlockDevice for Emulated {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn refresh_size(&self) -> OpFuture<u64> {
        self.below.refresh_size()
    }

    fn set_size(&self, size: u64, allocates: bool) -> OpFuture<()> {
        self.below.set_size(size, allocates)
    }

    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }

    fn describe(&self) -> String {
        format!("emulated {} over {}", self.preset, self.below.describe())
    }

    fn is_volatile(&self) -> bool {
        self.below.is_volatile()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.below.allocate(len)
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        let range = at..at.saturating_add(buf.len() as u64);
        self.access(Access::Read, range, self.below.read(at, buf))
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        let range = at..at.saturating_add(data.len() as u64);
        self.access(Access::Write, range, self.below.write(at, data))
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.access(Access::Write, range.clone(), self.below.write_zeroes(range))
    }

    /// Takes no time.
    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.below.discard(range)
    }

    fn flush(&self) -> OpFuture<()> {
        let flush = self.below.flush();
        let end = self.array.lock().flush(self.clock.now());
        self.delay(end, flush)
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}

impl fmt::Debug for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Emulated({})", self.describe())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Speed of one kind of access of a drive.
struct Speed {
    latency: LatencyModel,
    /// Time that an access occupies a drive; `None` for its whole latency.
    turn: Option<Duration>,
    bytes_per_second: f64,
}

/// Drives with stripes.
struct Array {
    reads: Speed,
    writes: Speed,
    flush: LatencyModel,
    stripe: u64,
    parity: bool,
    sequential_is_free: bool,
    drives: Vec<Drive>,
    random: Xoshiro256PlusPlus,
}

#[derive(Clone, Copy, Default)]
struct Drive {
    free: Tick,
    /// End of the last access.
    position: u64,
}

impl Array {
    fn new(config: &EmulatedConfig) -> Result<Self, EmulatedError> {
        let preset = EmulatedConfig::full(config.preset);
        let drives = config.drives.or(preset.drives).unwrap_or(1);
        let parity = config.parity.or(preset.parity).unwrap_or(false);
        let stripe = config.stripe.or(preset.stripe).unwrap_or(ByteSize::kib(64));
        let wrong = |name, value: String, range| EmulatedError::Setting { name, value, range };
        let drives_min = if parity { 3 } else { 1 };
        if !(drives_min..=1024).contains(&drives) {
            let range = "1 to 1024, with parity at least 3";
            return Err(wrong("drives", drives.to_string(), range));
        }
        if stripe.bytes() < 4096 || !stripe.bytes().is_power_of_two() {
            return Err(wrong(
                "stripe",
                stripe.to_string(),
                "a power of two from 4KiB",
            ));
        }
        Ok(Array {
            reads: Speed::new(
                config.read.as_ref().or(preset.read.as_ref()),
                config.read_iops.or(preset.read_iops),
                config.read_bandwidth.or(preset.read_bandwidth),
            )?,
            writes: Speed::new(
                config.write.as_ref().or(preset.write.as_ref()),
                config.write_iops.or(preset.write_iops),
                config.write_bandwidth.or(preset.write_bandwidth),
            )?,
            flush: LatencyModel::new(&config.flush.clone().or(preset.flush).unwrap_or_default())?,
            stripe: stripe.bytes(),
            parity,
            sequential_is_free: config
                .sequential_is_free
                .or(preset.sequential_is_free)
                .unwrap_or(false),
            drives: vec![Drive::default(); drives as usize],
            random: Xoshiro256PlusPlus::seed_from_u64(config.seed),
        })
    }

    /// The end of a flush that starts `now`.
    fn flush(&mut self, now: Tick) -> Tick {
        now + self.flush.draw(&mut self.random, 0).unwrap_or_default()
    }

    /// The end of an access to `range` that starts `now`.
    fn access(&mut self, now: Tick, access: Access, range: Range<u64>) -> Tick {
        let row_bytes = self.stripe * self.data_drives();
        let mut end = now;
        let mut at = range.start;
        while at < range.end {
            let row = at / row_bytes;
            let row_end = ((row + 1) * row_bytes).min(range.end);
            end = end.max(self.access_row(now, access, row, at..row_end));
            at = row_end;
        }
        end
    }

    /// The end of an access to `range`, which lies in one row of stripes.
    fn access_row(&mut self, now: Tick, access: Access, row: u64, range: Range<u64>) -> Tick {
        let drives = self.drives.len() as u64;
        let parity = (drives - 1) - row % drives;
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let column = at / self.stripe % self.data_drives();
            let end = ((at / self.stripe + 1) * self.stripe).min(range.end);
            let drive = if self.parity && column >= parity {
                column + 1
            } else {
                column
            };
            let offset = row * self.stripe + at % self.stripe;
            parts.push((drive as usize, offset..offset + (end - at)));
            at = end;
        }
        if access == Access::Write && self.parity {
            let is_whole = range.end - range.start == self.stripe * self.data_drives();
            let start = parts.iter().map(|(_, part)| part.start).min();
            let end = parts.iter().map(|(_, part)| part.end).max();
            parts.push((parity as usize, start.unwrap_or(0)..end.unwrap_or(0)));
            // The new parity depends on old data and parity unless all data is new.
            let known = match is_whole {
                true => now,
                false => self.access_parts(now, now, Access::Read, &parts),
            };
            return self.access_parts(now, known, access, &parts);
        }
        self.access_parts(now, now, access, &parts)
    }

    /// The end of accesses that are requested `now` and start at `earliest`. The drives
    /// serve other accesses in between.
    fn access_parts(
        &mut self,
        now: Tick,
        earliest: Tick,
        access: Access,
        parts: &[(usize, Range<u64>)],
    ) -> Tick {
        let speed = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        let mut last = earliest;
        for (drive, part) in parts {
            let drive = &mut self.drives[*drive];
            let bytes = part.end - part.start;
            // Less than a stripe, such as of parity, passes below the head.
            let gap = part.start.checked_sub(drive.position);
            let gap = gap.filter(|gap| self.sequential_is_free && *gap <= self.stripe);
            let latency = match gap {
                Some(gap) => Duration::from_secs_f64(gap as f64 / speed.bytes_per_second),
                None => speed
                    .latency
                    .draw(&mut self.random, bytes)
                    .unwrap_or_default(),
            };
            let transfer = Duration::from_secs_f64(bytes as f64 / speed.bytes_per_second);
            let turn = drive.free.max(now);
            drive.free = turn
                + match speed.turn {
                    Some(share) => share.max(transfer),
                    None => latency + transfer,
                };
            drive.position = part.end;
            last = last.max(turn.max(earliest) + latency + transfer);
        }
        last
    }

    fn data_drives(&self) -> u64 {
        self.drives.len() as u64 - u64::from(self.parity)
    }
}

impl Speed {
    fn new(
        latency: Option<&LatencyRule>,
        iops: Option<f64>,
        bandwidth: Option<ByteSize>,
    ) -> Result<Self, EmulatedError> {
        let (iops, bandwidth) = (iops.unwrap_or(0.0), bandwidth.unwrap_or(ByteSize(0)));
        if !(0.0..=1e9).contains(&iops) || (iops > 0.0 && iops < 1e-3) {
            return Err(EmulatedError::Setting {
                name: "iops",
                value: iops.to_string(),
                range: "0, or from 0.001 to 1e9",
            });
        }
        if bandwidth.bytes() == 0 {
            return Err(EmulatedError::Setting {
                name: "bandwidth",
                value: bandwidth.to_string(),
                range: "at least a byte per second",
            });
        }
        Ok(Speed {
            latency: LatencyModel::new(latency.unwrap_or(&LatencyRule::None))?,
            turn: (iops > 0.0).then(|| Duration::from_secs_f64(1.0 / iops)),
            bytes_per_second: bandwidth.bytes() as f64,
        })
    }
}

impl EmulatedConfig {
    /// All settings of a preset.
    fn full(preset: EmulatedPreset) -> Self {
        let log_normal = |mean_ms, sd_ms, min_ms| {
            Some(LatencyRule::LogNormal {
                mean_ms,
                sd_ms,
                min_ms,
                max_ms: None,
            })
        };
        let constant = |ms| Some(LatencyRule::Constant { ms });
        let config = EmulatedConfig::from(preset);
        match preset {
            EmulatedPreset::HddArray => {
                let access = Some(LatencyRule::Normal {
                    mean_ms: 12.66,
                    sd_ms: 3.5,
                    min_ms: 1.0,
                    max_ms: Some(25.0),
                });
                EmulatedConfig {
                    read: access.clone(),
                    write: access,
                    read_bandwidth: Some(ByteSize(270_000_000)),
                    write_bandwidth: Some(ByteSize(270_000_000)),
                    drives: Some(9),
                    parity: Some(true),
                    sequential_is_free: Some(true),
                    ..config
                }
            }
            EmulatedPreset::Raid5SataSsd => EmulatedConfig {
                read: log_normal(0.15, 0.03, 0.1),
                write: log_normal(0.06, 0.02, 0.04),
                flush: constant(0.1),
                read_iops: Some(93_000.0),
                write_iops: Some(30_000.0),
                read_bandwidth: Some(ByteSize(540_000_000)),
                write_bandwidth: Some(ByteSize(520_000_000)),
                drives: Some(9),
                parity: Some(true),
                ..config
            },
            EmulatedPreset::CloudVolume => EmulatedConfig {
                read: log_normal(0.7, 0.4, 0.3),
                write: log_normal(0.9, 0.5, 0.4),
                flush: log_normal(0.9, 0.5, 0.4),
                read_iops: Some(3000.0),
                write_iops: Some(3000.0),
                read_bandwidth: Some(ByteSize::mib(125)),
                write_bandwidth: Some(ByteSize::mib(125)),
                ..config
            },
            EmulatedPreset::Nvdimm => EmulatedConfig {
                read: constant(0.001),
                write: constant(0.001),
                read_iops: Some(1_900_000.0),
                write_iops: Some(560_000.0),
                read_bandwidth: Some(ByteSize(1_900_000 * 4096)),
                write_bandwidth: Some(ByteSize(560_000 * 4096)),
                ..config
            },
        }
    }
}
