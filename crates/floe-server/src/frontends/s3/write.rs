//! All operations but reads of objects: forwarded to the origin, after the
//! cache has invalidated older versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use floe::object::{ObjectCache, ObjectKey};
use floe::origin::{
    CompleteRequest, DeleteCondition, PartRequest, PutRequest, Signing, UploadBody, UploadedPart,
};
use futures::StreamExt;
use http::HeaderMap;
use s3s::auth::Credentials as Verified;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::auth::Keys;
use super::changes::DELETES_MAX;
use super::checksums;
use super::condition::{etag_text, put_condition};
use super::copy;
use super::error::{denied, invalid_argument, not_implemented, s3_error};
use super::fields::{attributes, etag, part_number};
use super::list;
use super::multipart;
use super::policy::Rights;
use super::upload::{Announced, Upload, payload_sha256};

/// Most concurrent deletes of one `DeleteObjects`.
const DELETES_AT_ONCE: usize = 8;

/// The announcements of an upload. The inputs of `PutObject` and `UploadPart`
/// share these fields but no trait.
macro_rules! announced {
    ($input:ident, $request:ident) => {
        Announced {
            length: $input.content_length,
            content_md5: $input.content_md5,
            checksums: Checksum {
                checksum_crc32: $input.checksum_crc32,
                checksum_crc32c: $input.checksum_crc32c,
                checksum_crc64nvme: $input.checksum_crc64nvme,
                checksum_sha1: $input.checksum_sha1,
                checksum_sha256: $input.checksum_sha256,
                ..Checksum::default()
            },
            trailers: $request.trailing_headers,
            // The library compares that of a signed request.
            payload_sha256: match $request.credentials {
                None => payload_sha256(&$request.headers),
                Some(_) => None,
            },
        }
    };
}

/// The output of an upload, for the same two operations.
macro_rules! stored {
    ($output:ident, $stored:ident, $upload:ident) => {{
        let checksums = $upload.checksums();
        $output {
            e_tag: $stored.etag.as_deref().and_then(etag),
            checksum_crc32: checksums.checksum_crc32,
            checksum_crc32c: checksums.checksum_crc32c,
            checksum_crc64nvme: checksums.checksum_crc64nvme,
            checksum_sha1: checksums.checksum_sha1,
            checksum_sha256: checksums.checksum_sha256,
            ..$output::default()
        }
    }};
}

/// The result of a copy, likewise.
macro_rules! copied {
    ($result:ident, $stored:ident) => {
        $result {
            e_tag: $stored.etag.as_deref().and_then(etag),
            last_modified: Some(Timestamp::from(SystemTime::now())),
            ..$result::default()
        }
    };
}

