//! The classic commands.

use std::sync::Arc;

use bytes::BufMut;
use floe::items::{Decision, Expiry, ItemBuffer, ItemError, ItemState, NewItem};
use floe::membership::Refusal;
use floe::{Item, ItemCache};
use floe_core::Tick;

use super::counters::Counters;
use super::frontend::MemcachedFrontend;
use super::latency::GetResult;
use super::output::Output;
use super::protocol::Verb;
use super::protocol::number::{Digits, unsigned};
use super::words as say;

/// The frontend, thread and batch of the requests of one connection.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) frontend: Arc<MemcachedFrontend>,
    pub(super) counters: Arc<Counters>,
    /// The arrival of the current batch.
    pub(super) arrived: Tick,
}

impl Context {
    pub(super) fn items(&self) -> &ItemCache {
        &self.frontend.items
    }

    pub(super) fn now_unix_s(&self) -> u64 {
        self.frontend.clock.unix_seconds()
    }

    pub(super) fn expiry(&self, exptime: i32) -> Expiry {
        match exptime {
            // Without reading the clock.
            0 => Expiry::Never,
            _ => Expiry::from_exptime(i64::from(exptime), self.now_unix_s()),
        }
    }

    /// True if the item exceeds the largest one of memcached with this setting.
    pub(super) fn is_too_large(&self, key: &[u8], flags: u32, len: usize) -> bool {
        item_bytes(key.len(), flags, len) > self.frontend.max_item_bytes
    }

    /// The output of an operation that failed.
    pub(super) fn failed(&self, error: &ItemError) -> Output {
        let mut output = Output::default();
        output.line(self.failure(error));
        output
    }

    /// The response to a failure of the store.
    pub(super) fn failure(&self, error: &ItemError) -> &'static str {
        match error {
            ItemError::TooLarge { .. } => {
                self.counters.too_large.add(1);
                say::TOO_LARGE
            }
            ItemError::NoRoom => {
                self.counters.no_memory.add(1);
                say::NO_MEMORY
            }
            ItemError::Key { .. } => say::BAD_FORMAT,
            ItemError::Refused(Refusal::Unconfirmed) => say::UNCONFIRMED,
            ItemError::Refused(Refusal::Foreign) => say::FOREIGN,
            error => {
                self.counters.failures.add(1);
                tracing::warn!(%error, "an item could not be changed");
                say::STORE_FAILED
            }
        }
    }
}

/// Bytes that memcached counts for an item: its structure with the version, the
/// key, the flags if not 0, the value and its line end.
pub(super) fn item_bytes(key: usize, flags: u32, len: usize) -> u64 {
    let flags = if flags == 0 { 0 } else { 4 };
    (48 + 8 + key + 1 + flags + len + 2) as u64
}

/// A value to store.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) verb: Verb,
    pub(super) key: Box<[u8]>,
    pub(super) flags: u32,
    pub(super) expiry: Expiry,
    /// The version to compare; 0 if there is none.
    pub(super) version: u64,
    /// An older version may be compared too; the value is then stored as stale.
    pub(super) allow_stale: bool,
    pub(super) value: ItemBuffer,
}

/// The outcome of a store command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Stored,
    NotStored,
    Exists,
    NotFound,
}

impl Outcome {
    pub(super) fn line(self) -> &'static str {
        match self {
            Outcome::Stored => say::STORED,
            Outcome::NotStored => say::NOT_STORED,
            Outcome::Exists => say::EXISTS,
            Outcome::NotFound => say::NOT_FOUND,
        }
    }
}

impl Context {
    /// Stores a value; returns its version if it was stored.
    pub(super) async fn store(&self, mut sent: Sent) -> Result<(Outcome, Option<u64>), ItemError> {
        self.counters.sets.add(1);
        if sent.verb == Verb::Set {
            let key = std::mem::take(&mut sent.key);
            let version = self.items().put(&key, sent.into_item()).await?;
            return Ok((Outcome::Stored, Some(version)));
        }
        let (verb, key) = (sent.verb, sent.key.clone());
        let limit = self.frontend.max_item_bytes;
        let updated = self
            .items()
            .update(&key, move |present| sent.decide(present, limit))
            .await?;
        if verb == Verb::Cas {
            match updated.result {
                Outcome::Stored => self.counters.cas_hits.add(1),
                Outcome::NotFound => self.counters.cas_misses.add(1),
                Outcome::Exists | Outcome::NotStored => self.counters.cas_badval.add(1),
            }
        }
        Ok((updated.result, updated.version))
    }
}

