//! Work on a whole drive outside of a cache: what it is and holds, emptying and preconditioning
//! it, and measuring it.
//!
//! Must not depend on: engines, and the format of what they keep.

mod claimed;
mod condition;
mod facts;
mod fit;
mod health;
mod profile;

pub use claimed::{Claimed, Emptied, Identity};
pub use condition::{Condition, Conditioned, Conditioning, condition};
pub use facts::{DriveFacts, HealthFacts, MediaFacts};
pub use fit::{Fitted, fit};
pub use health::{DriveHealth, HealthWatch};
pub use profile::{Latency, Load, Measured, ProfileOptions, profile};
