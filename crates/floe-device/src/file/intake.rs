//! The submitters' side of a ring: queued requests, and the drivers that submit
//! them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::{self, Handle};

use super::driver::DriverLink;
use super::request::Request;

/// State of submitters, behind one lock.
#[derive(Default)]
pub(super) struct Intake {
    pub(super) queue: VecDeque<Request>,
    pub(super) residents: Vec<Resident>,
    /// Waiters that were woken together and have not started another operation.
    pub(super) woken: usize,
}

impl Intake {
    /// A driver that will run: one on a multi_thread runtime, else one on the
    /// runtime of the caller, which is running now.
    pub(super) fn driver_for(&mut self, caller: Option<&Handle>) -> Option<&Arc<DriverLink>> {
        self.residents.retain(|resident| resident.link.is_running());
        let runtime = caller.map(Handle::id);
        let found = self
            .residents
            .iter()
            .find(|resident| resident.always_runs || Some(resident.runtime) == runtime)?;
        Some(&found.link)
    }
}

/// A driver and its runtime.
pub(super) struct Resident {
    pub(super) runtime: runtime::Id,
    /// True if its runtime has worker threads and so runs outside `block_on`.
    pub(super) always_runs: bool,
    pub(super) link: Arc<DriverLink>,
}

/// The submitter of an accepted request.
pub(super) enum Accepted {
    /// The caller submits it.
    Inline,
    /// The driver submits it, once the caller wakes it.
    Waking(Arc<DriverLink>),
    /// The driver submits it, and is awake.
    Queued,
}
