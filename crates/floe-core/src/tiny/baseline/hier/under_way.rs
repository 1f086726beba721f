//! Work under way besides rewrites of sets: appends, zones that are emptied,
//! resets.

use crate::tiny::object::{Object, PageAddress};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// An append of sets' pages that is under way.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) zone: u32,
    pub(super) merges: Vec<usize>,
}

/// A zone of sets that is being emptied.
#[derive(Debug)]
pub(super) struct Collecting {
    pub(super) zone: u32,
    /// Sets that were there when they were last counted.
    pub(super) sets: Vec<u32>,
    pub(super) at: usize,
}

impl Collecting {
    pub(super) fn memory_bytes(&self) -> u64 {
        room_bytes::<u32>(self.sets.capacity())
    }
}

/// An empty zone, to be reset once no search is inside.
#[derive(Debug)]
pub(super) struct Reset {
    pub(super) zone: u32,
    /// The part that owns the zone; `None` for the log.
    pub(super) part: Option<usize>,
    pub(super) is_sent: bool,
}

/// The zone that is being emptied.
#[derive(Debug)]
pub(super) struct Cleaning {
    pub(super) zone: u32,
    /// Pages of it that hold objects, and how many of them were asked for.
    pub(super) pages: u32,
    pub(super) asked: u32,
    pub(super) is_reading: bool,
    /// The pages that were read last.
    pub(super) first: PageAddress,
    pub(super) batch: Vec<Option<Vec<Object>>>,
    /// The object that is looked at: page and slot.
    pub(super) at: (usize, usize),
    /// Something of the batch is in the index still.
    pub(super) some_left: bool,
    /// Nothing changes before a rewrite is over.
    pub(super) waits: bool,
}

impl Cleaning {
    /// A page of the batch in memory.
    pub(super) fn page(&self, page: PageAddress) -> Option<&[Object]> {
        let at = page.0.checked_sub(self.first.0)?;
        self.batch.get(at as usize)?.as_deref()
    }

    /// A rewrite is over.
    pub(super) fn look_again(&mut self) {
        self.waits = false;
    }

    /// Memory of the batch, without the keys and values of objects.
    pub(super) fn buffer_bytes(&self) -> u64 {
        let pages = self.batch.iter().flatten();
        let objects = pages.map(|page| room_bytes::<Object>(page.capacity()));
        room_bytes::<Option<Vec<Object>>>(self.batch.capacity()) + objects.sum::<u64>()
    }

    /// Memory of the keys and values of the batch.
    pub(super) fn payload_bytes(&self) -> u64 {
        payload_bytes(self.batch.iter().flatten().flatten())
    }
}
