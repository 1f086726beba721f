//! Reads the version in the cache while the origin is asked whether it is the newest.

use floe_core::layout::SMALL_MAX_BYTES;

use super::budget::Share;
use super::flight::FlightReader;
use super::inner::Inner;
use super::record::RecordedObject;
use super::version::{Moment, Version};
use super::wanted::Wanted;
use crate::origin::ObjectKey;
use crate::store::ValueReader;

/// Turns of the other tasks of a thread in which its request to the origin leaves: those of the
/// task that asks, and of its connection.
const TURNS_OF_REQUEST: usize = 3;

/// The beginnings of a read whose version is not known yet.
#[derive(Default)]
pub(super) struct Early {
    /// Seats in the flights that the request for the metadata has begun, in order.
    pub(super) seats: Vec<Seat>,
    pub(super) ahead: Option<Ahead>,
}

pub(super) struct Seat {
    pub(super) reader: FlightReader,
    /// Another read has begun the flight.
    pub(super) joined: bool,
}

/// The first bytes of a read, of the version that was cached.
pub(super) struct Ahead {
    pub(super) version: Version,
    pub(super) chunk: u64,
    pub(super) reader: ValueReader,
    /// The share of the budget for bytes from flash.
    _memory: Share,
}

impl Inner {
    /// Reads the first chunk of what is wanted, if that takes one read of the store. It is for
    /// the version in the cache, so it fetches nothing.
    pub(super) async fn look_ahead(
        &self,
        key: &ObjectKey,
        moment: Moment,
        previous: Option<&RecordedObject>,
        wanted: Wanted,
    ) -> Option<Ahead> {
        let (previous, Wanted::Bytes(range)) = (previous?, wanted) else {
            return None;
        };
        let size = previous.meta.size;
        let range = match range {
            Some(range) => range.resolve(size)?,
            None => 0..size,
        };
        let object = self.version(key, moment, previous.clone());
        let chunk = object.chunk_of(range.start);
        let len = object.chunk_len(chunk);
        if range.is_empty() || !object.cacheable || len > SMALL_MAX_BYTES as u64 {
            return None;
        }
        for _ in 0..TURNS_OF_REQUEST {
            tokio::task::yield_now().await;
        }
        let start = object.chunk_start(chunk);
        let end = object.end_of(chunk).min(range.end);
        // The origin may take its time: what waits for it is bounded, as what is fetched. A part
        // of a value keeps the whole in memory.
        let memory = self.budget.try_spare(len)?;
        let within = range.start - start..end - start;
        let reader = self.stored(&object, chunk, within).await?;
        // Others would keep their zone from eviction.
        reader.is_in_memory().then_some(Ahead {
            version: object.version,
            chunk,
            reader,
            _memory: memory,
        })
    }
}