/// The operations of S3 on a cache.
pub(crate) struct Writes {
    pub(crate) keys: Keys,
    pub(crate) cache: ObjectCache,
    pub(crate) region: String,
    pub(crate) upload_limit_bytes: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl S3 for Writes {
    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let rights = Rights::of(&request.extensions)?;
        let page = list::buckets(&self.cache, &self.region, request.input, &rights).await?;
        Ok(S3Response::new(page))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.require_bucket(&request.input.bucket).await?;
        Ok(S3Response::new(HeadBucketOutput {
            bucket_region: Some(self.region.clone()),
            ..HeadBucketOutput::default()
        }))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.require_bucket(&request.input.bucket).await?;
        // S3 returns no name for its first region.
        let location = Some(self.region.clone()).filter(|region| region != "us-east-1");
        Ok(S3Response::new(GetBucketLocationOutput {
            location_constraint: location.map(BucketLocationConstraint::from),
        }))
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let page = list::list_v1(&self.cache, request.input).await?;
        Ok(S3Response::new(page))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let page = list::list_v2(&self.cache, request.input).await?;
        Ok(S3Response::new(page))
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let page = list::versions(&self.cache, request.input).await?;
        Ok(S3Response::new(page))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let announced = announced!(input, request);
        let (upload, body) = self.upload(input.body, announced, &request.headers)?;
        let put = PutRequest {
            attributes: attributes(&request.headers)?,
            length: upload.length,
            condition: put_condition(input.if_match, input.if_none_match)?,
            body,
            late_headers: upload.late_headers(),
            turn: None,
        };
        let key = ObjectKey::new(input.bucket, input.key);
        let stored = self.cache.put(&key, put).await;
        let stored = stored.map_err(|error| upload.error(error))?;
        Ok(S3Response::new(stored!(PutObjectOutput, stored, upload)))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        reject_version(input.version_id.as_deref())?;
        let tag = match input.if_match {
            // A missing object is deleted already.
            None | Some(ETagCondition::Any) => None,
            Some(ETagCondition::ETag(tag)) => Some(tag),
        };
        let time = input.if_match_last_modified_time;
        let condition = delete_condition(tag, time, input.if_match_size)?;
        let key = ObjectKey::new(input.bucket, input.key);
        self.delete(&key, condition).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let rights = Rights::of(&request.extensions)?;
        let DeleteObjectsInput { bucket, delete, .. } = request.input;
        if delete.objects.is_empty() || delete.objects.len() > DELETES_MAX {
            return Err(s3s::S3Error::with_message(
                s3s::S3ErrorCode::MalformedXML,
                format!("name between 1 and {DELETES_MAX} objects to delete"),
            ));
        }
        let named = delete.objects.iter();
        let named = named.map(|object| ObjectKey::new(bucket.as_str(), object.key.as_str()));
        rights.require_writes(&named.collect::<Vec<_>>())?;
        let quiet = delete.quiet.unwrap_or(false);
        let results: Vec<Result<DeletedObject, Error>> = futures::stream::iter(delete.objects)
            .map(|object| self.delete_one(&bucket, object))
            .buffered(DELETES_AT_ONCE)
            .collect()
            .await;
        let (deleted, errors): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: (!quiet).then(|| deleted.into_iter().filter_map(Result::ok).collect()),
            errors: Some(errors.into_iter().filter_map(Result::err).collect()),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        let mut attributes = attributes(&request.headers)?;
        let sums = checksums::asked(&request.headers)?;
        let (checksum_algorithm, checksum_type) = checksums::promised(&sums);
        attributes.headers.extend(sums);
        let key = ObjectKey::new(input.bucket.as_str(), input.key.as_str());
        let upload_id = self
            .cache
            .create_upload(&key, attributes)
            .await
            .map_err(s3_error)?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload_id),
            checksum_algorithm,
            checksum_type,
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = request.input;
        let number = part_number(input.part_number)?;
        let announced = announced!(input, request);
        let (upload, body) = self.upload(input.body, announced, &request.headers)?;
        let key = ObjectKey::new(input.bucket, input.key);
        let part = PartRequest {
            upload: input.upload_id,
            number,
            length: upload.length,
            body,
            late_headers: upload.late_headers(),
            turn: None,
        };
        let stored = self.cache.upload_part(&key, part).await;
        let stored = stored.map_err(|error| upload.error(error))?;
        Ok(S3Response::new(stored!(UploadPartOutput, stored, upload)))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        let condition = put_condition(input.if_match, input.if_none_match)?;
        let named = input.multipart_upload.and_then(|upload| upload.parts);
        let named = named.unwrap_or_default();
        let announced = multipart::Announced {
            parts: named.iter().map(multipart::announced).collect(),
            whole: Checksum {
                checksum_crc32: input.checksum_crc32,
                checksum_crc32c: input.checksum_crc32c,
                checksum_crc64nvme: input.checksum_crc64nvme,
                checksum_sha1: input.checksum_sha1,
                checksum_sha256: input.checksum_sha256,
                checksum_type: input.checksum_type,
            },
            size: multipart::announced_size(&request.headers)?,
        };
        let parts = named
            .into_iter()
            .map(|part| {
                let number = part_number(part.part_number.unwrap_or_default())?;
                let etag = part
                    .e_tag
                    .ok_or_else(|| invalid_argument(format!("part {number} has no ETag")))?;
                Ok(UploadedPart {
                    number,
                    etag: etag_text(&etag),
                })
            })
            .collect::<S3Result<Vec<_>>>()?;
        let key = ObjectKey::new(input.bucket.as_str(), input.key.as_str());
        let upload = (&key, &*input.upload_id);
        let headers = multipart::completed(&self.cache, upload, &parts, &announced).await?;
        let checksums = checksums::of(&headers).unwrap_or_default();
        let complete = CompleteRequest {
            upload: input.upload_id,
            parts,
            condition,
            headers,
        };
        let stored = self.cache.complete_upload(&key, complete).await;
        let stored = stored.map_err(s3_error)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: stored.etag.as_deref().and_then(etag),
            checksum_crc32: checksums.checksum_crc32,
            checksum_crc32c: checksums.checksum_crc32c,
            checksum_crc64nvme: checksums.checksum_crc64nvme,
            checksum_sha1: checksums.checksum_sha1,
            checksum_sha256: checksums.checksum_sha256,
            checksum_type: checksums.checksum_type,
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        let key = ObjectKey::new(input.bucket, input.key);
        self.cache
            .abort_upload(&key, &input.upload_id)
            .await
            .map_err(s3_error)?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let parts = multipart::list_parts(&self.cache, request.input).await?;
        Ok(S3Response::new(parts))
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let uploads = multipart::list_uploads(&self.cache, request.input).await?;
        Ok(S3Response::new(uploads))
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        self.reject_borrowed_keys(&request.input.bucket, request.credentials.as_ref())?;
        let stored = copy::copy_object(&self.cache, request).await?;
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(copied!(CopyObjectResult, stored)),
            ..CopyObjectOutput::default()
        }))
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        self.reject_borrowed_keys(&request.input.bucket, request.credentials.as_ref())?;
        let stored = multipart::upload_part_copy(&self.cache, request).await?;
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(copied!(CopyPartResult, stored)),
            ..UploadPartCopyOutput::default()
        }))
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let CreateBucketInput {
            bucket,
            create_bucket_configuration,
            ..
        } = request.input;
        self.require_configuration(create_bucket_configuration)?;
        self.cache.create_bucket(&bucket).await.map_err(s3_error)?;
        Ok(S3Response::new(CreateBucketOutput {
            location: Some(format!("/{bucket}")),
        }))
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let deleted = self.cache.delete_bucket(&request.input.bucket).await;
        deleted.map_err(s3_error)?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }
}

