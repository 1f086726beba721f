//! The contract of every tiny engine, in two parts that a driver may lock apart.
//!
//! * A [`Stripe`] holds the objects that are not on flash yet, and all that a
//!   write changes.
//! * The directory knows what is on flash. It answers searches, writes full
//!   stripes, evicts, and writes hot objects back. The directory implements
//!   [`Engine`] and creates its stripe.
//!
//! Both are state machines. They answer from memory where they can, name the
//! pages to read where they cannot, and hand out [`Task`]s: reads, writes and
//! resets. A driver carries the tasks out, on a device or on a model of one,
//! and returns their outcomes. It may run any number of searches at a time, and
//! all tasks that it was handed.
//!
//! ```text
//! insert ──► stripe ──► Accepted / Busy     next_task ──► Task ──► I/O ──► complete
//! search ──► Memory | Absent | Index ──► I/O ──► index_read ──┐
//!          └► Pages ──► I/O ──► pages_read ──► … ──► end_search ◄┘
//! ```
//!
//! The signatures show the lock that a call needs, so finer locks change none
//! of them:
//!
//! | call | stripe | directory |
//! |---|---|---|
//! | [`Stripe::in_memory`] | shared | none |
//! | [`Engine::insert`] | exclusive | shared |
//! | [`Engine::begin_search`], [`Engine::end_search`], tasks, [`Engine::drain`] | exclusive | exclusive |
//! | [`Engine::index_read`], [`Engine::pages_read`] | none | exclusive |
//!
//! A driver that has two locks takes the stripe's first.
//!
//! To never return a stale value, engines obey these rules:
//! * A search names the pages that may hold a copy of the object, newest first,
//!   and leaves out at most the oldest. The first page that has the hash has
//!   the newest copy.
//! * A zone is reset only after every search that may read it has ended.
//! * If a write replaces or removes an object that may be on flash, something
//!   newer supersedes the copy there: the new object, or a tombstone. While
//!   that is only in memory, [`Accepted::supersedes_flash`] tells the driver to
//!   make a fence durable before it acknowledges the write.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::nemo::PageFilterShape;
use super::object::{Object, PageAddress};
pub use super::statistics::Cause;
use super::statistics::{LiveObjects, Memory, Statistics};
use crate::hash::KeyHash;

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The object is in memory, where searches find it.
    Accepted(Accepted),
    /// There is no room until a task has been completed. Try again then.
    Busy(Object),
}

/// An accepted write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// An older copy of the object may be on flash.
    pub supersedes_flash: bool,
    /// This object replaces one in memory that superseded the same copies, and
    /// that one's fence still holds. The fence may not be durable yet.
    pub fenced_before: bool,
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The search is over: the object, or its tombstone, is in memory
    /// ([`Stripe::in_memory`]).
    Memory,
    /// The search is over: there is no copy.
    Absent,
    /// Read [`Search::index_pages`] and hand them to [`Engine::index_read`].
    Index,
    /// Read [`Search::pages`], newest first, in [`waves`], and take the object
    /// from the first page that holds it. If none does, call
    /// [`Engine::pages_read`].
    Pages,
}

/// The state of one search that engine and driver share. Reusing it avoids
/// allocations.
#[derive(Clone, Debug)]
pub struct Search {
    /// The object that is searched for.
    pub hash: KeyHash,
    /// Index pages to read.
    pub index_pages: Vec<PageAddress>,
    /// Pages that may hold the object, newest first.
    pub pages: Vec<PageAddress>,
    /// Number of `pages` that the driver has read, which it sets before it calls
    /// `pages_read` or `end_search`. Mostly the first ones decide ([`waves`]).
    pub read: usize,
}

impl Search {
    /// A search that has not begun.
    pub fn new() -> Self {
        Search {
            hash: KeyHash(0),
            index_pages: Vec::new(),
            pages: Vec::new(),
            read: 0,
        }
    }

