//! One rewrite of a set: the pages to read, and the content of the new pages.
//!
//! All of a set's sealed objects in the log join it at once. The newest copy
//! wins: the log's over the cold part's, and that over the hot part's. The cold
//! part also has tombstones for objects that left it while the hot part may
//! hold an older copy. They are dropped when both parts are rewritten together.

use super::index::{LogIndex, Tag};
use super::sets::{COLD, HOT, PARTS_MAX, Sets};
use crate::hash::KeyHash;
use crate::tiny::baseline::rrip;
use crate::tiny::engine::Page;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES, PageAddress, TOMBSTONE_BYTES};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// The reason for a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Why {
    /// The log needs room (passive migration).
    #[default]
    Passive,
    /// The zone of this part is being collected (active migration).
    Collect(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    /// Pages are being read.
    Reading,
    /// The hot part must be read, too.
    NeedsHot,
    /// Its pages are ready, or being written.
    Writing,
}

/// The result of [`Merge::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computed {
    /// Pages must be written.
    Write,
    /// The pages on flash are up to date.
    Nothing,
    /// The hot part must be read, too.
    NeedsHot,
}

/// One part of the set.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The part is rewritten.
    pub(super) is_rewritten: bool,
    /// The part's ring has a page reserved for it.
    pub(super) is_reserved: bool,
    /// The part's objects before the rewrite, then after it.
    pub(super) objects: Vec<Object>,
    pub(super) unreadable: bool,
    /// The part waits to be written.
    pub(super) is_ready: bool,
    /// Address of the new page.
    pub(super) at: Option<PageAddress>,
    /// Hashes of the objects after the rewrite.
    pub(super) hashes: Vec<KeyHash>,
    pub(super) objects_before: usize,
    pub(super) objects_after: usize,
}

/// A log entry whose object joins the set.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    id: u16,
    tag: Tag,
    page: PageAddress,
    hits: u8,
}

/// The purpose of a page to read.
#[derive(Clone, Copy, Debug)]
enum ReadFor {
    Part(usize),
    /// A page of the log, by its index in `sources`.
    Source(usize),
}

/// A rewrite. Its memory is reused from one set to the next.
#[derive(Debug, Default)]
pub(super) struct Merge {
    pub(super) set: u32,
    pub(super) why: Why,
    pub(super) stage: Stage,
    pub(super) parts: [Part; PARTS_MAX],
    /// The hot part must be dropped, because a newer object or tombstone was
    /// lost.
    pub(super) drops_hot: bool,
    /// Writes that have not finished.
    pub(super) writes_left: usize,
    /// Bytes of objects that came from the log.
    pub(super) bytes_migrated: u64,
    pub(super) evicted_count: u64,
    wanted: Vec<Wanted>,
    /// Pages of the log with wanted objects, newest first.
    sources: Vec<PageAddress>,
    reads: Vec<ReadFor>,
    from_log: Vec<(usize, Object)>,
    /// Tags of entries on unreadable pages. Any older object of the set with
    /// such a tag may be stale.
    lost: Vec<(usize, Tag)>,
    incoming: Vec<Object>,
    /// Hashes that were deleted or expired in the log.
    deleted: Vec<KeyHash>,
    evicted: Vec<Object>,
}

impl Merge {
    pub(super) fn begin(&mut self, set: u32, why: Why) {
        self.set = set;
        self.why = why;
        self.stage = Stage::Reading;
        self.drops_hot = false;
        self.writes_left = 0;
        self.bytes_migrated = 0;
        self.evicted_count = 0;
        self.wanted.clear();
        self.sources.clear();
        self.reads.clear();
        self.from_log.clear();
        self.lost.clear();
        self.incoming.clear();
        self.deleted.clear();
        for part in &mut self.parts {
            part.is_rewritten = false;
            part.is_reserved = false;
            part.objects.clear();
            part.unreadable = false;
            part.is_ready = false;
            part.at = None;
            part.hashes.clear();
            part.objects_before = 0;
            part.objects_after = 0;
        }
    }

    /// Adds the set's entries on sealed pages of the log.
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

