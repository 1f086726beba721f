//! Models of the latency of a slow store, for emulation.
//!
//! A [`LatencyRule`] is the setting, a [`LatencyModel`] draws from it, and a
//! [`LatencyFile`] has latencies that were measured. The model neither waits nor
//! reads a clock: the caller passes a random generator and sleeps.
//!
//! ```
//! use floe::latency::{LatencyModel, LatencyRule};
//! use rand::SeedableRng;
//!
//! let model = LatencyModel::new(&LatencyRule::Constant { ms: 2.5 })?;
//! let mut random = rand::rngs::StdRng::seed_from_u64(1);
//! let first_byte = model.draw(&mut random, 4096);
//! assert_eq!(first_byte, Some(std::time::Duration::from_micros(2500)));
//! # Ok::<(), floe::latency::LatencyError>(())
//! ```
//!
//! Must not depend on the kind of store whose latency it models.

mod error;
mod model;
mod recorded;
mod rule;

pub use error::LatencyError;
pub use model::LatencyModel;
pub use recorded::{LATENCY_FILE_FORMAT, LatencyClass, LatencyFile, Quantiles};
pub use rule::{LatencyPreset, LatencyRule, MeasuredLatency};