impl Sent {
    fn into_item(self) -> NewItem {
        NewItem {
            flags: self.flags,
            expiry: self.expiry,
            state: ItemState::default(),
            value: self.value,
        }
    }

    fn decide(self, present: Option<&Item>, limit: u64) -> Decision<Outcome> {
        let Some(item) = present else {
            return match self.verb {
                Verb::Set | Verb::Add => Decision::Put(self.into_item(), Outcome::Stored),
                Verb::Cas => Decision::Keep(Outcome::NotFound),
                Verb::Replace | Verb::Append | Verb::Prepend => Decision::Keep(Outcome::NotStored),
            };
        };
        let compared = self.version;
        match self.verb {
            Verb::Add => Decision::Keep(Outcome::NotStored),
            Verb::Set | Verb::Replace => Decision::Put(self.into_item(), Outcome::Stored),
            Verb::Cas if compared != 0 && compared == item.version => {
                Decision::Put(self.into_item(), Outcome::Stored)
            }
            Verb::Cas if self.allow_stale && compared != 0 && compared < item.version => {
                let new = NewItem {
                    expiry: Expiry::from_unix(item.expiry_unix_s),
                    state: ItemState {
                        is_stale: true,
                        is_claimed: item.state.is_claimed,
                    },
                    ..self.into_item()
                };
                Decision::Put(new, Outcome::Stored)
            }
            Verb::Cas => Decision::Keep(Outcome::Exists),
            Verb::Append | Verb::Prepend if compared != 0 && compared != item.version => {
                Decision::Keep(Outcome::Exists)
            }
            Verb::Append | Verb::Prepend => self.join(item, limit),
        }
    }

    fn join(self, item: &Item, limit: u64) -> Decision<Outcome> {
        let more = self.value.bytes();
        let len = item.value.len() + more.len();
        if item_bytes(self.key.len(), item.flags, len) > limit {
            return Decision::Keep(Outcome::NotStored);
        }
        let mut value = ItemBuffer::new(len);
        let (first, second) = match self.verb {
            Verb::Prepend => (more, &item.value[..]),
            _ => (&item.value[..], more),
        };
        value.fill(first);
        value.fill(second);
        let new = NewItem {
            flags: item.flags,
            expiry: Expiry::from_unix(item.expiry_unix_s),
            state: ItemState::default(),
            value,
        };
        Decision::Put(new, Outcome::Stored)
    }
}

/// The reason why there is no new count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoCount {
    NotFound,
    NotANumber,
    Mismatch,
}

/// The item with its count changed by `delta`, and the new count.
pub(super) fn counted(item: &Item, delta: u64, up: bool) -> Result<(NewItem, u64), NoCount> {
    let count = unsigned(&item.value).ok_or(NoCount::NotANumber)?;
    let count = match up {
        true => count.wrapping_add(delta),
        false => count.saturating_sub(delta),
    };
    let digits = Digits::of(count);
    let digits = digits.as_slice();
    // Like memcached, which counts in place, this pads a shorter number and
    // keeps the item's marks.
    let len = digits.len().max(item.value.len());
    let mut value = ItemBuffer::new(len);
    value.fill(digits);
    while value.missing() > 0 {
        value.fill(b" ");
    }
    let new = NewItem {
        flags: item.flags,
        expiry: Expiry::from_unix(item.expiry_unix_s),
        state: match digits.len() <= item.value.len() {
            true => item.state,
            false => ItemState::default(),
        },
        value,
    };
    Ok((new, count))
}

impl Context {
    /// `incr`, `decr`.
    pub(super) async fn count(&self, key: &[u8], delta: u64, up: bool) -> Output {
        let mut was_read = false;
        let updated = self.items().update(key, |present| {
            let Some(item) = present else {
                return Decision::Keep(Err(NoCount::NotFound));
            };
            match counted(item, delta, up) {
                Ok((new, count)) => {
                    let in_place = new.value.bytes().len() == item.value.len();
                    was_read = in_place && self.items().access(item).was_read;
                    Decision::Put(new, Ok(count))
                }
                Err(none) => Decision::Keep(Err(none)),
            }
        });
        let mut output = Output::default();
        match updated.await {
            Ok(updated) => {
                self.keep_access(was_read, updated.version);
                self.note_count(up, &updated.result);
                match updated.result {
                    Ok(count) => {
                        output.number(count);
                        output.text().put_slice(b"\r\n");
                    }
                    Err(NoCount::NotFound) => output.line(say::NOT_FOUND),
                    Err(NoCount::NotANumber) => output.line(say::NOT_A_NUMBER),
                    Err(NoCount::Mismatch) => output.line(say::EXISTS),
                }
            }
            Err(error) => output.line(self.failure(&error)),
        }
        output
    }

