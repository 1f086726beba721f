//! Multipart uploads, without the uploads of bytes: lists parts and uploads,
//! and copies parts from other objects.

use floe::object::{ObjectCache, ObjectError, ObjectKey};
use floe::origin::{
    BoxError, ByteRange, Headers, LateHeaders, OriginError, PartInfo, PartRequest, PendingParts,
    PutResponse, UploadInfo, UploadedPart,
};
use futures::StreamExt;
use http::HeaderMap;
use s3s::dto::{
    Checksum, CommonPrefix, CompletedPart, Initiator, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Part,
    StorageClass, UploadPartCopyInput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

use super::checksums::{self, PartSums};
use super::copy::{open_source, source_key};
use super::error::{invalid_argument, not_implemented, s3_error, with};
use super::fields::{etag, part_number};
use super::kept::OBJECT_SIZE;
use super::list::{Text, owner, timestamp};

/// Most entries of a page, as in S3.
const PAGE_MAX: i32 = 1000;

pub(crate) async fn list_parts(
    cache: &ObjectCache,
    input: ListPartsInput,
) -> S3Result<ListPartsOutput> {
    let key = ObjectKey::new(input.bucket.as_str(), input.key.as_str());
    let after = match input.part_number_marker {
        Some(marker) => u32::try_from(marker)
            .map_err(|_| invalid_argument("part-number-marker must not be negative"))?,
        None => 0,
    };
    let most = page_size("max-parts", input.max_parts)?;
    let found = cache.list_parts(&key, &input.upload_id).await;
    let PendingParts { headers, mut parts } = found.map_err(s3_error)?;
    let (checksum_algorithm, checksum_type) = checksums::promised(&headers);
    parts.retain(|part| part.number > after);
    let is_truncated = parts.len() > most;
    parts.truncate(most);
    let last = parts.last().map(|part| part.number as i32);
    Ok(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: input.part_number_marker,
        next_part_number_marker: last.filter(|_| is_truncated),
        max_parts: Some(most as i32),
        is_truncated: Some(is_truncated),
        parts: Some(parts.into_iter().map(part).collect()),
        checksum_algorithm,
        checksum_type,
        ..ListPartsOutput::default()
    })
}

fn part(part: PartInfo) -> Part {
    let checksums = checksums::of(&part.headers).unwrap_or_default();
    Part {
        checksum_crc32: checksums.checksum_crc32,
        checksum_crc32c: checksums.checksum_crc32c,
        checksum_crc64nvme: checksums.checksum_crc64nvme,
        checksum_sha1: checksums.checksum_sha1,
        checksum_sha256: checksums.checksum_sha256,
        part_number: Some(part.number as i32),
        e_tag: part.etag.as_deref().and_then(etag),
        size: i64::try_from(part.size).ok(),
        last_modified: Some(timestamp(part.last_modified)),
    }
}

/// The checksums of a part in the list that completes an upload.
pub(super) fn announced(part: &CompletedPart) -> Checksum {
    Checksum {
        checksum_crc32: part.checksum_crc32.clone(),
        checksum_crc32c: part.checksum_crc32c.clone(),
        checksum_crc64nvme: part.checksum_crc64nvme.clone(),
        checksum_sha1: part.checksum_sha1.clone(),
        checksum_sha256: part.checksum_sha256.clone(),
        ..Checksum::default()
    }
}

/// The size that [`OBJECT_SIZE`] announces.
pub(super) fn announced_size(headers: &HeaderMap) -> S3Result<Option<u64>> {
    let Some(size) = headers.get(OBJECT_SIZE) else {
        return Ok(None);
    };
    let size = size.to_str().ok().and_then(|size| size.trim().parse().ok());
    size.map(Some)
        .ok_or_else(|| invalid_argument(format!("{OBJECT_SIZE} is no number of bytes")))
}

/// The claims of an upload's completion about the object.
pub(super) struct Announced {
    /// Of the parts, in their order.
    pub(super) parts: Vec<Checksum>,
    pub(super) whole: Checksum,
    pub(super) size: Option<u64>,
}

/// Parts whose checksums are combined at once: each takes up to a fifth of a millisecond.
const PARTS_AT_ONCE: usize = 16;

