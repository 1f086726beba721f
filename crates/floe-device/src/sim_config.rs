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

/// The behaviour of a simulated SSD.
///
/// Settings up to `volatile_cache_bytes` are for the model `queues`. Latencies
/// are those of one command on an idle device, in microseconds, to which the
/// transfer time is added. The defaults are round figures of a zoned NVMe SSD
/// of 2021 (WD ZN540 class). The remaining settings are for all other models,
/// which simulate whole SSDs ([`floe_core::ssd`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// The model of the simulated SSD.
    pub model: SimModel,
    /// The SSD is zoned: writes go only to the write pointer, and zones
    /// keep their states over a restart. Otherwise it is conventional.
    pub zoned: bool,
    /// The device chooses the address of appends. Default: as `zoned`.
    pub native_append: Option<bool>,
    /// Placement handles (reclaim-unit handles) that the device offers.
    pub placement_handles: u16,
    /// Commands that run in parallel. Each unit is a FIFO queue.
    pub units: u32,
    /// Consecutive bytes on one unit.
    pub stripe: ByteSize,
    /// Latency of reading a stripe from flash.
    pub read_us: f64,
    /// Latency of an append or write until it is in the device's buffer.
    pub write_us: f64,
    /// Latency of a zone reset.
    pub reset_us: f64,
    /// Latency of a zone finish.
    pub finish_us: f64,
    /// Latency of a flush.
    pub flush_us: f64,
    /// Bytes per second from the device.
    pub read_bandwidth: ByteSize,
    /// Bytes per second to the device.
    pub write_bandwidth: ByteSize,
    /// A power loss can lose completed writes that were not flushed.
    pub volatile_cache: bool,
    /// Most bytes that a power loss can lose.
    pub volatile_cache_bytes: ByteSize,
    /// Dies to simulate: fewer than the model has, each proportionally wider.
    /// The bandwidth stays the same, with less to compute. Accesses of 1 MiB
    /// and more change by a few percent at most. Must divide the model's
    /// number.
    pub dies: Option<u32>,
    /// The erase unit of a conventional drive, or the reclaim unit of an FDP
    /// drive. Default: the drive's own, scaled as `size` is to its capacity.
    /// Must be a multiple of the program unit of a stripe and of the mapping
    /// unit.
    pub superblock: Option<ByteSize>,
    /// The unit of a conventional drive's mapping table. Default: 16 KiB, or
    /// more if the table would exceed four million entries. The drive rewrites
    /// the rest of a unit that is written in part.
    pub mapping_unit: Option<ByteSize>,
    /// A conventional drive starts after one pass of random writes over
    /// all of it, like a used drive.
    pub precondition: bool,
    /// A file with the drive's initial state: read if it exists, otherwise
    /// written once the drive was created and preconditioned. All runs of a
    /// drive with the same settings can share it.
    pub state: Option<PathBuf>,
    /// Trim a zone of a conventional drive when it is reset.
    pub trim: bool,
    /// How bytes are stored, under every model.
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
    /// The first invalid setting, and the cure.
    pub(crate) fn fault(&self) -> Option<String> {
        match self.model {
            SimModel::Queues => self.fault_of_queues(),
            _ => self.foreign_setting(),
        }
    }

    /// A setting of the model `queues`, if another model is selected.
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

    /// The state of completed writes until they are flushed. Models of whole
    /// SSDs protect their buffers, like the real drives.
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
