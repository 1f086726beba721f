//! Answers of an [`ObjectCache`](super::ObjectCache).

use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::error::ObjectError;
use crate::origin::ObjectMeta;
use crate::value::Tier;

/// The bytes of an object as they become available.
pub type ObjectBody = BoxStream<'static, Result<Bytes, ObjectError>>;

/// Where the first bytes of an answer come from. What the whole answer came to
/// is counted in [`ObjectStats`](super::ObjectStats) when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cache.
    Hit(Tier),
    /// The origin, fetched for this request.
    Miss,
    /// The origin, fetched already for another request.
    Joined,
    /// The cached metadata alone: an empty body, or no body at all.
    Metadata,
}

impl Outcome {
    /// Whether the cache had it.
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
    /// The object's metadata.
    pub meta: ObjectMeta,
    /// The bytes that the body holds, half-open.
    pub range: Range<u64>,
    /// Where the first bytes come from.
    pub outcome: Outcome,
    /// The bytes. An error ends it; what came before the error is right.
    pub body: ObjectBody,
}

impl ObjectRead {
    /// Whether the answer is a part of the object (HTTP 206).
    pub fn is_partial(&self) -> bool {
        self.range != (0..self.meta.size)
    }

    /// Reads the body to its end. Meant for small ranges: all of it is held in memory.
    ///
    /// # Errors
    /// The body's.
    pub async fn bytes(self) -> Result<Bytes, ObjectError> {
        gather(self.body, self.range.end - self.range.start).await
    }
}

/// `length` bytes that arrive piece by piece; a single piece is not copied.
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

impl fmt::Debug for ObjectRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRead")
            .field("meta", &self.meta)
            .field("range", &self.range)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

/// An object's metadata and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// The metadata.
    pub meta: ObjectMeta,
    /// [`Outcome::Metadata`] where the cache answered, else [`Outcome::Miss`] or [`Outcome::Joined`].
    pub outcome: Outcome,
}

/// The answer to a conditional read.
#[derive(Debug)]
pub enum Answer {
    /// The conditions hold: 200 or 206.
    Read(ObjectRead),
    /// 304.
    NotModified(ObjectMeta),
    /// 412.
    PreconditionFailed(ObjectMeta),
}
