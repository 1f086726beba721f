//! The standing of each drive, and the label that records it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use floe_core::Tick;
use floe_core::layout::ArrayLabel;
use parking_lot::Mutex;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::labels::NextLabel;
use super::membership::Base;
use crate::clock::Clock;
use crate::contract::{DriveStanding, DriveStatus, SharedDevice};
use crate::error::{DeviceError, DeviceErrorKind};

/// Failed operations of a drive without a success between them, after which it is dropped…
const FAILURES_MAX: u32 = 16;

/// … if the first of them is so long ago. A controller that is reset fails all that is in
/// flight at once.
const FAILING_FOR: Duration = Duration::from_secs(30);

/// Attempts to write a label, if the failure may pass, and the pause between two.
const LABEL_ATTEMPTS: u32 = 30;
const LABEL_PAUSE: Duration = Duration::from_secs(1);

/// The place of one drive.
pub(super) struct Slot {
    pub(super) name: String,
    /// None if the drive was absent when the array was opened.
    pub(super) device: Option<SharedDevice>,
    /// The standing is live or joining.
    is_usable: AtomicBool,
    /// Its last operation failed.
    is_failing: AtomicBool,
    state: Mutex<SlotState>,
}

struct SlotState {
    standing: DriveStanding,
    /// Failed operations without a success between them, and the time of the first.
    failures: u32,
    failing_since: Tick,
    /// Since when operations on all drives fail on this one.
    mirror_failing_since: Option<Tick>,
    /// Its zones are released, because it was dropped.
    is_released: bool,
    /// Its copy of each metadata zone equals the others.
    in_sync: [bool; 2],
}

impl Slot {
    pub(super) fn new(name: String, drive: Option<(SharedDevice, DriveStanding)>) -> Self {
        let standing = drive
            .as_ref()
            .map_or(DriveStanding::Dropped, |drive| drive.1);
        Slot {
            name,
            device: drive.map(|(device, _)| device),
            is_usable: AtomicBool::new(standing != DriveStanding::Dropped),
            is_failing: AtomicBool::new(false),
            state: Mutex::new(SlotState {
                standing,
                failures: 0,
                failing_since: Tick::ZERO,
                mirror_failing_since: None,
                is_released: standing == DriveStanding::Dropped,
                in_sync: [standing == DriveStanding::Live; 2],
            }),
        }
    }

    pub(super) fn standing(&self) -> DriveStanding {
        self.state.lock().standing
    }

    /// Takes the drive out of use. Returns its former standing.
    fn withdraw(&self) -> DriveStanding {
        self.is_usable.store(false, SeqCst);
        std::mem::replace(&mut self.state.lock().standing, DriveStanding::Dropped)
    }
}

/// The label in force, and what the next one needs.
pub(super) struct Membership {
    pub(super) base: Base,
    /// Numbers that no label of this array has on any drive.
    pub(super) next_sequence: u64,
    /// Of the array and its zones; the rest is that of no label.
    pub(super) template: ArrayLabel,
    /// The id of each slot's drive.
    pub(super) ids: Vec<Option<u64>>,
    pub(super) next: Vec<NextLabel>,
    pub(super) random: StdRng,
}

/// All drives of an array.
pub(super) struct Drives {
    slots: Vec<Slot>,
    clock: Clock,
    pub(super) is_read_only: bool,
    membership: AsyncMutex<Membership>,
    /// Changes of the standing that no durable label records yet.
    unsettled: watch::Sender<u32>,
    /// No drive is left.
    is_lost: AtomicBool,
}

