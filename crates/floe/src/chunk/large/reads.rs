//! Reads of large values, shared by readers of the same bytes.
//!
//! A read belongs to a task, not to the reader that started it: readers may
//! leave, and the read's pin ends when the bytes arrive.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use floe_device::{Address, DeviceError, IoBuf};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::chunk::environment::Environment;
use crate::chunk::zone_state::Pin;

/// Bytes of a part: enough for the device's bandwidth with a reader's window of
/// parts, and little enough for thousands of slow consumers.
pub(super) const PART_BYTES: u32 = 256 << 10;

/// A read that several readers may wait for.
#[derive(Clone, Debug)]
pub(super) struct SharedBytes {
    pub(super) len: u32,
    pub(super) done: Shared<BoxFuture<'static, Result<Bytes, ReadError>>>,
    /// The slowest reader keeps the bytes and their room.
    pub(super) room: Arc<Room>,
}

/// Memory for the bytes of a read.
#[derive(Debug)]
pub(super) struct Room {
    /// One part has no permit: every reader may have one such part.
    pub(super) lacks_one: bool,
    pub(super) _permits: Option<OwnedSemaphorePermit>,
}

/// Errors of a read.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Device(Arc<DeviceError>),
    #[error("the runtime has ended")]
    Ended,
}

/// The address of a value and its checksum.
pub(super) type ReadKey = (Address, u32);

/// The running reads.
#[derive(Debug)]
pub(super) struct Reads {
    env: Arc<Environment>,
    under_way: Mutex<HashMap<ReadKey, SharedBytes>>,
    /// One permit per part that all readers together may read ahead. One part
    /// per reader needs none, so that no reader waits for another's consumer.
    ahead: Arc<Semaphore>,
}

impl Reads {
    pub(super) fn new(env: &Arc<Environment>) -> Arc<Self> {
        let parts = env.plan.read_ahead_bytes / u64::from(PART_BYTES);
        let parts = usize::try_from(parts).unwrap_or(usize::MAX);
        Arc::new(Reads {
            env: Arc::clone(env),
            under_way: Mutex::default(),
            ahead: Arc::new(Semaphore::new(parts.min(Semaphore::MAX_PERMITS))),
        })
    }

    /// A permit for one more part, if available.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.ahead).try_acquire_owned().ok()
    }

    /// The running read of `key`, if there is one.
    pub(super) fn find(&self, key: ReadKey) -> Option<SharedBytes> {
        self.under_way.lock().get(&key).cloned()
    }

    /// Starts a read of `len` bytes.
    pub(super) fn start(
        self: &Arc<Self>,
        key: ReadKey,
        len: u32,
        room: Room,
        pin: Pin,
    ) -> SharedBytes {
        let (device, geometry) = (&self.env.device, &self.env.plan.geometry);
        let padded = geometry.round_up(u64::from(len)) as usize;
        let read = device.read(key.0, device.allocate(padded));
        let (sender, receiver) = oneshot::channel();
        let done = async move {
            let read: Result<_, DeviceError> = receiver.await.map_err(|_| ReadError::Ended)?;
            read.map_err(|error| ReadError::Device(Arc::new(error)))
        };
        let bytes = SharedBytes {
            len,
            done: done.boxed().shared(),
            room: Arc::new(room),
        };
        self.under_way.lock().insert(key, bytes.clone());
        let listed = Listed {
            reads: Arc::clone(self),
            key,
        };
        tokio::spawn(async move {
            let read = read.await;
            drop(listed);
            drop(pin);
            // Fails if all readers have left.
            let _ = sender.send(read.map(IoBuf::into_bytes));
        });
        bytes
    }
}

/// Removes a read from the list when it or its runtime ends.
struct Listed {
    reads: Arc<Reads>,
    key: ReadKey,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.reads.under_way.lock().remove(&self.key);
    }
}
