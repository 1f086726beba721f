//! Configuration of a simulated SSD.

use std::path::PathBuf;

use floe_core::ByteSize;
use floe_core::ssd::SsdConfig;
use serde::{Deserialize, Serialize};

use crate::medium::Keeping;
use crate::sim_media::WriteCache;

/// The model of a simulated SSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimModel {
    /// Queues with latencies and bandwidths, for any geometry.
    #[default]
    Queues,
    /// [`SsdConfig::zn540`], zoned.
    Zn540,
    /// [`SsdConfig::sn540`], conventional.
    Sn540,
    /// [`SsdConfig::fdp`], with placement handles.
    Fdp,
    /// [`SsdConfig::sata`].
    Sata,
    /// [`SsdConfig::optane`].
    Optane,
    /// [`SsdConfig::ram_disk`].
    RamDisk,
    /// [`SsdConfig::hdd_array`].
    HddArray,
}

floe_core::parse_by_name!(SimModel);

impl SimModel {
    pub(crate) fn preset(self) -> Option<SsdConfig> {
        Some(match self {
            SimModel::Queues => return None,
            SimModel::Zn540 => SsdConfig::zn540(),
            SimModel::Sn540 => SsdConfig::sn540(),
            SimModel::Fdp => SsdConfig::fdp(),
            SimModel::Sata => SsdConfig::sata(),
            SimModel::Optane => SsdConfig::optane(),
            SimModel::RamDisk => SsdConfig::ram_disk(),
            SimModel::HddArray => SsdConfig::hdd_array(),
        })
    }
}

/// The simulated SSD's behaviour.
///
/// Settings up to `volatile_cache_bytes` are those of the model `queues`:
/// latencies are what an idle device takes for one command, in microseconds;
/// transfers add to them by bandwidth. Their defaults are round figures of a
/// zoned NVMe SSD of 2021 (WD ZN540 class). The settings after it are those of
/// all other models, which are whole SSDs ([`floe_core::ssd`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// The model of the simulated SSD.
    pub model: SimModel,
    /// Zoned: writes go only where the write pointer is, and zones keep their
    /// states over a restart. Otherwise a conventional SSD.
    pub zoned: bool,
    /// Whether the device chooses where appends land. Default: as `zoned`.
    pub native_append: Option<bool>,
    /// Placement handles (reclaim-unit handles) that the device offers.
    pub placement_handles: u16,
    /// Commands that are worked on at once; each is a first-in, first-out queue.
    pub units: u32,
    /// Bytes that lie on one unit before the next unit's begin.
    pub stripe: ByteSize,
    /// Reading a stripe from flash.
    pub read_us: f64,
    /// An append or write until it is in the device's buffer.
    pub write_us: f64,
    /// Resetting a zone.
    pub reset_us: f64,
    /// Finishing a zone.
    pub finish_us: f64,
    /// Flushing.
    pub flush_us: f64,
    /// Bytes per second from the device.
    pub read_bandwidth: ByteSize,
    /// Bytes per second to the device.
    pub write_bandwidth: ByteSize,
    /// Whether completed writes can be lost with the power until flushed.
    pub volatile_cache: bool,
    /// Most bytes that can be lost so.
    pub volatile_cache_bytes: ByteSize,
    /// Dies to simulate, fewer than the model has and each as much wider: the
    /// same bandwidth with less to compute. For accesses of 1 MiB and more it
    /// makes no difference of more than a few percent. Must divide their number.
    pub dies: Option<u32>,
    /// The erase unit of a conventional drive; on an FDP drive, its
    /// reclaim unit. Default: as small a part of the drive's own as `size` is
    /// of its capacity. A multiple of what is programmed together and of the
    /// mapping unit.
    pub superblock: Option<ByteSize>,
    /// The unit of a conventional drive's mapping table. Default: 16 KiB, or
    /// more where that makes a table of more than four million entries. What
    /// is written in pieces that are no multiple of it is rewritten in part.
    pub mapping_unit: Option<ByteSize>,
    /// Whether a conventional drive begins with one pass of random writes over
    /// all of it behind it, as one that has been in use.
    pub precondition: bool,
    /// A file that keeps the drive's state at the start: read if it is there,
    /// otherwise written when the drive has been made and preconditioned. It
    /// serves every run of a drive with the same settings.
    pub state: Option<PathBuf>,
    /// Whether resetting a zone of a conventional drive trims it.
    pub trim: bool,
    /// How bytes are kept, under every model.
    pub data: Keeping,
}

