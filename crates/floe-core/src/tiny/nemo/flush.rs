//! The state of a flush.

use super::extents::Extent;
use crate::tiny::engine::{Task, TaskId, Work};
use crate::tiny::object::{Object, PageAddress};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// The phase of a flush.
#[derive(Debug)]
pub(super) enum Phase {
    /// There is nothing to flush.
    Idle,
    /// Extents must become free, for the sealed set-group or for filters.
    Room,
    /// Hot objects of the oldest set-group are read, set by set from `next` on.
    Collect { next: u32 },
    /// The sealed set-group is written.
    Objects { extent: Extent, next: u32 },
    /// A summary is written behind what it sums up.
    Seal { extent: Extent, of_index: bool },
    /// The open index group is written.
    Filters { extent: Extent, next: u32 },
}

/// The task under way.
#[derive(Debug)]
pub(super) enum Doing {
    Reset(u32),
    Collect(Vec<u32>),
    Verify(Vec<(Object, usize)>),
    Write(u32),
    Seal(u32),
}

/// The flush.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) phase: Phase,
    pub(super) doing: Option<(TaskId, Doing)>,
    next_id: u32,
    /// Hot objects of which newer copies may exist, where the filters say.
    pub(super) doubtful: Vec<(Object, Vec<PageAddress>)>,
    /// Bytes written back from the set-group that goes.
    pub(super) written_back_bytes: u64,
    /// Set-groups flushed since objects were cooled.
    pub(super) since_cooling: u32,
    /// Summing up the sealed set-group failed: all of it may be on flash.
    pub(super) may_be_whole: bool,
}

impl Flush {
    pub(super) fn new() -> Self {
        Flush {
            phase: Phase::Idle,
            doing: None,
            next_id: 0,
            doubtful: Vec::new(),
            written_back_bytes: 0,
            since_cooling: 0,
            may_be_whole: false,
        }
    }

    /// A set-group was sealed.
    pub(super) fn begin(&mut self) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Room;
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.doing.is_some() || !matches!(self.phase, Phase::Idle)
    }

    /// Hot objects whose newer copies are being looked for.
    fn verified(&self) -> &[(Object, usize)] {
        match &self.doing {
            Some((_, Doing::Verify(objects))) => objects,
            _ => &[],
        }
    }

    /// Memory of its lists, without the keys and values of objects.
    pub(super) fn memory_bytes(&self) -> u64 {
        let places = self.doubtful.iter().map(|(_, places)| places.capacity());
        room_bytes::<(Object, Vec<PageAddress>)>(self.doubtful.capacity())
            + places.map(room_bytes::<PageAddress>).sum::<u64>()
            + room_bytes::<(Object, usize)>(self.verified().len())
    }

    /// Memory of the keys and values of its objects.
    pub(super) fn payload_bytes(&self) -> u64 {
        let doubtful = self.doubtful.iter().map(|(object, _)| object);
        let verified = self.verified().iter().map(|(object, _)| object);
        payload_bytes(doubtful.chain(verified))
    }

    pub(super) fn start(&mut self, doing: Doing, work: Work) -> Option<Task> {
        let id = TaskId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.doing = Some((id, doing));
        Some(Task { id, work })
    }
}
