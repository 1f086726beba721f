//! The parts of a power loss that devices in memory share: the power's state, and the
//! choice of the blocks that survive.

use std::collections::HashSet;

use parking_lot::{Mutex, RwLock};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::DeviceErrorKind;

/// The power of one device, or of several that fail together.
#[derive(Debug, Default)]
pub(crate) struct PowerState {
    /// The power is off. Read-locked by operations that change data.
    is_off: RwLock<bool>,
    /// Operations until the power fails by itself, and the seed of that
    /// failure.
    fuse: Mutex<Option<(u64, u64)>>,
}

impl PowerState {
    pub(crate) fn is_off(&self) -> bool {
        *self.is_off.read()
    }

    /// Turns the power off; false if it was off.
    pub(crate) fn turn_off(&self) -> bool {
        !std::mem::replace(&mut *self.is_off.write(), true)
    }

    /// Sets the power to fail at the start of the `operations`-th operation
    /// from now, counting from one.
    pub(crate) fn set_fuse(&self, operations: u64, seed: u64) {
        *self.fuse.lock() = Some((operations.max(1), seed));
    }

    /// Counts the start of an operation. Returns the seed if the power fails
    /// now.
    pub(crate) fn burn_fuse(&self) -> Option<u64> {
        let mut fuse = self.fuse.lock();
        let (left, seed) = fuse.as_mut()?;
        *left -= 1;
        let seed = *seed;
        (*left == 0).then(|| {
            *fuse = None;
            seed
        })
    }

    /// Executes an operation with the power on throughout. If the power fails during
    /// it, `carry_out` is told so, `crash` cuts the power, and the operation fails.
    pub(crate) fn operate<T>(
        &self,
        carry_out: impl FnOnce(bool) -> Result<T, DeviceErrorKind>,
        crash: impl FnOnce(u64),
    ) -> Result<T, DeviceErrorKind> {
        let failure = self.burn_fuse();
        let done = {
            let is_off = self.is_off.read();
            (!*is_off).then(|| carry_out(failure.is_some()))
        };
        if let Some(seed) = failure {
            crash(seed);
            return Err(DeviceErrorKind::Gone);
        }
        done.unwrap_or(Err(DeviceErrorKind::Gone))
    }
}

/// Leaves each block as one of the lost writes, or none, left it. `writes` are the runs
/// of former content that each write replaced, with their offsets, newest write first.
/// `restore` puts a block of former content back.
pub(crate) fn keep_some_blocks<Runs, Bytes>(
    writes: impl IntoIterator<Item = Runs>,
    block_bytes: usize,
    random: &mut Xoshiro256PlusPlus,
    mut restore: impl FnMut(u64, &[u8]),
) where
    Runs: IntoIterator<Item = (u64, Bytes)>,
    Bytes: AsRef<[u8]>,
{
    let kept_share = [0.0, 0.1, 0.5, 0.9, 1.0][random.random_range(0..5)];
    let mut kept = HashSet::with_hasher(FixedState::default());
    for runs in writes {
        // Half of the writes survive or are lost as a whole.
        let whole = random
            .random::<bool>()
            .then(|| random.random_bool(kept_share));
        for (offset, before) in runs {
            let blocks = before.as_ref().chunks(block_bytes);
            for (at, before) in (offset..).step_by(block_bytes).zip(blocks) {
                let keep = whole.unwrap_or_else(|| random.random_bool(kept_share));
                if keep {
                    kept.insert(at);
                } else if !kept.contains(&at) {
                    restore(at, before);
                }
            }
        }
    }
}

/// Not randomly seeded, so that two runs are identical.
type FixedState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
