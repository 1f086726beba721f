//! Gives written chunks their name: the ends of uploads, whole or in parts.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;

use super::body::{self, Written};
use super::commit::{Change, Ending};
use super::row::Row;
use super::shared::Shared;
use super::tables;
use super::upload::decode;
use crate::origin::uploads::{CompletedUpload, PendingUpload, is_upload_id};
use crate::origin::{
    Attributes, CompleteRequest, ObjectKey, OriginError, PutCondition, PutResponse, UploadedPart,
    digest,
};

impl Shared {
    /// Gives written chunks their name.
    pub(super) async fn commit(
        &self,
        name: &ObjectKey,
        written: Written,
        condition: Option<PutCondition>,
        upload: Option<Ending>,
    ) -> Result<PutResponse, OriginError> {
        let row = written.row();
        let mut keys = row.chunk_keys(name, 0);
        let has_lost = keys.any(|key| matches!(self.store.contains(&key), Ok(false)));
        if has_lost || self.names.is_gone(name, row) {
            return Err(OriginError::Server {
                status: 507,
                message: format!(
                    "the cache had no room for all of the {} bytes at once, or they were purged",
                    row.meta.size
                ),
            });
        }
        let etag = row.meta.content_etag.clone();
        let change = Change::Put {
            name: name.clone(),
            row: Box::new(row.clone()),
            condition,
            ends: upload,
        };
        written.keep_if(self.names.change(change)).await?;
        self.confirmed()?;
        Ok(PutResponse { etag })
    }

    /// The pending upload of an object.
    pub(super) fn upload(&self, name: &ObjectKey, id: &str) -> Result<PendingUpload, OriginError> {
        let unknown = || OriginError::NoSuchUpload(id.to_owned());
        let json = match is_upload_id(id) {
            true => self.names.upload(tables::UPLOADS, id)?,
            false => None,
        };
        let upload: Option<PendingUpload> = json.and_then(|json| decode(&json));
        upload
            .filter(|upload| upload.name() == *name)
            .ok_or_else(unknown)
    }

    /// The rows of the parts that a completion names.
    fn completed_parts(
        &self,
        name: &ObjectKey,
        id: &str,
        wanted: &[UploadedPart],
    ) -> Result<Vec<Row>, OriginError> {
        let mut kept: HashMap<u32, Row> = self.names.parts(id)?.into_iter().collect();
        let mut parts = Vec::with_capacity(wanted.len());
        for part in wanted {
            let wrong =
                |reason: &str| OriginError::InvalidPart(format!("part {} {reason}", part.number));
            let row = kept.remove(&part.number);
            let row = row.ok_or_else(|| wrong("was not uploaded"))?;
            if row.meta.client_etag() != Some(part.etag.as_str()) {
                return Err(wrong("has another entity tag"));
            }
            if self.names.is_gone(name, &row) {
                return Err(wrong("was evicted; upload it again"));
            }
            parts.push(row);
        }
        Ok(parts)
    }

    pub(super) async fn complete(
        self: &Arc<Self>,
        name: &ObjectKey,
        request: CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        if let Some(answer) = self.answered(name, &request)? {
            return Ok(answer);
        }
        let completed = self.join(name, &request).await;
        match completed {
            Err(OriginError::NoSuchUpload(_) | OriginError::InvalidPart(_)) => {
                // The same request may have ended the upload in the meantime.
                self.answered(name, &request)?.map_or(completed, Ok)
            }
            completed => completed,
        }
    }

    /// The answer to a request that has completed its upload before.
    fn answered(
        &self,
        name: &ObjectKey,
        request: &CompleteRequest,
    ) -> Result<Option<PutResponse>, OriginError> {
        if !is_upload_id(&request.upload) {
            return Ok(None);
        }
        let json = self.names.upload(tables::COMPLETED, &request.upload)?;
        let known: Option<CompletedUpload> = json.and_then(|json| decode(&json));
        Ok(known.and_then(|known| known.answer(name, request)))
    }

    async fn join(
        self: &Arc<Self>,
        name: &ObjectKey,
        request: &CompleteRequest,
    ) -> Result<PutResponse, OriginError> {
        let upload = self.upload(name, &request.upload)?;
        let parts = {
            let (name, request) = (name.clone(), request.clone());
            self.blocking(move |shared| {
                shared.completed_parts(&name, &request.upload, &request.parts)
            })
            .await?
        };
        let tags = request.parts.iter().map(|part| part.etag.as_str());
        let etag = digest::of_parts(tags);
        let sizes: Vec<u64> = parts.iter().map(|part| part.meta.size).collect();
        let attributes = upload.completed(request, &sizes);
        let mut written = match &*parts {
            [only] => self.adopted(name, only, attributes),
            parts => {
                let row = self.new_row(name, sizes.iter().sum(), attributes)?;
                let lost = OriginError::InvalidPart("a part was evicted; upload it again".into());
                let whole = |part: &Row| 0..part.meta.size;
                let sources = parts
                    .iter()
                    .map(|part| body::read(&self.store, name, part, whole(part), lost.clone()));
                let sources: Vec<_> = sources.collect();
                let bytes = futures::stream::iter(sources).flatten().boxed();
                body::write(self, name, row, bytes).await?
            }
        };
        written.set_content_etag(etag.clone());
        let ending = Ending {
            id: request.upload.clone(),
            completed: CompletedUpload::new(name, request, etag),
            adopts: parts.len() == 1,
        };
        let condition = request.condition.clone();
        self.commit(name, written, condition, Some(ending)).await
    }

    /// The only part of an upload, as the object. It expires when the part would have.
    fn adopted(self: &Arc<Self>, name: &ObjectKey, part: &Row, attributes: Attributes) -> Written {
        let mut row = part.clone();
        row.meta.attributes = attributes;
        Written::adopted(self, name, row)
    }
}
