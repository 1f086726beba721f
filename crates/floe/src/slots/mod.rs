//! Slots that are written again in place: tables on flash that say what each
//! slot holds. `floe_core::slots` says which slots are free.
//!
//! An engine implements [`TableOwner`], queues changes with [`Tables::push`] and
//! runs [`run`] in a task. This module must not depend on an engine.

mod blocks;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use blocks::{TableBlocks, TableError};
pub(crate) use tables::{Change, Dead, Settled, TableOwner, Tables, run};
