//! The sections of the library itself. Structs that are declared beside the
//! code that they configure are adopted here. The structs have the defaults;
//! these tables have the documentation of the keys.

mod admission;
mod chunk;
mod device;
mod object;
mod origin;
mod ram;
mod tiny;
mod tiny_engines;

use super::Section;

pub use admission::{AdmissionChoice, AdmissionSettings};
pub use chunk::ChunkSettings;
pub use tiny::TinySettings;

/// The sections of the library: device, engine, RAM tier, objects, origin.
///
/// # Errors
/// A bug, described in words: a struct has a field that this table lacks.
pub fn library_sections() -> Result<Vec<Section>, String> {
    let mut sections = vec![
        device::section()?,
        chunk::section()?,
        ram::section()?,
        tiny::section()?,
    ];
    sections.extend(tiny_engines::sections()?);
    sections.extend([object::section()?, origin::section()?]);
    Ok(sections)
}
