//! Resolves an object's current version: from the cache where the consistency
//! mode allows it, otherwise from the origin.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::oneshot;

use super::ahead::{Ahead, Early, Seat};
use super::budget::Share;
use super::cache_only::Row;
use super::config::Consistency;
use super::error::ObjectError;
use super::fetch::{Run, expect_range};
use super::inner::Inner;
use super::loads::{Begun, Loading, Pending};
use super::record::{MetadataRecord, RecordedObject};
use super::response::Outcome;
use super::rules::Policy;
use super::stats::count;
use super::version::{Lacked, Moment, ObjectVersion, Version, metadata_key, name_hash};
use super::wanted::Wanted;

use crate::origin::{GetRequest, ObjectKey, ObjectMeta, OriginError, OriginRead};
use crate::value::PutOptions;

/// Time in which a request for the metadata of an object waits for further callers while an
/// earlier one is under way.
const GATHERING_TIME: Duration = Duration::from_millis(1);

/// The current version, and what resolving it has begun.
pub(super) struct Resolved {
    pub(super) object: Arc<ObjectVersion>,
    pub(super) outcome: Outcome,
    pub(super) early: Early,
}

/// A metadata request to the origin.
struct Load {
    key: ObjectKey,
    moment: Moment,
    previous: Option<RecordedObject>,
    wanted: Wanted,
    begun: Arc<Begun>,
}

impl Load {
    /// The chunks that are wanted, as far as they are known before the object is; otherwise none.
    fn wanted_chunks(&self) -> Range<u64> {
        let known = self.previous.as_ref().map(|previous| previous.meta.size);
        let chunk_size = self.moment.policy.chunk_size;
        match self.wanted.bytes(known) {
            Some((first, last)) if first <= last => {
                first / chunk_size..(last / chunk_size).saturating_add(1)
            }
            _ => 0..0,
        }
    }
}