/// The headers of the object that an upload becomes, but for those with which it began.
///
/// # Errors
/// A claim differs from the parts that the origin has, or cannot be compared with them.
pub(super) async fn completed(
    cache: &ObjectCache,
    (key, upload): (&ObjectKey, &str),
    parts: &[UploadedPart],
    announced: &Announced,
) -> S3Result<Headers> {
    if !cache.lists_parts(key.bucket()) {
        return match (&announced.whole, announced.size) {
            (_, Some(_)) => Err(not_implemented(OBJECT_SIZE)),
            (whole, _) if *whole != Checksum::default() => {
                Err(not_implemented("checksums of objects in parts"))
            }
            _ => Ok(Headers::new()),
        };
    }
    let kept = match cache.list_parts(key, upload).await {
        Ok(kept) => kept,
        // It may be completed, and then gets its answer again.
        Err(ObjectError::Origin(OriginError::NoSuchUpload(_))) => return Ok(Headers::new()),
        Err(error) => return Err(s3_error(error)),
    };
    // The completion refuses a list that is no part of that one, or is answered as before.
    let Some(found) = named(&kept.parts, parts) else {
        return Ok(Headers::new());
    };
    check_size(&found, announced.size)?;
    let (_, kind) = checksums::promised(&kept.headers);
    let headers = match sums_of(&found, &announced.parts)? {
        None => Headers::new(),
        Some(sums) if sums.len() <= PARTS_AT_ONCE => checksums::of_parts(&sums, kind.as_ref()),
        Some(sums) => {
            let combine = move || checksums::of_parts(&sums, kind.as_ref());
            let combined = tokio::task::spawn_blocking(combine).await;
            combined.map_err(|error| with(S3ErrorCode::InternalError, error.to_string()))?
        }
    };
    checksums::compare(&headers, &announced.whole)?;
    Ok(headers)
}

/// The kept parts that a completion names. None if it names another one, or not in order.
fn named<'a>(kept: &'a [PartInfo], parts: &[UploadedPart]) -> Option<Vec<&'a PartInfo>> {
    if !parts.is_sorted_by(|one, next| one.number < next.number) {
        return None;
    }
    let mut kept = kept.iter();
    let find = |part: &UploadedPart| {
        let found = kept.find(|kept| kept.number >= part.number)?;
        let is_it = found.number == part.number && found.etag.as_ref() == Some(&part.etag);
        is_it.then_some(found)
    };
    parts.iter().map(find).collect()
}

/// Compares the announced size with that of the parts.
///
/// # Errors
/// They differ.
fn check_size(parts: &[&PartInfo], announced: Option<u64>) -> S3Result<()> {
    let size: u64 = parts.iter().map(|part| part.size).sum();
    match announced {
        Some(announced) if announced != size => Err(with(
            S3ErrorCode::InvalidRequest,
            format!("{OBJECT_SIZE} is {announced}, and the parts have {size} bytes"),
        )),
        _ => Ok(()),
    }
}

/// The checksums of the parts. None if one of them has none: the object gets none, and those of
/// other parts are compared all the same.
///
/// # Errors
/// A part does not have the announced checksum.
fn sums_of(parts: &[&PartInfo], announced: &[Checksum]) -> S3Result<Option<Vec<PartSums>>> {
    let mut found = Some(Vec::with_capacity(parts.len()));
    for (part, announced) in parts.iter().zip(announced) {
        let Some(stored) = checksums::of(&part.headers) else {
            found = None;
            continue;
        };
        let differs = |asked: &Option<String>, stored: &Option<String>| {
            asked.is_some() && stored.is_some() && asked != stored
        };
        if differs(&announced.checksum_crc32, &stored.checksum_crc32)
            || differs(&announced.checksum_crc32c, &stored.checksum_crc32c)
            || differs(&announced.checksum_crc64nvme, &stored.checksum_crc64nvme)
            || differs(&announced.checksum_sha1, &stored.checksum_sha1)
            || differs(&announced.checksum_sha256, &stored.checksum_sha256)
        {
            let message = format!("part {} has another checksum", part.number);
            return Err(with(S3ErrorCode::InvalidPart, message));
        }
        if let Some(found) = &mut found {
            found.push((stored, part.size));
        }
    }
    Ok(found)
}

pub(crate) async fn list_uploads(
    cache: &ObjectCache,
    input: ListMultipartUploadsInput,
) -> S3Result<ListMultipartUploadsOutput> {
    let text = Text::of(input.encoding_type.as_ref())?;
    let most = page_size("max-uploads", input.max_uploads)?;
    let found = cache.list_uploads(&input.bucket).await.map_err(s3_error)?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let delimiter = input.delimiter.as_deref().filter(|d| !d.is_empty());
    let key_marker = input.key_marker.clone().unwrap_or_default();
    let id_marker = input
        .upload_id_marker
        .clone()
        .filter(|_| !key_marker.is_empty());
    let mut entries: Vec<Entry> = Vec::new();
    for upload in found {
        let Some(behind) = upload.key.strip_prefix(&prefix) else {
            continue;
        };
        let folded = delimiter.and_then(|delimiter| {
            let end = behind.find(delimiter)? + delimiter.len();
            Some(format!("{prefix}{}", &behind[..end]))
        });
        let entry = match folded {
            Some(folded) => Entry::Prefix(folded),
            None => Entry::Upload(upload),
        };
        let is_behind = match (&entry, &id_marker) {
            (Entry::Upload(upload), Some(id)) => (&upload.key, &upload.upload) > (&key_marker, id),
            _ => *entry.key() > *key_marker,
        };
        let is_listed = matches!(
            (&entry, entries.last()),
            (Entry::Prefix(one), Some(Entry::Prefix(other))) if one == other
        );
        if is_behind && !is_listed {
            entries.push(entry);
        }
    }
    let is_truncated = entries.len() > most;
    entries.truncate(most);
    let last = entries.last().filter(|_| is_truncated);
    let next_key_marker = last.map(|last| text.encode(last.key()));
    let next_upload_id_marker = last.map(|last| match last {
        Entry::Upload(upload) => upload.upload.clone(),
        Entry::Prefix(_) => String::new(),
    });
    let (mut uploads, mut prefixes) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Upload(found) => uploads.push(upload(text, found)),
            Entry::Prefix(prefix) => prefixes.push(CommonPrefix {
                prefix: Some(text.encode(&prefix)),
            }),
        }
    }
    Ok(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: input.prefix.map(|prefix| text.encode(&prefix)),
        delimiter: text.delimiter(input.delimiter),
        key_marker: Some(text.encode(&key_marker)),
        upload_id_marker: Some(id_marker.unwrap_or_default()),
        next_key_marker,
        next_upload_id_marker,
        max_uploads: Some(most as i32),
        is_truncated: Some(is_truncated),
        encoding_type: input.encoding_type,
        uploads: Some(uploads),
        common_prefixes: Some(prefixes),
        ..ListMultipartUploadsOutput::default()
    })
}

