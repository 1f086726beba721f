//! Policies for replacement, admission, promotion and cleaning. They turn values
//! into decisions.

pub mod admission;
pub mod cleaning;
mod error;
pub mod object;
pub mod promotion;
pub mod zone;

pub use error::PolicyConfigError;
