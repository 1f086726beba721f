//! Configuration: one table of keys, from which come the file's schema, the
//! environment variables, the flags, the commented default file and the
//! reference page.
//!
//! A [`Section`] is declared once, with the [`section!`](crate::section)
//! macro: its struct, each key's default, limits and documentation. A
//! [`Schema`] is the list of sections a program understands. It
//! [loads](Schema::load) a file, the environment and flags, in that order of
//! precedence, and answers with [`Effective`] settings that know where each
//! value came from; [`Effective::section`] turns them into the typed struct.
//!
//! Whether settings fit each other and the device is not decided here: each
//! engine validates its own plan, and the device its own geometry.

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
    AdmissionChoice, AdmissionSettings, ChunkSettings, TinySettings, library_sections,
};
pub use source::{Place, Source};

#[doc(hidden)]
pub use key::join_doc;
#[doc(hidden)]
pub use toml::Value;
