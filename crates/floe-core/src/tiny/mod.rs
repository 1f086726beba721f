//! Tiny objects: five engines behind one trait.
//!
//! | engine | after | on flash | in memory |
//! |---|---|---|---|
//! | [`nemo`] | Nemo (ASPLOS '26), and beyond | a FIFO of set-groups | filters of sets, partly on flash |
//! | [`baseline::log`] | CacheLib's block cache | a FIFO log | an exact index |
//! | [`baseline::set`] | CacheLib's big hash | sets in place | a filter per set |
//! | [`baseline::kangaroo`] | Kangaroo (SOSP '21) | a small log, sets in place | index of the log, filters |
//! | [`baseline::fairywren`] | FairyWREN (OSDI '24) | a small log, sets in two logs | index of the log, filters, map of sets |
//!
//! Every engine is pure: see [`engine`].

pub mod baseline;
pub mod engine;
pub mod model;
pub mod nemo;
pub mod object;
mod pins;
pub mod plan;
pub mod statistics;
#[cfg(test)]
mod tests;

pub use baseline::{
    FairyWren, FairyWrenConfig, FairyWrenPlan, Kangaroo, KangarooConfig, KangarooPlan, Log,
    LogConfig, LogPlan, Set, SetConfig, SetPlan, SetPolicy, SetStorage,
};
pub use engine::{
    Accepted, Cause, Discarded, Due, Durability, Engine, Found, Insert, Label, Outcome, Page,
    Search, Step, Stripe, Summary, Task, TaskId, Work, waves,
};
pub use object::{
    Expiry, Flash, OBJECT_BYTES_MAX, OBJECT_HEADER_BYTES, Object, PAGE_BYTES, PAGE_HEADER_BYTES,
    PAGE_ROOM_BYTES, PREDICTION_MAX, PageAddress,
};
pub use plan::PlanError;
pub use statistics::{LiveObjects, Memory, Statistics};
