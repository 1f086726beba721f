//! Validation of device configurations, and scaled versions of a device.

use super::config::{
    ConfigFault, FlashConfig, FtlConfig, HostInterface, InPlaceConfig, Interface, Isolation,
    Medium, NandConfig, SsdConfig, ZonedConfig,
};
use crate::ByteSize;

fn fail<T>(why: impl Into<String>) -> Result<T, ConfigFault> {
    Err(ConfigFault(why.into()))
}

impl SsdConfig {
    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// Names the first number that is not.
    pub fn validate(&self) -> Result<(), ConfigFault> {
        let block = self.block.bytes();
        if !block.is_power_of_two() || !(512..=1 << 20).contains(&block) {
            return fail(format!(
                "block {} is not a power of two between 512 and 1MiB",
                self.block
            ));
        }
        self.host.validate()?;
        match &self.medium {
            Medium::Flash(flash) => flash.validate(block, &self.host),
            Medium::InPlace(medium) => medium.validate(block),
        }
    }

    /// The same device with another number of superblocks: capacity, zones and
    /// the thresholds of garbage collection scale with it. If few superblocks
    /// have many handles, capacity shrinks more. A device without superblocks
    /// is returned unchanged.
    ///
    /// # Errors
    /// If no device can have so few superblocks.
    pub fn scaled(mut self, superblocks: u32) -> Result<Self, ConfigFault> {
        if let Medium::Flash(flash) = &mut self.medium {
            let (now, before) = (u64::from(superblocks), u64::from(flash.superblocks.max(1)));
            match &mut flash.interface {
                Interface::Zoned(zoned) => {
                    zoned.zones = (u64::from(zoned.zones) * now / before) as u32;
                }
                Interface::Conventional(ftl) => ftl.scale(flash.superblock, now, before),
            }
            flash.superblocks = superblocks;
        }
        self.validate()?;
        Ok(self)
    }

    /// The same device with its superblocks, hence its capacity, shrunk to a
    /// `part`-th. The number of superblocks stays, so that garbage collection
    /// behaves the same; the device only fills up sooner. The mapping unit is
    /// halved until it fits.
    ///
    /// # Errors
    /// If no device can be so small.
    pub fn shrunk(mut self, part: u32) -> Result<Self, ConfigFault> {
        if let Medium::Flash(flash) = &mut self.medium {
            let row = flash.nand.row_bytes().max(1);
            let before = flash.superblock.bytes().max(1);
            let rows = (before / row / u64::from(part.max(1))).max(1);
            if let Interface::Conventional(ftl) = &mut flash.interface {
                let mut unit = ftl.mapping_unit.bytes().max(1);
                while unit > 1 && !(rows * row).is_multiple_of(unit) {
                    unit /= 2;
                }
                ftl.mapping_unit = ByteSize(unit);
            }
            flash.resize_drive(ByteSize(rows * row));
        }
        self.validate()?;
        Ok(self)
    }
}

impl HostInterface {
    fn validate(&self) -> Result<(), ConfigFault> {
        if self.write_bytes_per_s == 0 || self.read_bytes_per_s == 0 {
            return fail("the link to the host must carry more than 0 bytes per second");
        }
        if self.command_overhead_ns > 1_000_000_000 {
            return fail("the command overhead must be at most a second");
        }
        Ok(())
    }
}

impl FtlConfig {
    fn scale(&mut self, superblock: ByteSize, now: u64, before: u64) {
        let share = u128::from(self.capacity.bytes()) * u128::from(now) / u128::from(before);
        let spare = now.saturating_sub((share as u64).div_ceil(superblock.bytes().max(1)));
        let handles = u32::from(self.handles);
        // One collected and one filled superblock, beside the superblocks kept
        // for handles.
        let least = self.streams().max(handles / 2) + 1;
        let third = u32::try_from(spare / 3).unwrap_or(u32::MAX);
        let below = self.collect_below.min(third.max(least));
        self.throttle_at = self.throttle_at * below / self.collect_below.max(1);
        self.throttle_at = self.throttle_at.clamp(1, below.max(2) - 1);
        self.collect_below = below;
        let room = now.saturating_sub(self.superblocks_beside_capacity()) * superblock.bytes();
        let capacity = (share as u64).min(room);
        self.capacity = ByteSize(capacity - capacity % self.mapping_unit.bytes().max(1));
    }

    /// Superblocks that are open, reserved or kept free. Each handle may have
    /// one open and one reserved.
    fn superblocks_beside_capacity(&self) -> u64 {
        2 * u64::from(self.handles) + 2 * u64::from(self.streams()) + u64::from(self.collect_below)
    }

    /// Streams of collected data; each needs a superblock that the host cannot
    /// use.
    fn streams(&self) -> u32 {
        match self.isolation {
            Isolation::Initial => 1,
            Isolation::Persistent => u32::from(self.handles),
        }
    }
}

impl FlashConfig {
    fn validate(&self, block: u64, host: &HostInterface) -> Result<(), ConfigFault> {
        self.nand.validate(block)?;
        let (row, superblock) = (self.nand.row_bytes(), self.superblock.bytes());
        if superblock == 0 || !superblock.is_multiple_of(row) || superblock > 1 << 40 {
            return fail(format!(
                "superblock {} is not a multiple of {} (a program unit on each die of a stripe) up to 1TiB",
                self.superblock,
                ByteSize(row)
            ));
        }
        if self.superblocks == 0 || self.superblocks > 1 << 20 {
            return fail("there must be between 1 and 1048576 superblocks");
        }
        let streams = match &self.interface {
            Interface::Conventional(ftl) => {
                self.validate_ftl(ftl, block)?;
                u64::from(ftl.handles)
            }
            Interface::Zoned(zoned) => {
                self.validate_zoned(zoned, block)?;
                u64::from(zoned.active_max)
            }
        };
        let piece = match &self.interface {
            Interface::Conventional(ftl) => 18 * ftl.mapping_unit.bytes(),
            Interface::Zoned(_) => 256 << 10,
        };
        let least = streams * row + piece.max(256 << 10);
        if host.buffer.bytes() < least {
            return fail(format!(
                "a write buffer of {} is too small: {streams} streams with a row of {} each, and what is arriving, need {}",
                host.buffer,
                ByteSize(row),
                ByteSize(least)
            ));
        }
        Ok(())
    }

