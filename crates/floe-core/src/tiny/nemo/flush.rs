//! The state of a flush.

use std::collections::VecDeque;
use std::sync::Arc;

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
    Verify(Vec<Suspect>),
    /// The pages are those of the index groups and sets.
    Index(Vec<Suspect>, Vec<(u64, u32)>),
    Write(u32),
    Seal(u32),
    /// Loads pages of the index group that begins with the set-group `first`.
    Load {
        first: u64,
        pages: usize,
    },
}

/// A hot object that may have newer copies.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) object: Object,
    /// The pages of sets that may hold newer copies.
    pub(super) pages: Vec<PageAddress>,
    /// Pages of the index that may name more: their groups' first set-groups, and their sets.
    pub(super) index: Vec<(u64, u32)>,
}

impl Suspect {
    fn memory_bytes(&self) -> u64 {
        room_bytes::<PageAddress>(self.pages.capacity())
            + room_bytes::<(u64, u32)>(self.index.capacity())
    }
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
    Suspect(Suspect, Vec<Option<Page>>),
    /// A hot object, and the pages of the index that may name more.
    Index(Suspect, Vec<Option<Page>>),
}

impl Read {
    fn objects(&self) -> impl Iterator<Item = &Object> {
        let (objects, pages) = match self {
            Read::Hot { objects, .. } => (objects.as_slice(), &[][..]),
            Read::Suspect(suspect, pages) | Read::Index(suspect, pages) => {
                (std::slice::from_ref(&suspect.object), &**pages)
            }
        };
        let of_pages = pages.iter().flatten().flat_map(objects_of);
        objects.iter().chain(of_pages)
    }

    fn memory_bytes(&self) -> u64 {
        match self {
            Read::Hot { objects, .. } => room_bytes::<Object>(objects.len()),
            Read::Suspect(suspect, pages) | Read::Index(suspect, pages) => {
                let pages = pages.iter().flatten().map(table_bytes);
                suspect.memory_bytes() + pages.sum::<u64>()
            }
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
        // Objects that were read together share pages of the index.
        Page::Index(bytes) => (bytes.len() / Arc::strong_count(bytes)) as u64,
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
    /// Hot objects of which pages that may hold newer copies are to be read.
    pub(super) suspect: Vec<Suspect>,
    /// Hot objects of which pages of the index are to be read.
    pub(super) unindexed: Vec<Suspect>,
    /// The next task loads pages of the index. Loads alternate with writes, so that neither waits
    /// long for the other.
    pub(super) loads_next: bool,
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
            unindexed: Vec::new(),
            loads_next: false,
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
        let is_running = !matches!(self.running, None | Some((_, Running::Load { .. })));
        is_running || !matches!(self.phase, Phase::Idle)
    }

    /// Hot objects that wait for pages.
    fn suspects(&self) -> impl Iterator<Item = &Suspect> {
        let running = match &self.running {
            Some((_, Running::Verify(suspects) | Running::Index(suspects, _))) => &**suspects,
            _ => &[],
        };
        running.iter().chain(&self.suspect).chain(&self.unindexed)
    }

    /// Bytes of memory held, without keys and values.
    pub(super) fn memory_bytes(&self) -> u64 {
        room_bytes::<Suspect>(self.suspects().count())
            + self.suspects().map(Suspect::memory_bytes).sum::<u64>()
            + room_bytes::<u32>(self.hot.capacity())
            + room_bytes::<Read>(self.read.capacity())
            + self.read.iter().map(Read::memory_bytes).sum::<u64>()
            + room_bytes::<Page>(self.pages.capacity())
            + self.pages.iter().map(table_bytes).sum::<u64>()
            + self.filters.capacity() as u64
    }

    /// Bytes of memory that keys and values take.
    pub(super) fn payload_bytes(&self) -> u64 {
        let suspects = self.suspects().map(|suspect| &suspect.object);
        let read = self.read.iter().flat_map(Read::objects);
        let made = self.pages.iter().flat_map(objects_of);
        payload_bytes(suspects.chain(read).chain(made))
    }

    pub(super) fn start(&mut self, running: Running, work: Work) -> Option<Task> {
        let id = TaskId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.running = Some((id, running));
        Some(Task { id, work })
    }
}
