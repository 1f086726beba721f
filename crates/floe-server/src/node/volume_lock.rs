//! Locks in etcd for backing devices that several machines reach and that have no reservations
//! of their own: files, partitions, and images of distributed stores.
//!
//! A lock is a key without a lease. Like a reservation it outlives the process that holds it,
//! since its cache may have dirty data. A machine that takes it away names the holder's key: the
//! holder must be off. One that lives after all, and reaches etcd, ends before the other begins.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use floe::membership::LeaseError;
use floe::volume::ReservationKey;
use floe_device::block::locked::BlockLock;
use floe_device::error::{DeviceErrorKind, Operation};
use floe_device::{Clock, DeviceError, Holder, OpFuture, Reserved};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;

use super::config::NodeConfig;
use super::etcd::{Etcd, Folder};

/// The time for one question to etcd, at all its addresses and with its login.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// The time between two looks at a lock that is held.
const WATCH_TIME: Duration = Duration::from_secs(1);

/// The time in which a holder that reaches etcd has seen that it is one no longer: a look that
/// may just have found the old value, the pause, and the next look.
const LEARNING_TIME: Duration = Duration::from_secs(7);

/// Attempts while other machines change the same lock.
const ATTEMPTS: usize = 8;

/// Bytes of the longest name of a lock.
const NAME_BYTES_MAX: usize = 255;

/// The locks of volumes in etcd.
#[derive(Debug)]
pub struct VolumeLocks {
    etcd: Arc<Etcd>,
    /// The name of this machine.
    node: String,
    clock: Clock,
    watch_time: Duration,
    learning_time: Duration,
    /// The locks of this process.
    names: Names,
}

type Names = Arc<Mutex<HashSet<String>>>;

impl VolumeLocks {
    /// Locks in the etcd of a node's settings, below `node.etcd_prefix`.
    ///
    /// # Errors
    /// The settings name no etcd; a file of the settings cannot be used.
    pub fn new(config: &NodeConfig, clock: Clock) -> Result<Self, LeaseError> {
        if config.etcd.is_empty() {
            return Err("node.etcd is not set".into());
        }
        Ok(VolumeLocks {
            etcd: Arc::new(Etcd::new(config, LOOK_TIME)?),
            node: config.effective_name(),
            clock,
            watch_time: WATCH_TIME,
            learning_time: LEARNING_TIME,
            names: Names::default(),
        })
    }

    /// A lock, by the name that all machines use for the device. Nothing is asked yet.
    ///
    /// # Errors
    /// The name has no characters, control characters, or more than 255 bytes; another volume of
    /// this process has the lock.
    pub fn lock(&self, name: &str) -> Result<Arc<dyn BlockLock>, LeaseError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
            return Err(format!(
                "`{name}` is no name of a lock: 1 to {NAME_BYTES_MAX} bytes without control characters"
            )
            .into());
        }
        if !self.names.lock().insert(name.to_owned()) {
            return Err(format!("another volume of this server has the lock `{name}`").into());
        }
        Ok(Arc::new(VolumeLock {
            names: Arc::clone(&self.names),
            shared: Arc::new(Shared {
                etcd: Arc::clone(&self.etcd),
                name: name.to_owned(),
                node: self.node.clone(),
                incarnation: rand::random(),
                clock: self.clock.clone(),
                watch_time: self.watch_time,
                learning_time: self.learning_time,
                is_taken_away: AtomicBool::new(false),
            }),
            watch: Arc::default(),
        }))
    }
}

/// A lock of a volume.
#[derive(Debug)]
struct VolumeLock {
    names: Names,
    shared: Arc<Shared>,
    /// Looks whether the lock is still held.
    watch: Arc<Mutex<Option<AbortOnDropHandle<()>>>>,
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        self.names.lock().remove(&self.shared.name);
    }
}

#[derive(Debug)]
struct Shared {
    etcd: Arc<Etcd>,
    name: String,
    node: String,
    /// Tells this attachment from earlier ones, and from one of a copy of the cache.
    incarnation: u64,
    clock: Clock,
    watch_time: Duration,
    learning_time: Duration,
    is_taken_away: AtomicBool,
}

/// The value of a lock in etcd, which stays there when the lock is free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Value {
    holder: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// The key of the cache that holds it.
    key: ReservationKey,
    /// The machine.
    node: String,
    /// The attachment.
    incarnation: u64,
    /// True once all that others may have changed before is known to the holder.
    confirmed: bool,
}

impl Shared {
    /// The value of the lock, and its revision; 0 if it was never taken, or vanished.
    async fn value(&self) -> Result<(Option<Value>, u64), LeaseError> {
        let Some(found) = self
            .asking(self.etcd.get(Folder::Volumes, &self.name))
            .await?
        else {
            return Ok((None, 0));
        };
        let value = serde_json::from_slice(&found.bytes).map_err(|error| {
            format!(
                "the value of the lock `{}` in etcd is not Floe's: {error}; choose another name",
                self.name
            )
        })?;
        Ok((Some(value), found.modification))
    }

    /// Replaces a lock that has not changed since.
    async fn set(&self, modification: u64, holder: Option<Held>) -> Result<bool, LeaseError> {
        let value = serde_json::to_vec(&Value { holder })?;
        let setting = self
            .etcd
            .set_if((Folder::Volumes, &self.name), modification, &value);
        self.asking(setting).await
    }

