//! Pages of one instance on the device: addresses, checksums, labels.
//!
//! **No page is taken for another.** A page's checksum covers the cache's id,
//! and its header has a *label*. Nemo numbers its set-groups and never reuses a
//! number, so it knows each page's label. For the other engines the medium
//! makes labels: the *life of the cache* (the epoch of the superblock, which
//! each opening increases), the *life of the zone* (resets in this life of the
//! cache), the *version* of the page (writes in place), and its address. So a
//! page is unreadable, which is a miss, if it is torn, misplaced, from an
//! earlier life, or unchanged because the drive lost a write. A cold start also
//! takes a new cache id.
//!
//! **A zone whose content is unknown is reset at its first write,** not at
//! opening: a new file would need thousands of resets.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::SeqCst};

use floe_core::hash::HashSeed;
use floe_core::layout::CacheId;
use floe_core::layout::LayoutError;
use floe_core::layout::tiny::{
    IndexHead, ObjectsPage, PageId, PageKind, TrailerHead, decode_objects, encode_objects,
    encode_trailer, open_index, read_page_id, seal_index,
};
use floe_core::placement::{Handles, Stream};
use floe_core::tiny::{Flash, Label, PAGE_BYTES, Page, PageAddress, Summary};
use floe_core::{Address, ZoneId};
use floe_device::{DeviceError, IoBuf, IoData, OpFuture, Placement, SharedDevice};
use futures::future::join_all;

/// Errors of a write.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
    #[error("the device wrote at {got} instead of {wanted}")]
    Elsewhere { wanted: Address, got: Address },
}

impl WriteError {
    /// True if the zone is read-only or offline.
    pub(super) fn is_unwritable(&self) -> bool {
        matches!(self, WriteError::Device(error) if error.unwritable().is_some())
    }

    /// True if the storage below the device is full.
    pub(super) fn is_no_space(&self) -> bool {
        matches!(self, WriteError::Device(error) if error.is_no_space())
    }
}

/// The placement of each kind of data of one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placements {
    appended: Placement,
    index: Placement,
    in_place: Placement,
}

impl Placements {
    /// Those of instance `at`.
    pub(super) fn of(handles: &Handles, at: u32) -> Self {
        Placements {
            appended: handles.of(Stream::Appended(at)),
            index: handles.of(Stream::Index(at)),
            in_place: handles.of(Stream::InPlace(at)),
        }
    }
}

/// One instance's part of the device.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) device: SharedDevice,
    pub(super) id: CacheId,
    pub(super) seed: HashSeed,
    /// The life of the cache: its superblock's epoch.
    pub(super) life: u64,
    pub(super) first_zone: u32,
    pub(super) flash: Flash,
    pub(super) placements: Placements,
    /// Zones that are read-only or offline, as far as that is known.
    pub(super) unwritable: AtomicU32,
    /// Resets of each zone in this life, plus one if the zone was empty at the
    /// start. 0 means that the zone may hold old data.
    pub(super) lives: Box<[AtomicU32]>,
    /// Writes in place of each page in this life. Empty if the engine does not write in place.
    pub(super) versions: Box<[AtomicU16]>,
}

/// Most pages of one read.
const RUN_PAGES: usize = 64;

/// The bits of a label's sequence: the cache's life, the zone's life, then 16
/// bits of the page's version.
const LIFE_SHIFT: u32 = 32;
const ZONE_LIFE_SHIFT: u32 = 16;
/// No zone is reset more often than this in one life of a cache.
const ZONE_LIFE_MAX: u32 = u16::MAX as u32;

