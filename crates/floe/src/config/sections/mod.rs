//! The library's sections. For a struct declared beside the code that it
//! configures, the struct has the defaults and the table here the documentation
//! of the keys.

mod admission;
mod chunk;
mod device;
mod object;
mod origin;
mod ram;
mod tiny;
mod tiny_engines;
mod volumes;

use super::Section;

pub use admission::{AdmissionChoice, AdmissionSettings};
pub use chunk::ChunkSettings;
pub use tiny::TinySettings;
pub use volumes::{VolumeSettings, VolumesProfile, VolumesSettings};

/// The sections of the library: device, engine, RAM tier, objects, origin, volumes.
///
/// # Errors
/// A bug, described in text: a struct and its table disagree.
pub fn library_sections() -> Result<Vec<Section>, String> {
    let mut sections = vec![
        device::section()?,
        chunk::section()?,
        ram::section()?,
        tiny::section()?,
    ];
    sections.extend(tiny_engines::sections()?);
    sections.extend([object::section()?, origin::section()?, volumes::section()?]);
    sections.push(volumes::volume());
    Ok(sections)
}
