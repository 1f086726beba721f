//! The contract of every tiny engine, in two parts that a driver may lock apart.
//!
//! * A [`Stripe`] holds the objects that are not on flash yet, and whatever a
//!   write changes.
//! * The directory knows what is on flash: it answers searches, writes what
//!   stripes have filled, evicts, and writes hot objects back. The directory
//!   implements [`Engine`], and makes its stripe.
//!
//! Both are state machines. They answer from memory where they can, name the
//! pages to read where they cannot, and hand out [`Task`]s: reads, writes and
//! resets that keep the engine going. A driver carries these out, on a device or
//! on a model of one, and returns the outcome. It may run any number of searches
//! at a time, and all tasks that it was handed.
//!
//! ```text
//! insert ──► stripe ──► Accepted / Busy     next_task ──► Task ──► I/O ──► complete
//! search ──► Memory | Absent | Index | Pages ──► I/O ──► … ──► end_search
//! ```
//!
//! The signatures say which lock a call needs, so that finer locks change none:
//!
//! | call | stripe | directory |
//! |---|---|---|
//! | [`Stripe::in_memory`] | shared | none |
//! | [`Engine::insert`] | exclusive | shared |
//! | [`Engine::begin_search`], [`Engine::end_search`], tasks, [`Engine::drain`] | exclusive | exclusive |
//! | [`Engine::index_read`] | none | exclusive |
//!
//! A driver that has two locks takes the stripe's first.
//!
//! Rules of the law, for engines:
//! * A search names the places where a copy of the object may be, newest
//!   first, and leaves out at most the oldest. The first that holds the hash is
//!   the newest.
//! * A zone is reset only after every search that may read it has ended.
//! * An object that a write replaces or removes, and that may still be on
//!   flash, is outlived there by something newer: the new object, or a
//!   tombstone. While that is only in memory, [`Accepted::outdates_flash`]
//!   tells the driver, which makes a note of it durable before it acknowledges.

use std::fmt::Debug;

use super::object::{Object, PageAddress};
pub use super::statistics::Cause;
use super::statistics::{Living, Memory, Statistics};
use crate::hash::KeyHash;

/// The answer of an engine to a write.
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
    /// The object that this one replaces outdated the same, and the note that was
    /// made of it still holds. It may not be durable yet.
    pub noted_before: bool,
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is over: the object, or its tombstone, is in memory
    /// ([`Stripe::in_memory`]).
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

/// The groups in which pages of a search are best read: the first two at once,
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
        /// The page, among those of the search.
        rank: usize,
        /// The object, among those of the page.
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
    /// Its work.
    pub work: Work,
}

/// The work of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read pages, for their objects.
    Read(Vec<PageAddress>),
    /// Write pages one after another from `first` on, where the zone's write
    /// pointer is.
    Append {
        /// The place of the first page.
        first: PageAddress,
        /// The pages.
        pages: Vec<Page>,
    },
    /// Write a page in place.
    Write {
        /// Its place.
        at: PageAddress,
        /// Its content.
        page: Page,
    },
    /// Write a summary of what was appended in front of it, when that is
    /// durable; done when the summary is durable too.
    Seal {
        /// The place of its first page.
        first: PageAddress,
        /// How many pages it takes.
        pages: u32,
        /// Whether nothing follows in its zone, which is finished then.
        ends_zone: bool,
        /// Its content.
        summary: Summary,
    },
    /// Empty a zone; done when that is durable. Zones are emptied in the order
    /// in which this is asked for.
    Reset(u32),
}

/// Says to recovery what a run of pages holds; written behind them.
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

/// Written in each page, so that no other is taken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The life of its place: it grows.
    pub sequence: u64,
    /// The page within that life.
    pub number: u32,
}

/// The result of a task.
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

/// Whether [`Engine::next_task`] would hand out a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It may, or a task is under way.
    Yes,
    /// It would not, and no task is under way.
    No,
    /// Only a call of it tells.
    Unknown,
}

/// The part of an engine that takes writes.
pub trait Stripe: Debug {
    /// The newest copy of an object that is in memory. A tombstone says that
    /// older copies count for nothing.
    fn in_memory(&self, hash: KeyHash) -> Option<&Object>;
}

/// The directory of an engine: what is on flash. See the [module](self).
pub trait Engine {
    /// Takes the writes of this engine. Each call gets the stripe that
    /// [`stripe`](Engine::stripe) made for this directory.
    type Stripe: Stripe;

    /// Notes of the engine on one search, from its beginning to its end. A driver
    /// keeps one beside each [`Search`], hands the same two over each time, and
    /// reuses both.
    type Scratch: Clone + Debug + Default;

