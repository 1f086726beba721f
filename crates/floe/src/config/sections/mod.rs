//! The sections of the library itself. Structs that live beside the code they
//! configure are adopted here: their defaults are theirs, the documentation
//! of their keys is this table.

mod device;
mod object;
mod origin;

use floe_core::ByteSize;

use super::{Limits, Section};

crate::choices! {
    /// Who is forgotten when flash is full.
    pub enum Eviction, default Zplru {
        /// The zone that was read longest ago.
        Zplru = "zplru",
        /// The zone that was written longest ago.
        Fifo = "fifo",
        /// The first zone, in the order they were written, that was not read since the hand last passed.
        Sieve = "sieve",
        /// Single chunks, the one read longest ago first. Reuses chunk slots in place where the device allows it; elsewhere moves live chunks together.
        Clru = "clru",
    }
}

crate::choices! {
    /// What an acknowledged delete or overwrite survives.
    pub enum Durability, default Power {
        /// A loss of power: the device is flushed before the acknowledgement.
        Power = "power",
        /// The end of the process, by any signal; not a loss of power.
        Process = "process",
    }
}

crate::section! {
    /// The chunk engine: how values are laid out on flash and forgotten.
    pub struct ChunkConfig in "chunk" {
        /// The piece in which objects are cached, and the largest value. Part of the format: changing it needs a reformat.
        pub size: ByteSize = ByteSize::kib(64), limits Limits::between(64 << 10, 1 << 30).multiple_of(4 << 10);
        /// Who is forgotten when flash is full. Changing to or from `clru` needs a reformat.
        pub eviction: Eviction = Eviction::default();
        /// Zones written at once. When not set, derived from the number of zones and what the device allows.
        pub open_zones: Option<u32> = None, limits Limits::between(1, 1024);
        /// Reclaim starts when so few zones are free. When not set, derived from the number of zones.
        pub high_water: Option<u32> = None, limits Limits::at_least(1);
        /// Reclaim stops when so many zones are free. When not set, derived from the number of zones.
        pub low_water: Option<u32> = None, limits Limits::at_least(1);
        /// What an acknowledged delete or overwrite survives.
        pub durability: Durability = Durability::default();
        /// Most memory for values on their way to flash. When it is full, writers wait.
        pub write_buffer: ByteSize = ByteSize::mib(64), limits Limits::at_least(1 << 20);
        /// In how many parts the index is locked. When not set, derived from the capacity.
        pub shards: Option<u32> = None, limits Limits::between(1, 4096);
        /// How long a small value may wait, in milliseconds, for others to be written with it.
        pub flush_delay_ms: u64 = 5, limits Limits::between(0, 10_000);
    }
}

crate::section! {
    /// The RAM tier in front of flash.
    pub struct RamConfig in "ram" {
        /// Memory for values and their keys; 0 turns the tier off.
        pub size: ByteSize = ByteSize::mib(256);
        /// Values larger than this are served from flash only.
        pub max_value: ByteSize = ByteSize::mib(1);
    }
}

/// The sections of the library: device, engine, RAM tier, objects, origin.
///
/// # Errors
/// A bug, said in words: a struct has a field that this table lacks.
pub fn library_sections() -> Result<Vec<Section>, String> {
    Ok(vec![
        device::section()?,
        ChunkConfig::section(),
        RamConfig::section(),
        object::section()?,
        origin::section()?,
    ])
}
