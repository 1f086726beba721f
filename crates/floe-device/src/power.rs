//! Power loss, for devices in memory.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::contract::SharedDevice;
use crate::memory::MemoryDevice;
use crate::sim::SimDevice;

/// The switch that cuts and restores a device's power, over any number of
/// restarts.
///
/// ```
/// # use floe_device::{ByteSize, Clock, DeviceConfig, MemoryDevice, platter::WriteCache};
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let cache = WriteCache::Volatile { bytes_max: 64 << 20 };
/// let geometry = DeviceConfig::default().geometry(ByteSize::gib(1)).unwrap();
/// let (mut device, power) = MemoryDevice::with_power(geometry, cache);
/// for seed in 0..10 {
///     device.flush().await.unwrap();
///     power.crash(seed);
///     assert!(device.flush().await.is_err());
///     device = power.reopen();
/// }
/// # });
/// ```
#[derive(Clone)]
pub struct PowerSwitch(Arc<Mutex<Powered>>);

/// The device that now has the power.
pub(crate) enum Powered {
    Memory(MemoryDevice),
    Sim(SimDevice),
}

impl PowerSwitch {
    pub(crate) fn new(powered: Powered) -> Self {
        PowerSwitch(Arc::new(Mutex::new(powered)))
    }

    /// Cuts the power: everything under way and everything later fails with
    /// [`Gone`](crate::DeviceErrorKind::Gone). What was flushed survives.
    /// `seed` decides, block by block, what survives of completed writes in a
    /// volatile cache and of operations under way. On a zoned device a zone's
    /// data is lost from some point on, and its write pointer is at that point.
    /// Does nothing if the power is off.
    pub fn crash(&self, seed: u64) {
        match &*self.0.lock() {
            Powered::Memory(device) => device.crash(seed),
            Powered::Sim(device) => device.crash(seed),
        }
    }

    /// Cuts the power as the `operations`-th operation from now, counted from
    /// one, has just been started.
    pub fn crash_after(&self, operations: u64, seed: u64) {
        match &*self.0.lock() {
            Powered::Memory(device) => device.platter().set_fuse(operations, seed),
            Powered::Sim(device) => device.platter().set_fuse(operations, seed),
        }
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        match &*self.0.lock() {
            Powered::Memory(device) => device.platter().is_off(),
            Powered::Sim(device) => device.platter().is_off(),
        }
    }

    /// A new device over what survived. If the power was not cut, this is an
    /// orderly restart: all completed writes survive, and the old device is gone.
    pub fn reopen(&self) -> SharedDevice {
        let mut powered = self.0.lock();
        let (next, device): (Powered, SharedDevice) = match &*powered {
            Powered::Memory(device) => {
                let next = device.restarted();
                (Powered::Memory(next.clone()), Arc::new(next))
            }
            Powered::Sim(device) => {
                let next = device.restarted();
                (Powered::Sim(next.clone()), Arc::new(next))
            }
        };
        *powered = next;
        device
    }
}

impl fmt::Debug for PowerSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_off() {
            "PowerSwitch(off)"
        } else {
            "PowerSwitch(on)"
        })
    }
}