    /// The pages to read: parts, and pages of the log that are not `in_memory`.
    pub(super) fn plan_reads<'a>(
        &mut self,
        sets: &Sets,
        is_of_set: impl Fn(KeyHash) -> bool,
        in_memory: impl Fn(PageAddress) -> Option<&'a [Object]>,
    ) -> Vec<PageAddress> {
        let mut pages = Vec::with_capacity(self.sources.len() + 2);
        for part in 0..sets.parts() {
            if self.parts[part].is_rewritten
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

    /// Handles the pages that were read, in order.
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

    /// Adds the hot part; returns its page, if it has one.
    pub(super) fn take_hot(&mut self, sets: &Sets) -> Option<PageAddress> {
        self.stage = Stage::Reading;
        self.parts[HOT].is_rewritten = true;
        let page = sets.page_of(HOT, self.set)?;
        self.reads.push(ReadFor::Part(HOT));
        Some(page)
    }

    /// Decides the content of the new pages.
    pub(super) fn compute(&mut self, sets: &Sets, now_seconds: u32) -> Computed {
        self.resolve_log(now_seconds);
        let cold_lost = self.parts[COLD].unreadable;
        let has_hot = sets.parts() > 1;
        if has_hot && !self.parts[HOT].is_rewritten {
            let tombstones = self.tombstones_min(sets) * (TOMBSTONE_BYTES + 4);
            if cold_lost || !self.lost.is_empty() || tombstones > PAGE_ROOM_BYTES / 4 {
                if self.parts[HOT].is_reserved && !cold_lost {
                    return Computed::NeedsHot;
                }
                self.drops_hot = true;
            }
        }
        for part in 0..sets.parts() {
            let bits = sets.hits(part, self.set);
            let part = &mut self.parts[part];
            part.objects_before = live(&part.objects);
            rrip::promote(&mut part.objects, bits);
        }
        if has_hot && self.parts[HOT].is_rewritten && self.parts[COLD].is_rewritten {
            if cold_lost {
                // The lost objects may have been newer than anything in the hot
                // part.
                self.parts[HOT].objects.clear();
            }
            self.split_parts(now_seconds);
        } else if self.parts[COLD].is_rewritten {
            if !self.fill_cold(sets, now_seconds) && self.why == Why::Passive {
                return Computed::Nothing;
            }
        } else {
            let hot = &mut self.parts[HOT].objects;
            hot.retain(|object| !object.expires.is_over(now_seconds));
        }
        self.evicted_count += live(&self.evicted) as u64;
        self.evicted.clear();
        for part in self.parts.iter_mut().filter(|part| part.is_rewritten) {
            part.is_ready = true;
            part.objects_after = live(&part.objects);
            part.hashes
                .extend(part.objects.iter().map(|object| object.hash));
            self.writes_left += 1;
        }
        Computed::Write
    }

    /// Sorts the objects from the log into incoming and deleted ones, keeping
    /// only the newest copy of each hash.
    fn resolve_log(&mut self, now_seconds: u32) {
        let mut from_log = std::mem::take(&mut self.from_log);
        from_log.sort_by_key(|(rank, _)| *rank);
        for (rank, object) in from_log.drain(..) {
            let tag = Tag::of(object.hash);
            let is_older = self.incoming.iter().any(|newer| newer.hash == object.hash)
                || self.deleted.contains(&object.hash)
                || self
                    .lost
                    .iter()
                    .any(|(lost, of)| *lost < rank && *of == tag);
            if is_older {
                continue;
            }
            if object.tombstone || object.expires.is_over(now_seconds) {
                self.deleted.push(object.hash);
            } else {
                self.incoming.push(object);
            }
        }
        self.from_log = from_log;
    }

    /// Minimum number of tombstones that the cold part would hold.
    fn tombstones_min(&self, sets: &Sets) -> usize {
        let old = self.parts[COLD]
            .objects
            .iter()
            .filter(|object| object.tombstone);
        let hot = |hash: &&KeyHash| sets.may_hold(HOT, self.set, **hash);
        old.count() + self.deleted.iter().filter(hot).count()
    }

    /// True if the log supersedes an object of the set.
    fn is_superseded(&self, object: &Object) -> bool {
        let tag = Tag::of(object.hash);
        self.incoming.iter().any(|newer| newer.hash == object.hash)
            || self.deleted.contains(&object.hash)
            || self.lost.iter().any(|(_, lost)| *lost == tag)
    }

    /// Rewrites only the cold part; returns whether that changes it.
    fn fill_cold(&mut self, sets: &Sets, now_seconds: u32) -> bool {
        let set = self.set;
        let in_hot = |hash| sets.parts() > 1 && sets.may_hold(HOT, set, hash);
        let mut cold = std::mem::take(&mut self.parts[COLD].objects);
        let count_before = cold.len();
        let mut tombstones: Vec<Object> = Vec::new();
        cold.retain(|object| {
            if self.is_superseded(object) {
                return false;
            }
            if object.tombstone {
                return in_hot(object.hash);
            }
            let over = object.expires.is_over(now_seconds);
            if over && in_hot(object.hash) {
                tombstones.push(Object::tombstone(object.hash));
            }
            !over
        });
        let deleted = self.deleted.iter().filter(|hash| in_hot(**hash));
        tombstones.extend(deleted.map(|hash| Object::tombstone(*hash)));
        // Rewriting an unreadable page may make it readable again.
        let changes = self.parts[COLD].unreadable
            || cold.len() != count_before
            || !tombstones.is_empty()
            || !self.incoming.is_empty();
        self.bytes_migrated = bytes(&self.incoming);
        cold.append(&mut tombstones);
        rrip::merge(&mut cold, &mut self.incoming, &mut self.evicted);
        self.add_tombstones(&mut cold, in_hot);
        self.parts[COLD].objects = cold;
        changes
    }

    /// Adds a tombstone for each evicted object of which the hot part may hold
    /// an older copy.
    fn add_tombstones(&mut self, cold: &mut Vec<Object>, in_hot: impl Fn(KeyHash) -> bool) {
        let mut checked = 0;
        while checked < self.evicted.len() {
            let before = cold.len();
            let fresh = self.evicted[checked..].iter();
            cold.extend(
                fresh
                    .filter(|object| in_hot(object.hash))
                    .map(|object| Object::tombstone(object.hash)),
            );
            checked = self.evicted.len();
            if cold.len() == before {
                return;
            }
            rrip::trim(cold, &mut self.evicted);
            if self.evicted[checked..]
                .iter()
                .any(|object| object.tombstone)
            {
                // The tombstones do not fit a page. Drop the hot part instead.
                self.drops_hot = true;
                cold.retain(|object| !object.tombstone);
                return;
            }
        }
    }

    /// Rewrites both parts: used objects move to the hot one.
    fn split_parts(&mut self, now_seconds: u32) {
        let mut cold = std::mem::take(&mut self.parts[COLD].objects);
        let mut all = std::mem::take(&mut self.parts[HOT].objects);
        all.retain(|object| cold.iter().all(|newer| newer.hash != object.hash));
        all.append(&mut cold);
        all.retain(|object| {
            !object.tombstone && !object.expires.is_over(now_seconds) && !self.is_superseded(object)
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

    /// Removes the entries that joined the set from the index.
    pub(super) fn remove_entries(&mut self, index: &mut LogIndex) {
        for wanted in self.wanted.drain(..) {
            index.remove(self.set, wanted.id);
        }
    }

    /// Bytes of memory held, without keys and values.
    pub(super) fn buffer_bytes(&self) -> u64 {
        let objects = self.lists().map(Vec::capacity).map(room_bytes::<Object>);
        let hashes = self.parts.iter().map(|part| part.hashes.capacity());
        let hashes = hashes.chain(std::iter::once(self.deleted.capacity()));
        objects.sum::<u64>()
            + hashes.map(room_bytes::<KeyHash>).sum::<u64>()
            + room_bytes::<Wanted>(self.wanted.capacity())
            + room_bytes::<PageAddress>(self.sources.capacity())
            + room_bytes::<ReadFor>(self.reads.capacity())
            + room_bytes::<(usize, Object)>(self.from_log.capacity())
            + room_bytes::<(usize, Tag)>(self.lost.capacity())
    }

    /// Bytes of memory that keys and values take.
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
