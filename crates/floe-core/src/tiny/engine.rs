//! What every tiny engine offers, and what it asks of whoever drives it.
//!
//! An engine is a state machine. It answers from memory where it can, names
//! the pages that must be read where it cannot, and hands out [`Task`]s: the
//! reads, writes and resets that keep it going. A driver carries them out, on
//! a device or on a model of one, and returns what came of them. The driver
//! may run any number of searches at a time and all tasks that it was handed.
//!
//! ```text
//! insert ──► engine ──► Accepted / Busy            next_task ──► Task ──► I/O ──► complete
//! search ──► Memory | Absent | Index | Pages ──► I/O ──► … ──► end_search
//! ```
//!
//! Rules of the law, for engines:
//! * A search names the places where a copy of the object may be, newest
//!   first, and leaves out at most the oldest; the first that holds the hash is
//!   the newest.
//! * A zone is reset only after every search that may read it has ended.
//! * An object that a write replaces or removes, and that may still be on
//!   flash, is outlived there by something newer: the new object, or a
//!   tombstone. Where that is only in memory, [`Accepted::outdates_flash`]
//!   tells the driver, who makes a note of it durable before it acknowledges.

use std::fmt::Debug;

use super::object::{Object, PageAddress};
pub use super::statistics::Cause;
use super::statistics::{Living, Memory, Statistics};
use crate::hash::KeyHash;

/// What an engine answers to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Insert {
    /// It is in memory now, and found there.
    Accepted(Accepted),
    /// There is no room until tasks have been completed; try again then.
    Busy(Object),
}

/// An accepted write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// An older copy of the object may be on flash.
    pub outdates_flash: bool,
    /// That was said of what this takes the place of, and a note made then
    /// still holds. Whoever made it may not have finished.
    pub noted_before: bool,
}

/// What a search must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is over: the object, or its tombstone, is in memory
    /// ([`Engine::in_memory`]).
    Memory,
    /// It is over: the object is nowhere.
    Absent,
    /// Read [`Search::index_pages`] and hand them to [`Engine::index_read`].
    Index,
    /// Read [`Search::pages`], newest first, in [`waves`] of some at a time,
    /// and take the object from the first that holds it.
    Pages,
}

/// A search for one object, as far as its engine and its driver share it.
/// Reused from one search to the next, it allocates nothing.
#[derive(Clone, Debug)]
pub struct Search {
    /// The object that is searched for.
    pub hash: KeyHash,
    /// Pages of index to read.
    pub index_pages: Vec<PageAddress>,
    /// Pages that may hold the object, newest first.
    pub pages: Vec<PageAddress>,
    /// How many of the pages the driver has read. It says so before it ends
    /// the search: the first of them mostly decide ([`waves`]).
    pub read: usize,
}

impl Search {
    /// A search for nothing yet.
    pub fn new() -> Self {
        Search {
            hash: KeyHash(0),
            index_pages: Vec::new(),
            pages: Vec::new(),
            read: 0,
        }
    }

    /// Begins again, with another object.
    pub fn restart(&mut self, hash: KeyHash) {
        self.hash = hash;
        self.index_pages.clear();
        self.pages.clear();
        self.read = 0;
    }
}

/// In which groups pages of a search are best read: the first two at once,
/// then four, and so on, until one of them decides.
///
/// An object that is overwritten often lies in many set-groups, and all of
/// their filters name it; the newest copy is nearly always in the first or,
/// where a filter was wrong, the second page.
pub fn waves(pages: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut next = 0;
    let mut size = 2;
    std::iter::from_fn(move || {
        let wave = next..(next + size).min(pages);
        next = wave.end;
        size *= 2;
        (!wave.is_empty()).then_some(wave)
    })
}

