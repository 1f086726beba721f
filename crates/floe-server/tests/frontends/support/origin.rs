//! An origin in memory with configurable faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use floe::origin::{
    Attributes, Backend, BucketInfo, CompleteRequest, ForwardBody, GetRequest, ListPage,
    ListRequest, ListedObject, MessageQueue, ObjectKey, ObjectMeta, OriginError, OriginRead,
    PartRequest, PutRequest, PutResponse, UploadBody,
};
use futures::StreamExt;
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct MemoryOrigin {
    state: Mutex<State>,
    writes: AtomicU64,
    /// Bodies break off at this offset of their object; 0 disables that.
    pub(crate) cut_at: AtomicU64,
    /// Reads never get an answer.
    pub(crate) hangs: AtomicBool,
    /// The queue of notifications, at any URL.
    pub(crate) queue: Mutex<Option<Arc<dyn MessageQueue>>>,
}

#[derive(Default)]
struct State {
    buckets: BTreeSet<String>,
    objects: BTreeMap<ObjectKey, (ObjectMeta, Bytes)>,
    uploads: BTreeMap<String, (ObjectKey, Attributes, BTreeMap<u32, Bytes>)>,
    fault: Option<OriginError>,
}

impl MemoryOrigin {
    /// Stores an object past the cache.
    pub(crate) fn store(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) -> ObjectMeta {
        self.store_with(bucket, key, bytes.into(), Attributes::default())
    }

    pub(crate) fn store_with(
        &self,
        bucket: &str,
        key: &str,
        bytes: Bytes,
        attributes: Attributes,
    ) -> ObjectMeta {
        let number = self.writes.fetch_add(1, Relaxed);
        let meta = ObjectMeta {
            size: bytes.len() as u64,
            etag: Some(format!("\"etag-{number}\"")),
            last_modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)),
            attributes,
            ..ObjectMeta::default()
        };
        let mut state = self.state.lock();
        state.buckets.insert(bucket.to_owned());
        let entry = (meta.clone(), bytes);
        state.objects.insert(ObjectKey::new(bucket, key), entry);
        meta
    }

    pub(crate) fn bytes(&self, bucket: &str, key: &str) -> Option<Bytes> {
        let state = self.state.lock();
        let (_, bytes) = state.objects.get(&ObjectKey::new(bucket, key))?;
        Some(bytes.clone())
    }

    pub(crate) fn attributes(&self, bucket: &str, key: &str) -> Attributes {
        let state = self.state.lock();
        let (meta, _) = &state.objects[&ObjectKey::new(bucket, key)];
        meta.attributes.clone()
    }

    /// Fails every request with this error from now on.
    pub(crate) fn fail_with(&self, fault: Option<OriginError>) {
        self.state.lock().fault = fault;
    }

    fn find(&self, key: &ObjectKey) -> Result<(ObjectMeta, Bytes), OriginError> {
        let state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        if !state.buckets.contains(key.bucket()) {
            return Err(OriginError::NoSuchBucket(key.bucket().into()));
        }
        let found = state.objects.get(key).cloned();
        found.ok_or_else(|| OriginError::NotFound(key.to_string()))
    }

    fn check(&self, meta: &ObjectMeta, request: &GetRequest) -> Result<(), OriginError> {
        if request.if_match.is_some() && request.if_match != meta.etag {
            return Err(OriginError::PreconditionFailed);
        }
        if request.if_none_match.is_some() && request.if_none_match == meta.etag {
            return Err(OriginError::NotModified);
        }
        Ok(())
    }
}

async fn collect(mut body: UploadBody, length: Option<u64>) -> Result<Bytes, OriginError> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| OriginError::BadUpload(error.to_string()))?;
        bytes.extend_from_slice(&piece);
    }
    match length {
        Some(length) if length != bytes.len() as u64 => {
            Err(OriginError::BadUpload("another length".into()))
        }
        _ => Ok(bytes.freeze()),
    }
}

/// The bytes of a forwarded body.
pub(crate) async fn forwarded_bytes(body: Option<ForwardBody>) -> Result<Bytes, OriginError> {
    match body {
        Some(body) => collect(body.pieces, body.length).await,
        None => Ok(Bytes::new()),
    }
}

