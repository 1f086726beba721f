//! The baselines that Nemo is compared with, each after a published engine. The
//! setting `tiny.engine` selects one.
//!
//! They keep their index in memory only. A restart begins with an empty cache.
//!
//! | file | for |
//! |---|---|
//! | `log`, `set`, `kangaroo`, `fairywren` | the engines and their settings |
//! | `hier`, `shape` | a log in front of sets, and the division of flash between them |
//! | `append` | an append log over zones |
//! | `filter`, `rrip` | Bloom filters of pages, and eviction from full pages |

mod append;
pub mod fairywren;
pub mod filter;
mod hier;
pub mod kangaroo;
pub mod log;
mod rrip;
pub mod set;
mod shape;

pub use fairywren::{FairyWren, FairyWrenConfig, FairyWrenPlan};
pub use kangaroo::{Kangaroo, KangarooConfig, KangarooPlan, SetStorage};
pub use log::{Log, LogConfig, LogPlan};
pub use set::{Set, SetConfig, SetPlan, SetPolicy};
