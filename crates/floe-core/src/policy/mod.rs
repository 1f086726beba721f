//! Policies of replacement and admission: values in, a decision out.

pub mod admission;
pub mod object;
pub mod zone;
