//! The state of a flush.

use std::collections::VecDeque;

use super::extents::Extent;
use crate::tiny::engine::{Page, Task, TaskId, Work};
use crate::tiny::object::{Object, PageAddress};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// The phase of a flush.
#[derive(Debug)]
pub(super) enum Phase {
    /// There is nothing to flush.
    Idle,
    /// The sealed set-group or the filters need a free extent.
    Room,
    /// The oldest set-group's hot objects are being read; the sets before `next` were searched
    /// for them.
    Collect { next: u32 },
    /// The sealed set-group is being written; `next` is the next set.
    Objects { extent: Extent, next: u32 },
    /// The extent's summary is being written.
    Seal { extent: Extent, of_index: bool },
    /// The open index group is being written; `next` is the next set.
    Filters { extent: Extent, next: u32 },
}

/// The running task.
#[derive(Debug)]
pub(super) enum Running {
    Reset(u32),
    Collect(Vec<u32>),
    Verify(Vec<(Object, usize)>),
    Write(u32),
    Seal(u32),
}

/// Objects and pages that decide which hot objects are written back.
#[derive(Debug)]
pub(super) enum Read {
    /// Objects of a set of the oldest set-group from the slot on, and the time.
    Hot {
        set: u32,
        slot: usize,
        objects: std::vec::IntoIter<Object>,
        now_seconds: u32,
    },
    /// A hot object, and the pages that may hold a newer copy.
    Suspect(Object, Vec<Option<Page>>),
}

impl Read {
    fn objects(&self) -> impl Iterator<Item = &Object> {
        let (objects, pages) = match self {
            Read::Hot { objects, .. } => (objects.as_slice(), &[][..]),
            Read::Suspect(object, pages) => (std::slice::from_ref(object), &**pages),
        };
        let of_pages = pages.iter().flatten().flat_map(objects_of);
        objects.iter().chain(of_pages)
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            Read::Hot { objects, .. } => room_bytes::<Object>(objects.len()),
            Read::Suspect(_, pages) => pages.iter().flatten().map(table_bytes).sum(),
        }
    }
}

fn objects_of(page: &Page) -> &[Object] {
    match page {
        Page::Objects(objects) => objects,
        Page::Index(_) => &[],
    }
}

/// Bytes of memory of a page, without keys and values.
fn table_bytes(page: &Page) -> u64 {
    match page {
        Page::Objects(objects) => room_bytes::<Object>(objects.capacity()),
        Page::Index(bytes) => bytes.len() as u64,
    }
}

/// The progress of a flush.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) phase: Phase,
    pub(super) running: Option<(TaskId, Running)>,
    next_id: u32,
    /// Sets of the oldest set-group with hot objects, to read next.
    pub(super) hot: Vec<u32>,
    /// The pages that were read and are not judged yet.
    pub(super) read: VecDeque<Read>,
    /// Pages to write next, made ahead, and the number of sets of which pages were made in this
    /// phase.
    pub(super) pages: Vec<Page>,
    pub(super) made: u32,
    /// The filters of the set-group that is being written, for its summary; empty if that has no
    /// room for them.
    pub(super) filters: Vec<u8>,
    /// Hot objects that may have newer copies, and the pages that may hold
    /// these.
    pub(super) suspect: Vec<(Object, Vec<PageAddress>)>,
    /// Stored bytes written back from the set-group that is being evicted.
    pub(super) written_back_bytes: u64,
    /// Set-groups flushed since objects were last cooled.
    pub(super) since_cooling: u32,
    /// A write of the sealed set-group's summary failed, so all of the
    /// set-group may be on flash.
    pub(super) may_be_whole: bool,
}

impl Flush {
    pub(super) fn new() -> Self {
        Flush {
            phase: Phase::Idle,
            running: None,
            next_id: 0,
            hot: Vec::new(),
            read: VecDeque::new(),
            pages: Vec::new(),
            made: 0,
            filters: Vec::new(),
            suspect: Vec::new(),
            written_back_bytes: 0,
            since_cooling: 0,
            may_be_whole: false,
        }
    }

    pub(super) fn begin(&mut self) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Room;
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || !matches!(self.phase, Phase::Idle)
    }

    /// Hot objects whose possible newer copies are being read.
    fn verified(&self) -> &[(Object, usize)] {
        match &self.running {
            Some((_, Running::Verify(objects))) => objects,
            _ => &[],
        }
    }

    /// Bytes of memory held, without keys and values.
    pub(super) fn memory_bytes(&self) -> u64 {
        let places = self.suspect.iter().map(|(_, places)| places.capacity());
        room_bytes::<(Object, Vec<PageAddress>)>(self.suspect.capacity())
            + places.map(room_bytes::<PageAddress>).sum::<u64>()
            + room_bytes::<(Object, usize)>(self.verified().len())
            + room_bytes::<u32>(self.hot.capacity())
            + room_bytes::<Read>(self.read.capacity())
            + self.read.iter().map(Read::memory_bytes).sum::<u64>()
            + room_bytes::<Page>(self.pages.capacity())
            + self.pages.iter().map(table_bytes).sum::<u64>()
            + self.filters.capacity() as u64
    }

    /// Bytes of memory that keys and values take.
    pub(super) fn payload_bytes(&self) -> u64 {
        let suspect = self.suspect.iter().map(|(object, _)| object);
        let verified = self.verified().iter().map(|(object, _)| object);
        let read = self.read.iter().flat_map(Read::objects);
        let made = self.pages.iter().flat_map(objects_of);
        payload_bytes(suspect.chain(verified).chain(read).chain(made))
    }

    pub(super) fn start(&mut self, running: Running, work: Work) -> Option<Task> {
        let id = TaskId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.running = Some((id, running));
        Some(Task { id, work })
    }
}