    /// Resets the state for another search.
    pub fn restart(&mut self, hash: KeyHash) {
        self.hash = hash;
        self.index_pages.clear();
        self.pages.clear();
        self.read = 0;
    }
}

/// The groups in which a search should read its pages: two at once, then four,
/// and so on, until one of them decides.
///
/// All filters of an often overwritten object match. The newest copy is nearly
/// always in the first page or, after a false positive, in the second.
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
    /// `Search::pages[rank]` has the object, as its object number `slot`.
    Flash {
        /// Index in the pages of the search.
        rank: usize,
        /// Index in the objects of the page.
        slot: usize,
    },
    /// All pages were read, and none has the hash.
    Nowhere,
    /// The object was deleted or expired, a page was unreadable, or the search
    /// was abandoned.
    Unknown,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// Objects of one set or log page.
    Objects(Vec<Object>),
    /// Part of an index, [`PAGE_BYTES`](super::PAGE_BYTES) long.
    Index(Arc<[u8]>),
}

/// Identifies a task from `next_task` to `complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

/// Work for the driver to carry out on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task's identifier.
    pub id: TaskId,
    /// The work to do.
    pub work: Work,
}

/// The work of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read pages of objects.
    Read(Vec<PageAddress>),
    /// Read pages of an index.
    ReadIndex(Vec<PageAddress>),
    /// Write consecutive pages from `first` on, which is the zone's write
    /// pointer.
    Append {
        /// Address of the first page.
        first: PageAddress,
        /// The pages.
        pages: Vec<Page>,
    },
    /// Write a page in place.
    Write {
        /// Address of the page.
        at: PageAddress,
        /// Its content.
        page: Page,
    },
    /// Write a summary once the pages before it are durable. The task is done
    /// when the summary is durable too.
    Seal {
        /// Address of the summary's first page.
        first: PageAddress,
        /// Number of pages of the summary.
        pages: u32,
        /// The summary is the last write to its zone, which is finished
        /// then.
        ends_zone: bool,
        /// Its content.
        summary: Summary,
    },
    /// Reset a zone. The task is done when the reset is durable. Zones are
    /// reset in the order of these tasks.
    Reset(u32),
}

/// Memory that an engine no longer needs. It may be large: a driver drops it without its lock.
#[derive(Debug)]
#[must_use]
pub struct Discarded(
    #[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Any + Send + Sync>,
);

impl Discarded {
    pub(super) fn new(value: impl Any + Send + Sync) -> Self {
        Discarded(Box::new(value))
    }

    pub(super) fn nothing() -> Self {
        // A box of nothing allocates nothing.
        Discarded(Box::new(()))
    }
}

/// Describes an extent to recovery; written behind its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The pages are the filters of an index group. Otherwise they are
    /// the objects of a set-group.
    pub of_index: bool,
    /// Sequence of the set-group, or of the index group's first one.
    pub sequence: u64,
    /// Set-groups before this one had been evicted when it was written.
    pub oldest: u64,
    /// Objects in the set-group; zero for an index group.
    pub objects: u64,
    /// Set-groups of an index group with the filters' layout.
    pub columns: u32,
    /// Bits of a Bloom filter, or buckets of fingerprints.
    pub rows: u32,
    /// Bits that a key sets in a Bloom filter; zero for fingerprints.
    pub probes: u32,
    /// The page filters of an index group.
    pub page_filter: PageFilterShape,
    /// The concatenated filters of a set-group's sets; empty if its extent has
    /// no room for them.
    pub filters: Box<[u8]>,
}

/// Identifies a page. Each page carries its label, so that no other page is
/// taken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The life of the page's location, which increases from write to write.
    pub sequence: u64,
    /// The page within that life.
    pub number: u32,
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pages of a [`Work::Read`] or [`Work::ReadIndex`], in order; `None` for one that could
    /// not be read.
    Read(Vec<Option<Page>>),
    /// A write or reset is done.
    Done,
    /// A write or reset failed. The engine stops using the zone.
    Failed,
    /// A write failed because the device has less space than it reports. The
    /// zone itself works: an engine may use it again later, or give it up.
    NoSpace,
}

