//! Several drives that hold one cache.
//!
//! The zones for values are interleaved over the drives. **Every drive has a copy of
//! the two metadata zones**, so that the loss of a drive loses its values and no
//! tombstone.
//!
//! | zone of a drive | content |
//! |---|---|
//! | 0, 1 | labels ([`ArrayLabel`](floe_core::layout::ArrayLabel)): the newest says which drives belong to the array |
//! | 2, 3 | copies of the array's zones 0 and 1 |
//! | 4 … | every `drives`-th of the array's zones from 2 on |
//!
//! **A drive that fails is dropped, and never comes back with old content.** No more
//! operations are sent to it, and its zones become [`Offline`](crate::ZoneState::Offline).
//! A label without it is durable on all other drives before the metadata zones
//! acknowledge anything that it did not take part in. `docs/format.md` has the rule by which
//! drives that are found know whether their content is the newest.
//!
//! A blank drive takes the place of a dropped one. It has its copy of the metadata,
//! and so a label, from the first flush after both metadata zones were begun anew.
//!
//! | file | content |
//! |---|---|
//! | `shape.rs` | the place of each zone |
//! | `labels.rs` | reading and writing labels |
//! | `membership.rs` | the label that counts, as pure functions |
//! | `open.rs`, `error.rs` | opening, or the reason why not |
//! | `drives.rs` | the standing of each drive; dropping and joining |
//! | `mirror.rs` | operations on the metadata zones |
//! | `lane.rs` | one operation after another |
//! | `device.rs` | the device |

mod device;
mod drives;
mod error;
mod labels;
mod lane;
mod membership;
mod mirror;
mod open;
mod shape;

pub use device::Array;
pub use error::ArrayError;
pub use open::{ArrayOptions, Candidate};

pub use crate::contract::{DriveStanding, DriveStatus};