    fn validate_ftl(&self, ftl: &FtlConfig, block: u64) -> Result<(), ConfigFault> {
        let unit = ftl.mapping_unit.bytes();
        if unit == 0 || !unit.is_multiple_of(block) || unit > 16 << 20 {
            return fail(format!(
                "mapping unit {} is not a multiple of the block size up to 16MiB",
                ftl.mapping_unit
            ));
        }
        if !self.superblock.bytes().is_multiple_of(unit) {
            return fail(format!(
                "superblock {} is not a multiple of the mapping unit {}",
                self.superblock, ftl.mapping_unit
            ));
        }
        let capacity = ftl.capacity.bytes();
        if capacity == 0 || !capacity.is_multiple_of(unit) {
            return fail(format!(
                "capacity {} is not a positive multiple of the mapping unit {}",
                ftl.capacity, ftl.mapping_unit
            ));
        }
        if ftl.handles == 0 || ftl.handles > 1024 {
            return fail("there must be between 1 and 1024 placement handles");
        }
        let places = self.superblock.bytes() / unit * u64::from(self.superblocks);
        if places >= u64::from(u32::MAX) {
            return fail(format!(
                "{places} mapping units are more than 2^32; choose a larger mapping unit than {}",
                ftl.mapping_unit
            ));
        }
        if ftl.collect_below <= ftl.streams() || ftl.throttle_at >= ftl.collect_below {
            return fail(format!(
                "garbage must be collected below more than {} free superblocks, and hosts throttled at fewer than that; it is {} and {}",
                ftl.streams(),
                ftl.collect_below,
                ftl.throttle_at
            ));
        }
        let needed = capacity.div_ceil(self.superblock.bytes()) + ftl.superblocks_beside_capacity();
        if u64::from(self.superblocks) < needed {
            return fail(format!(
                "{} superblocks are too few for a capacity of {}: with open ones and those that collection keeps free it takes {needed}",
                self.superblocks, ftl.capacity
            ));
        }
        Ok(())
    }

    fn validate_zoned(&self, zoned: &ZonedConfig, block: u64) -> Result<(), ConfigFault> {
        if zoned.zones == 0 || zoned.zones > self.superblocks {
            return fail(format!(
                "{} zones are not between 1 and the {} superblocks",
                zoned.zones, self.superblocks
            ));
        }
        let size = zoned.zone_size.bytes();
        if size < self.superblock.bytes() || !size.is_multiple_of(block) || size > 1 << 42 {
            return fail(format!(
                "zone size {} is not a multiple of the block size of at least the capacity {}",
                zoned.zone_size, self.superblock
            ));
        }
        if zoned.open_max == 0 || zoned.active_max < zoned.open_max {
            return fail("at least one zone must be allowed open, and as many active as open");
        }
        let append = zoned.append_max.bytes();
        if append == 0 || !append.is_multiple_of(block) {
            return fail("the largest append must be a positive multiple of the block size");
        }
        Ok(())
    }
}

impl NandConfig {
    fn validate(&self, block: u64) -> Result<(), ConfigFault> {
        let (page, unit) = (self.page.bytes(), self.program_unit.bytes());
        if page == 0 || !page.is_multiple_of(block) || unit == 0 || !unit.is_multiple_of(page) {
            return fail(format!(
                "a program unit of {} must consist of pages of {}, and these of blocks",
                self.program_unit, self.page
            ));
        }
        if self.dies == 0 || self.dies > 4096 || self.stripe_dies == 0 {
            return fail("there must be between 1 and 4096 dies, and at least one in a stripe");
        }
        if self.stripe_dies > self.dies || self.row_bytes() > 1 << 30 {
            return fail("a stripe must fit the dies and hold at most 1GiB");
        }
        if self.parity_every == 1 {
            return fail("parity_every = 1 leaves no program unit for data; use 0 or at least 2");
        }
        let times = [self.read_page_ns, self.program_ns, self.erase_ns];
        if times.iter().any(|ns| !(1..=10_000_000_000).contains(ns)) {
            return fail("a page read, program or erase takes between 1 ns and 10 s");
        }
        Ok(())
    }
}

impl InPlaceConfig {
    fn validate(&self, block: u64) -> Result<(), ConfigFault> {
        let (capacity, stripe) = (self.capacity.bytes(), self.stripe.bytes());
        if capacity == 0 || !capacity.is_multiple_of(block) || capacity > 1 << 60 {
            return fail("the capacity must be a positive multiple of the block size up to 1EiB");
        }
        if stripe == 0 || !stripe.is_multiple_of(block) || stripe > 1 << 40 {
            return fail("the stripe must be a positive multiple of the block size up to 1TiB");
        }
        if self.lanes == 0 || self.lanes > 4096 {
            return fail("there must be between 1 and 4096 lanes");
        }
        if self.read_bytes_per_s == 0 || self.write_bytes_per_s == 0 {
            return fail("a lane must carry more than 0 bytes per second");
        }
        let times = [self.read_ns, self.write_ns, self.seek_ns];
        if times.iter().any(|&ns| ns > 60_000_000_000) {
            return fail("an access takes at most a minute");
        }
        Ok(())
    }
}
