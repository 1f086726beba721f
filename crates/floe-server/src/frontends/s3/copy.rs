//! `CopyObject`: reads through the cache and writes to the origin.

use floe::object::{ConditionalRead, ObjectCache, ObjectKey, ObjectRead};
use floe::origin::{
    Attributes, BoxError, ByteRange, LateHeaders, PartSizes, PutRequest, PutResponse, UploadTurn,
};
use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::{CopyObjectInput, CopySource, MetadataDirective};
use s3s::{S3Request, S3Result};

use super::checksums;
use super::condition::{copy_conditions, replace_condition};
use super::error::{invalid_argument, not_implemented, precondition_failed, s3_error};
use super::fields::attributes;

pub(crate) async fn copy_object(
    cache: &ObjectCache,
    request: S3Request<CopyObjectInput>,
) -> S3Result<PutResponse> {
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
    let condition = replace_condition(&request.headers)?;
    let (turn, read) = open_source(cache, (&source, &target), None, &request.headers).await?;
    let mut kept = read.meta.attributes.clone();
    kept.headers.retain(|(name, _)| name != PartSizes::HEADER);
    // The copy has no parts, and an S3 origin computes its own.
    if checksums::are_of_parts(&kept.headers) || cache.forwards(Some(target.bucket())) {
        checksums::remove(&mut kept.headers);
    }
    let attributes = match replaces {
        // The bytes stay as they are.
        true => {
            let mut own = attributes(&request.headers)?;
            own.headers.extend(checksums::only(&kept.headers));
            own
        }
        false => Attributes {
            storage_class: input.storage_class.map(|class| class.as_str().to_owned()),
            ..kept
        },
    };
    let put = PutRequest {
        attributes,
        length: Some(read.meta.size),
        condition,
        body: read.body.map(|piece| piece.map_err(BoxError::from)).boxed(),
        late_headers: LateHeaders::default(),
        turn: Some(turn),
    };
    cache.put(&target, put).await.map_err(s3_error)
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

/// Reads the source, if the request's conditions on it hold. Waits for an upload
/// turn first, so that a waiting copy holds no turn of a reader.
pub(super) async fn open_source(
    cache: &ObjectCache,
    (source, target): (&ObjectKey, &ObjectKey),
    range: Option<ByteRange>,
    headers: &HeaderMap,
) -> S3Result<(UploadTurn, ObjectRead)> {
    let turn = cache.upload_turn(target.bucket()).await.map_err(s3_error)?;
    let conditions = copy_conditions(headers);
    match cache.get_if(source, range, &conditions).await {
        Ok(ConditionalRead::Read(read)) => Ok((turn, read)),
        // If a condition fails, a copy responds with 412, even where a GET responds with 304.
        Ok(ConditionalRead::NotModified(_) | ConditionalRead::PreconditionFailed(_)) => {
            Err(precondition_failed())
        }
        Err(error) => Err(s3_error(error)),
    }
}