    /// The stripe of a directory that has just been made or recovered.
    fn stripe(&self) -> Self::Stripe;

    /// Whether the engine's objects are found again after a restart. The answer
    /// never changes.
    fn durability(&self) -> Durability {
        Durability::Volatile
    }

    /// Takes in an object or, with a tombstone, the news that it is dead.
    /// `now_seconds` is the time since the cache's epoch.
    fn insert(&self, stripe: &mut Self::Stripe, object: Object, now_seconds: u32) -> Insert;

    /// Begins to search. Every search that is begun must be ended.
    fn begin_search(
        &mut self,
        stripe: &mut Self::Stripe,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut Self::Scratch,
    ) -> Step;

    /// Goes on with the index pages that were asked for. `None` stands for a
    /// page that could not be read, in which no object is found. Engines without
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
    fn end_search(
        &mut self,
        stripe: &mut Self::Stripe,
        search: &mut Search,
        scratch: &mut Self::Scratch,
        found: Found,
    );

    /// The next task, if one can be carried out now.
    fn next_task(&mut self, stripe: &mut Self::Stripe) -> Option<Task>;

    /// Takes in the outcome of a task. `now_seconds` as in `insert`.
    fn complete(
        &mut self,
        stripe: &mut Self::Stripe,
        id: TaskId,
        outcome: Outcome,
        now_seconds: u32,
    );

    /// Whether [`next_task`](Engine::next_task) would hand out a task. Cheaper
    /// than a call of it, where the engine can tell.
    fn due(&self, stripe: &Self::Stripe) -> Due {
        let _ = stripe;
        Due::Unknown
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

    /// Counts since the engine was made.
    fn statistics(&self, stripe: &Self::Stripe) -> Statistics;

    /// Memory that both parts hold now, counted from the live structures.
    fn memory(&self, stripe: &Self::Stripe) -> Memory;

    /// The keys that a get finds, as far as the engine knows. An engine that
    /// follows no keys counts the copies on flash, each as long as the objects
    /// that it accepted.
    fn living(&self, stripe: &Self::Stripe, now_seconds: u32) -> Living {
        let _ = now_seconds;
        let objects = self.memory(stripe).objects_on_flash;
        let counted = self.statistics(stripe);
        Living {
            objects,
            bytes: objects * counted.bytes_in / counted.objects_in.max(1),
        }
    }

    // The rest is of persistent engines. What they say by default is true of a
    // volatile one: a restart finds nothing.

    /// The label of a page that may be searched or is about to be written. The
    /// driver labels the pages of a volatile engine.
    fn label(&self, page: PageAddress) -> Label {
        Label {
            sequence: 0,
            number: page.0,
        }
    }

    /// Whether a write of `hash` may outdate something that a restart would find
    /// on flash, as far as memory knows.
    fn may_outdate(&self, stripe: &Self::Stripe, hash: KeyHash) -> bool {
        let _ = (stripe, hash);
        false
    }

    /// Whether a lookup of `hash` could tell that a write of it outdates
    /// nothing: memory alone does not know.
    fn could_be_absent(&self, stripe: &Self::Stripe, hash: KeyHash) -> bool {
        let _ = (stripe, hash);
        false
    }

    /// Begins to write to flash, as far as that can be done now, the objects in
    /// memory that a restart is to find; says whether anything is left to write.
    fn drain(&mut self, stripe: &mut Self::Stripe) -> bool {
        let _ = stripe;
        false
    }

    /// Whether every object ever accepted is on flash or outlived there, and a
    /// restart finds it so.
    fn is_drained(&self, stripe: &Self::Stripe) -> bool {
        let _ = stripe;
        false
    }

    /// Once [`durable`](Engine::durable) reaches this, everything that is in
    /// memory now is on flash or outlived there.
    fn durable_when(&self, stripe: &Self::Stripe) -> u64 {
        let _ = stripe;
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

    /// Draws a page that a restart found, for the driver to read and to look up
    /// one of its objects. `None` when enough were drawn, or none is left. The
    /// engine does not keep the page from being emptied.
    fn draw(&self, stripe: &Self::Stripe, random: u64) -> Option<(PageAddress, Label)> {
        let _ = (stripe, random);
        None
    }

    /// A drawn object is, or is not, the one that a get of its key finds on flash.
    fn surveyed(&self, stripe: &mut Self::Stripe, object: &Object, label: Label, is_found: bool) {
        let _ = (stripe, object, label, is_found);
    }
}
