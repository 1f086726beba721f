//! Tests that every engine passes, and those that compare engines with what
//! their papers say.

pub(crate) mod oracle;

mod fifo;
mod laws;
mod papers;
mod sizes;
pub(crate) mod unruly;
