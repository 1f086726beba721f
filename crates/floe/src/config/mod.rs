//! Configuration: one table of keys. The file's schema, the environment
//! variables, the flags, the commented default file and the reference page all
//! follow from it.
//!
//! The [`section!`](crate::section) macro declares a [`Section`] once: its
//! struct, and each key's default, limits and documentation. A [`Schema`] is
//! the list of sections that a program understands. It [loads](Schema::load) a
//! file, the environment and flags, each of which overrides the one before. The
//! result is [`Effective`] settings, which know the source of each value;
//! [`Effective::section`] turns them into the typed struct.
//!
//! This module does not decide whether settings fit each other and the device:
//! each engine validates its own plan, and the device its own geometry.

mod error;
mod file;
mod key;
mod load;
mod renamed;
mod render;
mod schema;
mod sections;
mod source;
mod value;

#[cfg(test)]
mod tests;

pub use error::ConfigError;
pub use key::{Choice, Key, Kind, Limits, Section, Setting};
pub use load::{Effective, Entry, Overlay, Sources};
pub use schema::Schema;
pub use sections::{
    AdmissionChoice, AdmissionSettings, ChunkSettings, TinySettings, VolumeSettings,
    VolumesProfile, VolumesSettings, library_sections,
};
pub use source::{Place, Source};

#[doc(hidden)]
pub use key::join_doc;
#[doc(hidden)]
pub use toml::Value;
