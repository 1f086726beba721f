//! Replacement policies: values in, a decision out.

pub mod zone;
