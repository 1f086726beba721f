//! An origin that is made up: deterministic bytes, chosen latencies and faults.

mod config;

pub use config::{EmulatedConfig, LatencyPreset, LatencyRule, MeasuredLatency, SizeRule};
