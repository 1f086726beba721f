//! Commands about all objects of a prefix, whose results are a stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use floe_core::{ByteSize, Tick};
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use serde::Deserialize;

use super::{
    CachedObject, CachedState, Failed, Objects, PAGE_OBJECTS_MAX, WarmObject, WarmedObject,
};

/// Objects that are warmed in one step.
const WARM_OBJECTS: usize = 64;

/// Objects of the origin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Selection {
    /// Their bucket.
    pub(crate) bucket: String,
    /// A prefix of their keys.
    pub(crate) prefix: String,
    /// Only keys after this one, in byte order.
    pub(crate) after: Option<String>,
    /// Bytes a second at most that warming fetches; 0 does not limit it.
    pub(crate) rate: ByteSize,
    /// Objects a second at most that are looked at; 0 does not limit it.
    pub(crate) objects_a_second: u32,
}

/// The rest of a listing.
struct Listing {
    selection: Selection,
    /// The time of the next page.
    due: Tick,
    is_last: bool,
}

/// The rest of the objects to warm.
struct Warming<P> {
    pages: P,
    bucket: String,
    left: VecDeque<WarmObject>,
    rate: ByteSize,
}

impl Objects {
    /// The origin's objects, by pages, with what is cached of each.
    pub(crate) fn pages(
        self: Arc<Self>,
        selection: Selection,
    ) -> impl Stream<Item = Result<Vec<CachedObject>, Failed>> + Send + 'static {
        let listing = Listing {
            due: self.clock.now(),
            selection,
            is_last: false,
        };
        stream::try_unfold(listing, move |mut listing| {
            let objects = Arc::clone(&self);
            async move {
                if listing.is_last {
                    return Ok(None);
                }
                objects.clock.sleep_until(listing.due).await;
                let Selection {
                    bucket,
                    prefix,
                    after,
                    objects_a_second,
                    ..
                } = &mut listing.selection;
                let most = match *objects_a_second {
                    0 => PAGE_OBJECTS_MAX,
                    most => PAGE_OBJECTS_MAX.min(most as usize),
                };
                let page = objects
                    .cached(bucket, prefix.clone(), after.clone(), most)
                    .await?;
                let last = page.objects.last().map(|object| object.key.clone());
                // An origin that does not continue its listing must not be asked for ever.
                listing.is_last = page.is_last || last <= *after;
                *after = last;
                if *objects_a_second > 0 {
                    let seconds = page.objects.len() as f64 / f64::from(*objects_a_second);
                    listing.due = objects.clock.now() + Duration::from_secs_f64(seconds);
                }
                Ok(Some((page.objects, listing)))
            }
        })
    }

    /// Warms the origin's objects that are not cached whole. Reports each about once a second
    /// until it is done.
    pub(crate) fn warm_all(
        self: Arc<Self>,
        selection: Selection,
    ) -> impl Stream<Item = Result<Vec<WarmedObject>, Failed>> + Send + 'static {
        let warming = Warming {
            bucket: selection.bucket.clone(),
            rate: selection.rate,
            pages: Arc::clone(&self).pages(selection).boxed(),
            left: VecDeque::new(),
        };
        stream::try_unfold(warming, move |mut warming| {
            let objects = Arc::clone(&self);
            async move {
                if warming.left.is_empty() {
                    let Some(page) = warming.pages.try_next().await? else {
                        return Ok(None);
                    };
                    let missing = page
                        .into_iter()
                        .filter(|object| object.state != CachedState::Whole);
                    warming.left = missing.map(|object| object.key.into()).collect();
                }
                let warmed = objects.warm_some(&mut warming.left, &warming.bucket, warming.rate);
                Ok(Some((warmed.await, warming)))
            }
        })
    }

    /// Warms the first objects of `left` for about a second, and removes those that are done.
    async fn warm_some(
        &self,
        left: &mut VecDeque<WarmObject>,
        bucket: &str,
        rate: ByteSize,
    ) -> Vec<WarmedObject> {
        let begun = self.clock.now();
        let some = left.drain(..left.len().min(WARM_OBJECTS)).collect();
        let most = match rate.bytes() {
            0 => u64::MAX,
            bytes => bytes,
        };
        let warmed = self.warm(bucket, some, most).await;
        let mut fetched_bytes = 0;
        for object in warmed.iter().rev() {
            fetched_bytes += object.fetched_bytes;
            if !object.is_done && object.error.is_none() {
                left.push_front(object.into());
            }
        }
        if rate.bytes() > 0 {
            let due = Duration::from_secs_f64(fetched_bytes as f64 / rate.bytes() as f64);
            let taken = self.clock.now().since(begun);
            self.clock.sleep(due.saturating_sub(taken)).await;
        }
        warmed
    }
}

impl From<String> for WarmObject {
    /// Nothing of it is warm yet.
    fn from(key: String) -> Self {
        WarmObject {
            key,
            position: 0,
            etag: None,
        }
    }
}

impl From<&WarmedObject> for WarmObject {
    /// The rest of the object.
    fn from(warmed: &WarmedObject) -> Self {
        WarmObject {
            key: warmed.key.clone(),
            position: warmed.position,
            etag: warmed.etag.clone(),
        }
    }
}