impl Drives {
    pub(super) fn new(
        slots: Vec<Slot>,
        membership: Membership,
        clock: Clock,
        is_read_only: bool,
    ) -> Self {
        Drives {
            slots,
            clock,
            is_read_only,
            membership: AsyncMutex::new(membership),
            unsettled: watch::Sender::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The drive in `slot`, if operations may be sent to it.
    pub(super) fn usable(&self, slot: usize) -> Option<&SharedDevice> {
        let slot = &self.slots[slot];
        slot.device.as_ref().filter(|_| slot.is_usable.load(SeqCst))
    }

    /// Every drive to which operations may be sent.
    pub(super) fn all_usable(&self) -> impl Iterator<Item = (usize, &SharedDevice)> {
        (0..self.slots.len()).filter_map(|slot| Some((slot, self.usable(slot)?)))
    }

    pub(super) fn status(&self) -> Vec<DriveStatus> {
        let status = self.slots.iter().map(|slot| DriveStatus {
            name: slot.name.clone(),
            standing: slot.standing(),
        });
        status.collect()
    }

    /// True if the drive's copy of metadata zone `copy` equals the others.
    pub(super) fn is_in_sync(&self, slot: usize, copy: usize) -> bool {
        self.slots[slot].state.lock().in_sync[copy]
    }

    pub(super) fn set_in_sync(&self, slot: usize, copy: usize, in_sync: bool) {
        self.slots[slot].state.lock().in_sync[copy] = in_sync;
    }

    /// True if a live drive's copy of metadata zone `copy` differs from the others.
    pub(super) fn lacks_step(&self, copy: usize) -> bool {
        self.slots.iter().any(|slot| {
            let state = slot.state.lock();
            state.standing == DriveStanding::Live && !state.in_sync[copy]
        })
    }

    /// Takes note of the end of an operation on one drive. True if the drive must be
    /// dropped.
    #[must_use]
    pub(super) fn note<T>(&self, slot: usize, result: &Result<T, DeviceError>) -> bool {
        let drive = &self.slots[slot];
        let Err(error) = result else {
            if drive.is_failing.swap(false, SeqCst) {
                drive.state.lock().failures = 0;
            }
            return false;
        };
        if is_gone(error) {
            return true;
        }
        if !is_fault(error) {
            return false;
        }
        drive.is_failing.store(true, SeqCst);
        let now = self.clock.now();
        let mut state = drive.state.lock();
        if state.failures == 0 {
            state.failing_since = now;
        }
        state.failures += 1;
        state.failures >= FAILURES_MAX && now.since(state.failing_since) >= FAILING_FOR
    }

    /// Takes note of the end of an operation on all drives, which succeeded on another. True
    /// if this one must be dropped: at once, or later if the failure may pass.
    #[must_use]
    pub(super) fn note_mirrored(&self, slot: usize, failure: Option<&DeviceError>) -> bool {
        let mut state = self.slots[slot].state.lock();
        let Some(error) = failure else {
            state.mirror_failing_since = None;
            state.failures = 0;
            return false;
        };
        if state.standing == DriveStanding::Joining {
            return true;
        }
        let now = self.clock.now();
        let since = *state.mirror_failing_since.get_or_insert(now);
        !may_pass(error) || now.since(since) >= FAILING_FOR
    }

    /// Takes a drive out of use, and returns its former standing. If that was live,
    /// [`record`](Self::record) must run: until then the metadata zones acknowledge nothing.
    #[must_use]
    pub(super) fn withdraw(&self, slot: usize, why: &DeviceError) -> DriveStanding {
        // Announced first, so that no operation without this drive is acknowledged before.
        self.unsettled.send_modify(|changes| *changes += 1);
        let standing = self.slots[slot].withdraw();
        if standing != DriveStanding::Live {
            self.unsettled.send_modify(|changes| *changes -= 1);
        }
        if standing == DriveStanding::Dropped {
            return standing;
        }
        tracing::error!(
            drive = %self.slots[slot].name, error = %why,
            "a drive of the array has failed and is dropped with its values"
        );
        standing
    }

    /// True if a drive was dropped since the last call.
    pub(super) fn take_dropped(&self) -> bool {
        let mut any = false;
        for slot in &self.slots {
            let mut state = slot.state.lock();
            let is_dropped = state.standing == DriveStanding::Dropped;
            any |= is_dropped && !std::mem::replace(&mut state.is_released, true);
        }
        any
    }

    /// Records a change of the standing in a label, which [`withdraw`](Self::withdraw) or
    /// [`join`](Self::join) announced.
    pub(super) async fn record(&self) {
        /// Also if this future is dropped: then nothing is acknowledged any more.
        struct Settled<'a>(&'a Drives, bool);
        impl Drop for Settled<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    self.0.lose();
                }
                self.0.unsettled.send_modify(|changes| *changes -= 1);
            }
        }
        let mut settled = Settled(self, false);
        self.write_labels().await;
        settled.1 = true;
    }

    /// Waits until every change of the standing is recorded.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Gone`] if no drive is left.
    pub(super) async fn settled(&self) -> Result<(), DeviceErrorKind> {
        let mut unsettled = self.unsettled.subscribe();
        // The sender lives as long as `self`.
        let _ = unsettled.wait_for(|changes| *changes == 0).await;
        match self.is_lost.load(SeqCst) {
            true => Err(DeviceErrorKind::Gone),
            false => Ok(()),
        }
    }

    /// Makes joining drives live that have a complete copy of the metadata. True if
    /// [`record`](Self::record) must run.
    #[must_use]
    pub(super) fn join(&self) -> bool {
        let mut has_joined = false;
        for slot in &self.slots {
            let mut state = slot.state.lock();
            if state.standing == DriveStanding::Joining && state.in_sync == [true; 2] {
                state.standing = DriveStanding::Live;
                tracing::info!(drive = %slot.name, "a blank drive has joined the array");
                has_joined = true;
            }
        }
        if has_joined {
            self.unsettled.send_modify(|changes| *changes += 1);
        }
        has_joined
    }

    /// Brings a label in force that names the live drives, unless one is. A drive that does
    /// not take it is dropped, and the others get another one.
    pub(super) async fn write_labels(&self) {
        if self.is_read_only {
            return;
        }
        let mut membership = self.membership.lock().await;
        loop {
            let live = |slot: usize| self.slots[slot].standing() == DriveStanding::Live;
            let ids = membership.ids.iter().enumerate();
            let drives: Vec<_> = ids.map(|(slot, id)| id.filter(|_| live(slot))).collect();
            let base = &membership.base;
            if !base.is_disputed && drives == base.drives {
                return;
            }
            if !base.may_become(&drives) {
                return self.lose();
            }
            let label = membership.next_label(drives);
            match self.bring_to_all(&label, &mut membership).await {
                Ok(()) => {
                    membership.base = Base {
                        id: label.id,
                        epoch: label.epoch,
                        drives: label.slots,
                        is_disputed: false,
                    };
                }
                Err((slot, error)) => {
                    // Some drives may have it, so that another one must follow.
                    membership.base.is_disputed = true;
                    tracing::error!(
                        drive = %self.slots[slot].name, %error,
                        "a drive of the array takes no label and is dropped with its values"
                    );
                    self.slots[slot].withdraw();
                }
            }
        }
    }

    /// Writes a label to its drives, those first that the label in force does not name, up to
    /// the first that fails.
    async fn bring_to_all(
        &self,
        label: &ArrayLabel,
        membership: &mut Membership,
    ) -> Result<(), (usize, DeviceError)> {
        let mut named: Vec<_> = (0..label.slots.len())
            .filter_map(|slot| Some((slot, label.slots[slot]?)))
            .collect();
        named.sort_by_key(|(slot, id)| membership.base.drives[*slot] == Some(*id));
        for (slot, drive) in named {
            let Some(device) = &self.slots[slot].device else {
                continue;
            };
            let label = ArrayLabel {
                drive,
                ..label.clone()
            };
            let mut attempts = LABEL_ATTEMPTS;
            while let Err(error) = membership.next[slot].write(device, &label).await {
                attempts -= 1;
                if attempts == 0 || !may_pass(&error) {
                    return Err((slot, error));
                }
                self.clock.sleep(LABEL_PAUSE).await;
            }
        }
        Ok(())
    }

    fn lose(&self) {
        self.is_lost.store(true, SeqCst);
        for slot in &self.slots {
            slot.withdraw();
        }
        tracing::error!("no drive of the array is left, so it takes no more operations");
    }
}

