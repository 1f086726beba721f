//! The production modules of the driver, with the checker's lock.

#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../../src/volume/tests/below.rs"]
mod below;
#[path = "../../src/volume/clean.rs"]
mod clean;
#[path = "../../src/volume/config.rs"]
mod config;
#[path = "../../src/volume/decide.rs"]
mod decide;
#[path = "../../src/volume/error.rs"]
mod error;
#[path = "../../src/volume/finish.rs"]
mod finish;
#[path = "../../src/volume/layout.rs"]
mod layout;
#[path = "../../src/volume/limits.rs"]
mod limits;
#[path = "../../src/volume/load.rs"]
mod load;
#[path = "../../src/volume/loading.rs"]
mod loading;
#[path = "../../src/volume/locks.rs"]
mod locks;
#[path = "../../src/volume/loss.rs"]
mod loss;
#[path = "../../src/volume/read.rs"]
mod read;
#[path = "../../src/volume/reclaim.rs"]
mod reclaim;
#[path = "../../src/volume/reservation.rs"]
pub mod reservation;
#[path = "../../src/volume/reservation_key.rs"]
pub mod reservation_key;
#[path = "../../src/volume/shard.rs"]
mod shard;
#[path = "../../src/volume/state.rs"]
mod state;
#[path = "../../src/volume/sums.rs"]
mod sums;
#[path = "../../src/volume/table/mod.rs"]
mod table;
#[path = "../../src/volume/witness.rs"]
mod witness;
#[path = "../../src/volume/write.rs"]
mod write;

mod models;
mod world;

mod lock {
    pub(super) use shuttle::sync::MutexGuard;

    /// The checker's lock with the production lock's interface.
    #[derive(Debug)]
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
