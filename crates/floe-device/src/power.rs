//! Power loss, for devices in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::contract::SharedDevice;
use crate::sim_media::SimMedia;

/// The switch that cuts and restores a device's power, over any number of
/// restarts.
///
/// ```
/// # use floe_device::{ByteSize, Clock, DeviceConfig, MemoryDevice, sim_media::WriteCache};
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
pub struct PowerSwitch(Arc<Mutex<Box<dyn Powered>>>);

/// A device whose power can fail.
pub(crate) trait Powered: Send {
    /// Its medium, which outlives the power.
    fn media(&self) -> &SimMedia;
    /// Cuts the power, if it is on.
    fn crash(&self, seed: u64);
    /// The device after a restart, for the switch and for its user.
    fn restarted(&self) -> (Box<dyn Powered>, SharedDevice);
}

impl PowerSwitch {
    pub(crate) fn new(powered: impl Powered + 'static) -> Self {
        PowerSwitch(Arc::new(Mutex::new(Box::new(powered))))
    }

    /// Cuts the power: all operations in flight and all later ones fail with
    /// [`Gone`](crate::DeviceErrorKind::Gone). Flushed data survives. `seed`
    /// decides, block by block, what survives of operations in flight and of
    /// completed writes in a volatile cache. On a zoned device, a zone's data
    /// is lost from some offset on, and its write pointer is at that offset.
    /// Does nothing if the power is off.
    pub fn crash(&self, seed: u64) {
        self.0.lock().crash(seed);
    }

    /// Cuts the power when the `operations`-th operation from now, counted from
    /// one, has just been started.
    pub fn crash_after(&self, operations: u64, seed: u64) {
        self.0.lock().media().power.set_fuse(operations, seed);
    }

    /// Has resets of zones that take writes in place only write zeros to their first block, also
    /// after restarts: what a file does that keeps its space.
    pub fn keep_content_at_resets(&self) {
        let powered = self.0.lock();
        powered.media().keeps_content.store(true, Relaxed);
    }

    /// True if the power is off.
    pub fn is_off(&self) -> bool {
        self.0.lock().media().power.is_off()
    }

    /// Restarts the device with the data that survived. If the power was not
    /// cut, this is an orderly restart: all completed writes survive, and the
    /// old device fails all operations.
    pub fn reopen(&self) -> SharedDevice {
        let mut powered = self.0.lock();
        let (next, device) = powered.restarted();
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
