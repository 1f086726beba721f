//! Pins: prefixes of objects that stay in the cache, up to a cap.
//!
//! Eviction knows nothing of pins. A task looks at the zones whose turn comes soon, and writes
//! their pinned values again, to an open zone. A pin takes no memory per object, and it also
//! covers objects that are already cached. **Only what a read could use now is kept**: the metadata
//! record of an object and the chunks of that version. What is left behind, as of an older
//! version or from before a purge, is evicted as if there were no pin.
//!
//! If flash is overwritten faster than the task can follow, pinned objects are evicted: a pin
//! is no promise.

mod file;
mod keeper;
pub(super) mod table;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::ObjectCache;
use super::inner::Inner;
use file::SavedPin;
use table::{PINS_MAX, Pinned, is_name, sort};

pub use table::{Pin, PinError};

impl ObjectCache {
    /// Keeps what is cached of the objects of a bucket whose keys begin with a prefix, while it
    /// is at most `cap_bytes`, or without a cap while all pins together have at most their
    /// limit ([`ObjectConfig::pinned_percent`](super::ObjectConfig::pinned_percent)). It counts
    /// for what is cached already too, and after a restart. A second pin of the same prefix
    /// replaces the cap.
    ///
    /// # Errors
    /// See [`PinError`].
    pub async fn pin(
        &self,
        bucket: &str,
        prefix: &str,
        cap_bytes: Option<u64>,
    ) -> Result<Pin, PinError> {
        let saved = SavedPin {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            cap_bytes,
        };
        let cache = self.clone();
        to_its_end(async move { cache.pin_to_its_end(saved).await }).await
    }

    async fn pin_to_its_end(&self, saved: SavedPin) -> Result<Pin, PinError> {
        let pins = &self.inner.pins;
        let (bucket, prefix) = (&*saved.bucket, &*saved.prefix);
        if pins.limit_bytes == 0 {
            return Err(PinError::Impossible);
        }
        if !is_name(bucket, prefix) {
            return Err(PinError::Name);
        }
        let _changing = pins.changing.lock().await;
        let mut table = pins.table.read().clone();
        let known = table.iter().position(|pin| pin.is_of(bucket, prefix));
        if let Some(known) = known.filter(|&known| table[known].saved.cap_bytes == saved.cap_bytes)
        {
            return Ok(pins.describe(&table[known]));
        }
        let account = match known {
            Some(known) => Arc::clone(&table.remove(known).account),
            None if table.len() < PINS_MAX => Arc::default(),
            None => return Err(PinError::TooMany),
        };
        let pin = Arc::new(Pinned { saved, account });
        table.push(Arc::clone(&pin));
        sort(&mut table);
        pins.replace(table).await?;
        self.inner.keep_pins();
        Ok(pins.describe(&pin))
    }

    /// Removes the pin of exactly this prefix; false if there is none. What was kept is evicted
    /// like any other object from then on.
    ///
    /// # Errors
    /// [`PinError::Save`].
    pub async fn unpin(&self, bucket: &str, prefix: &str) -> Result<bool, PinError> {
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        let cache = self.clone();
        to_its_end(async move { cache.unpin_to_its_end(&bucket, &prefix).await }).await
    }

    async fn unpin_to_its_end(&self, bucket: &str, prefix: &str) -> Result<bool, PinError> {
        let pins = &self.inner.pins;
        let _changing = pins.changing.lock().await;
        let mut table = pins.table.read().clone();
        let before = table.len();
        table.retain(|pin| !pin.is_of(bucket, prefix));
        let was_pinned = table.len() < before;
        if was_pinned {
            pins.replace(table).await?;
        }
        Ok(was_pinned)
    }

    /// All pins, by bucket and prefix.
    pub fn pins(&self) -> Vec<Pin> {
        let pins = &self.inner.pins;
        let table = pins.table.read();
        table.iter().map(|pin| pins.describe(pin)).collect()
    }

    /// Bytes that would have been evicted, and are kept, of all pins.
    pub fn pinned_bytes(&self) -> u64 {
        self.inner.pins.kept_bytes()
    }
}

/// Runs a change of the pins, which goes on if its caller leaves: the file and the table change
/// together.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, PinError>> + Send + 'static,
) -> Result<T, PinError> {
    tokio::spawn(change)
        .await
        .unwrap_or_else(|panic| Err(PinError::interrupted(panic)))
}

impl Inner {
    /// Starts the task that keeps what is pinned, if anything is. It ends without pins, and
    /// with the cache.
    pub(super) fn keep_pins(self: &Arc<Self>) {
        let pins = &self.pins;
        let is_needed = pins.limit_bytes > 0 && !pins.table.read().is_empty();
        if is_needed && !pins.is_kept.swap(true, SeqCst) {
            let keeping = keeper::run(Arc::downgrade(self), self.background.stopping());
            self.background.spawn(keeping);
        }
    }
}
