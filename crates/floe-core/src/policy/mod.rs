//! Replacement policies: values in, a decision out.

pub mod object;
pub mod zone;
