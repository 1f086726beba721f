//! The cache against models of it.

mod model;
mod paper;
mod random;
mod reference;
mod shards;