impl Writes {
    fn upload(
        &self,
        body: Option<StreamingBlob>,
        announced: Announced,
        headers: &HeaderMap,
    ) -> S3Result<(Upload, UploadBody)> {
        let limit_bytes = self.upload_limit_bytes.load(Relaxed);
        Upload::new(body, announced, headers, limit_bytes)
    }

    /// Rejects a copy out of a cache-only bucket into one of the origin by a client with keys of
    /// its own there: Floe would write it by others.
    fn reject_borrowed_keys(&self, target: &str, sender: Option<&Verified>) -> S3Result<()> {
        let access_key = sender.map(|sender| sender.access_key.as_str());
        match self.keys.signing(access_key)? {
            Signing::Keys(_) if self.cache.forwards(Some(target)) => Err(denied(
                "this access key has keys of its own at the origin, which cannot sign a copy out \
                 of a cache-only bucket; read it and upload it",
            )),
            _ => Ok(()),
        }
    }

    /// Rejects a configuration of a bucket that the cache cannot create.
    fn require_configuration(&self, asked: Option<CreateBucketConfiguration>) -> S3Result<()> {
        let Some(asked) = asked else {
            return Ok(());
        };
        if asked.bucket.is_some() || asked.location.is_some() {
            return Err(not_implemented("kinds and locations of buckets"));
        }
        // Of any region: it is all the same here.
        Ok(())
    }

    async fn require_bucket(&self, bucket: &str) -> S3Result<()> {
        self.cache.head_bucket(bucket).await.map_err(s3_error)
    }

    async fn delete(&self, key: &ObjectKey, condition: DeleteCondition) -> S3Result<()> {
        let deleted = match condition.is_empty() {
            true => self.cache.delete(key).await,
            false => self.cache.delete_if(key, condition).await,
        };
        deleted.map_err(s3_error)
    }

    async fn delete_one(
        &self,
        bucket: &str,
        object: ObjectIdentifier,
    ) -> Result<DeletedObject, Error> {
        let key = ObjectKey::new(bucket, object.key.as_str());
        let condition = reject_version(object.version_id.as_deref()).and_then(|()| {
            let tag = object.e_tag.filter(|tag| tag.value() != "*");
            delete_condition(tag, object.last_modified_time, object.size)
        });
        let result = match condition {
            Ok(condition) => self.delete(&key, condition).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => Ok(DeletedObject {
                key: Some(object.key),
                ..DeletedObject::default()
            }),
            Err(error) => Err(Error {
                code: Some(error.code().as_str().to_owned()),
                key: Some(object.key),
                message: error.message().map(str::to_owned),
                version_id: object.version_id,
            }),
        }
    }
}

fn reject_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(not_implemented("versions of objects (versionId)")),
    }
}

fn delete_condition(
    tag: Option<ETag>,
    modified: Option<Timestamp>,
    size: Option<i64>,
) -> S3Result<DeleteCondition> {
    let size = size.map(u64::try_from).transpose();
    Ok(DeleteCondition {
        etag: tag.as_ref().map(etag_text),
        size: size.map_err(|_| invalid_argument("the size of an object is negative"))?,
        modified_unix_s: modified.map(|time| time::OffsetDateTime::from(time).unix_timestamp()),
    })
}
