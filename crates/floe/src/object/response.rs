//! Results of reads through an [`ObjectCache`](super::ObjectCache).

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::error::ObjectError;
use crate::origin::ObjectMeta;
use crate::origin::debug_fields;
use crate::value::Tier;

/// An object's bytes as they arrive.
pub type ObjectBody = BoxStream<'static, Result<Bytes, ObjectError>>;

/// The source of a read's first bytes. [`ObjectStats`](super::ObjectStats)
/// counts the whole read when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cache.
    Hit(Tier),
    /// The origin, fetched for this read.
    Miss,
    /// The origin, in a fetch that another read had begun.
    Joined,
    /// The cached metadata alone: an empty body, or no body at all.
    Metadata,
}

impl Outcome {
    /// True if the cache served it.
    pub fn is_hit(self) -> bool {
        matches!(self, Outcome::Hit(_) | Outcome::Metadata)
    }

    /// `HIT`, `MISS` or `JOINED`: the value of a frontend's `x-cache` header.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Hit(_) | Outcome::Metadata => "HIT",
            Outcome::Miss => "MISS",
            Outcome::Joined => "JOINED",
        }
    }
}

/// An object, or a range of it, being read.
pub struct ObjectRead {
    /// The metadata.
    pub meta: ObjectMeta,
    /// The bytes of the object in the body, half-open.
    pub range: Range<u64>,
    /// The source of the first bytes.
    pub outcome: Outcome,
    /// The bytes. An error ends the body; the bytes before it are valid.
    pub body: ObjectBody,
}

impl ObjectRead {
    /// True if the body is a part of the object (HTTP 206).
    pub fn is_partial(&self) -> bool {
        self.range != (0..self.meta.size)
    }

    /// Reads the body to its end. For small ranges: all bytes are in memory at once.
    ///
    /// # Errors
    /// The error that ended the body.
    pub async fn bytes(self) -> Result<Bytes, ObjectError> {
        gather(self.body, self.range.end - self.range.start).await
    }
}

/// Collects `length` bytes from `pieces`. A single piece is not copied.
pub(super) async fn gather(
    pieces: impl Stream<Item = Result<Bytes, ObjectError>>,
    length: u64,
) -> Result<Bytes, ObjectError> {
    let mut pieces = std::pin::pin!(pieces);
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if whole.is_empty() && piece.len() as u64 == length {
            return Ok(piece);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

debug_fields!(ObjectRead: meta, range, outcome);

/// An object's metadata and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// The metadata.
    pub meta: ObjectMeta,
    /// [`Outcome::Metadata`] for cached metadata, otherwise [`Outcome::Miss`]
    /// or [`Outcome::Joined`].
    pub outcome: Outcome,
}

/// The result of a conditional read.
#[derive(Debug)]
pub enum ConditionalRead {
    /// The conditions hold: status 200 or 206.
    Read(ObjectRead),
    /// Status 304.
    NotModified(ObjectMeta),
    /// Status 412.
    PreconditionFailed(ObjectMeta),
}
