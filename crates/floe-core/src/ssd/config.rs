//! The configuration of an SSD. Every number has a unit in its name; sizes read
//! and print as `96KiB`.

use serde::{Deserialize, Serialize};

use crate::ByteSize;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SsdConfig {
    /// The device's name in results.
    pub name: String,
    /// The unit of addresses and lengths of commands.
    pub block: ByteSize,
    /// The host's access to the device.
    pub host: HostInterface,
    /// The storage medium.
    pub medium: Medium,
}

/// The front end: link, buffer, command processing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostInterface {
    /// Bytes per second from the host; must be positive.
    pub write_bytes_per_s: u64,
    /// Bytes per second to the host; must be positive.
    pub read_bytes_per_s: u64,
    /// Latency of every command beside its data: queues, doorbells, interrupt
    /// and firmware. Commands overlap in it.
    pub command_overhead_ns: u64,
    /// Power-protected write buffer. A write is complete once it is in there.
    pub buffer: ByteSize,
    /// Most bytes of one read command under way to the medium at once. It
    /// models the queue of a kernel that splits large reads.
    pub read_window: ByteSize,
}

/// The storage medium of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Medium {
    /// NAND flash, which must be erased in large pieces.
    Flash(FlashConfig),
    /// Media that are overwritten in place: 3D XPoint, RAM, discs.
    InPlace(InPlaceConfig),
}

/// Flash and its management.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FlashConfig {
    /// The dies.
    pub nand: NandConfig,
    /// Bytes of data, without parity, in one erase block of every die: the unit
    /// of erasing. A zone of a zoned device, a reclaim unit with FDP.
    pub superblock: ByteSize,
    /// How many superblocks there are.
    pub superblocks: u32,
    /// The manager of the superblocks: the device or the host.
    pub interface: Interface,
}

/// The dies and the placement of data on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NandConfig {
    /// Dies that work at the same time.
    pub dies: u32,
    /// Dies over which consecutive pages alternate. This many program units
    /// are filled and programmed together.
    pub stripe_dies: u32,
    /// The unit of reading.
    pub page: ByteSize,
    /// The unit of programming one die: pages of all planes and bits per cell.
    pub program_unit: ByteSize,
    /// Time to sense a page and move it to the controller.
    pub read_page_ns: u64,
    /// Time to program a program unit.
    pub program_ns: u64,
    /// Time to erase a die's part of a superblock.
    pub erase_ns: u64,
    /// One program unit of this many holds parity; zero for none.
    pub parity_every: u32,
    /// How often a program may be suspended for reads.
    pub suspends_per_program: u32,
    /// How long reads may run while other operations wait. With zero, one read
    /// runs between any two other operations, and no program is suspended.
    pub read_burst_ns: u64,
}

/// The side that manages the flash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Interface {
    /// The device manages it: a translation layer with garbage collection. With
    /// more than one placement handle it is an FDP drive.
    Conventional(FtlConfig),
    /// The host manages it: zones.
    Zoned(ZonedConfig),
}

/// A translation layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FtlConfig {
    /// Capacity that the host sees; the rest of the superblocks is
    /// over-provisioning.
    pub capacity: ByteSize,
    /// The unit of mapping. A partial write makes the device read and write the
    /// rest of the unit too, unless the host writes the rest while the part is
    /// still buffered.
    pub mapping_unit: ByteSize,
    /// Reclaim-unit handles; 1 on a drive without FDP.
    pub handles: u16,
    /// The isolation of handles in garbage collection.
    pub isolation: Isolation,
    /// Garbage is collected while fewer superblocks than this are free.
    pub collect_below: u32,
    /// With this many free superblocks or fewer, the host may write only as
    /// much as collection frees.
    pub throttle_at: u32,
    /// Most bytes that collection moves at a time.
    pub collect_window: ByteSize,
    /// How collection chooses its victim.
    pub victim: Victim,
}

/// The isolation of handles in garbage collection (NVMe FDP, reclaim-unit handle
/// types).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Mixes data of different handles: one stream for all collected data.
    #[default]
    Initial,
    /// Never mixes data of different handles: a stream per handle.
    Persistent,
}

/// How garbage collection chooses the superblock to collect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// The highest (1 − u) · √age / 2u. The share of valid data is u, and the
    /// age is the number of units written since the superblock was filled. This
    /// is cost-benefit (Rosenblum and Ousterhout, LFS) with the root of the
    /// age. Cold data is compacted although it has little garbage.
    #[default]
    AgeAware,
    /// The least valid data. Never compacts cold data.
    Greedy,
}

/// Zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ZonedConfig {
    /// Number of zones; the capacity of each is that of a superblock.
    pub zones: u32,
    /// The distance between the starts of two zones.
    pub zone_size: ByteSize,
    /// Most zones that may be open at once.
    pub open_max: u32,
    /// Most zones that may be active at once.
    pub active_max: u32,
    /// Most bytes of one append.
    pub append_max: ByteSize,
}

/// A medium that is overwritten in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct InPlaceConfig {
    /// Bytes that it stores.
    pub capacity: ByteSize,
    /// Channels, banks or spindles that work at the same time.
    pub lanes: u32,
    /// Consecutive stripes of this size lie on consecutive lanes.
    pub stripe: ByteSize,
    /// Latency of a read until its first byte.
    pub read_ns: u64,
    /// Latency of a write until its first byte.
    pub write_ns: u64,
    /// Added latency of an access that does not continue the lane's last one:
    /// the seek and half a turn of a disc.
    pub seek_ns: u64,
    /// Bytes per second of one lane, reading.
    pub read_bytes_per_s: u64,
    /// Bytes per second of one lane, writing.
    pub write_bytes_per_s: u64,
}

/// Why a device cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ssd: {0}")]
pub struct ConfigFault(pub String);

impl NandConfig {
    /// Bytes programmed together: a stripe of program units.
    pub fn row_bytes(&self) -> u64 {
        self.program_unit.bytes() * u64::from(self.stripe_dies)
    }

    /// The same flash on fewer, proportionally wider dies: the same bandwidth
    /// with fewer operations to simulate. Throughput of accesses of 1 MiB and
    /// more changes by a few percent at most.
    ///
    /// Does nothing if `dies` does not divide the number of dies.
    pub fn on_dies(mut self, dies: u32) -> Self {
        if dies == 0 || !self.dies.is_multiple_of(dies) {
            return self;
        }
        let factor = self.dies / dies;
        let narrower = self.stripe_dies / factor;
        self.dies = dies;
        self.stripe_dies = narrower.max(1);
        self.page = ByteSize(self.page.bytes() * u64::from(factor));
        self.program_unit = ByteSize(self.program_unit.bytes() * u64::from(factor));
        self
    }
}

impl FlashConfig {
    /// Sets the superblocks' size and scales their erase time with it: smaller
    /// superblocks are erased more often, in less time each.
    pub fn resize_superblocks(&mut self, superblock: ByteSize) {
        let before = u128::from(self.superblock.bytes().max(1));
        let erase_ns = u128::from(self.nand.erase_ns) * u128::from(superblock.bytes()) / before;
        self.nand.erase_ns = u64::try_from(erase_ns).unwrap_or(u64::MAX).max(1);
        self.superblock = superblock;
    }
}

impl FlashConfig {
    /// The same drive with superblocks of another size, as many as before. The
    /// capacity of a conventional drive scales with them, in whole mapping
    /// units.
    pub fn resize_drive(&mut self, superblock: ByteSize) {
        let before = u128::from(self.superblock.bytes().max(1));
        if let Interface::Conventional(ftl) = &mut self.interface {
            let unit = ftl.mapping_unit.bytes().max(1);
            let visible = u128::from(ftl.capacity.bytes()) * u128::from(superblock.bytes());
            ftl.capacity = ByteSize((visible / before) as u64 / unit * unit);
        }
        self.resize_superblocks(superblock);
    }
}

impl SsdConfig {
    /// Bytes of addresses that the host sees, holes between zones included.
    pub fn address_bytes(&self) -> u64 {
        match &self.medium {
            Medium::InPlace(medium) => medium.capacity.bytes(),
            Medium::Flash(flash) => match &flash.interface {
                Interface::Conventional(ftl) => ftl.capacity.bytes(),
                Interface::Zoned(zoned) => zoned
                    .zone_size
                    .bytes()
                    .saturating_mul(u64::from(zoned.zones)),
            },
        }
    }

    /// Bytes that the host can store.
    pub fn capacity_bytes(&self) -> u64 {
        match &self.medium {
            Medium::Flash(FlashConfig {
                interface: Interface::Zoned(zoned),
                superblock,
                ..
            }) => superblock.bytes() * u64::from(zoned.zones),
            _ => self.address_bytes(),
        }
    }

    /// The flash configuration, if the medium is flash.
    pub fn flash(&self) -> Option<&FlashConfig> {
        match &self.medium {
            Medium::Flash(flash) => Some(flash),
            Medium::InPlace(_) => None,
        }
    }

    /// The flash configuration, to change it.
    pub fn flash_mut(&mut self) -> Option<&mut FlashConfig> {
        match &mut self.medium {
            Medium::Flash(flash) => Some(flash),
            Medium::InPlace(_) => None,
        }
    }
}
