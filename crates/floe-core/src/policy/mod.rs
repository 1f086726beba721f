//! Policies for replacement and admission. They turn values into decisions.

pub mod admission;
pub mod object;
pub mod zone;
