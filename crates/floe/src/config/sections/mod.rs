//! The sections of the library itself. Structs that live beside the code they
//! configure are adopted here: their defaults are theirs, the documentation
//! of their keys is this table.

mod chunk;
mod device;
mod object;
mod origin;

use floe_core::ByteSize;

use super::Section;

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
        chunk::section()?,
        RamConfig::section(),
        object::section()?,
        origin::section()?,
    ])
}
