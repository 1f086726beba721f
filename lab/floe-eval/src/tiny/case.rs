//! The keys of an experiment's `[tiny]` section.

use floe_core::ByteSize;
use floe_core::policy::admission::AdmissionConfig;
use floe_core::tiny::{Flash, PAGE_BYTES};
use floe_device::config::DeviceKind;
use serde::{Deserialize, Serialize};

use super::device::{TinyDevice, TinyDeviceKind};
use super::workload::TinyWorkload;
use crate::error::EvalError;

/// An engine by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// A FIFO of set-groups.
    Nemo,
    /// A log with an exact index.
    Log,
    /// Sets in place.
    Set,
    /// A log in front of sets.
    Kangaroo,
    /// A log in front of sets in two logs.
    Fairywren,
}

/// Drives a tiny engine on modelled flash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TinyCase {
    /// The engine.
    pub engine: EngineKind,
    /// Settings of `nemo` that differ from its `preset`.
    #[serde(default)]
    pub nemo: toml::Table,
    /// Settings of `log` that differ from its `preset`.
    #[serde(default)]
    pub log: toml::Table,
    /// Settings of `set` that differ from its `preset`.
    #[serde(default)]
    pub set: toml::Table,
    /// Settings of `kangaroo` that differ from its `preset`.
    #[serde(default)]
    pub kangaroo: toml::Table,
    /// Settings of `fairywren` that differ from its `preset`.
    #[serde(default)]
    pub fairywren: toml::Table,
    /// Size of the flash.
    pub flash_size: ByteSize,
    /// Bytes of a zone; must divide the flash.
    pub zone_size: ByteSize,
    /// Size of the RAM tier in front of the engine, as a share of the flash.
    /// CacheLib, which the papers' engines are part of, has such a tier.
    #[serde(default = "default_ram")]
    pub ram: f64,
    /// The policy that admits objects from the RAM tier to flash.
    #[serde(default)]
    pub admission: AdmissionConfig,
    /// The workload.
    pub workload: TinyWorkload,
    /// Length of the warm-up: bytes of objects that the engine has accepted, as
    /// a multiple of the flash, so that every engine is measured on the same
    /// requests. Flash was written at least as often.
    #[serde(default = "default_warm_up")]
    pub warm_up: f64,
    /// Length of the measurement, in the same unit.
    #[serde(default = "default_measured")]
    pub measured: f64,
    /// Most operations of warm-up and measurement each.
    #[serde(default)]
    pub operations_max: Option<u64>,
    /// The simulated SSD.
    #[serde(default)]
    pub device: TinyDevice,
    /// Number of sets whose accesses are counted.
    #[serde(default)]
    pub count_sets: Option<u32>,
}

fn default_ram() -> f64 {
    0.02
}

fn default_warm_up() -> f64 {
    1.5
}

fn default_measured() -> f64 {
    1.0
}

/// Fewest zones of a flash.
const ZONES_MIN: u64 = 4;

impl TinyCase {
    /// The geometry of the flash; `in_place` as the engine needs it.
    ///
    /// # Errors
    /// If the sizes contradict each other.
    pub fn flash(&self, in_place: bool) -> Result<Flash, EvalError> {
        let (flash, zone) = (self.flash_size.bytes(), self.zone_size.bytes());
        if zone == 0 || !zone.is_multiple_of(PAGE_BYTES as u64) {
            return Err(reject("zone-size", "must be a multiple of 4KiB"));
        }
        let zones = flash / zone;
        if zones < ZONES_MIN || zones * zone != flash {
            return Err(reject(
                "flash-size",
                &format!(
                    "must be a multiple of the zone-size {}, at least {ZONES_MIN} of it; {} is",
                    self.zone_size,
                    ByteSize(zone * zones.max(ZONES_MIN))
                ),
            ));
        }
        let (Ok(zones), Ok(zone_pages)) = (
            u32::try_from(zones),
            u32::try_from(zone / PAGE_BYTES as u64),
        ) else {
            return Err(reject("flash-size", "is too much for pages of 32 bits"));
        };
        let flash = Flash {
            zones,
            zone_pages,
            in_place,
        };
        if flash.pages() > u64::from(u32::MAX) {
            return Err(reject("flash-size", "is too much for pages of 32 bits"));
        }
        Ok(flash)
    }

    /// True if the run takes no real time.
    pub(crate) fn is_model(&self) -> bool {
        self.device.kind != TinyDeviceKind::Drive || self.is_simulated()
    }

    /// True if the engine's device is simulated, which runs in virtual time.
    pub(super) fn is_simulated(&self) -> bool {
        self.device.drive.kind == DeviceKind::Sim
    }

    /// Description of the device.
    pub(crate) fn describe(&self) -> String {
        let kind = match self.device.kind {
            TinyDeviceKind::None => "modelled flash",
            TinyDeviceKind::Zns => "simulated zn540",
            TinyDeviceKind::Fdp => "simulated fdp",
            TinyDeviceKind::Conventional => "simulated sn540",
            TinyDeviceKind::Drive => match self.device.drive.kind {
                DeviceKind::File => "file",
                DeviceKind::Zns => "zns",
                DeviceKind::Fdp => "fdp",
                DeviceKind::Nvme => "nvme",
                DeviceKind::Memory => "memory",
                DeviceKind::Sim => "sim",
            },
        };
        format!("{kind}, {} in zones of {}", self.flash_size, self.zone_size)
    }

    /// Checks the ranges of settings.
    pub(super) fn check(&self) -> Result<(), EvalError> {
        let ranges = [
            ("ram", self.ram, 0.0, 1.0),
            ("warm-up", self.warm_up, 0.0, 1e3),
            ("measured", self.measured, 1e-6, 1e3),
        ];
        for (option, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(reject(option, &format!("must be from {low} to {high}")));
            }
        }
        Ok(())
    }
}

fn reject(option: &'static str, reason: &str) -> EvalError {
    EvalError::Option {
        option,
        reason: reason.to_owned(),
    }
}