/// An entry of a listing of uploads.
enum Entry {
    Upload(UploadInfo),
    Prefix(String),
}

impl Entry {
    fn key(&self) -> &str {
        match self {
            Entry::Upload(upload) => &upload.key,
            Entry::Prefix(prefix) => prefix,
        }
    }
}

fn upload(text: Text, upload: UploadInfo) -> MultipartUpload {
    let owner = owner();
    MultipartUpload {
        key: Some(text.encode(&upload.key)),
        upload_id: Some(upload.upload),
        initiated: Some(timestamp(upload.initiated)),
        initiator: Some(Initiator {
            display_name: owner.display_name.clone(),
            id: owner.id.clone(),
        }),
        owner: Some(owner),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        ..MultipartUpload::default()
    }
}

/// Reads the source through the cache and uploads it as a part.
pub(crate) async fn upload_part_copy(
    cache: &ObjectCache,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<PutResponse> {
    let input = request.input;
    let source = source_key(&input.copy_source)?;
    let target = ObjectKey::new(input.bucket.as_str(), input.key.as_str());
    let number = part_number(input.part_number)?;
    let range = input.copy_source_range.as_deref().map(copied).transpose()?;
    let (turn, read) = open_source(cache, (&source, &target), range, &request.headers).await?;
    if let Some(ByteRange::Inclusive { last, .. }) = range
        && last >= read.meta.size
    {
        return Err(wrong_range(read.meta.size));
    }
    let part = PartRequest {
        upload: input.upload_id,
        number,
        length: Some(read.range.end - read.range.start),
        body: read.body.map(|piece| piece.map_err(BoxError::from)).boxed(),
        late_headers: LateHeaders::default(),
        turn: Some(turn),
    };
    cache.upload_part(&target, part).await.map_err(s3_error)
}

/// `bytes=first-last`, the only form for a copied part.
fn copied(header: &str) -> S3Result<ByteRange> {
    let both = || -> Option<(u64, u64)> {
        let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    match both() {
        Some((first, last)) if first <= last => Ok(ByteRange::Inclusive { first, last }),
        _ => Err(invalid_argument(
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first \
             and last are the zero-based offsets of the first and last bytes to copy",
        )),
    }
}

/// Unlike the range of a GET, that of a copied part must lie within its source.
fn wrong_range(size: u64) -> S3Error {
    invalid_argument(format!(
        "Range specified is not valid for source object of size: {size}"
    ))
}

fn page_size(name: &str, asked: Option<i32>) -> S3Result<usize> {
    match asked.unwrap_or(PAGE_MAX) {
        // Pages without entries would never end.
        ..1 => Err(invalid_argument(format!("{name} must be at least 1"))),
        asked => Ok(asked.min(PAGE_MAX) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_checksums_hides_no_other() {
        let sum = |value: &str| Checksum {
            checksum_crc32: Some(value.to_owned()),
            ..Checksum::default()
        };
        let kept = |number: u32, headers| PartInfo {
            number,
            etag: Some(number.to_string()),
            size: 1,
            last_modified: None,
            headers,
        };
        let header = ("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned());
        let kept = [kept(1, Headers::new()), kept(2, vec![header])];
        let part = |number: u32, etag: &str| UploadedPart {
            number,
            etag: etag.to_owned(),
        };
        let found = named(&kept, &[part(1, "1"), part(2, "2")]).unwrap();
        let none = Checksum::default();
        let sums = sums_of(&found, &[none.clone(), sum("AAAAAA==")]);
        assert!(sums.unwrap().is_none());
        assert!(sums_of(&found, &[none, sum("AAAAAQ==")]).is_err());
        for wrong in [
            &[part(2, "2"), part(1, "1")][..],
            &[part(1, "1"), part(1, "1")],
            &[part(1, "2")],
            &[part(3, "3")],
        ] {
            assert!(named(&kept, wrong).is_none(), "{wrong:?}");
        }
    }
}