    async fn asking<T>(
        &self,
        answer: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, LeaseError> {
        tokio::select! {
            answer = answer => answer,
            () = self.clock.sleep(LOOK_TIME) => Err("etcd does not answer in time".into()),
        }
    }

    async fn reserve(
        &self,
        key: ReservationKey,
        taken_from: Option<ReservationKey>,
    ) -> Result<Reserved, LeaseError> {
        for _ in 0..ATTEMPTS {
            let (value, modification) = self.value().await?;
            let is_known = value.is_some();
            let holder = value.and_then(|value| value.holder);
            // An earlier process of this machine has ended: only one has the cache device open.
            // An earlier attempt of this one may have happened without an answer.
            let is_own = |held: &Held| held.key == key && held.node == self.node;
            let (waits, was_held) = match holder {
                Some(held) if is_own(&held) => (!held.confirmed, held.confirmed),
                Some(held) if Some(held.key) != taken_from => {
                    return Ok(Reserved::Elsewhere(Holder {
                        key: Some(held.key.0),
                        name: Some(held.node),
                    }));
                }
                // A copy of the cache that is its holder's, such as a half of a mirror.
                Some(held) => (true, held.key == key && held.confirmed),
                // A lock without a value is new, or its value vanished while a machine held it.
                None => (!is_known, false),
            };
            let own = Held {
                key,
                node: self.node.clone(),
                incarnation: self.incarnation,
                confirmed: was_held,
            };
            if self.set(modification, Some(own)).await? {
                if waits {
                    self.clock.sleep(self.learning_time).await;
                }
                return Ok(Reserved::Held { was_held });
            }
        }
        Err(self.is_contended())
    }

    /// Changes the lock that this attachment holds; false if it does not hold it.
    async fn change(&self, change: impl Fn(Held) -> Option<Held>) -> Result<bool, LeaseError> {
        for _ in 0..ATTEMPTS {
            let (value, modification) = self.value().await?;
            let held = value.and_then(|value| value.holder);
            let Some(held) = held.filter(|held| held.incarnation == self.incarnation) else {
                return Ok(false);
            };
            if self.set(modification, change(held)).await? {
                return Ok(true);
            }
        }
        Err(self.is_contended())
    }

    fn is_contended(&self) -> LeaseError {
        format!("the lock `{}` in etcd changes all the time", self.name).into()
    }

    /// Looks until the lock is lost. While etcd does not answer, the lock counts as held.
    async fn watch(&self) {
        let mut is_silent = false;
        loop {
            self.clock.sleep(self.watch_time).await;
            let holder = match self.value().await {
                Ok((value, _)) => value.and_then(|value| value.holder),
                Err(error) => {
                    if !std::mem::replace(&mut is_silent, true) {
                        tracing::warn!(
                            lock = self.name, %error,
                            "etcd does not tell whether the lock is held: the volume goes on"
                        );
                    }
                    continue;
                }
            };
            match holder {
                Some(held) if held.incarnation == self.incarnation => {
                    if std::mem::take(&mut is_silent) {
                        tracing::info!(lock = self.name, "etcd answers again: the lock is held");
                    }
                    continue;
                }
                Some(held) => tracing::error!(
                    lock = self.name, holder = held.node, key = %held.key,
                    "the lock of a volume's backing device was taken away: the volume answers nothing more"
                ),
                None => tracing::error!(
                    lock = self.name,
                    "the lock of a volume's backing device has vanished from etcd, so that another machine may have had it: the volume answers nothing more"
                ),
            }
            self.is_taken_away.store(true, Relaxed);
            return;
        }
    }
}

impl BlockLock for VolumeLock {
    fn reserve(&self, key: u64, taken_from: Option<u64>) -> OpFuture<Reserved> {
        let (shared, watch) = (Arc::clone(&self.shared), Arc::clone(&self.watch));
        let key = ReservationKey(key);
        OpFuture::new(async move {
            let taken_from = taken_from.map(ReservationKey);
            let reserved = shared.reserve(key, taken_from).await.map_err(failed)?;
            if matches!(reserved, Reserved::Held { .. }) {
                shared.is_taken_away.store(false, Relaxed);
                let watching = tokio::spawn(async move { shared.watch().await });
                *watch.lock() = Some(AbortOnDropHandle::new(watching));
            }
            Ok(reserved)
        })
    }

    fn confirm(&self, _key: u64) -> OpFuture<()> {
        let shared = Arc::clone(&self.shared);
        OpFuture::new(async move {
            let confirmed = |held| {
                Some(Held {
                    confirmed: true,
                    ..held
                })
            };
            let confirmed = shared.change(confirmed).await;
            match confirmed.map_err(failed)? {
                true => Ok(()),
                false => Err(failed("the lock was lost meanwhile".into())),
            }
        })
    }

    fn release(&self, _key: u64) -> OpFuture<()> {
        let shared = Arc::clone(&self.shared);
        *self.watch.lock() = None;
        OpFuture::new(async move {
            let released = shared.change(|_| None).await;
            released.map(drop).map_err(failed)
        })
    }

    fn is_taken_away(&self) -> bool {
        self.shared.is_taken_away.load(Relaxed)
    }
}

fn failed(error: LeaseError) -> DeviceError {
    let error = io::Error::other(error);
    DeviceError::new(Operation::Reserve, None, DeviceErrorKind::Io(error))
}

#[cfg(test)]
mod tests;
