//! The beginning of a log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use floe_core::ZoneId;
use floe_core::chunk::Durability;
use floe_device::{Clock, SharedDevice};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::batch::LogId;
use super::combiner::{Combiner, Wakers};
use super::contents::Contents;
use super::keeper::Keeper;
use super::owner::Owner;
use super::queue::Queue;
use super::shared::{Inbox, Shared};
use super::zones::Log;
use super::{LogError, LogSuperblock};

/// Requests that may wait for a group. Further callers wait to enqueue.
const QUEUE: usize = 4096;

/// The beginning of a log.
pub(crate) struct Start<S> {
    pub(crate) device: SharedDevice,
    pub(crate) clock: Clock,
    pub(crate) durability: Durability,
    /// Its epoch must be above every epoch that was read from either zone.
    pub(crate) superblock: S,
    pub(crate) zone: ZoneId,
}

impl<S: LogSuperblock> Start<S> {
    /// Begins a log with a checkpoint of `records`, and starts its keeper.
    pub(crate) async fn begin<C: Contents<Superblock = S>>(
        self,
        records: Vec<S::Record>,
        mut contents: C,
    ) -> Result<(Queue<C>, JoinHandle<()>), LogError> {
        let Start {
            device,
            clock,
            durability,
            superblock,
            zone,
        } = self;
        let log = Log::begin(device, durability, superblock, zone, records).await?;
        contents.begun(log.written_bytes());
        Ok(start(log, contents, clock))
    }
}

/// Starts the keeper of `log`. It ends with the log.
pub(super) fn start<C: Contents>(
    log: Log<C::Superblock>,
    contents: C,
    clock: Clock,
) -> (Queue<C>, JoinHandle<()>) {
    let keeper = Arc::<Notify>::default();
    let bell = Arc::clone(&keeper);
    let wakers = Wakers::new(move || bell.notify_one());
    let device = log.device();
    let owner = Owner {
        log,
        contents,
        is_broken: false,
        wakers: Arc::clone(&wakers),
    };
    let shared = Arc::new(Shared {
        id: LogId::new(),
        lacks_copy: AtomicBool::new(owner.log.lacks_copy()),
        combiner: Combiner::new(Box::new(owner), wakers),
        inbox: Mutex::new(Inbox {
            requests: Vec::new(),
            sent: 0,
            has_ended: false,
        }),
        places: Semaphore::new(QUEUE),
        home: Handle::current(),
        has_rings: device.reap(),
        device: Arc::downgrade(&device),
        keeper,
        is_active: AtomicBool::new(true),
        is_abandoned: AtomicBool::new(false),
        groups: AtomicU64::new(0),
    });
    let keeper = Keeper {
        shared: Arc::clone(&shared),
        clock,
    };
    (Queue::new(shared), tokio::spawn(keeper.run()))
}
