//! Work in progress besides rewrites of sets: appends, zones being emptied,
//! resets.

use crate::tiny::object::{Object, PageAddress};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// An append of sets' pages in flight.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) zone: u32,
    pub(super) merges: Vec<usize>,
}

/// A zone of sets that is being collected.
#[derive(Debug)]
pub(super) struct Collecting {
    pub(super) zone: u32,
    /// Sets in the zone at the last scan.
    pub(super) sets: Vec<u32>,
    pub(super) at: usize,
}

impl Collecting {
    pub(super) fn memory_bytes(&self) -> u64 {
        room_bytes::<u32>(self.sets.capacity())
    }
}

/// A zone to reset once no search reads it.
#[derive(Debug)]
pub(super) struct Reset {
    pub(super) zone: u32,
    /// The part that owns the zone; `None` for the log.
    pub(super) part: Option<usize>,
    pub(super) is_sent: bool,
}

/// The zone of the log that is being emptied.
#[derive(Debug)]
pub(super) struct Cleaning {
    pub(super) zone: u32,
    /// Pages with objects, and pages whose read was started.
    pub(super) pages: u32,
    pub(super) read_started: u32,
    pub(super) is_reading: bool,
    /// The pages of the last read, and the address of the first.
    pub(super) first: PageAddress,
    pub(super) batch: Vec<Option<Vec<Object>>>,
    /// The current object: its page in the batch, and its slot.
    pub(super) at: (usize, usize),
    /// Objects of the batch are still in the index.
    pub(super) is_incomplete: bool,
    /// The scan waits for the end of a rewrite.
    pub(super) waits: bool,
}

impl Cleaning {
    /// A page of the batch.
    pub(super) fn page(&self, page: PageAddress) -> Option<&[Object]> {
        let at = page.0.checked_sub(self.first.0)?;
        self.batch.get(at as usize)?.as_deref()
    }

    /// Continues after the end of a rewrite.
    pub(super) fn resume(&mut self) {
        self.waits = false;
    }

    /// Bytes of memory of the batch, without keys and values.
    pub(super) fn buffer_bytes(&self) -> u64 {
        let pages = self.batch.iter().flatten();
        let objects = pages.map(|page| room_bytes::<Object>(page.capacity()));
        room_bytes::<Option<Vec<Object>>>(self.batch.capacity()) + objects.sum::<u64>()
    }

    /// Bytes of memory of the batch's keys and values.
    pub(super) fn payload_bytes(&self) -> u64 {
        payload_bytes(self.batch.iter().flatten().flatten())
    }
}
