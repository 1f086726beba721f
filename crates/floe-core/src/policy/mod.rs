//! Policies for replacement and admission. They turn values into decisions.

pub mod admission;
mod error;
pub mod object;
pub mod zone;

pub use error::PolicyConfigError;
