//! The bytes of an upload on their way to the origin: counted, compared with
//! the client's announcement, and ended with the right error.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use floe::object::ObjectError;
use floe::origin::{BoxError, LateHeaders, UploadBody};
use futures::StreamExt;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::{Checksum, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};

use super::checksums::{self, CRC32, CRC32C, CRC64NVME, SHA1, SHA256};
use super::error::{custom, invalid_argument, s3_error, with};

/// Bytes of the largest XML request, such as a list of keys to delete.
pub(crate) const XML_BYTES_MAX: usize = 2 << 20;

/// The length and hashes that a client announced.
#[derive(Default)]
pub(crate) struct Announced {
    pub(crate) length: Option<i64>,
    pub(crate) content_md5: Option<String>,
    pub(crate) checksums: Checksum,
    pub(crate) trailers: Option<TrailingHeaders>,
    /// In hexadecimal.
    pub(crate) payload_sha256: Option<String>,
}

/// The hash in `x-amz-content-sha256`, if the header has one.
pub(crate) fn payload_sha256(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-amz-content-sha256")?.to_str().ok()?;
    let is_hash = value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| value.to_ascii_lowercase())
}

/// Reads a body that is a document, up to [`XML_BYTES_MAX`].
pub(crate) async fn collected<B>(body: B) -> S3Result<Bytes>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let document = Limited::new(body, XML_BYTES_MAX).collect().await;
    let document = document.map_err(|error| match error.is::<LengthLimitError>() {
        true => S3Error::new(S3ErrorCode::MaxMessageLengthExceeded),
        false => Fault::of_stream(&*error).into(),
    })?;
    Ok(document.to_bytes())
}

/// Compares a request's document, such as a list of keys, with the hashes in
/// its headers, which the library does not.
pub(crate) fn check_document(headers: &HeaderMap, document: &[u8]) -> S3Result<()> {
    let text = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let announced = Announced {
        content_md5: text("content-md5"),
        checksums: Checksum {
            checksum_crc32: text(CRC32),
            checksum_crc32c: text(CRC32C),
            checksum_crc64nvme: text(CRC64NVME),
            checksum_sha1: text(SHA1),
            checksum_sha256: text(SHA256),
            ..Checksum::default()
        },
        payload_sha256: payload_sha256(headers),
        ..Announced::default()
    };
    let mut check = Check::new(announced, headers)?;
    check.add(document)?;
    check.finish()?;
    Ok(())
}

/// A body for the origin, and its outcome.
pub(crate) struct Upload {
    pub(crate) length: Option<u64>,
    outcome: Arc<Outcome>,
}

#[derive(Default)]
struct Outcome {
    /// The client's error that ended the upload.
    fault: OnceLock<Fault>,
    checksums: OnceLock<Checksum>,
    /// Those that the origin may store.
    headers: LateHeaders,
}

/// A client's error in an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the body ended before its announced length")]
    Incomplete,
    #[error("{}", crate::net::STALLED_UPLOAD)]
    Stalled,
    #[error("a chunk's signature does not match")]
    ChunkSignature,
    #[error("the body does not have the announced SHA-256")]
    PayloadHash,
    #[error("the body does not have the announced checksum {0}")]
    Checksum(&'static str),
    #[error("the body exceeds s3.max_upload_size")]
    TooLarge,
}

