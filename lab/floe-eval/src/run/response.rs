//! Responses to requests, and checks of their bytes.

use floe::origin::ObjectKey;
use floe::origin::emulated::{Content, verify};

use super::Planned;
use crate::error::EvalError;
use crate::metrics::Served;

/// The bucket of all objects of a run.
pub const BENCH_BUCKET: &str = "bench";

/// Bytes per write of a client.
const PUT_PIECE_BYTES: u64 = 256 << 10;

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    pub(super) served: Served,
    pub(super) bytes: u64,
}

/// The reason why a request was not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The cache returned wrong data. The run stops.
    #[error(transparent)]
    Lie(EvalError),
    /// The request failed. The run counts it and continues.
    #[error("{0}")]
    Failed(String),
}

/// The name of an object in the origin. It includes the size, which an emulated
/// origin with the size rule `from_key` uses.
pub fn object_key(request: &Planned) -> ObjectKey {
    ObjectKey::new(
        BENCH_BUCKET,
        format!("{}-{}", request.key, request.object_bytes),
    )
}

/// The content of an object of `bytes` bytes, in pieces.
pub(super) fn pieces(content: Content, bytes: u64) -> impl Iterator<Item = Vec<u8>> {
    let starts = (0..bytes).step_by(PUT_PIECE_BYTES as usize);
    starts.map(move |start| {
        let mut piece = vec![0; PUT_PIECE_BYTES.min(bytes - start) as usize];
        content.fill(start, &mut piece);
        piece
    })
}

/// Counts a response's bytes and compares them with the expected ones.
#[derive(Debug)]
pub(super) struct Check {
    name: ObjectKey,
    /// The offset of the bytes in the object.
    offset: u64,
    /// Bytes that are expected.
    length: u64,
    seed: Option<u64>,
    seen: u64,
    /// The bytes come from a running server.
    is_remote: bool,
}

impl Check {
    pub(super) fn new(request: &Planned, seed: Option<u64>) -> Self {
        Check {
            is_remote: false,
            ..Check::remote(object_key(request), request, seed)
        }
    }

    /// A check of another response to `request`, after a first one.
    pub(super) fn anew(&self, request: &Planned) -> Self {
        Check::new(request, self.seed)
    }

    /// A check of a running server's response to a request for the object
    /// `name`.
    pub(super) fn remote(name: ObjectKey, request: &Planned, seed: Option<u64>) -> Self {
        Check {
            name,
            offset: request.offset,
            length: request.length,
            seed,
            seen: 0,
            is_remote: true,
        }
    }

    pub(super) fn piece(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let at = self.offset + self.seen;
        self.seen += piece.len() as u64;
        let Some(seed) = self.seed else { return Ok(()) };
        verify(seed, &self.name, at, piece).map_err(|wrong| {
            let (key, offset) = (self.name.to_string(), wrong.offset);
            Failure::Lie(match self.is_remote {
                true => EvalError::ServerLied {
                    key,
                    what: format!("the byte at offset {offset} differs"),
                },
                false => EvalError::WrongBytes { key, offset },
            })
        })
    }

    pub(super) fn finish(&self, served: Served) -> Result<Response, Failure> {
        if self.seen != self.length {
            let (key, wanted, given) = (self.name.to_string(), self.length, self.seen);
            if !self.is_remote {
                return Err(Failure::Lie(EvalError::WrongLength { key, wanted, given }));
            }
            let what = format!("{given} bytes came instead of {wanted}");
            return Err(match self.seed {
                Some(_) => Failure::Lie(EvalError::ServerLied { key, what }),
                None => Failure::Failed(format!("{key}: {what}; is --object-size right?")),
            });
        }
        Ok(Response {
            served,
            bytes: self.seen,
        })
    }
}

pub(super) fn other(bytes: u64) -> Response {
    Response {
        served: Served::Other,
        bytes,
    }
}

pub(super) fn written(bytes: u64) -> Response {
    Response {
        served: Served::Write,
        bytes,
    }
}

pub(super) fn failed(error: impl std::error::Error + 'static) -> Failure {
    Failure::Failed(crate::error::chain(&error))
}
