//! Tests that every engine passes, and tests against the figures of the papers.

pub(crate) mod oracle;

mod fifo;
mod laws;
mod papers;
mod sizes;
pub(crate) mod unruly;