/// The durability of an engine's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A restart recovers the objects that were on flash.
    Persistent {
        /// The driver must carry out one task at a time, in the order in which
        /// the engine hands them out. Recovery relies on it.
        ordered: bool,
    },
    /// A restart begins with an empty cache: only memory has the index.
    Volatile,
}

impl Durability {
    /// True if a restart recovers objects.
    pub fn is_persistent(self) -> bool {
        matches!(self, Durability::Persistent { .. })
    }

    /// True if the driver must carry out the engine's tasks one at a time.
    pub fn is_ordered(self) -> bool {
        self == Durability::Persistent { ordered: true }
    }
}

/// The prediction of [`Engine::due`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The engine may hand one out, or a task is running.
    Yes,
    /// The engine would not hand one out, and no task is running.
    No,
    /// The engine cannot tell without a call.
    Unknown,
}

/// The part of an engine that takes writes.
pub trait Stripe: Debug {
    /// The newest copy of an object in memory, if any. A tombstone means that
    /// all older copies are stale.
    fn in_memory(&self, hash: KeyHash) -> Option<&Object>;
}

/// The directory of an engine: see the [module](self).
pub trait Engine {
    /// The engine's stripe. Each call gets the one that
    /// [`stripe`](Engine::stripe) made for this directory.
    type Stripe: Stripe;

    /// The engine's own state of a search. A driver keeps one beside each
    /// [`Search`], passes the same two each time, and reuses both.
    type Scratch: Clone + Debug + Default;

    /// Creates the stripe of a new or recovered directory.
    fn stripe(&self) -> Self::Stripe;

    /// The durability of the engine's objects. Constant for an engine.
    fn durability(&self) -> Durability {
        Durability::Volatile
    }

    /// Inserts an object, or deletes one if `object` is a tombstone.
    /// `now_seconds` is the time since the cache's epoch.
    fn insert(&self, stripe: &mut Self::Stripe, object: Object, now_seconds: u32) -> Insert;

    /// Begins a search. Every search must be ended.
    fn begin_search(
        &mut self,
        stripe: &mut Self::Stripe,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut Self::Scratch,
    ) -> Step;

