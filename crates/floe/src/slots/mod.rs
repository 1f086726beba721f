//! Slots that are rewritten in place: tables on flash with the content of each
//! slot. `floe_core::slots` allocates slots.
//!
//! An engine implements [`TableOwner`], queues changes with [`Tables::push`]
//! and runs [`run`] as a task. This module must not depend on an engine.

mod blocks;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use blocks::{TableBlocks, TableError};
pub(crate) use tables::{Change, DeadValues, Settled, TableOwner, Tables, run};
