//! One rewrite of a set: what is read, what the new pages hold.
//!
//! All of a set's objects in the log join it at once. What is newest wins: the
//! log over the cold part, the cold part over the hot one. The cold part also
//! holds tombstones for what left it while the hot part may hold an older
//! copy; they go when both parts are rewritten together.

use super::index::{LogIndex, Tag};
use super::sets::{COLD, HOT, PARTS_MAX, Sets};
use crate::hash::KeyHash;
use crate::tiny::baseline::rrip;
use crate::tiny::engine::Page;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES, PageAddress, TOMBSTONE_BYTES};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// Why a set is rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Why {
    /// The log needs room (passive migration).
    #[default]
    Passive,
    /// The zone of one of its parts is collected (active migration).
    Collect(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    /// Pages are read.
    Reading,
    /// The hot part must be read, too.
    NeedsHot,
    /// Its pages are ready, or on their way to flash.
    Writing,
}

/// The result of a merge once everything was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computed {
    /// Pages are to be written.
    Write,
    /// Nothing changes on flash.
    Nothing,
    /// The hot part is needed.
    NeedsHot,
}

/// A part of the set that is rewritten.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// It is rewritten.
    pub(super) taken: bool,
    /// Its ring promised a page.
    pub(super) promised: bool,
    /// Its objects before the rewrite; then those after it.
    pub(super) objects: Vec<Object>,
    pub(super) unreadable: bool,
    /// Waits for its write.
    pub(super) is_ready: bool,
    /// Its new page.
    pub(super) at: Option<PageAddress>,
    /// Hashes of what it will hold.
    pub(super) hashes: Vec<KeyHash>,
    pub(super) objects_before: usize,
    pub(super) objects_after: usize,
}

/// A log entry that takes part.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    id: u16,
    tag: Tag,
    page: PageAddress,
    hits: u8,
}

/// The purpose of a page that is read.
#[derive(Clone, Copy, Debug)]
enum ReadFor {
    Part(usize),
    /// Pages of the log, counted from the newest.
    Source(usize),
}

/// A rewrite. Reused from one set to the next, so that it allocates little.
#[derive(Debug, Default)]
pub(super) struct Merge {
    pub(super) set: u32,
    pub(super) why: Why,
    pub(super) stage: Stage,
    pub(super) parts: [Part; PARTS_MAX],
    /// The hot part is to be forgotten: something newer was lost.
    pub(super) forgets_hot: bool,
    /// Writes that are not done.
    pub(super) writes_left: usize,
    /// Objects that came from the log.
    pub(super) bytes_migrated: u64,
    pub(super) evicted_count: u64,
    wanted: Vec<Wanted>,
    /// Pages of the log with wanted objects, the newest first.
    sources: Vec<PageAddress>,
    reads: Vec<ReadFor>,
    from_log: Vec<(usize, Object)>,
    /// Tags of entries whose page could not be read. Any object of the set
    /// with such a tag may be older than what was lost.
    lost: Vec<(usize, Tag)>,
    incoming: Vec<Object>,
    /// Hashes that died in the log.
    killed: Vec<KeyHash>,
    evicted: Vec<Object>,
}

impl Merge {
    /// Begins anew.
    pub(super) fn begin(&mut self, set: u32, why: Why) {
        self.set = set;
        self.why = why;
        self.stage = Stage::Reading;
        self.forgets_hot = false;
        self.writes_left = 0;
        self.bytes_migrated = 0;
        self.evicted_count = 0;
        self.wanted.clear();
        self.sources.clear();
        self.reads.clear();
        self.from_log.clear();
        self.lost.clear();
        self.incoming.clear();
        self.killed.clear();
        for part in &mut self.parts {
            part.taken = false;
            part.promised = false;
            part.objects.clear();
            part.unreadable = false;
            part.is_ready = false;
            part.at = None;
            part.hashes.clear();
            part.objects_before = 0;
            part.objects_after = 0;
        }
    }

