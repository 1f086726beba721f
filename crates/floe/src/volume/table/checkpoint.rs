//! Moving records from the log to the pages of the table.
//!
//! The log makes room only once both copies of every changed page are durable. A
//! crash on the way leaves pages with some of the records; recovery applies them
//! again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::layout::LayoutError;
use floe_core::layout::volume::{BlockRecord, TABLE_PAGE_BYTES, TablePage};
use floe_device::{DeviceError, IoBuf};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::BlockTable;
use super::disk::Disk;
use crate::volume::error::{OpenVolumesError, VolumeError};

/// Pages that are read or written at once.
const PAGES_AT_ONCE: usize = 16;

/// Bytes of both copies of a page.
pub(crate) const COPIES_BYTES: usize = 2 * TABLE_PAGE_BYTES;

/// Records, and their indices by the pages that they change, in their order. A record of
/// a large block changes hundreds of entries, so that the changes are not kept.
#[derive(Debug)]
pub(crate) struct ByPage<'a> {
    records: Cow<'a, [BlockRecord]>,
    pages: BTreeMap<u32, Vec<u32>>,
}

impl BlockTable {
    /// Moves the records of the log to the table.
    pub(super) async fn checkpoint(self: &Arc<Self>) -> Result<(), VolumeError> {
        let _one = self.checkpoint.lock().await;
        let snapshot = {
            let mut log = self.log.lock().await;
            if !log.is_half_full() || self.is_closed.load(SeqCst) {
                return Ok(());
            }
            self.watch(log.append(Vec::new(), true).await)?;
            let mut queue = self.queue.lock();
            queue.stable = queue.written;
            log.snapshot()
        };
        let disk = self.disk();
        let pages = read_pages(&disk, ByPage::new(&disk, &snapshot.records)).await;
        let pages = pages.map_err(|error| self.fail(&error))?;
        self.watch(write_pages(&disk, pages).await)?;
        let mut log = self.log.lock().await;
        self.watch(log.forget(&snapshot).await)
    }
}

impl<'a> ByPage<'a> {
    pub(crate) fn new(disk: &Disk, records: impl Into<Cow<'a, [BlockRecord]>>) -> Self {
        let records = records.into();
        let mut pages = BTreeMap::<u32, Vec<u32>>::new();
        for (index, record) in (0..).zip(&*records) {
            let mut last = None;
            record.edits(disk.shape, |granule, _| {
                let (page, _) = disk.shape.locate(granule);
                if last.replace(page) != Some(page) {
                    pages.entry(page).or_default().push(index);
                }
            });
        }
        ByPage { records, pages }
    }

    /// The numbers of the pages that change.
    fn pages(&self) -> impl Iterator<Item = u32> {
        self.pages.keys().copied()
    }

    /// True if a record changes page `number`.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.pages.contains_key(&number)
    }

    /// Applies the records to `page`. Returns whether any changes it.
    pub(crate) fn apply(&self, page: &mut TablePage) -> bool {
        let Some(indices) = self.pages.get(&page.number) else {
            return false;
        };
        for index in indices {
            page.apply_record(&self.records[*index as usize]);
        }
        true
    }
}

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("page {0} of the table of blocks: {1}")]
    Layout(u32, LayoutError),
}

impl PageError {
    pub(super) fn when_opening(self) -> OpenVolumesError {
        match self {
            PageError::Device(error) => OpenVolumesError::Device(error),
            error @ PageError::Layout(..) => OpenVolumesError::Damaged(error.to_string()),
        }
    }
}

/// Reads the pages that records change, and applies these.
pub(super) async fn read_pages(
    disk: &Disk,
    records: ByPage<'_>,
) -> Result<Vec<TablePage>, PageError> {
    let pages: Vec<u32> = records.pages().collect();
    let read = |number| read_page(disk, number, &records);
    let pages = stream::iter(pages).map(read);
    pages.buffered(PAGES_AT_ONCE).try_collect().await
}

/// Reads a page, and applies records.
async fn read_page(disk: &Disk, number: u32, records: &ByPage<'_>) -> Result<TablePage, PageError> {
    let buf = disk.allocate(COPIES_BYTES);
    let at = page_bytes(disk, number..number + 1).start;
    let bytes = disk.device.read(at, buf).await?;
    let mut page = newest(disk, number, &bytes)?;
    records.apply(&mut page);
    Ok(page)
}

/// A sound copy of a page, if both have the same blocks, or lack records that are applied
/// afterwards.
pub(super) fn any_sound(disk: &Disk, number: u32, copies: &[u8]) -> Result<TablePage, PageError> {
    let first = copies.get(..TABLE_PAGE_BYTES).unwrap_or_default();
    let first = TablePage::decode(disk.id, disk.shape, number, first);
    first.or_else(|_| newest(disk, number, copies))
}

/// The newer of two copies of a page. A page that was never written has no blocks.
pub(super) fn newest(disk: &Disk, number: u32, copies: &[u8]) -> Result<TablePage, PageError> {
    let (first, second) = copies.split_at(TABLE_PAGE_BYTES.min(copies.len()));
    let decode = |bytes| TablePage::decode(disk.id, disk.shape, number, bytes);
    match (decode(first), decode(second)) {
        (Ok(first), Ok(second)) if second.sequence > first.sequence => Ok(second),
        (Ok(page), _) | (_, Ok(page)) => Ok(page),
        (Err(LayoutError::Blank), Err(LayoutError::Blank)) => {
            Ok(TablePage::empty(disk.shape, number))
        }
        // The first copy is written first, and alone for the first time.
        (Err(_), Err(LayoutError::Blank)) => Ok(TablePage::empty(disk.shape, number)),
        (Err(error), Err(_)) => Err(PageError::Layout(number, error)),
    }
}

/// Writes both copies of pages, and makes one durable before the other is written.
pub(super) async fn write_pages(disk: &Disk, mut pages: Vec<TablePage>) -> Result<(), DeviceError> {
    for page in &mut pages {
        page.sequence += 1;
    }
    for copy in 0..2 {
        let write = |page: &TablePage| {
            let mut buf: IoBuf = disk.allocate(TABLE_PAGE_BYTES);
            let encoded = page.encode(disk.id, &mut buf);
            debug_assert!(encoded.is_ok(), "the buffer has a page");
            let at = page_bytes(disk, page.number..page.number + 1).start;
            let at = at + copy * TABLE_PAGE_BYTES as u64;
            disk.write(at, buf.freeze())
        };
        let writes = stream::iter(pages.iter().map(write));
        writes
            .buffer_unordered(PAGES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        disk.flush().await?;
    }
    Ok(())
}

/// The bytes of both copies of pages on the device.
pub(super) fn page_bytes(disk: &Disk, pages: Range<u32>) -> Range<u64> {
    let offset = |page| disk.plan.table_offset + u64::from(page) * COPIES_BYTES as u64;
    offset(pages.start)..offset(pages.end)
}