impl Fault {
    /// The fault behind an error of a body. The types of `s3s` are private and hide
    /// the error below, so texts decide; tests of tampered and stalled uploads fail
    /// if one changes.
    pub(crate) fn of_stream(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Self {
        let text = error.to_string();
        if text.contains("SignatureMismatch") {
            Fault::ChunkSignature
        } else if text.contains("Sha256Mismatch") {
            Fault::PayloadHash
        } else if text.contains(crate::net::STALLED_UPLOAD) {
            Fault::Stalled
        } else {
            Fault::Incomplete
        }
    }
}

impl From<Fault> for S3Error {
    fn from(fault: Fault) -> Self {
        let message = fault.to_string();
        match fault {
            Fault::Incomplete => with(
                S3ErrorCode::IncompleteBody,
                "You did not provide the number of bytes specified by the Content-Length HTTP header"
                    .into(),
            ),
            Fault::Stalled => with(S3ErrorCode::RequestTimeout, message),
            Fault::ChunkSignature => with(S3ErrorCode::SignatureDoesNotMatch, message),
            Fault::PayloadHash => custom(
                "XAmzContentSHA256Mismatch",
                StatusCode::BAD_REQUEST,
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            ),
            Fault::Checksum(_) => with(S3ErrorCode::BadDigest, message),
            Fault::TooLarge => with(S3ErrorCode::EntityTooLarge, message),
        }
    }
}

fn decoded_length(headers: &HeaderMap) -> Option<i64> {
    let length = headers.get("x-amz-decoded-content-length")?;
    length.to_str().ok()?.trim().parse().ok()
}

impl Upload {
    /// Wraps a client's body.
    ///
    /// # Errors
    /// The announced length or hash is invalid, or the length exceeds the limit.
    pub(crate) fn new(
        body: Option<StreamingBlob>,
        mut announced: Announced,
        headers: &HeaderMap,
        limit_bytes: u64,
    ) -> S3Result<(Self, UploadBody)> {
        // Of a body in chunks the library leaves out the length without their framing.
        announced.length = announced.length.or_else(|| decoded_length(headers));
        let length = match announced.length {
            Some(length) => Some(
                u64::try_from(length)
                    .map_err(|_| invalid_argument("Content-Length is negative"))?,
            ),
            None => None,
        };
        if length.is_some_and(|length| length > limit_bytes) {
            return Err(Fault::TooLarge.into());
        }
        let outcome = Arc::new(Outcome::default());
        let mut check = Check::new(announced, headers)?;
        check.limit_bytes = limit_bytes;
        let upload = Upload {
            length,
            outcome: Arc::clone(&outcome),
        };
        let Some(body) = body else {
            return Ok((
                upload,
                checked(futures::stream::empty().boxed(), check, outcome),
            ));
        };
        Ok((upload, checked(body.boxed(), check, outcome)))
    }

    /// The response to a failed upload: a client's error takes precedence.
    pub(crate) fn error(&self, error: ObjectError) -> S3Error {
        match self.outcome.fault.get() {
            Some(fault) => (*fault).into(),
            None => s3_error(error),
        }
    }

    /// The headers of the checksums, set when the body has ended.
    pub(crate) fn late_headers(&self) -> LateHeaders {
        Arc::clone(&self.outcome.headers)
    }