impl Medium {
    /// Memory for the lives of zones and versions of pages.
    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.lives) + size_of_val(&*self.versions)) as u64
    }

    pub(super) fn zone(&self, zone: u32) -> ZoneId {
        ZoneId(self.first_zone + zone)
    }

    fn address(&self, page: PageAddress) -> Address {
        let offset = u64::from(page.0 % self.flash.zone_pages) * PAGE_BYTES as u64;
        Address::new(self.zone(self.flash.zone_of(page)), offset)
    }

    /// The label of a page of an engine without set-groups. It does not change
    /// while a search pins the zone, except by a write in place.
    pub(super) fn label(&self, page: PageAddress) -> Label {
        let zone = self.flash.zone_of(page) as usize;
        let of_zone = self.lives.get(zone).map_or(0, |life| life.load(SeqCst));
        let of_zone = u64::from(of_zone & ZONE_LIFE_MAX) << ZONE_LIFE_SHIFT;
        Label {
            sequence: self.life << LIFE_SHIFT | of_zone | u64::from(self.version(page)),
            number: page.0,
        }
    }

    fn version(&self, page: PageAddress) -> u16 {
        let version = self.versions.get(page.index());
        version.map_or(0, |version| version.load(SeqCst))
    }

    /// Says how many zones are read-only or offline, if they are more than `known`.
    pub(super) fn say_unwritable(&self, known: u32) {
        let zones = self.unwritable.load(SeqCst);
        if zones > known {
            tracing::warn!(
                device = self.device.describe(),
                first_zone = self.first_zone,
                zones,
                "the drive has made zones read-only or offline; they take no more tiny objects"
            );
        }
    }

    /// The number in this instance of a zone of the device; `None` if it is another's.
    pub(super) fn zone_here(&self, zone: ZoneId) -> Option<u32> {
        let here = zone.0.checked_sub(self.first_zone)?;
        (here < self.flash.zones).then_some(here)
    }

    /// Decodes a page that had `label` when the search began. A write in place
    /// since then, even an unfinished one, may have raised its version.
    pub(super) fn searched<'a>(&self, label: Label, bytes: &'a [u8]) -> Option<ObjectsPage<'a>> {
        let mut id = page_id(PageKind::Objects, label);
        if !self.versions.is_empty() {
            let newest = self.version(PageAddress(label.number)).wrapping_add(1);
            // The version is in the lowest 16 bits.
            let since = |sequence: u64| (sequence as u16).wrapping_sub(label.sequence as u16);
            let found = read_page_id(self.id, bytes).ok()?;
            let same_life = found.sequence >> 16 == label.sequence >> 16;
            if same_life && since(found.sequence) <= since(u64::from(newest)) {
                id.sequence = found.sequence;
            }
        }
        ObjectsPage::open(self.id, id, bytes).ok()
    }

    /// Starts the read of a page.
    pub(super) fn read(&self, page: PageAddress) -> OpFuture<IoBuf> {
        let buf = self.device.allocate(PAGE_BYTES);
        self.device.read(self.address(page), buf)
    }

    /// Reads pages concurrently; `None` for an unreadable one.
    pub(super) async fn read_all(&self, pages: &[PageAddress]) -> Vec<Option<IoBuf>> {
        if let [page] = pages {
            return vec![self.read(*page).await.ok()];
        }
        let reads = join_all(pages.iter().map(|page| self.read(*page))).await;
        reads.into_iter().map(Result::ok).collect()
    }

    /// As [`read_all`](Medium::read_all), for many pages that mostly lie one behind the other.
    pub(super) async fn read_runs(&self, pages: &[PageAddress]) -> Vec<Option<IoData>> {
        let follows = |page: &PageAddress, next: &PageAddress| {
            page.0 + 1 == next.0 && self.flash.zone_of(*page) == self.flash.zone_of(*next)
        };
        let runs = pages
            .chunk_by(follows)
            .flat_map(|run| run.chunks(RUN_PAGES));
        let read = join_all(runs.map(|run| self.read_run(run))).await;
        read.into_iter().flatten().collect()
    }

    async fn read_run(&self, run: &[PageAddress]) -> Vec<Option<IoData>> {
        let buf = self.device.allocate(run.len() * PAGE_BYTES);
        if let Ok(read) = self.device.read(self.address(run[0]), buf).await {
            let read = read.freeze();
            let ends = (1..=run.len()).map(|end| end * PAGE_BYTES);
            return ends
                .map(|end| Some(read.slice(end - PAGE_BYTES..end)))
                .collect();
        }
        // All but one may be readable.
        let pages = self.read_all(run).await.into_iter();
        pages.map(|page| page.map(IoBuf::freeze)).collect()
    }

    /// Verifies a page of index.
    pub(super) fn index<'a>(&self, label: Label, bytes: Option<&'a [u8]>) -> Option<&'a [u8]> {
        let bytes = bytes?;
        open_index(self.id, page_id(PageKind::Index, label), bytes).ok()?;
        Some(bytes)
    }

    /// Verifies and decodes a page of objects.
    pub(super) fn objects(&self, label: Label, bytes: Option<&[u8]>) -> Option<Page> {
        let id = page_id(PageKind::Objects, label);
        let objects = decode_objects(self.id, id, bytes?, self.seed).ok()?;
        Some(Page::Objects(objects))
    }

    /// Appends pages. The first one's label is `label`, or by default the medium's.
    pub(super) async fn append(
        &self,
        first: PageAddress,
        label: Option<Label>,
        pages: &[Page],
    ) -> Result<(), WriteError> {
        if label.is_none() {
            self.make_writable(first).await?;
        }
        let label = label.unwrap_or_else(|| self.label(first));
        let mut buf = self.device.allocate(pages.len() * PAGE_BYTES);
        for ((at, page), out) in pages
            .iter()
            .enumerate()
            .zip(buf.chunks_exact_mut(PAGE_BYTES))
        {
            let label = Label {
                number: label.number + at as u32,
                ..label
            };
            self.encode(label, page, out)?;
        }
        let placement = match pages.first() {
            Some(Page::Index(_)) => self.placements.index,
            _ => self.placements.appended,
        };
        self.append_bytes(first, buf, placement).await
    }

    /// Writes a page in place.
    pub(super) async fn write(&self, at: PageAddress, page: &Page) -> Result<(), WriteError> {
        let mut buf = self.device.allocate(PAGE_BYTES);
        let label = self.label(at);
        let next = label.sequence & !0xffff | u64::from(self.version(at).wrapping_add(1));
        let label = Label {
            sequence: next,
            ..label
        };
        self.encode(label, page, &mut buf)?;
        let placement = self.placements.in_place;
        let written = self.device.write(self.address(at), buf.freeze(), placement);
        let written = written.await;
        // Counted after a failure too, since the write may have reached flash.
        if let Some(version) = self.versions.get(at.index()) {
            version.fetch_add(1, SeqCst);
        }
        Ok(written?)
    }

    fn encode(&self, label: Label, page: &Page, out: &mut [u8]) -> Result<(), LayoutError> {
        match page {
            Page::Objects(objects) => {
                encode_objects(self.id, page_id(PageKind::Objects, label), objects, out)
            }
            Page::Index(bytes) => {
                out.copy_from_slice(bytes);
                seal_index(self.id, page_id(PageKind::Index, label), out)
            }
        }
    }

    /// Writes a summary of `count` pages after a flush, so that it covers durable pages only.
    pub(super) async fn seal(
        &self,
        first: PageAddress,
        count: u32,
        sets: u32,
        ends_zone: bool,
        summary: &Summary,
    ) -> Result<(), WriteError> {
        self.device.flush().await?;
        let mut buf = self.device.allocate(count as usize * PAGE_BYTES);
        buf.fill(0);
        let placement = if summary.of_index {
            let head = IndexHead {
                sequence: summary.sequence,
                oldest_live: summary.oldest,
                sets,
                columns: summary.columns,
                rows: summary.rows,
                probes: summary.probes,
                page_filter: summary.page_filter,
            };
            head.encode(self.id, &mut buf)?;
            self.placements.index
        } else {
            let head = TrailerHead {
                sequence: summary.sequence,
                oldest_live: summary.oldest,
                objects: summary.objects,
                sets,
                columns: summary.columns,
                rows: summary.rows,
                probes: summary.probes,
                has_filters: !summary.filters.is_empty(),
            };
            let pages = encode_trailer(self.id, &head, &summary.filters);
            if pages.len() > count as usize {
                return Err(LayoutError::Malformed("the summary does not fit its place").into());
            }
            for (out, page) in buf.chunks_exact_mut(PAGE_BYTES).zip(pages) {
                out.copy_from_slice(&page);
            }
            self.placements.appended
        };
        self.append_bytes(first, buf, placement).await?;
        self.device.flush().await?;
        let end = PageAddress(first.0 + count);
        if self.flash.zone_of(end) == self.flash.zone_of(first) && ends_zone {
            // The rest of the zone stays unused. Finishing it frees an open zone.
            self.device.finish(self.address(first).zone).await?;
        }
        Ok(())
    }

    async fn append_bytes(
        &self,
        first: PageAddress,
        buf: IoBuf,
        placement: Placement,
    ) -> Result<(), WriteError> {
        self.make_writable(first).await?;
        let most = self.device.geometry().max_append_bytes as usize / PAGE_BYTES * PAGE_BYTES;
        let most = most.max(PAGE_BYTES);
        let data = buf.freeze();
        let mut wanted = self.address(first);
        let mut at = 0;
        while at < data.len() {
            let end = (at + most).min(data.len());
            let part = data.slice(at..end);
            let got = self.device.append(wanted.zone, part, placement).await?;
            if got != wanted {
                return Err(WriteError::Elsewhere { wanted, got });
            }
            wanted.offset += (end - at) as u64;
            at = end;
        }
        Ok(())
    }

    /// Resets a zone before the first write to it, if it may hold old data.
    async fn make_writable(&self, first: PageAddress) -> Result<(), DeviceError> {
        let zone = self.flash.zone_of(first);
        let begins = first == self.flash.first_page(zone);
        if begins && self.lives[zone as usize].load(SeqCst) == 0 {
            self.reset(zone).await?;
        }
        Ok(())
    }

    /// Finishes a zone without further writes in this life, because few may be open.
    pub(super) async fn give_up(&self, zone: u32) {
        if let Err(error) = self.device.finish(self.zone(zone)).await {
            tracing::warn!(%error, "a zone out of use could not be finished and stays open");
        }
    }

    /// Resets a zone.
    pub(super) async fn reset(&self, zone: u32) -> Result<(), DeviceError> {
        self.device.reset(self.zone(zone)).await?;
        self.lives[zone as usize].fetch_add(1, SeqCst);
        Ok(())
    }

    /// Resets a zone durably: no crash brings back its content.
    pub(super) async fn reset_durably(&self, zone: u32) -> Result<(), DeviceError> {
        self.reset(zone).await?;
        self.device.flush().await
    }
}

pub(super) fn page_id(kind: PageKind, label: Label) -> PageId {
    PageId {
        kind,
        sequence: label.sequence,
        number: label.number,
    }
}
