//! Multipart uploads at origins that keep them themselves, as they store them: in JSON.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::hexadecimal;
use super::parts;
use super::types::{Attributes, CompleteRequest, ObjectKey, PutResponse};

/// Headers about checksums begin so.
pub(crate) const OF_CHECKSUMS: &str = "x-amz-checksum-";

/// A pending upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PendingUpload {
    bucket: String,
    pub(crate) key: String,
    pub(crate) attributes: Attributes,
}

/// The answer of a completed upload, to a client that asks again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CompletedUpload {
    bucket: String,
    key: String,
    /// The hash of its parts' numbers and tags.
    parts: String,
    etag: Option<String>,
}

impl PendingUpload {
    pub(crate) fn new(name: &ObjectKey, attributes: Attributes) -> Self {
        PendingUpload {
            bucket: name.bucket().to_owned(),
            key: name.key().to_owned(),
            attributes,
        }
    }

    /// The headers of the object that it becomes, of parts of these sizes. The request has the
    /// checksums.
    pub(crate) fn completed(self, request: &CompleteRequest, sizes: &[u64]) -> Attributes {
        let mut attributes = self.attributes;
        let headers = &mut attributes.headers;
        headers.retain(|(name, _)| !name.starts_with(OF_CHECKSUMS));
        headers.extend(request.headers.iter().cloned());
        let numbers = request.parts.iter().map(|part| part.number);
        headers.extend(parts::header(numbers.zip(sizes.iter().copied())));
        attributes
    }

    /// True if its object is in the bucket.
    pub(crate) fn is_in(&self, bucket: &str) -> bool {
        self.bucket == bucket
    }

    /// The name of its object.
    pub(crate) fn name(&self) -> ObjectKey {
        ObjectKey::new(self.bucket.as_str(), self.key.as_str())
    }
}

impl CompletedUpload {
    pub(crate) fn new(name: &ObjectKey, request: &CompleteRequest, etag: Option<String>) -> Self {
        CompletedUpload {
            bucket: name.bucket().to_owned(),
            key: name.key().to_owned(),
            parts: hash_of_parts(request),
            etag,
        }
    }

    /// The answer, if the request is the one that was completed.
    pub(crate) fn answer(self, name: &ObjectKey, request: &CompleteRequest) -> Option<PutResponse> {
        let is_same = self.bucket == name.bucket()
            && self.key == name.key()
            && self.parts == hash_of_parts(request);
        is_same.then_some(PutResponse { etag: self.etag })
    }
}

/// True for the form of ids that these origins give to uploads.
pub(crate) fn is_upload_id(upload: &str) -> bool {
    hexadecimal::has_digits(upload, 32)
}

fn hash_of_parts(request: &CompleteRequest) -> String {
    let mut hash = Sha256::new();
    for part in &request.parts {
        hash.update(part.number.to_le_bytes());
        hash.update((part.etag.len() as u64).to_le_bytes());
        hash.update(part.etag.as_bytes());
    }
    hexadecimal::encode(&hash.finalize())
}