impl Default for Search {
    fn default() -> Self {
        Search::new()
    }
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The object was in `Search::pages[rank]`, as that page's object number `slot`.
    Flash {
        /// Which of the pages.
        rank: usize,
        /// Which of its objects.
        slot: usize,
    },
    /// All of them were read, and none of them knows the hash.
    Nowhere,
    /// It was dead, or a page could not be read, or the search was given up.
    Unknown,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// Objects of one set, or of a log.
    Objects(Vec<Object>),
    /// Part of an index; [`PAGE_BYTES`](super::PAGE_BYTES) long.
    Index(Box<[u8]>),
}

/// Names a task from `next_task` to `complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Something to be done on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// What to do.
    pub work: Work,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read pages, for their objects.
    Read(Vec<PageAddress>),
    /// Write pages one after another from `first` on, where the zone's write
    /// pointer is.
    Append {
        /// Where the first page goes.
        first: PageAddress,
        /// The pages.
        pages: Vec<Page>,
    },
    /// Write a page in place.
    Write {
        /// Where.
        at: PageAddress,
        /// What.
        page: Page,
    },
    /// Write a summary of what was appended in front of it, when that is
    /// durable; done when the summary is durable too.
    Seal {
        /// Where its first page goes.
        first: PageAddress,
        /// How many pages it takes.
        pages: u32,
        /// Whether nothing follows in its zone, which is finished then.
        ends_zone: bool,
        /// What it says.
        summary: Summary,
    },
    /// Empty a zone; done when that is durable. Zones are emptied in the order
    /// in which this is asked for.
    Reset(u32),
}

/// What recovery needs to know of a run of pages, written behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whether the pages are filters of an index group; otherwise objects of
    /// a set-group.
    pub of_index: bool,
    /// Number of the set-group, or of the index group's first.
    pub sequence: u64,
    /// Set-groups before this one were gone when it was written.
    pub oldest: u64,
    /// Objects in it.
    pub objects: u64,
    /// How filters are laid out: set-groups of an index group.
    pub columns: u32,
    /// Bits of a filter. Of an index group of fingerprints, their buckets.
    pub rows: u32,
    /// Bits that a key sets. Of an index group of fingerprints, zero.
    pub probes: u32,
    /// The filters of a set-group's sets, bit by bit, set after set; empty if
    /// its extent has no room for them.
    pub filters: Box<[u8]>,
}

/// What a page says of itself, so that no other is taken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Which life of its place this is: it grows.
    pub sequence: u64,
    /// Which page of that life.
    pub number: u32,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pages of a [`Work::Read`], in order; `None` for one that could not be read.
    Read(Vec<Option<Page>>),
    /// A write or reset is done.
    Done,
    /// A write or reset failed. The engine gives up the zone.
    Failed,
    /// A write failed for want of space below the device, which is not the
    /// zone's fault. An engine may leave the place out for a while; otherwise
    /// it gives it up.
    NoSpace,
}

/// Whether the objects of an engine are found again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A restart finds again the objects that were on flash.
    Persistent {
        /// The driver carries out one task at a time, in the order in which the
        /// engine hands them out: recovery relies on it.
        ordered: bool,
    },
    /// A restart begins with an empty cache: only memory tells where objects are.
    Volatile,
}

impl Durability {
    /// Whether a restart finds objects again.
    pub fn is_persistent(self) -> bool {
        matches!(self, Durability::Persistent { .. })
    }

    /// Whether the engine's tasks are carried out one at a time.
    pub fn is_ordered(self) -> bool {
        self == Durability::Persistent { ordered: true }
    }
}

/// A tiny engine.
///
/// The defaults are those of a [`Durability::Volatile`] engine.
pub trait Engine {
    /// Notes of the engine on one search, from its beginning to its end. A driver
    /// keeps one beside each [`Search`], hands the same two over each time, and
    /// reuses both.
    type Scratch: Clone + Debug + Default;

    /// Takes in an object or, with a tombstone, the news that it is dead.
    /// `now_seconds` is the time since the cache's epoch.
    fn insert(&mut self, object: Object, now_seconds: u32) -> Insert;

    /// The newest copy of an object that is in memory. A tombstone says that
    /// older copies count for nothing.
    fn in_memory(&self, hash: KeyHash) -> Option<&Object>;

