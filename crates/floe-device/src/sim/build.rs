//! Builds a simulated SSD's geometry and model from its settings.

use floe_core::ssd::{ConfigFault, FlashConfig, Interface, Medium, Ssd, SsdConfig};
use floe_core::{ByteSize, Geometry};

use super::state::kept_ssd;
use crate::config::{DeviceConfig, OpenDeviceError};
use crate::sim_config::SimConfig;

/// The seed of preconditioning. Any random order works.
const PRECONDITION_SEED: u64 = 42;

impl SimConfig {
    /// The geometry of the device, and the SSD if the model is a whole one.
    ///
    /// # Errors
    /// If a setting is missing or invalid.
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
            None => make(config).map_err(rejected),
            Some(path) => kept_ssd(path, config, make)
                .map_err(|error| OpenDeviceError::Sim(format!("sim.state: {error}"))),
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
                config.scaled(zones).map_err(rejected)
            }
        }
    }

    /// Scales a conventional drive of `capacity` bytes to `size`. Unless their
    /// size is set, superblocks shrink instead of becoming fewer, so that
    /// garbage collection behaves the same.
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
            // The same amount of flash, divided differently.
            let total = u128::from(flash.superblocks) * u128::from(small);
            flash.superblocks = (total / u128::from(superblock.bytes().max(1))) as u32;
            flash.resize_superblocks(superblock);
        }
    }
}

/// Sets the zone capacity of a zoned drive.
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

fn rejected(fault: ConfigFault) -> OpenDeviceError {
    OpenDeviceError::Sim(fault.0)
}
