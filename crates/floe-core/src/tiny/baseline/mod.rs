//! The baselines: engines that Nemo is compared with, each after a published
//! one. A setting chooses them (`tiny.engine`).
//!
//! They keep their index in memory only, and find nothing again after a
//! restart.
//!
//! | file | for |
//! |---|---|
//! | `log`, `set`, `kangaroo`, `fairywren` | the engines and their settings |
//! | `hier`, `shape` | a log in front of sets, and how flash is divided between them |
//! | `append` | an append log over zones |
//! | `filter`, `rrip` | Bloom filters of pages, and which objects stay in a full page |

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
