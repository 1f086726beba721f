//! Experiments.

mod cache;

pub use cache::{CacheSpec, CacheUnderTest, TargetKind};
