//! Requests of volumes under a model checker: the production source of locks,
//! decisions, reads, writes, cleaning and eviction, with the checker's lock for shards and
//! devices that yield, in thousands of interleavings.

#[path = "../src/gauge.rs"]
mod gauge;
mod volume;
