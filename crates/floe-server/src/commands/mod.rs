//! The commands of cached objects: purge them, look at them, warm them, pin them. Frontends
//! of operators give them a form.

mod messages;
mod stream;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe::object::{ObjectCache, ObjectKey, Pin, Purge};
use floe::origin::{ListRequest, ListedObject};
use floe_core::ByteSize;
use floe_device::Clock;
use futures::StreamExt as _;
use tokio::sync::Semaphore;

pub use messages::{CachedObject, CachedState, WarmObject, WarmedObject};

pub(crate) use messages::Failed;
pub(crate) use stream::Selection;

/// Most objects of a page.
const PAGE_OBJECTS_MAX: usize = 500;

/// Objects that are warmed at once.
const WARM_PARALLELISM: usize = 4;

/// How long a request warms objects before it reports.
const WARM_TIME: Duration = Duration::from_secs(1);

/// A page of the origin's objects, with what is cached of each.
pub(crate) struct Page {
    pub(crate) objects: Vec<CachedObject>,
    /// There is no further page.
    pub(crate) is_last: bool,
}

/// Carries out the commands.
pub(crate) struct Objects {
    cache: ObjectCache,
    clock: Clock,
    /// Pages are looked up one after the other, and their objects too, so that they take
    /// little of the device and of the origin.
    page: Semaphore,
}

impl Objects {
    pub(crate) fn new(cache: ObjectCache, clock: Clock) -> Self {
        Objects {
            cache,
            clock,
            page: Semaphore::new(1),
        }
    }

    /// Purges sets of objects; returns their number.
    pub(crate) async fn purge(&self, purges: Vec<Purge>) -> Result<u64, Failed> {
        self.cache.purge(&purges).await?;
        tracing::info!(?purges, "objects were purged");
        Ok(purges.len() as u64)
    }

    /// Keeps objects in the cache.
    pub(crate) async fn pin(
        &self,
        bucket: &str,
        prefix: &str,
        cap: Option<ByteSize>,
    ) -> Result<Pin, Failed> {
        let pin = self.cache.pin(bucket, prefix, cap.map(ByteSize::bytes));
        let pin = pin.await?;
        tracing::info!(?pin, "objects were pinned");
        Ok(pin)
    }

    /// Removes a pin; false if there was none.
    pub(crate) async fn unpin(&self, bucket: &str, prefix: &str) -> Result<bool, Failed> {
        let was_pinned = self.cache.unpin(bucket, prefix).await?;
        tracing::info!(bucket, prefix, was_pinned, "objects were unpinned");
        Ok(was_pinned)
    }

    /// All pins.
    pub(crate) fn pins(&self) -> Vec<Pin> {
        self.cache.pins()
    }

    /// A page of the origin's objects, with what is cached of each.
    pub(crate) async fn cached(
        &self,
        bucket: &str,
        prefix: String,
        after: Option<String>,
        most: usize,
    ) -> Result<Page, Failed> {
        // The semaphore is never closed.
        let _page = self.page.acquire().await;
        let mut request = ListRequest {
            prefix,
            start_after: after,
            max_keys: most.clamp(1, PAGE_OBJECTS_MAX),
            ..ListRequest::default()
        };
        let page = loop {
            match self.cache.list(bucket, request.clone()).await {
                // Origins may send pages without objects.
                Ok(page) if page.objects.is_empty() && page.next.is_some() => {
                    request.continuation = page.next;
                }
                Ok(page) => break page,
                Err(error) => return Err(error.into()),
            }
        };
        let is_last = page.next.is_none();
        let mut objects = Vec::with_capacity(page.objects.len());
        for listed in page.objects {
            objects.push(self.look_at(bucket, listed).await);
        }
        Ok(Page { objects, is_last })
    }

    async fn look_at(&self, bucket: &str, listed: ListedObject) -> CachedObject {
        let key = ObjectKey::new(bucket, listed.key.as_str());
        let cached = self.cache.cached(&key).await;
        let (state, cached_bytes, validated_unix_s) = match cached {
            None => (CachedState::None, 0, None),
            Some(cached) => {
                let is_current = cached.meta.size == listed.size
                    && (listed.etag.is_none()
                        || cached.meta.client_etag() == listed.etag.as_deref());
                let state = match (is_current, cached.bytes) {
                    (false, _) => CachedState::Stale,
                    (true, bytes) if bytes == listed.size => CachedState::Whole,
                    (true, 0) => CachedState::None,
                    (true, _) => CachedState::Part,
                };
                (state, cached.bytes, Some(cached.validated_unix_s))
            }
        };
        CachedObject {
            key: listed.key,
            size: listed.size,
            cached_bytes,
            state,
            validated_unix_s,
        }
    }

    /// Warms objects for a second, or until so many bytes were fetched.
    pub(crate) async fn warm(
        &self,
        bucket: &str,
        objects: Vec<WarmObject>,
        most: u64,
    ) -> Vec<WarmedObject> {
        let end = self.clock.now() + WARM_TIME;
        let fetched = AtomicU64::new(0);
        let warm = |object: WarmObject| {
            let fetched = &fetched;
            async move {
                let mut report = WarmedObject {
                    position: object.position,
                    ..WarmedObject::default()
                };
                let key = ObjectKey::new(bucket, object.key.as_str());
                report.key = object.key;
                if self.clock.now() >= end {
                    return report;
                }
                let (mut counted, mut is_first) = (0, true);
                let may_go_on = |bytes: u64| {
                    let all = fetched.fetch_add(bytes - counted, Relaxed) + (bytes - counted);
                    counted = bytes;
                    // Each object that was asked about makes progress, however slow the origin.
                    all < most && (std::mem::take(&mut is_first) || self.clock.now() < end)
                };
                match self.cache.warm(&key, object.position, may_go_on).await {
                    Ok(warmed) => {
                        fetched.fetch_add(warmed.fetched_bytes - counted, Relaxed);
                        report.fetched_bytes = warmed.fetched_bytes;
                        let is_same = object.position == 0 || object.etag == warmed.etag;
                        if is_same {
                            report.position = warmed.position;
                            report.is_done = warmed.position == warmed.size;
                        } else {
                            report.position = 0;
                        }
                        report.etag = warmed.etag;
                    }
                    Err(error) => report.error = Some(error.to_string()),
                }
                report
            }
        };
        let warmed = futures::stream::iter(objects)
            .map(warm)
            .buffered(WARM_PARALLELISM);
        warmed.collect().await
    }
}