    /// Continues with the index pages of the search. `None` stands for an
    /// unreadable page, with which the search finds nothing. Never called for
    /// engines without index pages.
    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut Self::Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        let _ = (search, scratch, pages);
        Step::Absent
    }

    /// Continues a search after none of its pages had the object. It may name
    /// older pages. By default there are none.
    fn pages_read(&mut self, search: &mut Search, scratch: &mut Self::Scratch) -> Step {
        let _ = (search, scratch);
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

    /// Does a piece of the work that needs no device: of bounded length, however large the flash
    /// and its set-groups are, so that a driver holds its lock only for a moment. `None` if there
    /// is nothing to do now.
    fn advance(&mut self, stripe: &mut Self::Stripe) -> Option<Discarded> {
        let _ = stripe;
        None
    }

    /// The next task, if one can be carried out now. There may be none until
    /// [`advance`](Engine::advance) has done its work.
    fn next_task(&mut self, stripe: &mut Self::Stripe) -> Option<Task>;

    /// The next task, after all work that needs no device. For drivers that hold no lock.
    fn next_task_at_once(&mut self, stripe: &mut Self::Stripe) -> Option<Task> {
        loop {
            while self.advance(stripe).is_some() {}
            let task = self.next_task(stripe);
            let mut advanced = false;
            while self.advance(stripe).is_some() {
                advanced = true;
            }
            if task.is_some() || !advanced {
                return task;
            }
        }
    }

    /// Handles the outcome of a task. `now_seconds` is as in `insert`.
    fn complete(
        &mut self,
        stripe: &mut Self::Stripe,
        id: TaskId,
        outcome: Outcome,
        now_seconds: u32,
    );

    /// Stops using zones that are read-only or offline: they are neither written nor reset
    /// any more. Their objects are read as long as they are readable. An engine that does
    /// nothing here learns it from the tasks that fail.
    fn retire_zones(&mut self, is_unwritable: &dyn Fn(u32) -> bool) {
        let _ = is_unwritable;
    }

    /// Hands out no more tasks that only load into memory what a search reads from flash. For a
    /// driver that is about to stop.
    fn stop_loading(&mut self) {}

    /// Predicts if [`next_task`](Engine::next_task) would hand out a task, at less
    /// cost than a call.
    fn due(&self, stripe: &Self::Stripe) -> Due {
        let _ = stripe;
        Due::Unknown
    }

    /// True if the end of a search may unblock a task: a zone is reset only
    /// after its last reader has finished.
    fn waits_for_readers(&self) -> bool {
        true
    }

    /// True if the engine avoids some flash because the device has no space for
    /// it, and will try it again.
    fn waits_for_space(&self) -> bool {
        false
    }

    /// Counts since the engine was created.
    fn statistics(&self, stripe: &Self::Stripe) -> Statistics;

    /// Memory that both parts hold, counted from the live structures.
    fn memory(&self, stripe: &Self::Stripe) -> Memory;

    /// The engine's estimate of live objects. By default it counts all copies
    /// on flash, at the mean length of the accepted objects.
    fn live_objects(&self, stripe: &Self::Stripe, now_seconds: u32) -> LiveObjects {
        let _ = now_seconds;
        let objects = self.memory(stripe).objects_on_flash;
        let counted = self.statistics(stripe);
        LiveObjects {
            objects,
            bytes: objects * counted.bytes_in / counted.objects_in.max(1),
        }
    }

    // The remaining methods are for persistent engines. The defaults hold for
    // volatile ones, of which a restart recovers nothing.

    /// The label of a page that is written or may be searched. The driver
    /// labels the pages of a volatile engine.
    fn label(&self, page: PageAddress) -> Label {
        Label {
            sequence: 0,
            number: page.0,
        }
    }

    /// True if a write of `hash` may supersede a copy that a restart would
    /// recover, according to memory.
    fn may_supersede(&self, stripe: &Self::Stripe, hash: KeyHash) -> bool {
        let _ = (stripe, hash);
        false
    }

    /// True if a lookup of `hash` could show that a write of it supersedes
    /// nothing, which memory alone cannot.
    fn could_be_absent(&self, stripe: &Self::Stripe, hash: KeyHash) -> bool {
        let _ = (stripe, hash);
        false
    }

    /// Starts to flush the objects in memory, as far as possible now. Returns
    /// whether any is left to write.
    fn drain(&mut self, stripe: &mut Self::Stripe) -> bool {
        let _ = stripe;
        false
    }

    /// True if flash has every accepted object, or something that supersedes
    /// it, and a restart recovers that.
    fn is_drained(&self, stripe: &Self::Stripe) -> bool {
        let _ = stripe;
        false
    }

    /// Once [`durable`](Engine::durable) reaches this value, everything in
    /// memory now is on flash or superseded there.
    fn durable_when(&self, stripe: &Self::Stripe) -> u64 {
        let _ = stripe;
        0
    }

    /// Set-groups before this one are on flash or were evicted.
    fn durable(&self) -> u64 {
        0
    }

    /// Set-groups before this one were evicted.
    fn oldest(&self) -> u64 {
        0
    }

    /// Draws a recovered page, of which the driver reads an object and looks it
    /// up. `None` when enough were drawn or none is left. The page is not
    /// pinned.
    fn draw(&self, stripe: &Self::Stripe, random: u64) -> Option<(PageAddress, Label)> {
        let _ = (stripe, random);
        None
    }

    /// Records whether a lookup of a drawn object's key found that copy on
    /// flash.
    fn surveyed(&self, stripe: &mut Self::Stripe, object: &Object, label: Label, is_found: bool) {
        let _ = (stripe, object, label, is_found);
    }
}
