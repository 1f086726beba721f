//! Uploads to remote stores: short ones in one request, others in parts, with bounded memory.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, PutMode, PutMultipartOptions, PutPayload, UpdateVersion};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bucket::{Bucket, PART_NUMBER_MAX};
use super::convert::attributes_to_store;
use super::service::meaning;
use crate::origin::error::OriginError;
use crate::origin::types::{PutCondition, PutRequest, PutResponse, UploadBody};

/// Bytes of one permit of the memory semaphore.
const UNIT_BYTES: u64 = 1024;

/// The sizes of parts and the memory for all uploads.
pub(super) struct UploadLimits {
    pub(super) part_bytes: u64,
    pub(super) part_bytes_max: u64,
    memory: Arc<Semaphore>,
}

/// A part's bytes, and its share of the memory.
pub(super) struct Part {
    pieces: Vec<Bytes>,
    pub(super) bytes: u64,
    /// The body has more bytes.
    more: bool,
    _memory: OwnedSemaphorePermit,
}

impl Part {
    pub(super) fn payload(&self) -> PutPayload {
        self.pieces.iter().cloned().collect()
    }
}

impl UploadLimits {
    pub(super) fn new(part_bytes: u64, part_bytes_max: u64, memory_bytes: u64) -> Self {
        let units = usize::try_from(memory_bytes / UNIT_BYTES).unwrap_or(usize::MAX);
        UploadLimits {
            part_bytes,
            part_bytes_max,
            memory: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Reads up to `limit` bytes. Reserves memory before the first one.
    pub(super) async fn gather(
        &self,
        body: &mut Leftover,
        limit: u64,
    ) -> Result<Part, OriginError> {
        let units = u32::try_from(limit.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory).acquire_many_owned(units).await;
        let memory = memory.map_err(|error| OriginError::BadUpload(error.to_string()))?;
        let mut part = Part {
            pieces: Vec::new(),
            bytes: 0,
            more: true,
            _memory: memory,
        };
        while part.bytes < limit {
            let Some(mut piece) = body.next().await? else {
                part.more = false;
                break;
            };
            // At most the piece's length, which is a usize.
            let taken = (limit - part.bytes).min(piece.len() as u64) as usize;
            let rest = piece.split_off(taken);
            body.put_back(rest);
            part.bytes += taken as u64;
            part.pieces.push(piece);
        }
        Ok(part)
    }
}

/// A body that takes back a piece.
pub(super) struct Leftover {
    body: UploadBody,
    kept: Option<Bytes>,
    pub(super) received: u64,
}

impl Leftover {
    pub(super) fn new(body: UploadBody) -> Self {
        Leftover {
            body,
            kept: None,
            received: 0,
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, OriginError> {
        if let Some(kept) = self.kept.take() {
            return Ok(Some(kept));
        }
        match self.body.next().await {
            None => Ok(None),
            Some(Ok(piece)) => {
                self.received += piece.len() as u64;
                Ok(Some(piece))
            }
            Some(Err(error)) => Err(OriginError::BadUpload(error.to_string())),
        }
    }

    fn put_back(&mut self, rest: Bytes) {
        if !rest.is_empty() {
            self.kept = Some(rest);
        }
    }

    /// Rejects a body that does not have the announced length.
    pub(super) fn check_length(&self, announced: Option<u64>) -> Result<(), OriginError> {
        match announced.filter(|&announced| announced != self.received) {
            None => Ok(()),
            Some(announced) => Err(OriginError::BadUpload(format!(
                "{announced} bytes were announced and {} came",
                self.received
            ))),
        }
    }
}

pub(super) async fn put(
    bucket: &Arc<Bucket>,
    path: Path,
    name: &str,
    request: PutRequest,
    limits: &UploadLimits,
) -> Result<PutResponse, OriginError> {
    let part_bytes = part_bytes(&request, limits)?;
    let mut body = Leftover::new(request.body);
    let first = limits
        .gather(
            &mut body,
            request
                .length
                .map_or(part_bytes, |l| l.clamp(1, part_bytes)),
        )
        .await?;
    // A body of exactly the announced length may not have signalled its end yet.
    let more = first.more && request.length.is_none_or(|length| length > first.bytes);
    let attributes = attributes_to_store(&request.attributes)?;
    if !more {
        if first.more && body.next().await?.is_some() {
            return Err(OriginError::BadUpload(
                "more bytes came than were announced".into(),
            ));
        }
        body.check_length(request.length)?;
        let options = object_store::PutOptions {
            mode: mode(request.condition)?,
            attributes,
            ..object_store::PutOptions::default()
        };
        let put = bucket.objects.put_opts(&path, first.payload(), options);
        let result = put.await.map_err(|error| meaning(error, name))?;
        return Ok(PutResponse { etag: result.e_tag });
    }
    if request.condition.is_some() {
        return Err(OriginError::Unsupported(format!(
            "make conditional uploads of more than {part_bytes} bytes; raise origin.part_size"
        )));
    }
    let store = bucket.uploads.as_ref().ok_or_else(|| {
        OriginError::Unsupported(format!("take uploads of more than {part_bytes} bytes"))
    })?;
    let options = PutMultipartOptions {
        attributes,
        ..PutMultipartOptions::default()
    };
    let id = store
        .create_multipart_opts(&path, options)
        .await
        .map_err(|error| meaning(error, name))?;
    let mut upload = Upload {
        store: Arc::clone(store),
        path,
        id,
        is_over: false,
    };
    upload
        .send(first, &mut body, request.length, part_bytes, limits, name)
        .await
}

/// Parts have the configured size, or more if 10,000 of them would not suffice.
fn part_bytes(request: &PutRequest, limits: &UploadLimits) -> Result<u64, OriginError> {
    let needed = request.length.unwrap_or(0).div_ceil(PART_NUMBER_MAX);
    let part_bytes = limits.part_bytes.max(needed);
    if part_bytes > limits.part_bytes_max {
        return Err(OriginError::Rejected {
            status: 413,
            message: format!(
                "the upload needs parts of {needed} bytes; raise origin.max_part_size ({})",
                limits.part_bytes_max
            ),
        });
    }
    Ok(part_bytes)
}

fn mode(condition: Option<PutCondition>) -> Result<PutMode, OriginError> {
    Ok(match condition {
        None => PutMode::Overwrite,
        Some(PutCondition::Absent) => PutMode::Create,
        Some(PutCondition::Matches(etag)) => PutMode::Update(UpdateVersion {
            e_tag: Some(etag),
            version: None,
        }),
        Some(PutCondition::Exists | PutCondition::Differs(_)) => {
            let what = "compare an object with If-Match: * or a tag in If-None-Match";
            return Err(OriginError::Unsupported(what.into()));
        }
    })
}

/// A multipart upload started by this origin, aborted unless completed.
struct Upload {
    store: Arc<dyn MultipartStore>,
    path: Path,
    id: MultipartId,
    is_over: bool,
}

impl Upload {
    async fn send(
        &mut self,
        first: Part,
        body: &mut Leftover,
        length: Option<u64>,
        part_bytes: u64,
        limits: &UploadLimits,
        name: &str,
    ) -> Result<PutResponse, OriginError> {
        let mut parts: Vec<PartId> = Vec::new();
        let mut part = first;
        loop {
            if parts.len() as u64 == PART_NUMBER_MAX {
                return Err(OriginError::Rejected {
                    status: 413,
                    message: "the upload is too long; raise origin.part_size".into(),
                });
            }
            let sent = self
                .store
                .put_part(&self.path, &self.id, parts.len(), part.payload());
            parts.push(sent.await.map_err(|error| meaning(error, name))?);
            if !part.more {
                break;
            }
            drop(part);
            part = limits.gather(body, part_bytes).await?;
            if part.bytes == 0 {
                break;
            }
        }
        body.check_length(length)?;
        let completed = self
            .store
            .complete_multipart(&self.path, &self.id, parts)
            .await
            .map_err(|error| meaning(error, name))?;
        self.is_over = true;
        Ok(PutResponse {
            etag: completed.e_tag,
        })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (store, path, id) = (Arc::clone(&self.store), self.path.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.abort_multipart(&path, &id).await {
                    tracing::warn!(%error, %path, "an unfinished upload could not be aborted");
                }
            });
        }
    }
}
