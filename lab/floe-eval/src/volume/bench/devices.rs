//! The devices of a bench: simulated, emulated, in memory, or files.

use std::fmt;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use floe::backing::{Emulated, EmulatedConfig};
use floe_core::ByteSize;
use floe_device::{
    BlockDevice, Clock, Counters, DeviceConfig, FileBlocks, FileBlocksConfig, Flat, IoBuf, IoData,
    MemoryBlocks, OpFuture, SharedBlockDevice, SimConfig, SimDevice, SimModel,
};
use serde::Deserialize;

use crate::error::EvalError;

/// Bytes of a block of every device.
pub(super) const BLOCK_BYTES: u32 = 4096;

/// A device as an experiment names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum DeviceSpec {
    /// `memory`: answers at once.
    #[default]
    Memory,
    /// `file`: a file in the folder of results, while the case runs.
    File,
    /// `sim MODEL`: a model of a whole drive, such as `sim ram-disk`.
    Sim(SimModel),
    /// `emulated PRESET`: latencies of an array or a network volume, such as
    /// `emulated raid5-sata-ssd { drives = 5 }`.
    Emulated(Box<EmulatedConfig>),
}

impl TryFrom<String> for DeviceSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("memory", "") => Ok(DeviceSpec::Memory),
            ("file", "") => Ok(DeviceSpec::File),
            ("sim", model) => {
                let model = model.replace('-', "_").parse();
                model
                    .map(DeviceSpec::Sim)
                    .map_err(|error| format!("`{text}`: {error}"))
            }
            ("emulated", preset) => {
                let config: Result<EmulatedConfig, _> = preset.parse();
                config
                    .map(|config| DeviceSpec::Emulated(Box::new(config)))
                    .map_err(|error| error.to_string())
            }
            _ => Err(format!(
                "`{text}` is no device; write memory, file, sim MODEL or emulated PRESET"
            )),
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Memory => f.write_str("memory"),
            DeviceSpec::File => f.write_str("file"),
            DeviceSpec::Sim(model) => write!(f, "simulated {model:?}"),
            DeviceSpec::Emulated(config) => write!(f, "emulated {}", config.preset),
        }
    }
}

/// The use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Cache,
    /// Behind the volume of this number.
    Backing(usize),
}

impl DeviceSpec {
    /// A blank device of `size` bytes. A file is created in `scratch`. An emulated
    /// backing device keeps no data.
    pub(super) fn open(
        &self,
        role: Role,
        size: ByteSize,
        clock: &Clock,
        scratch: &Path,
    ) -> Result<SharedBlockDevice, EvalError> {
        let (name, number) = match role {
            Role::Cache => ("cache".to_owned(), 0),
            Role::Backing(number) => (format!("volume-{number}"), number as u64),
        };
        Ok(match self {
            DeviceSpec::Memory => memory(size)?,
            DeviceSpec::File => file(&scratch.join(name), size)?,
            DeviceSpec::Sim(model) => Arc::new(simulated(*model, size, clock)?),
            DeviceSpec::Emulated(config) => {
                let config = EmulatedConfig {
                    seed: config.seed + number,
                    ..EmulatedConfig::clone(config)
                };
                let below = match role {
                    Role::Cache => memory(size)?,
                    Role::Backing(_) => Arc::new(Hollow::new(size)),
                };
                emulated(&config, below, clock)?
            }
        })
    }
}

fn memory(size: ByteSize) -> Result<SharedBlockDevice, EvalError> {
    Ok(Arc::new(MemoryBlocks::new(size, BLOCK_BYTES)?))
}

/// A file that was written once: its device would not be read for a hole.
fn file(path: &Path, size: ByteSize) -> Result<SharedBlockDevice, EvalError> {
    let written = std::fs::File::create(path).and_then(|mut file| {
        std::io::copy(&mut std::io::repeat(0).take(size.bytes()), &mut file)?;
        file.sync_all()
    });
    written.map_err(EvalError::file("write", path))?;
    let config = FileBlocksConfig {
        block_size: Some(ByteSize(u64::from(BLOCK_BYTES))),
        ..FileBlocksConfig::new(path)
    };
    Ok(Arc::new(FileBlocks::open(&config)?))
}

/// The first `size` bytes of a drive. A drive with superblocks comes in few sizes, some
/// of them below the one that is asked for.
fn simulated(model: SimModel, size: ByteSize, clock: &Clock) -> Result<Flat, EvalError> {
    let unit = 4 << 20;
    let mut whole = size.bytes().next_multiple_of(unit);
    loop {
        let config = DeviceConfig {
            zone_size: Some(ByteSize(unit)),
            sim: SimConfig {
                model,
                ..SimConfig::default()
            },
            ..DeviceConfig::sim(ByteSize(whole))
        };
        let flat = Flat::new(Arc::new(SimDevice::open(&config, clock)?))?;
        if flat.size_bytes() >= size.bytes() {
            return Ok(flat.cut(size)?);
        }
        whole *= 2;
    }
}

fn emulated(
    config: &EmulatedConfig,
    below: SharedBlockDevice,
    clock: &Clock,
) -> Result<SharedBlockDevice, EvalError> {
    let device = Emulated::new(below, clock.clone(), config);
    let device = device.map_err(|error| EvalError::Option {
        option: "volume-bench",
        reason: error.to_string(),
    })?;
    Ok(Arc::new(device))
}

/// A block device that counts and keeps nothing: every byte reads as zero. It lets
/// backing devices of terabytes be driven in memory.
#[derive(Debug)]
struct Hollow {
    size: ByteSize,
    counters: Counters,
}

impl Hollow {
    fn new(size: ByteSize) -> Self {
        Hollow {
            size,
            counters: Counters::default(),
        }
    }

    fn count<T: Send + 'static>(
        &self,
        (operations, bytes): (&AtomicU64, &AtomicU64),
        len: u64,
        answer: T,
    ) -> OpFuture<T> {
        Counters::add(operations, 1);
        Counters::add(bytes, len);
        OpFuture::ready(Ok(answer))
    }

    fn write_of(&self, len: u64) -> OpFuture<()> {
        let Counters {
            writes,
            write_bytes,
            ..
        } = &self.counters;
        self.count((writes, write_bytes), len, ())
    }
}

impl BlockDevice for Hollow {
    fn size_bytes(&self) -> u64 {
        self.size.bytes()
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn describe(&self) -> String {
        "nothing".to_owned()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        IoBuf::zeroed(len)
    }

    fn read(&self, _at: u64, mut buf: IoBuf) -> OpFuture<IoBuf> {
        buf.fill(0);
        let Counters {
            reads, read_bytes, ..
        } = &self.counters;
        let len = buf.len() as u64;
        self.count((reads, read_bytes), len, buf)
    }

    fn write(&self, _at: u64, data: IoData) -> OpFuture<()> {
        self.write_of(data.len() as u64)
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.write_of(range.end - range.start)
    }

    fn discard(&self, _range: Range<u64>) -> OpFuture<()> {
        OpFuture::ready(Ok(()))
    }

    fn flush(&self) -> OpFuture<()> {
        Counters::add(&self.counters.flushes, 1);
        OpFuture::ready(Ok(()))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