impl Inner {
    /// Resolves the current version of an object. `force` ignores the cached record.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        key: &ObjectKey,
        wanted: Wanted,
        force: bool,
    ) -> Result<Resolved, ObjectError> {
        // It must be read first.
        let moment = self.moment(key);
        if let Some(cache_only) = self.cache_only(key.bucket()) {
            let row = cache_only.buckets.find(key)?;
            count(&self.stats.metadata_hits);
            return Ok(Resolved {
                object: Arc::new(self.cache_only_version(key, moment, row)),
                outcome: Outcome::Metadata,
                early: Early::default(),
            });
        }
        let record = match force {
            true => None,
            false => self.recorded(key, moment).await,
        };
        let previous = match record {
            Some(record) if self.is_fresh(&record, moment.policy) => match record.object {
                Some(object) => {
                    count(&self.stats.metadata_hits);
                    return Ok(self.resolved(key, moment, object, Outcome::Metadata));
                }
                None => {
                    count(&self.stats.negative_hits);
                    return Err(OriginError::NotFound(key.to_string()).into());
                }
            },
            Some(record) => record.object,
            None => None,
        };
        if moment.policy.consistency == Consistency::Etag
            && let Some(object) = &previous
            && self.origin.confirms(key, &object.meta)
        {
            count(&self.stats.revalidations);
            count(&self.stats.revalidations_unchanged);
            return Ok(self.resolved(key, moment, object.clone(), Outcome::Metadata));
        }
        // In a box, since the task of an idle connection has room for a whole read.
        Box::pin(self.renew(key, moment, previous, wanted, force)).await
    }

    /// Asks the origin for the current version.
    async fn renew(
        self: &Arc<Self>,
        key: &ObjectKey,
        moment: Moment,
        previous: Option<RecordedObject>,
        wanted: Wanted,
        force: bool,
    ) -> Result<Resolved, ObjectError> {
        count(match &previous {
            Some(_) => &self.stats.revalidations,
            None => &self.stats.metadata_misses,
        });
        // In `etag` mode each request needs a response that the origin gave
        // after the request began, so it must not join one that is sent.
        let age = match force {
            true => Duration::ZERO,
            false => Duration::from_secs(self.lifetime_s(moment.policy)),
        };
        let loaded = self.load(key, moment, previous.clone(), wanted, Some(age));
        let ahead = self.look_ahead(key, moment, previous.as_ref(), wanted);
        match with_ahead(loaded, ahead).await {
            Err(ObjectError::Origin(error)) if moment.policy.serve_stale && error.is_outage() => {
                let Some(object) = previous else {
                    return Err(error.into());
                };
                count(&self.stats.stale_served);
                Ok(self.resolved(key, moment, object, Outcome::Metadata))
            }
            resolved => resolved,
        }
    }

    fn resolved(
        &self,
        key: &ObjectKey,
        moment: Moment,
        object: RecordedObject,
        outcome: Outcome,
    ) -> Resolved {
        Resolved {
            object: Arc::new(self.version(key, moment, object)),
            outcome,
            early: Early::default(),
        }
    }

    /// Sends a request to the origin, or joins a pending one that is not sent yet, or younger
    /// than `age`; `None` joins none.
    async fn load(
        self: &Arc<Self>,
        key: &ObjectKey,
        moment: Moment,
        previous: Option<RecordedObject>,
        wanted: Wanted,
        age: Option<Duration>,
    ) -> Result<Resolved, ObjectError> {
        let (seats, seats_taken) = oneshot::channel();
        let load = Load {
            key: key.clone(),
            moment,
            previous: previous.clone(),
            wanted,
            begun: Arc::default(),
        };
        let (loading, outcome) = self.join_or_begin_load(load, seats, age);
        let object = match loading.await {
            // The queue was full for the client that began the request, perhaps not for this one.
            Err(ObjectError::Origin(OriginError::Overloaded(_))) if outcome == Outcome::Joined => {
                return Box::pin(self.load(key, moment, previous, wanted, None)).await;
            }
            object => object?,
        };
        let unchanged = previous.is_some_and(|previous| same(&previous.meta, &object.meta));
        Ok(Resolved {
            object,
            outcome: if unchanged {
                Outcome::Metadata
            } else {
                outcome
            },
            // Only the first caller of a request receives seats; for others the sender is gone.
            early: Early {
                seats: seats_taken.await.unwrap_or_default(),
                ahead: None,
            },
        })
    }

    fn join_or_begin_load(
        self: &Arc<Self>,
        mut load: Load,
        seats: oneshot::Sender<Vec<Seat>>,
        age: Option<Duration>,
    ) -> (Loading, Outcome) {
        let id = (load.key.clone(), load.moment);
        let mut chunks = load.wanted_chunks();
        let mut covers = Vec::new();
        let mut shard = self.loads.shard(&load.key).lock();
        let earlier = match shard.get_mut(&id) {
            Some(pending)
                if age.is_some_and(|age| pending.admits(self.clock.now_with_sleep(), age)) =>
            {
                count(&self.stats.metadata_joined);
                return (pending.join(chunks), Outcome::Joined);
            }
            Some(pending) => {
                // A chunk is being fetched: request only metadata, then join that flight.
                if pending.may_bring(&chunks) {
                    load.wanted = Wanted::Metadata;
                    chunks = 0..0;
                }
                covers.clone_from(&pending.covers);
                Some(pending.loading.clone())
            }
            None => None,
        };
        let (result_sender, result_receiver) = oneshot::channel();
        let loading = result_receiver
            .map(|result| result.unwrap_or(Err(ObjectError::Stopped)))
            .boxed()
            .shared();
        if !chunks.is_empty() {
            covers.push((loading.clone(), chunks));
        }
        // The response is certainly valid as of this moment.
        let asked_unix_s = self.clock.unix_seconds();
        let pending = Pending {
            asked_unix_s,
            loading: loading.clone(),
            begun: Arc::clone(&load.begun),
            covers,
        };
        shard.insert(id.clone(), pending);
        drop(shard);
        let listing = Listing {
            cache: Arc::clone(self),
            id,
            begun: Arc::clone(&load.begun),
        };
        let cache = Arc::clone(self);
        self.background.spawn(async move {
            if age == Some(Duration::ZERO) {
                cache.gather(earlier).await;
            }
            let result = cache.ask(&load, seats).await;
            // A send fails if all callers have left.
            match result {
                Ok(object) => {
                    let _ = result_sender.send(Ok(Arc::clone(&object)));
                    // The answer leaves before the metadata is stored.
                    tokio::task::yield_now().await;
                    let publishing = async {
                        cache
                            .publish(&object, load.previous.as_ref(), asked_unix_s)
                            .await;
                        Ok(())
                    };
                    // No client limits any more how many wait for stalled flash.
                    cache.in_time(publishing).await;
                    // Until then later callers find it here.
                    drop(listing);
                }
                Err(error) => {
                    if let ObjectError::Origin(OriginError::NotFound(_)) = error {
                        cache.publish_absence(&load, asked_unix_s).await;
                    }
                    // Removed from the list first, so that no later caller joins a failure.
                    drop(listing);
                    let _ = result_sender.send(Err(error));
                }
            }
        });
        (loading, Outcome::Miss)
    }

    /// Waits for callers that one request can serve: those that run at the same time, and, while
    /// an earlier request is under way, those of a short time.
    async fn gather(&self, earlier: Option<Loading>) {
        match earlier {
            Some(earlier) => tokio::select! {
                biased;
                _ = earlier => {}
                () = self.clock.sleep(GATHERING_TIME) => {}
            },
            None => tokio::task::yield_now().await,
        }
    }

    async fn ask(
        self: &Arc<Self>,
        load: &Load,
        seats: oneshot::Sender<Vec<Seat>>,
    ) -> Result<Arc<ObjectVersion>, ObjectError> {
        let asking = self.background.unless_stopping(self.ask_origin(load));
        let (object, read) = asking.await.flatten()?;
        if let Some((read, memory)) = read {
            self.begin_run(&object, read, memory, load.wanted, seats);
        }
        Ok(object)
    }

    async fn ask_origin(
        &self,
        load: &Load,
    ) -> Result<(Arc<ObjectVersion>, Option<(OriginRead, Share)>), ObjectError> {
        let begins = || load.begun.set(self.clock.now_with_sleep());
        let is_known = load.previous.is_some();
        if let Some(range) = self.opening(load)
            && !self.peers_hold(&load.key, &load.moment, range.start).await
            // Readers of what is cached wait for the answer as well, so it waits for no memory.
            && let Some(memory) = self.memory_of(&range, is_known).await
        {
            count(&self.stats.fetches);
            let request = GetRequest {
                range: Some(range.clone()),
                ..GetRequest::default()
            };
            // Readers may join it while it waits for its turn.
            match self.origin.fetch((&load.key, request), begins).await {
                Ok(read) => {
                    let read = expect_range(read, &range)?;
                    let object = self.found(load, read.meta.clone());
                    return Ok((Arc::new(object), Some((read, memory))));
                }
                // The object is empty, or ends before the range.
                Err(OriginError::RangeNotSatisfiable { .. }) => {}
                // Readers of what is cached need no bytes that the origin cannot give.
                Err(error)
                    if is_known
                        && !error.is_outage()
                        && !matches!(error, OriginError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let request = match &load.previous {
            Some(previous) => GetRequest {
                if_none_match: previous.meta.etag.clone(),
                if_modified_since: previous.meta.last_modified,
                ..GetRequest::default()
            },
            None => GetRequest::default(),
        };
        let object = match (
            self.origin.validate(&load.key, request, begins).await,
            &load.previous,
        ) {
            (Ok(meta), _) => self.found(load, meta),
            (Err(OriginError::NotModified), Some(previous)) => {
                count(&self.stats.revalidations_unchanged);
                self.version(&load.key, load.moment, previous.clone())
            }
            (Err(error), _) => return Err(error.into()),
        };
        Ok((Arc::new(object), None))
    }

    /// Memory for one fetch of a range; with `is_known` only if it takes no waiting.
    async fn memory_of(&self, range: &Range<u64>, is_known: bool) -> Option<Share> {
        let bytes = (range.end - range.start).min(self.config.fetch_window.bytes());
        match is_known {
            true => self.budget.try_acquire(bytes),
            false => Some(self.budget.acquire(bytes).await),
        }
    }

    /// The version that an answer of the origin says.
    fn found(&self, load: &Load, meta: ObjectMeta) -> ObjectVersion {
        match &load.previous {
            Some(previous) if same(&meta, &previous.meta) => {
                count(&self.stats.revalidations_unchanged);
                let renewed = RecordedObject {
                    meta,
                    instance: previous.instance,
                };
                self.version(&load.key, load.moment, renewed)
            }
            _ => self.new_version(&load.key, load.moment, meta),
        }
    }

    /// The bytes to request together with the metadata: whole chunks from the
    /// first wanted one, up to the size of one fetch. Of a version that was cached, only those
    /// before the first chunk that is in the cache or on its way there.
    fn opening(&self, load: &Load) -> Option<Range<u64>> {
        let chunk = load.moment.policy.chunk_size;
        let most = self.config.chunks_per_fetch(chunk).saturating_mul(chunk);
        let wanted = load.wanted_chunks();
        let start = wanted.start * chunk;
        let mut end = start
            .checked_add(most)?
            .min(wanted.end.saturating_mul(chunk));
        if let Some(previous) = &load.previous {
            let known = self.version(&load.key, load.moment, previous.clone());
            let chunks = wanted.start..end.min(known.meta.size).div_ceil(chunk);
            let lacks = |chunk: &u64| {
                !self.has_stored(&known, *chunk) && !self.flights.has(known.chunk_id(*chunk))
            };
            end = start + chunks.take_while(lacks).count() as u64 * chunk;
        }
        (start < end).then_some(start..end)
    }

    /// Starts flights for the chunks of a response that has begun, and sends
    /// seats in them to the reader.
    fn begin_run(
        self: &Arc<Self>,
        object: &Arc<ObjectVersion>,
        read: OriginRead,
        memory: Share,
        wanted: Wanted,
        seats: oneshot::Sender<Vec<Seat>>,
    ) {
        if read.range.is_empty() {
            return;
        }
        let range = match wanted {
            Wanted::Bytes(Some(range)) => range.resolve(object.meta.size).unwrap_or(0..0),
            Wanted::Bytes(None) | Wanted::Metadata => 0..object.meta.size,
        };
        let first = object.chunk_of(read.range.start);
        let last = object.chunk_of(read.range.end - 1);
        let mut taken = Vec::new();
        let mut flights = Vec::new();
        for chunk in first..=last {
            let window = self.config.fetch_window.bytes();
            let len = object.chunk_len(chunk);
            let (flight, begun) = self.flights.join_or_begin(object.chunk_id(chunk), window);
            let start = object.chunk_start(chunk);
            let from = range.start.max(start);
            let to = range.end.min(start + len);
            if from < to {
                taken.push(Seat {
                    reader: flight.reader(from - start, to - start),
                    joined: !begun,
                });
            }
            flights.push(begun.then_some(flight));
        }
        if flights.iter().any(Option::is_some) {
            Run::new(self, object, first, flights).spawn_with(read.body, memory);
        }
        // Fails if the reader has left; that drops the seats.
        let _ = seats.send(taken);
    }

    /// How long the mode takes what the origin says of an object.
    fn lifetime_s(&self, policy: Policy) -> u64 {
        match policy.consistency {
            Consistency::Etag => 0,
            Consistency::Ttl => policy.ttl_seconds,
            Consistency::Events => self.config.events_max_age_seconds,
            Consistency::Immutable => u64::MAX,
        }
    }

    fn is_fresh(&self, record: &MetadataRecord, policy: Policy) -> bool {
        let lifetime_s = match (&record.object, policy.consistency) {
            (None, _) => policy.negative_ttl_seconds,
            (Some(_), Consistency::Immutable) => return true,
            (Some(_), _) => self.lifetime_s(policy),
        };
        if record.session != policy.session {
            return false;
        }
        // Both times are rounded down, so a record may expire up to a second
        // early, never late. A clock that stepped back makes the record stale.
        let now = self.clock.unix_seconds();
        now.checked_sub(record.validated_unix_s)
            .is_some_and(|age| age < lifetime_s)
    }

    pub(super) async fn recorded(&self, key: &ObjectKey, moment: Moment) -> Option<MetadataRecord> {
        let stored = self.note(self.store.get(&metadata_key(key)).await)?;
        let Some(value) = stored else {
            return self.not_yet_stored(key, moment);
        };
        let record = MetadataRecord::decode(&value.bytes).ok();
        if record.is_none() {
            count(&self.stats.metadata_corrupt);
        }
        record.filter(|record| record.purge == moment.purge)
    }

    /// The record that a request is about to store, whose caller has its answer already.
    fn not_yet_stored(&self, key: &ObjectKey, moment: Moment) -> Option<MetadataRecord> {
        let shard = self.loads.shard(key).lock();
        let pending = shard.get(&(key.clone(), moment))?;
        let object = pending.loading.peek()?.as_ref().ok()?;
        object
            .cacheable
            .then(|| record_of(object, pending.asked_unix_s))
    }

    async fn publish(
        &self,
        object: &ObjectVersion,
        previous: Option<&RecordedObject>,
        validated_unix_s: u64,
    ) {
        let same =
            previous.is_some_and(|p| same(&p.meta, &object.meta) && p.instance == object.instance);
        if !object.cacheable || (same && object.moment.policy.consistency == Consistency::Etag) {
            return;
        }
        let record = record_of(object, validated_unix_s);
        let options = PutOptions {
            ttl: None,
            // After a crash an older record of the same version may return: it
            // differs only by an earlier validation time.
            // Of a purged object, an older record may be of another version.
            relaxed: same || (previous.is_none() && object.moment.purge == 0),
        };
        self.publish_record(&object.key, object.moment, &record, options)
            .await;
    }

    async fn publish_absence(&self, load: &Load, validated_unix_s: u64) {
        let lifetime_s = load.moment.policy.negative_ttl_seconds;
        if lifetime_s > 0 && load.moment.policy.cache {
            let record = MetadataRecord {
                validated_unix_s,
                purge: load.moment.purge,
                session: load.moment.policy.session,
                object: None,
            };
            let options = PutOptions {
                ttl: Some(Duration::from_secs(lifetime_s)),
                relaxed: load.previous.is_none() && load.moment.purge == 0,
            };
            self.publish_record(&load.key, load.moment, &record, options)
                .await;
        } else if load.previous.is_some() {
            self.forget_metadata(&load.key).await;
        }
    }

    async fn publish_record(
        &self,
        key: &ObjectKey,
        moment: Moment,
        record: &MetadataRecord,
        options: PutOptions,
    ) {
        let is_purged = self.marks.number_of(key.bucket(), key.key()) != moment.purge;
        let publication = self.epochs.publish(moment.epoch).await;
        let publication = publication.filter(|_| !is_purged);
        let Some(publication) = publication else {
            count(&self.stats.metadata_writes_skipped);
            return;
        };
        let key = metadata_key(key);
        let put = self.store.put_unasked(&key, record.encode(), options);
        self.note(put.await);
        drop(publication);
    }

    /// Deletes the metadata record. If that fails, the record costs one more request.
    pub(super) async fn forget_metadata(&self, key: &ObjectKey) {
        let _forgetting = self.epochs.forget(name_hash(key)).await;
        self.note(self.store.delete(&metadata_key(key)).await);
    }

    fn new_version(&self, key: &ObjectKey, moment: Moment, meta: ObjectMeta) -> ObjectVersion {
        let instance = match meta.has_validator() {
            true => 0,
            false => rand::random::<u128>() | 1,
        };
        self.version(key, moment, RecordedObject { meta, instance })
    }

    pub(super) fn version(
        &self,
        key: &ObjectKey,
        moment: Moment,
        object: RecordedObject,
    ) -> ObjectVersion {
        let RecordedObject { meta, instance } = object;
        let Policy {
            cache,
            consistency,
            chunk_size,
            ..
        } = moment.policy;
        ObjectVersion {
            key: key.clone(),
            version: Version::new(key, &meta, chunk_size, instance, moment.purge),
            // In `etag` mode a version without a validator cannot be confirmed.
            cacheable: cache && (meta.has_validator() || consistency != Consistency::Etag),
            meta,
            instance,
            moment,
            lacked: Lacked::default(),
        }
    }
}

impl Inner {
    /// The version of an object in a cache-only bucket, whose chunks are stored as its row says.
    pub(super) fn cache_only_version(
        &self,
        key: &ObjectKey,
        mut moment: Moment,
        row: Row,
    ) -> ObjectVersion {
        moment.purge = row.purge;
        moment.policy.cache = true;
        moment.policy.chunk_size = row.chunk_size;
        let object = RecordedObject {
            meta: row.meta,
            instance: 0,
        };
        self.version(key, moment, object)
    }
}

/// The version that is loaded, with what was read ahead of it: another version waits for no flash.
async fn with_ahead(
    load: impl Future<Output = Result<Resolved, ObjectError>>,
    ahead: impl Future<Output = Option<Ahead>>,
) -> Result<Resolved, ObjectError> {
    let (mut resolved, ahead) = match select(pin!(load), pin!(ahead)).await {
        Either::Left((resolved, ahead)) => match resolved? {
            unchanged if unchanged.outcome == Outcome::Metadata => (unchanged, ahead.await),
            changed => (changed, None),
        },
        Either::Right((ahead, load)) => (load.await?, ahead),
    };
    resolved.early.ahead = ahead;
    Ok(resolved)
}

fn record_of(object: &ObjectVersion, validated_unix_s: u64) -> MetadataRecord {
    MetadataRecord {
        validated_unix_s,
        purge: object.moment.purge,
        session: object.moment.policy.session,
        object: Some(RecordedObject {
            meta: object.meta.clone(),
            instance: object.instance,
        }),
    }
}

fn same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.has_validator()
        && one.size == other.size
        && one.etag == other.etag
        && one.last_modified == other.last_modified
}

/// A pending request that other callers may join. Dropping it removes it from the list.
struct Listing {
    cache: Arc<Inner>,
    id: (ObjectKey, Moment),
    begun: Arc<Begun>,
}

impl Drop for Listing {
    fn drop(&mut self) {
        let mut shard = self.cache.loads.shard(&self.id.0).lock();
        // A later request may have taken its place.
        let is_own = |pending: &Pending| Arc::ptr_eq(&pending.begun, &self.begun);
        if shard.get(&self.id).is_some_and(is_own) {
            shard.remove(&self.id);
        }
    }
}