    /// Begins to search. Every search that is begun must be ended.
    fn begin_search(
        &mut self,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut Self::Scratch,
    ) -> Step;

    /// Goes on with the index pages that were asked for; `None` stands for a
    /// page that could not be read, of which no object is found. Engines without
    /// pages of index are never asked.
    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut Self::Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        let _ = (search, scratch, pages);
        Step::Absent
    }

    /// Ends a search, after the pages were read.
    fn end_search(&mut self, search: &mut Search, scratch: &mut Self::Scratch, found: Found);

    /// Whether the engine's objects are found again after a restart. The answer
    /// never changes.
    fn durability(&self) -> Durability {
        Durability::Volatile
    }

    /// The next thing to do, if there is something that can be done now.
    fn next_task(&mut self) -> Option<Task>;

    /// Whether [`next_task`](Engine::next_task) may hand out a task; `None` where
    /// only a call of it tells.
    fn has_work(&self) -> Option<bool> {
        None
    }

    /// Whether the end of a search may give the engine work: a zone is reset
    /// only after its last reader.
    fn waits_for_readers(&self) -> bool {
        true
    }

    /// Whether the engine leaves out places for want of space below the device
    /// and tries them again later.
    fn waits_for_space(&self) -> bool {
        false
    }

    /// Begins to write to flash, as far as that can be done now, the objects in
    /// memory that a restart is to find; says whether anything is left to write.
    fn drain(&mut self) -> bool {
        false
    }

    /// Whether every object ever accepted is on flash or outlived there, and a
    /// restart finds it so.
    fn is_drained(&self) -> bool {
        false
    }

    /// Takes in what came of a task. `now_seconds` as in `insert`.
    fn complete(&mut self, id: TaskId, outcome: Outcome, now_seconds: u32);

    /// What a page says of itself that may be searched or is about to be written.
    fn label(&self, page: PageAddress) -> Label {
        Label {
            sequence: 0,
            number: page.0,
        }
    }

    /// Everything on flash, and everything being written there, is older than
    /// this set-group: what [`Accepted::outdates_flash`] speaks of.
    fn epoch(&self) -> u64 {
        0
    }

    /// Once [`durable`](Engine::durable) reaches this, everything that is in
    /// memory now is on flash or outlived there.
    fn durable_when(&self) -> u64 {
        0
    }

    /// Set-groups before this one are on flash, or gone.
    fn durable(&self) -> u64 {
        0
    }

    /// Set-groups before this one are gone from flash.
    fn oldest(&self) -> u64 {
        0
    }

    /// Whether a write of `hash` may outdate something that a restart would find
    /// on flash, as far as memory knows.
    fn may_outdate(&self, hash: KeyHash) -> bool {
        let _ = hash;
        false
    }

    /// Whether a lookup of `hash` could tell that a write of it outdates
    /// nothing: memory alone does not know.
    fn could_be_absent(&self, hash: KeyHash) -> bool {
        let _ = hash;
        false
    }

    /// Draws a page that a restart found, for the driver to read and to look up
    /// one of its objects. `None` when enough were drawn, or none is left. The
    /// engine does not keep the page from being emptied.
    fn draw(&self, random: u64) -> Option<(PageAddress, Label)> {
        let _ = random;
        None
    }

    /// A drawn object is, or is not, the one that a get of its key finds on flash.
    fn surveyed(&mut self, object: &Object, label: Label, is_found: bool) {
        let _ = (object, label, is_found);
    }

    /// Counts since the beginning.
    fn statistics(&self) -> &Statistics;

    /// Memory that is held now, counted from the live structures.
    fn memory(&self) -> Memory;

    /// The keys that a get finds, as far as the engine knows: one that follows
    /// no keys counts the copies on flash, each as long as the objects that it
    /// accepted.
    fn living(&self, now_seconds: u32) -> Living {
        let _ = now_seconds;
        let (objects, counted) = (self.memory().objects_on_flash, self.statistics());
        Living {
            objects,
            bytes: objects * counted.bytes_in / counted.objects_in.max(1),
        }
    }
}
