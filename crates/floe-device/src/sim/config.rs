//! What a simulated SSD is like.

use std::path::PathBuf;

use floe_core::ssd::{FlashConfig, Interface, Medium, Ssd, SsdConfig};
use floe_core::{ByteSize, Geometry};
use serde::{Deserialize, Serialize};

use super::state::kept_ssd;
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::medium::Keeping;
use crate::platter::WriteCache;

/// What is simulated.
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

impl SimModel {
    fn preset(self) -> Option<SsdConfig> {
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
    /// What is simulated.
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
    /// What a conventional drive erases at once, which on an FDP drive is its
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

/// The seed of preconditioning. Any order of random writes will do.
const PRECONDITION_SEED: u64 = 42;

impl SimConfig {
    /// The shape of the device, and the SSD if a whole one is simulated.
    ///
    /// # Errors
    /// When a setting is missing or makes no sense.
    pub(super) fn build(
        &self,
        device: &DeviceConfig,
    ) -> Result<(Geometry, Option<Ssd>), OpenDeviceError> {
        if let Some(fault) = self.fault() {
            return Err(OpenDeviceError::Sim(fault));
        }
        let Some(preset) = self.model.preset() else {
            let mut geometry = device.geometry(device.required_size()?)?;
            geometry.random_writes = !self.zoned;
            geometry.native_append = self.native_append.unwrap_or(self.zoned);
            geometry.placement_handles = self.placement_handles;
            return Ok((geometry, None));
        };
        let config = self.sized(preset, device)?;
        let geometry = geometry_of(&config, device)?;
        let make = |config| {
            let mut ssd = Ssd::new(config, PRECONDITION_SEED)?;
            if self.precondition {
                ssd.precondition();
            }
            Ok(ssd)
        };
        let ssd = match &self.state {
            None => make(config).map_err(OpenDeviceError::sim),
            Some(path) => kept_ssd(path, config, make).map_err(OpenDeviceError::state),
        };
        Ok((geometry, Some(ssd?)))
    }

    /// The preset with this device's settings, scaled to its size.
    fn sized(
        &self,
        mut config: SsdConfig,
        device: &DeviceConfig,
    ) -> Result<SsdConfig, OpenDeviceError> {
        let capacity = config.capacity_bytes();
        let size = device.size.map_or(capacity, ByteSize::bytes);
        if let Medium::InPlace(medium) = &mut config.medium {
            medium.capacity = ByteSize(size);
            return Ok(config);
        }
        let Some(flash) = config.flash_mut() else {
            return Ok(config);
        };
        if let Some(dies) = self.dies {
            flash.nand = flash.nand.clone().on_dies(dies);
        }
        match flash.interface {
            Interface::Conventional(_) => {
                self.scale_conventional(flash, size, capacity);
                Ok(config)
            }
            Interface::Zoned(_) => {
                if let Some(capacity) = device.zone_capacity {
                    resize_zones(flash, capacity)?;
                }
                let zones = size / flash.superblock.bytes().max(1);
                let zones = u32::try_from(zones).unwrap_or(u32::MAX);
                config.scaled(zones).map_err(OpenDeviceError::sim)
            }
        }
    }

    /// Scales a conventional drive of `capacity` bytes to `size`: smaller
    /// superblocks rather than fewer, so that as many of them stay for garbage
    /// collection, unless their size is set.
    fn scale_conventional(&self, flash: &mut FlashConfig, size: u64, capacity: u64) {
        let (row, own) = (flash.nand.row_bytes(), flash.superblock.bytes().max(1));
        let Interface::Conventional(ftl) = &mut flash.interface else {
            return;
        };
        ftl.mapping_unit = self.mapping_unit.unwrap_or(default_mapping_unit(size));
        let unit = ftl.mapping_unit.bytes().max(1);
        let step = least_common_multiple(row, unit);
        let share = u128::from(own) * u128::from(size) / u128::from(capacity.max(1));
        let small = (share as u64 / step).max(1) * step;
        flash.resize_drive(ByteSize(small));
        if let Some(superblock) = self.superblock {
            // As much flash, divided otherwise.
            let total = u128::from(flash.superblocks) * u128::from(small);
            flash.superblocks = (total / u128::from(superblock.bytes().max(1))) as u32;
            flash.resize_superblocks(superblock);
        }
    }
}

/// Gives a zoned drive zones of `capacity`.
fn resize_zones(flash: &mut FlashConfig, capacity: ByteSize) -> Result<(), OpenDeviceError> {
    let row = flash.nand.row_bytes();
    let nearest = capacity.bytes().next_multiple_of(row).max(row);
    if capacity.bytes() != nearest {
        return Err(OpenDeviceError::Sim(format!(
            "zone_capacity {capacity} is not a multiple of the {} that the drive programs \
             together; {} would be",
            ByteSize(row),
            ByteSize(nearest),
        )));
    }
    flash.resize_superblocks(capacity);
    if let Interface::Zoned(zoned) = &mut flash.interface {
        zoned.zone_size = ByteSize(nearest.next_power_of_two());
    }
    Ok(())
}

fn geometry_of(config: &SsdConfig, device: &DeviceConfig) -> Result<Geometry, OpenDeviceError> {
    let Some((flash, interface)) = config.flash().map(|flash| (flash, &flash.interface)) else {
        return device.geometry(ByteSize(config.capacity_bytes()));
    };
    match interface {
        Interface::Conventional(ftl) => {
            let mut geometry = device.geometry(ftl.capacity)?;
            geometry.placement_handles = if ftl.handles > 1 { ftl.handles } else { 0 };
            Ok(geometry)
        }
        Interface::Zoned(zoned) => {
            let lower =
                |limit: u32, own: Option<u32>| Some(own.map_or(limit, |own| own.min(limit)));
            let shaped = DeviceConfig {
                zone_size: Some(zoned.zone_size),
                zone_capacity: Some(flash.superblock),
                max_open_zones: lower(zoned.open_max, device.max_open_zones),
                max_active_zones: lower(zoned.active_max, device.max_active_zones),
                max_append: device.max_append.min(zoned.append_max),
                ..device.clone()
            };
            let addresses = ByteSize(config.address_bytes());
            let mut geometry = shaped.geometry(addresses)?;
            geometry.random_writes = false;
            geometry.native_append = true;
            Ok(geometry)
        }
    }
}

fn default_mapping_unit(size: u64) -> ByteSize {
    let units = [ByteSize::kib(16), ByteSize::kib(64)];
    let mut fine = units.into_iter();
    fine.find(|unit| size / unit.bytes() <= 4 << 20)
        .unwrap_or(ByteSize::kib(256))
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