#[async_trait::async_trait]
impl Backend for MemoryOrigin {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        if self.hangs.load(Relaxed) {
            std::future::pending::<()>().await;
        }
        let (meta, bytes) = self.find(key)?;
        self.check(&meta, &request)?;
        let whole = 0..meta.size;
        let range = request
            .range
            .map_or(whole, |r| r.start..r.end.min(meta.size));
        let bytes = bytes.slice(range.start as usize..range.end as usize);
        let cut = self.cut_at.load(Relaxed);
        let body =
            futures::stream::unfold((bytes, range.start), move |(mut rest, offset)| async move {
                if cut > 0 && offset >= cut {
                    let error = OriginError::Unreachable("cut by the test".into());
                    return Some((Err(error), (Bytes::new(), 0)));
                }
                if rest.is_empty() {
                    return None;
                }
                let piece = rest.split_to(rest.len().min(16 << 10));
                let offset = offset + piece.len() as u64;
                Some((Ok(piece), (rest, offset)))
            });
        Ok(OriginRead {
            meta,
            range,
            from_cache: None,
            body: body.boxed(),
        })
    }

    fn queue(&self, _: &str) -> Result<Arc<dyn MessageQueue>, OriginError> {
        let queue = self.queue.lock().clone();
        queue.ok_or_else(|| OriginError::Unsupported("read queues".into()))
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        let (meta, _) = self.find(key)?;
        self.check(&meta, &request)?;
        Ok(meta)
    }

    async fn put(&self, key: &ObjectKey, request: PutRequest) -> Result<PutResponse, OriginError> {
        let current = match self.find(key) {
            Ok((meta, _)) => Some(meta),
            Err(OriginError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        if let Some(condition) = &request.condition {
            condition.check(key.key(), current.as_ref())?;
        }
        let bytes = collect(request.body, request.length).await?;
        let meta = self.store_with(key.bucket(), key.key(), bytes, request.attributes);
        Ok(PutResponse { etag: meta.etag })
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        match self.find(key) {
            Ok(_) => {
                self.state.lock().objects.remove(key);
                Ok(())
            }
            Err(OriginError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, bucket: &str, request: ListRequest) -> Result<ListPage, OriginError> {
        let state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        if !state.buckets.contains(bucket) {
            return Err(OriginError::NoSuchBucket(bucket.into()));
        }
        let mut page = ListPage::default();
        let mut last = String::new();
        for (key, (meta, _)) in state
            .objects
            .iter()
            .filter(|(key, _)| key.bucket() == bucket)
        {
            let name = key.key();
            let Some(rest) = name.strip_prefix(request.prefix.as_str()) else {
                continue;
            };
            let fold = request.delimiter.as_ref().and_then(|d| {
                let end = rest.find(d.as_str())? + d.len() + request.prefix.len();
                Some(name[..end].to_owned())
            });
            let entry = fold.clone().unwrap_or_else(|| name.to_owned());
            let skipped = request
                .start_after
                .as_deref()
                .is_some_and(|after| name <= after)
                || request
                    .continuation
                    .as_deref()
                    .is_some_and(|last| entry.as_str() <= last)
                || page.common_prefixes.last() == Some(&entry);
            if skipped {
                continue;
            }
            if page.objects.len() + page.common_prefixes.len() == request.max_keys {
                page.next = Some(last);
                break;
            }
            last.clone_from(&entry);
            match fold {
                Some(prefix) => page.common_prefixes.push(prefix),
                None => page.objects.push(ListedObject {
                    key: name.to_owned(),
                    size: meta.size,
                    etag: meta.etag.clone(),
                    last_modified: meta.last_modified,
                }),
            }
        }
        Ok(page)
    }

    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        let state = self.state.lock();
        let names = state.buckets.iter().cloned();
        Ok(names
            .map(|name| BucketInfo {
                name,
                created: None,
            })
            .collect())
    }

    async fn create_upload(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
    ) -> Result<String, OriginError> {
        let id = format!("upload-{}", self.writes.fetch_add(1, Relaxed));
        let upload = (key.clone(), attributes, BTreeMap::new());
        self.state.lock().uploads.insert(id.clone(), upload);
        Ok(id)
    }

    async fn upload_part(
        &self,
        _: &ObjectKey,
        part: PartRequest,
    ) -> Result<PutResponse, OriginError> {
        let PartRequest { upload, number, .. } = part;
        let bytes = collect(part.body, part.length).await?;
        let mut state = self.state.lock();
        let Some((_, _, parts)) = state.uploads.get_mut(&upload) else {
            return Err(OriginError::NoSuchUpload(upload));
        };
        parts.insert(number, bytes);
        Ok(PutResponse {
            etag: Some(format!("\"part-{number}\"")),
        })
    }

    async fn complete_upload(
        &self,
        key: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        let removed = self.state.lock().uploads.remove(&request.upload);
        let Some((_, attributes, parts)) = removed else {
            return Err(OriginError::NoSuchUpload(request.upload));
        };
        let mut whole = BytesMut::new();
        for part in request.parts {
            match parts.get(&part.number) {
                Some(bytes) if part.etag == format!("\"part-{}\"", part.number) => {
                    whole.extend_from_slice(bytes);
                }
                _ => return Err(OriginError::InvalidPart(part.number.to_string())),
            }
        }
        let meta = self.store_with(key.bucket(), key.key(), whole.freeze(), attributes);
        Ok(PutResponse { etag: meta.etag })
    }

    async fn abort_upload(&self, _: &ObjectKey, upload: &str) -> Result<(), OriginError> {
        let removed = self.state.lock().uploads.remove(upload);
        removed.map_or_else(|| Err(OriginError::NoSuchUpload(upload.into())), |_| Ok(()))
    }
}