    /// Takes along the set's entries in pages of the log that are sealed.
    pub(super) fn take_entries(&mut self, index: &LogIndex, is_open: impl Fn(PageAddress) -> bool) {
        for entry in index.chain(self.set) {
            if is_open(entry.page) {
                continue;
            }
            self.wanted.push(Wanted {
                id: entry.id,
                tag: entry.tag,
                page: entry.page,
                hits: entry.hits,
            });
            if !self.sources.contains(&entry.page) {
                self.sources.push(entry.page);
            }
        }
    }

    /// Names what must be read: parts, and pages of the log of which `in_memory`
    /// has no objects.
    pub(super) fn plan_reads<'a>(
        &mut self,
        sets: &Sets,
        is_of_set: impl Fn(KeyHash) -> bool,
        in_memory: impl Fn(PageAddress) -> Option<&'a [Object]>,
    ) -> Vec<PageAddress> {
        let mut pages = Vec::with_capacity(self.sources.len() + 2);
        for part in 0..sets.parts() {
            if self.parts[part].taken
                && let Some(page) = sets.page_of(part, self.set)
            {
                self.reads.push(ReadFor::Part(part));
                pages.push(page);
            }
        }
        for rank in 0..self.sources.len() {
            let page = self.sources[rank];
            if let Some(objects) = in_memory(page) {
                self.take_from_source(rank, objects.iter().cloned(), &is_of_set);
            } else {
                self.reads.push(ReadFor::Source(rank));
                pages.push(page);
            }
        }
        pages
    }

    fn take_from_source(
        &mut self,
        rank: usize,
        objects: impl Iterator<Item = Object>,
        is_of_set: impl Fn(KeyHash) -> bool,
    ) {
        let page = self.sources[rank];
        for mut object in objects {
            let tag = Tag::of(object.hash);
            let wanted = self.wanted.iter().find(|w| w.tag == tag && w.page == page);
            if let Some(wanted) = wanted
                && is_of_set(object.hash)
            {
                object.prediction = rrip::prediction_after(wanted.hits);
                self.from_log.push((rank, object));
            }
        }
    }

    /// Takes in the pages that were asked for, in order.
    pub(super) fn take_pages(
        &mut self,
        pages: Vec<Option<Page>>,
        is_of_set: impl Fn(KeyHash) -> bool,
    ) {
        let reads = std::mem::take(&mut self.reads);
        let mut pages = pages.into_iter();
        for read in &reads {
            let objects = match pages.next().flatten() {
                Some(Page::Objects(objects)) => Some(objects),
                _ => None,
            };
            match (read, objects) {
                (ReadFor::Part(part), Some(objects)) => self.parts[*part].objects = objects,
                (ReadFor::Part(part), None) => self.parts[*part].unreadable = true,
                (ReadFor::Source(rank), Some(objects)) => {
                    self.take_from_source(*rank, objects.into_iter(), &is_of_set);
                }
                (ReadFor::Source(rank), None) => {
                    let page = self.sources[*rank];
                    let of_page = self.wanted.iter().filter(|w| w.page == page);
                    self.lost.extend(of_page.map(|w| (*rank, w.tag)));
                }
            }
        }
        self.reads = reads;
        self.reads.clear();
    }

    /// Asks for the hot part, too.
    pub(super) fn take_hot(&mut self, sets: &Sets) -> Option<PageAddress> {
        self.stage = Stage::Reading;
        self.parts[HOT].taken = true;
        let page = sets.page_of(HOT, self.set)?;
        self.reads.push(ReadFor::Part(HOT));
        Some(page)
    }

    /// Decides what the new pages hold.
    pub(super) fn compute(&mut self, sets: &Sets, now_seconds: u32) -> Computed {
        self.sort_out_log(now_seconds);
        let cold_lost = self.parts[COLD].unreadable;
        let has_hot = sets.parts() > 1;
        if has_hot && !self.parts[HOT].taken {
            let ghosts = self.ghosts_expected(sets) * (TOMBSTONE_BYTES + 4);
            if cold_lost || !self.lost.is_empty() || ghosts > PAGE_ROOM_BYTES / 4 {
                if self.parts[HOT].promised && !cold_lost {
                    return Computed::NeedsHot;
                }
                self.forgets_hot = true;
            }
        }
        for part in 0..sets.parts() {
            let bits = sets.hits(part, self.set);
            let part = &mut self.parts[part];
            part.objects_before = live(&part.objects);
            rrip::promote(&mut part.objects, bits);
        }
        if has_hot && self.parts[HOT].taken && self.parts[COLD].taken {
            if cold_lost {
                // The lost objects may have been newer than anything in the hot part.
                self.parts[HOT].objects.clear();
            }
            self.share_out(now_seconds);
        } else if self.parts[COLD].taken {
            if !self.fill_cold(sets, now_seconds) && self.why == Why::Passive {
                return Computed::Nothing;
            }
        } else {
            let hot = &mut self.parts[HOT].objects;
            hot.retain(|object| !object.expires.is_over(now_seconds));
        }
        self.evicted_count += live(&self.evicted) as u64;
        self.evicted.clear();
        for part in self.parts.iter_mut().filter(|part| part.taken) {
            part.is_ready = true;
            part.objects_after = live(&part.objects);
            part.hashes
                .extend(part.objects.iter().map(|object| object.hash));
            self.writes_left += 1;
        }
        Computed::Write
    }

    /// Divides what came from the log into the incoming and the killed, the
    /// newest of each hash only.
    fn sort_out_log(&mut self, now_seconds: u32) {
        let mut from_log = std::mem::take(&mut self.from_log);
        from_log.sort_by_key(|(rank, _)| *rank);
        for (rank, object) in from_log.drain(..) {
            let tag = Tag::of(object.hash);
            let is_older = self.incoming.iter().any(|newer| newer.hash == object.hash)
                || self.killed.contains(&object.hash)
                || self
                    .lost
                    .iter()
                    .any(|(lost, of)| *lost < rank && *of == tag);
            if is_older {
                continue;
            }
            if object.tombstone || object.expires.is_over(now_seconds) {
                self.killed.push(object.hash);
            } else {
                self.incoming.push(object);
            }
        }
        self.from_log = from_log;
    }

    /// Tombstones that the cold part would have to hold, at least.
    fn ghosts_expected(&self, sets: &Sets) -> usize {
        let old = self.parts[COLD]
            .objects
            .iter()
            .filter(|object| object.tombstone);
        let hot = |hash: &&KeyHash| sets.may_hold(HOT, self.set, **hash);
        old.count() + self.killed.iter().filter(hot).count()
    }

    /// Whether the log says of an object in the set that it is no more.
    fn is_outlived(&self, object: &Object) -> bool {
        let tag = Tag::of(object.hash);
        self.incoming.iter().any(|newer| newer.hash == object.hash)
            || self.killed.contains(&object.hash)
            || self.lost.iter().any(|(_, lost)| *lost == tag)
    }

    /// Rewrites the cold part alone; says whether that changes anything.
    fn fill_cold(&mut self, sets: &Sets, now_seconds: u32) -> bool {
        let set = self.set;
        let in_hot = |hash| sets.parts() > 1 && sets.may_hold(HOT, set, hash);
        let mut cold = std::mem::take(&mut self.parts[COLD].objects);
        let count_before = cold.len();
        let mut ghosts: Vec<Object> = Vec::new();
        cold.retain(|object| {
            if self.is_outlived(object) {
                return false;
            }
            if object.tombstone {
                return in_hot(object.hash);
            }
            let over = object.expires.is_over(now_seconds);
            if over && in_hot(object.hash) {
                ghosts.push(Object::tombstone(object.hash));
            }
            !over
        });
        let killed = self.killed.iter().filter(|hash| in_hot(**hash));
        ghosts.extend(killed.map(|hash| Object::tombstone(*hash)));
        // A page that could not be read may be readable again some day.
        let changes = self.parts[COLD].unreadable
            || cold.len() != count_before
            || !ghosts.is_empty()
            || !self.incoming.is_empty();
        self.bytes_migrated = bytes(&self.incoming);
        cold.append(&mut ghosts);
        rrip::merge(&mut cold, &mut self.incoming, &mut self.evicted);
        self.leave_ghosts(&mut cold, in_hot);
        self.parts[COLD].objects = cold;
        changes
    }

    /// Leaves a tombstone for everything evicted that may have an older copy in
    /// the hot part.
    fn leave_ghosts(&mut self, cold: &mut Vec<Object>, in_hot: impl Fn(KeyHash) -> bool) {
        let mut looked_at = 0;
        while looked_at < self.evicted.len() {
            let before = cold.len();
            let fresh = self.evicted[looked_at..].iter();
            cold.extend(
                fresh
                    .filter(|object| in_hot(object.hash))
                    .map(|object| Object::tombstone(object.hash)),
            );
            looked_at = self.evicted.len();
            if cold.len() == before {
                return;
            }
            rrip::trim(cold, &mut self.evicted);
            if self.evicted[looked_at..]
                .iter()
                .any(|object| object.tombstone)
            {
                // More tombstones than a page holds: forget the hot part instead.
                self.forgets_hot = true;
                cold.retain(|object| !object.tombstone);
                return;
            }
        }
    }

    /// Rewrites both parts: what was used goes to the hot one.
    fn share_out(&mut self, now_seconds: u32) {
        let mut cold = std::mem::take(&mut self.parts[COLD].objects);
        let mut all = std::mem::take(&mut self.parts[HOT].objects);
        all.retain(|object| cold.iter().all(|newer| newer.hash != object.hash));
        all.append(&mut cold);
        all.retain(|object| {
            !object.tombstone && !object.expires.is_over(now_seconds) && !self.is_outlived(object)
        });
        self.bytes_migrated = bytes(&self.incoming);
        if rrip::bytes_of(&all) + rrip::bytes_of(&self.incoming) > 2 * PAGE_ROOM_BYTES {
            rrip::age(&mut all);
        }
        all.sort_by_key(|object| object.prediction);
        let mut room = PAGE_ROOM_BYTES;
        let hot = all.extract_if(.., |object| {
            let bytes = object.stored_bytes();
            let fits = bytes <= room;
            if fits {
                room -= bytes;
            }
            fits
        });
        cold.append(&mut self.incoming);
        self.parts[HOT].objects = hot.collect();
        cold.append(&mut all);
        rrip::trim(&mut cold, &mut self.evicted);
        self.parts[COLD].objects = cold;
    }

    /// Takes the entries that took part out of the index.
    pub(super) fn remove_entries(&mut self, index: &mut LogIndex) {
        for wanted in self.wanted.drain(..) {
            index.remove(self.set, wanted.id);
        }
    }

    /// Memory that it holds, without the keys and values of objects.
    pub(super) fn buffer_bytes(&self) -> u64 {
        let objects = self.lists().map(Vec::capacity).map(room_bytes::<Object>);
        let hashes = self.parts.iter().map(|part| part.hashes.capacity());
        let hashes = hashes.chain(std::iter::once(self.killed.capacity()));
        objects.sum::<u64>()
            + hashes.map(room_bytes::<KeyHash>).sum::<u64>()
            + room_bytes::<Wanted>(self.wanted.capacity())
            + room_bytes::<PageAddress>(self.sources.capacity())
            + room_bytes::<ReadFor>(self.reads.capacity())
            + room_bytes::<(usize, Object)>(self.from_log.capacity())
            + room_bytes::<(usize, Tag)>(self.lost.capacity())
    }

    /// Memory of the keys and values of objects that it holds.
    pub(super) fn payload_bytes(&self) -> u64 {
        let from_log = self.from_log.iter().map(|(_, object)| object);
        payload_bytes(self.lists().flatten().chain(from_log))
    }

    fn lists(&self) -> impl Iterator<Item = &Vec<Object>> {
        let parts = self.parts.iter().map(|part| &part.objects);
        parts.chain([&self.incoming, &self.evicted])
    }
}

fn live(objects: &[Object]) -> usize {
    objects.iter().filter(|object| !object.tombstone).count()
}

fn bytes(objects: &[Object]) -> u64 {
    objects.iter().map(|object| u64::from(object.bytes)).sum()
}