    /// Marks a changed item as read if it was before.
    pub(super) fn keep_access(&self, was_read: bool, version: Option<u64>) {
        if let Some(version) = version.filter(|_| was_read) {
            self.items().note_version_read(version);
        }
    }

    pub(super) fn note_count(&self, up: bool, result: &Result<u64, NoCount>) {
        let counters = &self.counters;
        match (up, result) {
            (true, Ok(_)) => counters.incr_hits.add(1),
            (false, Ok(_)) => counters.decr_hits.add(1),
            (true, Err(NoCount::NotFound)) => counters.incr_misses.add(1),
            (false, Err(NoCount::NotFound)) => counters.decr_misses.add(1),
            (_, Err(_)) => {}
        }
    }

    /// Sets a new expiry; returns the item as it was, if there was one.
    pub(super) async fn touched(
        &self,
        key: &[u8],
        exptime: i32,
    ) -> Result<Option<Item>, ItemError> {
        let expiry = self.expiry(exptime);
        self.counters.touches.add(1);
        let updated = self.items().update(key, |present| match present {
            None => Decision::Keep(None),
            Some(item) => {
                let new = NewItem {
                    expiry,
                    ..NewItem::copy_of(item)
                };
                Decision::Amend(new, Some(item.clone()))
            }
        });
        let item = updated.await?.result;
        if let Some(item) = &item {
            self.counters.touch_hits.add(1);
            self.items().note_read(item);
        }
        Ok(item)
    }

    /// `touch`.
    pub(super) async fn touch(&self, key: &[u8], exptime: i32) -> Output {
        let mut output = Output::default();
        output.line(match self.touched(key, exptime).await {
            Ok(Some(_)) => say::TOUCHED,
            Ok(None) => say::NOT_FOUND,
            Err(error) => self.failure(&error),
        });
        output
    }

    /// One key of `gat` or `gats`. An item whose touch failed is not returned.
    pub(super) async fn get_and_touch(
        &self,
        key: &[u8],
        exptime: i32,
        with_version: bool,
    ) -> Output {
        let mut output = Output::default();
        let touched = self.touched(key, exptime).await;
        let is_hit = matches!(touched, Ok(Some(_)));
        self.frontend.prefixes.note_get(key, is_hit);
        match touched {
            Ok(Some(item)) => output.item(key, &item, with_version),
            Ok(None) => {}
            Err(error) => {
                self.failure(&error);
            }
        }
        output
    }

    /// Reads an item from flash and counts it. An unreadable one is a miss.
    pub(super) async fn read(&self, key: &[u8]) -> Option<Item> {
        let item = match self.items().get(key).await {
            Ok(item) => item,
            Err(error) => {
                self.failure(&error);
                None
            }
        };
        let result = match &item {
            Some(item) => {
                self.counters.get_hits_flash.add(1);
                self.items().note_read(item);
                GetResult::HitFlash
            }
            None => {
                self.counters.get_misses.add(1);
                GetResult::Miss
            }
        };
        self.note_gets(result, 1);
        item
    }

    /// Records the latency of gets since their arrival.
    pub(super) fn note_gets(&self, result: GetResult, gets: u64) {
        let took = self.frontend.clock.now().since(self.arrived);
        self.counters.get_latencies.add(result, took, gets);
    }

    /// `delete`.
    pub(super) async fn delete(&self, key: &[u8]) -> Output {
        let mut output = Output::default();
        output.line(match self.items().delete(key).await {
            Ok(true) => {
                self.counters.delete_hits.add(1);
                say::DELETED
            }
            Ok(false) => {
                self.counters.delete_misses.add(1);
                say::NOT_FOUND
            }
            Err(error) => self.failure(&error),
        });
        output
    }

    /// `set` and its kin.
    pub(super) async fn classic_store(&self, sent: Sent) -> Output {
        let mut output = Output::default();
        output.line(match self.store(sent).await {
            Ok((outcome, _)) => outcome.line(),
            Err(error) => self.failure(&error),
        });
        output
    }

    /// `flush_all`.
    pub(super) async fn flush_all(&self, exptime: i32) -> &'static str {
        self.counters.flushes.add(1);
        if !self.frontend.config().flush_all {
            return say::NO_FLUSH;
        }
        let at = match self.expiry(exptime.max(0)) {
            Expiry::At(at) => Some(at),
            Expiry::Never | Expiry::Past => None,
        };
        match self.items().flush_all(at).await {
            Ok(()) => say::OK,
            Err(error) => self.failure(&error),
        }
    }
}