    /// The checksums that were computed and verified.
    pub(crate) fn checksums(&self) -> Checksum {
        self.outcome.checksums.get().cloned().unwrap_or_default()
    }
}

/// The response to a failed request that may have been an upload.
pub(crate) fn error_of(upload: &Option<Upload>, error: ObjectError) -> S3Error {
    match upload {
        Some(upload) => upload.error(error),
        None => s3_error(error),
    }
}

type Pieces = futures::stream::BoxStream<'static, Result<Bytes, s3s::StdError>>;

/// Forwards the pieces, and compares the checksums after the last one: on a
/// mismatch the origin gets an error instead of the end, and stores nothing.
fn checked(pieces: Pieces, check: Check, outcome: Arc<Outcome>) -> UploadBody {
    let state = (pieces, Some(check), outcome);
    futures::stream::unfold(state, |(mut pieces, check, outcome)| async move {
        let mut check = check?;
        let result = match pieces.next().await {
            Some(Ok(bytes)) => check.add(&bytes).map(|()| bytes),
            Some(Err(error)) => Err(Fault::of_stream(&*error)),
            None => match check.finish() {
                Ok(checksums) => {
                    let _ = outcome.headers.set(checksums::headers(&checksums));
                    let _ = outcome.checksums.set(checksums);
                    return None;
                }
                Err(fault) => {
                    let _ = outcome.fault.set(fault);
                    let error = Err(BoxError::from(fault));
                    return Some((error, (pieces, None, outcome)));
                }
            },
        };
        Some(match result {
            Ok(bytes) => (Ok(bytes), (pieces, Some(check), outcome)),
            Err(fault) => {
                let _ = outcome.fault.set(fault);
                (Err(BoxError::from(fault)), (pieces, None, outcome))
            }
        })
    })
    .boxed()
}

/// The checksums of a body in transfer.
struct Check {
    announced: Announced,
    hasher: ChecksumHasher,
    md5: Option<(Md5, String)>,
    payload: Option<(Sha256, String)>,
    received_bytes: u64,
    limit_bytes: u64,
}

impl Check {
    fn new(announced: Announced, headers: &HeaderMap) -> S3Result<Self> {
        let trailer = headers
            .get("x-amz-trailer")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        let sums = &announced.checksums;
        let wanted =
            |header: &Option<String>, name: &str| header.is_some() || lists(&trailer, name);
        let hasher = ChecksumHasher {
            crc32: wanted(&sums.checksum_crc32, CRC32).then(Crc32::new),
            crc32c: wanted(&sums.checksum_crc32c, CRC32C).then(Crc32c::new),
            sha1: wanted(&sums.checksum_sha1, SHA1).then(Sha1::new),
            sha256: wanted(&sums.checksum_sha256, SHA256).then(Sha256::new),
            crc64nvme: wanted(&sums.checksum_crc64nvme, CRC64NVME).then(Crc64Nvme::new),
        };
        let md5 = announced
            .content_md5
            .clone()
            .map(|expected| (Md5::new(), expected));
        let payload = announced
            .payload_sha256
            .clone()
            .map(|expected| (Sha256::new(), expected));
        Ok(Check {
            announced,
            payload,
            hasher,
            md5,
            received_bytes: 0,
            limit_bytes: u64::MAX,
        })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.received_bytes += bytes.len() as u64;
        if self.received_bytes > self.limit_bytes {
            return Err(Fault::TooLarge);
        }
        self.hasher.update(bytes);
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some((payload, _)) = &mut self.payload {
            payload.update(bytes);
        }
        Ok(())
    }

    fn finish(self) -> Result<Checksum, Fault> {
        let announced = self.announced;
        if let Some(length) = announced.length
            && u64::try_from(length) != Ok(self.received_bytes)
        {
            return Err(Fault::Incomplete);
        }
        if let Some((md5, expected)) = self.md5
            && base64_of(md5.finalize().as_ref()) != expected
        {
            return Err(Fault::Checksum("Content-MD5"));
        }
        if let Some((payload, expected)) = self.payload
            && hex_of(payload.finalize().as_ref()) != expected
        {
            return Err(Fault::PayloadHash);
        }
        let computed = self.hasher.finalize();
        let trailers = announced.trailers.and_then(|trailers| trailers.take());
        let trailer = |name: &str| {
            trailers
                .as_ref()
                .and_then(|headers| headers.get(name))
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let sums = announced.checksums;
        let pairs = [
            (CRC32, sums.checksum_crc32, &computed.checksum_crc32),
            (CRC32C, sums.checksum_crc32c, &computed.checksum_crc32c),
            (SHA1, sums.checksum_sha1, &computed.checksum_sha1),
            (SHA256, sums.checksum_sha256, &computed.checksum_sha256),
            (
                CRC64NVME,
                sums.checksum_crc64nvme,
                &computed.checksum_crc64nvme,
            ),
        ];
        for (name, header, computed) in pairs {
            // An announced trailer that is missing differs as well.
            if header.or_else(|| trailer(name)) != *computed {
                return Err(Fault::Checksum(name));
            }
        }
        Ok(computed)
    }
}

/// True if the list of trailers has `name`.
fn lists(trailer: &str, name: &str) -> bool {
    trailer.split(',').any(|member| member.trim() == name)
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
