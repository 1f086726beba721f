//! `CopyObject`: reads through the cache and writes to the origin.

use std::time::SystemTime;

use floe::object::{Answer, Conditions, EtagCondition, ObjectCache, ObjectKey, ObjectRead};
use floe::origin::{Attributes, BoxError, ByteRange, PutRequest, UploadTurn};
use futures::StreamExt;
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, ETagCondition,
    MetadataDirective, Timestamp,
};
use s3s::{S3Request, S3Response, S3Result};

use super::condition::quoted;
use super::error::{invalid_argument, not_implemented, precondition_failed, s3_error};
use super::fields::{attributes, etag};

pub(crate) async fn copy_object(
    cache: &ObjectCache,
    request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let input = request.input;
    let source = source_key(&input.copy_source)?;
    let target = ObjectKey::new(input.bucket.as_str(), input.key.as_str());
    let replaces = match input.metadata_directive.as_ref().map(|d| d.as_str()) {
        None | Some(MetadataDirective::COPY) => false,
        Some(MetadataDirective::REPLACE) => true,
        Some(_) => return Err(invalid_argument("Unknown metadata directive.")),
    };
    if source == target && !replaces {
        return Err(s3s::S3Error::with_message(
            s3s::S3ErrorCode::InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself \
             without changing the object's metadata.",
        ));
    }
    let conditions = conditions(
        &input.copy_source_if_match,
        &input.copy_source_if_none_match,
        &input.copy_source_if_modified_since,
        &input.copy_source_if_unmodified_since,
    );
    let turn = upload_turn(cache).await?;
    let read = read_source(cache, &source, None, &conditions).await?;
    let kept = read.meta.attributes.clone();
    let attributes = match replaces {
        true => attributes(&request.headers)?,
        false => Attributes {
            storage_class: input.storage_class.map(|class| class.as_str().to_owned()),
            ..kept
        },
    };
    let put = PutRequest {
        attributes,
        length: Some(read.meta.size),
        condition: None,
        body: read.body.map(|piece| piece.map_err(BoxError::from)).boxed(),
        turn: Some(turn),
    };
    let stored = cache
        .put(&target, put)
        .await
        .map_err(|error| s3_error(&error))?;
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(CopyObjectResult {
            e_tag: stored.etag.as_deref().and_then(etag),
            last_modified: Some(Timestamp::from(SystemTime::now())),
            ..CopyObjectResult::default()
        }),
        ..CopyObjectOutput::default()
    }))
}

pub(super) fn source_key(source: &CopySource) -> S3Result<ObjectKey> {
    match source {
        CopySource::Bucket {
            bucket,
            key,
            version_id: None,
        } => Ok(ObjectKey::new(&**bucket, &**key)),
        CopySource::Bucket { .. } => Err(not_implemented("versions of objects (versionId)")),
        _ => Err(invalid_argument(
            "x-amz-copy-source must be a bucket and a key",
        )),
    }
}

/// Waits for an upload turn before the source is read, so that a waiting copy
/// holds no turn of a reader.
pub(super) async fn upload_turn(cache: &ObjectCache) -> S3Result<UploadTurn> {
    let turn = cache.upload_turn().await;
    turn.map_err(|error| s3_error(&error))
}

/// Reads the source, if the request's conditions on it hold.
pub(super) async fn read_source(
    cache: &ObjectCache,
    source: &ObjectKey,
    range: Option<ByteRange>,
    conditions: &Conditions,
) -> S3Result<ObjectRead> {
    let answer = cache.get_if(source, range, conditions).await;
    match answer.map_err(|error| s3_error(&error))? {
        Answer::Read(read) => Ok(read),
        // If a condition fails, a copy responds with 412, even where a GET responds with 304.
        Answer::NotModified(_) | Answer::PreconditionFailed(_) => Err(precondition_failed()),
    }
}

/// The conditions of the headers `x-amz-copy-source-if-…`.
pub(super) fn conditions(
    if_match: &Option<ETagCondition>,
    if_none_match: &Option<ETagCondition>,
    if_modified_since: &Option<Timestamp>,
    if_unmodified_since: &Option<Timestamp>,
) -> Conditions {
    let tags = |condition: &Option<ETagCondition>| {
        condition.as_ref().map(|condition| match condition {
            ETagCondition::Any => EtagCondition::Any,
            ETagCondition::ETag(etag) => EtagCondition::Tags(vec![quoted(etag.value())]),
        })
    };
    let date = |time: &Option<Timestamp>| {
        time.clone()
            .map(|time| SystemTime::from(time::OffsetDateTime::from(time)))
    };
    Conditions {
        if_match: tags(if_match),
        if_unmodified_since: date(if_unmodified_since),
        if_none_match: tags(if_none_match),
        if_modified_since: date(if_modified_since),
        if_range: None,
    }
}