impl Membership {
    fn next_label(&mut self, slots: Vec<Option<u64>>) -> ArrayLabel {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        ArrayLabel {
            sequence,
            id: self.random.random_range(1..=u64::MAX),
            parent: self.base.id,
            epoch: self.base.epoch + 1,
            slots,
            ..self.template.clone()
        }
    }
}

/// True if the drive is not there any more.
fn is_gone(error: &DeviceError) -> bool {
    /// ENXIO, ENODEV, ESHUTDOWN.
    const ABSENT: [i32; 3] = [6, 19, 108];
    const ACCESS_PERSISTENTLY_LOST: u16 = 0x301;
    match &error.kind {
        DeviceErrorKind::Io(error) => {
            let code = error.raw_os_error();
            code.is_some_and(|code| ABSENT.contains(&code))
        }
        DeviceErrorKind::Nvme(status) => status.code() == ACCESS_PERSISTENTLY_LOST,
        _ => false,
    }
}

/// True for failures that may pass: those of a controller that is being reset, of a full file
/// system, or of a caller.
fn may_pass(error: &DeviceError) -> bool {
    /// EINTR, EAGAIN, ECANCELED.
    const PASSING: [i32; 3] = [4, 11, 125];
    match &error.kind {
        DeviceErrorKind::Nvme(status) => status.fault().is_transient() && !is_gone(error),
        DeviceErrorKind::Io(error) => {
            let code = error.raw_os_error();
            code.is_some_and(|code| PASSING.contains(&code))
        }
        DeviceErrorKind::Short { .. } | DeviceErrorKind::ZoneUnwritable(_) => false,
        DeviceErrorKind::Gone
        | DeviceErrorKind::NoSpace
        | DeviceErrorKind::Invalid(_)
        | DeviceErrorKind::ZoneFull { .. }
        | DeviceErrorKind::TooManyZones(_)
        | DeviceErrorKind::Unsupported(_) => true,
    }
}

/// True for the failures that show a drive to be at fault, and not its caller.
fn is_fault(error: &DeviceError) -> bool {
    matches!(
        error.kind,
        DeviceErrorKind::Io(_)
            | DeviceErrorKind::Nvme(_)
            | DeviceErrorKind::Short { .. }
            | DeviceErrorKind::Gone
    )
}
