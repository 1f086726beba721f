//! Tiny objects: five engines behind one trait.
//!
//! | engine | after | on flash | in memory |
//! |---|---|---|---|
//! | [`nemo`] | Nemo (ASPLOS '26), and beyond | a FIFO of set-groups | filters of sets, partly on flash |
//! | [`log`] | CacheLib's block cache | a FIFO log | an exact index |
//! | [`mod@set`] | CacheLib's big hash | sets in place | a filter per set |
//! | [`kangaroo`] | Kangaroo (SOSP '21) | a small log, sets in place | index of the log, filters |
//! | [`fairywren`] | FairyWREN (OSDI '24) | a small log, sets in two logs | index of the log, filters, map of sets |
//!
//! Every engine is pure: see [`engine`].

mod append;
pub mod engine;
pub mod fairywren;
pub mod filter;
mod hier;
pub mod kangaroo;
pub mod log;
pub mod model;
pub mod nemo;
pub mod object;
mod pins;
pub mod plan;
mod rrip;
pub mod set;
mod shape;
pub mod statistics;
#[cfg(test)]
mod tests;

pub use engine::{
    Accepted, Cause, Durability, Engine, Found, Insert, Label, Outcome, Page, Search, Step,
    Summary, Task, TaskId, Work, waves,
};
pub use fairywren::{FairyWren, FairyWrenConfig, FairyWrenPlan};
pub use kangaroo::{Kangaroo, KangarooConfig, KangarooPlan, SetStorage};
pub use log::{Log, LogConfig, LogPlan};
pub use object::{
    Expiry, Flash, OBJECT_BYTES_MAX, OBJECT_HEADER_BYTES, Object, PAGE_BYTES, PAGE_HEADER_BYTES,
    PAGE_ROOM_BYTES, PREDICTION_MAX, PageAddress,
};
pub use plan::PlanError;
pub use set::{Set, SetConfig, SetPlan, SetPolicy};
pub use statistics::{Living, Memory, Statistics};

/// An object that fits no page cannot be kept, but must not leave an older one
/// alive: it becomes the news that there is none.
fn without_oversize(object: Object) -> Object {
    if object.stored_bytes() > PAGE_ROOM_BYTES {
        return Object::tombstone(object.hash);
    }
    object
}
