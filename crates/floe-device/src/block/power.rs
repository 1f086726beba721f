//! Power losses of several block devices in one instant.

use std::fmt;
use std::sync::Arc;

use floe_core::ByteSize;
use parking_lot::Mutex;

use super::SharedBlockDevice;
use super::memory::{Medium, MemoryBlocks, Outlet};
use crate::config::OpenDeviceError;

/// Block devices in memory that lose their power together and restart together, any
/// number of times. Clones share the group.
///
/// ```
/// # use floe_device::{ByteSize, IoBuf, block::power::PowerGroup};
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let group = PowerGroup::default();
/// let cache = group.add(ByteSize::mib(64), 4096).unwrap();
/// let backing = group.add(ByteSize::gib(1), 512).unwrap();
/// cache.write(0, IoBuf::zeroed(4096).freeze()).await.unwrap();
/// group.crash(7);
/// assert!(backing.flush().await.is_err());
/// let restarted = group.restart();
/// assert_eq!(restarted[1].size_bytes(), 1 << 30);
/// # });
/// ```
#[derive(Clone, Default)]
pub struct PowerGroup(Arc<Mutex<Arc<Outlet>>>);

impl PowerGroup {
    /// Adds a device of zeros, of `size` bytes in blocks of `block_bytes`.
    ///
    /// # Errors
    /// As [`MemoryBlocks::new`].
    pub fn add(
        &self,
        size: ByteSize,
        block_bytes: u32,
    ) -> Result<SharedBlockDevice, OpenDeviceError> {
        let medium = Arc::new(Medium::new(size, block_bytes, true)?);
        let outlet = Arc::clone(&self.0.lock());
        outlet.media.lock().push(Arc::clone(&medium));
        Ok(Arc::new(MemoryBlocks::over(medium, Some(outlet))))
    }

    /// Cuts the power of all devices in one instant. Later operations fail with
    /// [`Gone`](crate::DeviceErrorKind::Gone). Flushed data survives. `seed` decides, in
    /// units of 512 bytes, the rest that survives. Does nothing if the power is off.
    pub fn crash(&self, seed: u64) {
        let outlet = Arc::clone(&self.0.lock());
        outlet.crash(seed);
    }

    /// Cuts the power at the start of the `operations`-th operation from now, counted
    /// from one and over all devices.
    pub fn crash_after(&self, operations: u64, seed: u64) {
        self.0.lock().power.set_fuse(operations, seed);
    }

    /// True if the power is off.
    pub fn is_off(&self) -> bool {
        self.0.lock().power.is_off()
    }

    /// Restarts all devices with the data that survived, in the order in which they
    /// joined. Old devices fail all operations. If the power is on, this is the death of
    /// the process alone: all that completed survives, and a later power loss may still
    /// take what was not flushed.
    pub fn restart(&self) -> Vec<SharedBlockDevice> {
        let mut outlet = self.0.lock();
        outlet.power.turn_off();
        let media = outlet.media.lock().clone();
        *outlet = Arc::new(Outlet {
            media: Mutex::new(media.clone()),
            ..Outlet::default()
        });
        let restarted = |medium| {
            let device: SharedBlockDevice =
                Arc::new(MemoryBlocks::over(medium, Some(Arc::clone(&outlet))));
            device
        };
        media.into_iter().map(restarted).collect()
    }
}

impl fmt::Debug for PowerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_off = self.is_off();
        f.debug_struct("PowerGroup")
            .field("is_off", &is_off)
            .finish()
    }
}