impl Default for SimConfig {
    fn default() -> Self {
        SimConfig {
            model: SimModel::default(),
            zoned: true,
            native_append: None,
            placement_handles: 0,
            units: 32,
            stripe: ByteSize::kib(64),
            read_us: 70.0,
            write_us: 12.0,
            reset_us: 3000.0,
            finish_us: 1000.0,
            flush_us: 30.0,
            read_bandwidth: ByteSize(3_200_000_000),
            write_bandwidth: ByteSize(2_000_000_000),
            volatile_cache: true,
            volatile_cache_bytes: ByteSize::mib(64),
            dies: None,
            superblock: None,
            mapping_unit: None,
            precondition: true,
            state: None,
            trim: true,
            data: Keeping::default(),
        }
    }
}

impl SimConfig {
    /// The first setting that makes no sense, and what would.
    pub(crate) fn fault(&self) -> Option<String> {
        match self.model {
            SimModel::Queues => self.fault_of_queues(),
            _ => self.foreign_setting(),
        }
    }

    /// A setting of the queues, although something else is simulated.
    fn foreign_setting(&self) -> Option<String> {
        let default = SimConfig::default();
        let same = [
            ("zoned", self.zoned == default.zoned),
            ("native_append", self.native_append == default.native_append),
            (
                "placement_handles",
                self.placement_handles == default.placement_handles,
            ),
            ("units", self.units == default.units),
            ("stripe", self.stripe == default.stripe),
            ("read_us", self.read_us == default.read_us),
            ("write_us", self.write_us == default.write_us),
            ("reset_us", self.reset_us == default.reset_us),
            ("finish_us", self.finish_us == default.finish_us),
            ("flush_us", self.flush_us == default.flush_us),
            (
                "read_bandwidth",
                self.read_bandwidth == default.read_bandwidth,
            ),
            (
                "write_bandwidth",
                self.write_bandwidth == default.write_bandwidth,
            ),
        ];
        let (name, _) = same.into_iter().find(|(_, same)| !same)?;
        Some(format!(
            "sim.{name} is a setting of the model `queues`; leave it out, or set sim.model to `queues`"
        ))
    }

    /// How the device treats completed writes until they are flushed. Whole
    /// SSDs protect their buffers, as the drives they stand for do.
    pub(crate) fn write_cache(&self) -> WriteCache {
        match (self.model, self.volatile_cache) {
            (SimModel::Queues, true) => WriteCache::Volatile {
                bytes_max: self.volatile_cache_bytes.bytes(),
            },
            (SimModel::Queues, false) => WriteCache::None,
            _ => WriteCache::Protected,
        }
    }

    fn fault_of_queues(&self) -> Option<String> {
        let latencies = [
            ("read_us", self.read_us),
            ("write_us", self.write_us),
            ("reset_us", self.reset_us),
            ("finish_us", self.finish_us),
            ("flush_us", self.flush_us),
        ];
        for (name, us) in latencies {
            if !(0.0..=1e9).contains(&us) {
                return Some(format!(
                    "sim.{name} = {us} is not within 0 to 1e9 microseconds"
                ));
            }
        }
        if self.state.is_some() {
            return Some(
                "sim.state keeps the state of whole SSDs; leave it out, or set sim.model to one"
                    .into(),
            );
        }
        let positive = [
            ("read_bandwidth", self.read_bandwidth.bytes()),
            ("write_bandwidth", self.write_bandwidth.bytes()),
            ("stripe", self.stripe.bytes()),
            ("units", u64::from(self.units)),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Some(format!("sim.{name} = 0; it must be at least 1"));
            }
        }
        (self.units > 1 << 16).then(|| format!("sim.units = {}; at most 65536", self.units))
    }
}
