//! The SSD under a tiny engine, simulated or real.

use floe_core::ByteSize;
use floe_core::ssd::{Interface, Ssd, SsdConfig};
use floe_core::tiny::{Flash, PAGE_BYTES};
use floe_device::DeviceConfig;
use serde::{Deserialize, Serialize};

use crate::error::EvalError;

/// The kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TinyDeviceKind {
    /// No SSD: pages are modelled, nothing is timed.
    #[default]
    None,
    /// Zones of a zoned drive.
    Zns,
    /// A drive with reclaim-unit handles.
    Fdp,
    /// A conventional drive.
    Conventional,
    /// A device that `floe::Tiny` drives.
    Drive,
}

/// A simulated SSD: the presets `zn540`, `fdp` and `sn540`, scaled to the size
/// of the flash; or a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TinyDevice {
    /// The kind.
    pub kind: TinyDeviceKind,
    /// Over-provisioning of a conventional or FDP drive, as a share of the raw
    /// flash.
    pub over_provisioning: f64,
    /// Time to read a NAND page, in microseconds; the preset's if absent.
    /// Presets are chosen for large transfers.
    pub read_page_us: Option<f64>,
    /// Overhead of a command besides its data, in microseconds; the preset's if
    /// absent.
    pub command_us: Option<f64>,
    /// Operations per second, open loop. If absent, reads are not simulated and
    /// nothing is timed: only the drive's writes are counted.
    pub rate: Option<f64>,
    /// Most background commands in flight.
    pub background_depth: u32,
    /// With `drive`: the device, in real time or, if it is simulated, in virtual
    /// time. A file without a path is removed after the run.
    pub drive: DeviceConfig,
    /// With `drive`: number of clients, each with one request in flight.
    pub clients: u32,
    /// With `drive`: a client waits, before its next request, until the engine
    /// neither writes nor evicts.
    pub settle: bool,
}

impl Default for TinyDevice {
    fn default() -> Self {
        TinyDevice {
            kind: TinyDeviceKind::None,
            over_provisioning: 0.07,
            read_page_us: None,
            command_us: None,
            rate: None,
            background_depth: 16,
            drive: DeviceConfig::default(),
            clients: 64,
            settle: false,
        }
    }
}

/// Approximate number of superblocks of a conventional drive of any size, so
/// that its garbage collection behaves like that of a large one.
const SUPERBLOCKS: u64 = 512;

impl TinyDevice {
    /// Creates the drive for `flash`.
    pub(super) fn open(&self, flash: Flash, seed: u64) -> Result<Option<Ssd>, EvalError> {
        let config = match self.kind {
            TinyDeviceKind::None | TinyDeviceKind::Drive => return Ok(None),
            TinyDeviceKind::Zns => self.zoned(flash)?,
            TinyDeviceKind::Fdp => self.conventional(SsdConfig::fdp(), flash)?,
            TinyDeviceKind::Conventional => self.conventional(SsdConfig::sn540(), flash)?,
        };
        let ssd = Ssd::new(config, seed).map_err(|fault| reject(fault.to_string()))?;
        Ok(Some(ssd))
    }

    fn zoned(&self, flash: Flash) -> Result<SsdConfig, EvalError> {
        if flash.in_place {
            return Err(reject(
                "a zone is not written in place, as this engine needs; choose conventional or fdp",
            ));
        }
        let mut config = SsdConfig::zn540();
        self.adjust(&mut config)?;
        let zone = u64::from(flash.zone_pages) * PAGE_BYTES as u64;
        if let Some(nand) = config.flash_mut() {
            let row = nand.nand.row_bytes();
            if !zone.is_multiple_of(row) {
                return Err(reject(format!(
                    "zone-size {} is not a multiple of {}, which the drive programs together; {} is",
                    ByteSize(zone),
                    ByteSize(row),
                    ByteSize(zone.next_multiple_of(row))
                )));
            }
            nand.resize_superblocks(ByteSize(zone));
            nand.superblocks = flash.zones;
            if let Interface::Zoned(zoned) = &mut nand.interface {
                zoned.zones = flash.zones;
                zoned.zone_size = ByteSize(zone);
            }
        }
        Ok(config)
    }

    fn conventional(&self, mut config: SsdConfig, flash: Flash) -> Result<SsdConfig, EvalError> {
        if !(0.0..=0.9).contains(&self.over_provisioning) {
            return Err(reject("over-provisioning must be between 0 and 0.9"));
        }
        self.adjust(&mut config)?;
        let capacity = flash.pages() * PAGE_BYTES as u64;
        let raw = (capacity as f64 / (1.0 - self.over_provisioning)) as u64;
        // Small drives have few dies, because a buffer for wide rows needs wide
        // rows.
        if let Some(nand) = config.flash_mut() {
            nand.nand.dies = 8;
            nand.nand.stripe_dies = 1;
            let row = nand.nand.row_bytes();
            let superblock = (raw / SUPERBLOCKS / row).max(1) * row;
            nand.resize_superblocks(ByteSize(superblock));
            let count = raw.div_ceil(superblock);
            if let Interface::Conventional(ftl) = &mut nand.interface {
                ftl.mapping_unit = ByteSize(PAGE_BYTES as u64);
                ftl.capacity = ByteSize(capacity);
            }
            nand.superblocks = u32::try_from(count).unwrap_or(u32::MAX);
        }
        Ok(config)
    }

    fn adjust(&self, config: &mut SsdConfig) -> Result<(), EvalError> {
        let ns = |us: f64| match us {
            us if (0.0..=1e6).contains(&us) => Ok((us * 1e3) as u64),
            us => Err(reject(format!("{us} µs is not a latency from 0 to 1e6 µs"))),
        };
        if let Some(us) = self.command_us {
            config.host.command_overhead_ns = ns(us)?;
        }
        if let (Some(us), Some(flash)) = (self.read_page_us, config.flash_mut()) {
            flash.nand.read_page_ns = ns(us)?;
        }
        if let Some(rate) = self.rate
            && !(1.0..=1e9).contains(&rate)
        {
            return Err(reject("rate must be from 1 to 1e9 operations per second"));
        }
        Ok(())
    }
}

fn reject(reason: impl Into<String>) -> EvalError {
    EvalError::Option {
        option: "tiny.device",
        reason: reason.into(),
    }
}
