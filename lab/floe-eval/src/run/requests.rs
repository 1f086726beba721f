//! Turns a workload, a file or a trace into a stream of requests for a target.

use std::sync::Arc;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{RequestSource, WHOLE_OBJECT};
use crate::error::EvalError;
use crate::trace::{ByteRange, Key, Op, Trace};
use crate::workload::{Workload, WorkloadFileError, read_ids};

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The object.
    pub key: Arc<str>,
    /// The operation.
    pub op: Op,
    /// Bytes of the whole object.
    pub object_bytes: u64,
    /// First byte to read.
    pub offset: u64,
    /// Bytes to read, within the object.
    pub length: u64,
    /// Time of the request in the trace, in nanoseconds.
    pub time_ns: Option<u64>,
}

impl Planned {
    /// This request for the whole object.
    pub(super) fn whole(&self) -> Planned {
        Planned {
            offset: 0,
            length: self.object_bytes,
            ..self.clone()
        }
    }

    /// A write of the request's whole object.
    pub(super) fn whole_put(&self) -> Planned {
        Planned {
            op: Op::Put,
            ..self.whole()
        }
    }
}

/// The requests of a source, in order.
pub struct RequestStream {
    source: Source,
    skipped: u64,
}

enum Source {
    Synthetic {
        workload: Box<Workload>,
        object_bytes: u64,
        read_bytes: u64,
    },
    Keys {
        keys: Vec<Arc<str>>,
        next: usize,
        read_bytes: Option<u64>,
    },
    File {
        ids: Box<dyn Iterator<Item = Result<u64, WorkloadFileError>> + Send>,
        object_bytes: u64,
    },
    Trace {
        trace: Box<Trace>,
        object_bytes: u64,
        is_block_trace: bool,
        /// The rest of the last request to a block device.
        pieces: Option<Pieces>,
    },
}

impl RequestStream {
    /// Opens a source.
    ///
    /// # Errors
    /// If it cannot be opened or is invalid.
    pub fn open(source: &RequestSource) -> Result<Self, EvalError> {
        let source = match source {
            RequestSource::Synthetic {
                workload,
                object_bytes,
                read_bytes,
            } => Source::Synthetic {
                workload: Box::new(Workload::new(workload)?),
                object_bytes: positive(*object_bytes)?,
                read_bytes: read_bytes.unwrap_or(*object_bytes).min(*object_bytes),
            },
            RequestSource::WorkloadFile { path, object_bytes } => Source::File {
                ids: Box::new(read_ids(path)?),
                object_bytes: positive(*object_bytes)?,
            },
            RequestSource::Keys {
                keys,
                read_bytes,
                seed,
            } => {
                let mut keys: Vec<Arc<str>> = keys.iter().map(|key| key.as_str().into()).collect();
                keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(*seed));
                if keys.is_empty() {
                    let reason = "there are no keys to read".into();
                    let option = "keys";
                    return Err(EvalError::Option { option, reason });
                }
                Source::Keys {
                    keys,
                    next: 0,
                    read_bytes: *read_bytes,
                }
            }
            RequestSource::Trace {
                path,
                options,
                object_bytes,
            } => {
                let trace = Trace::open(path, *options)?;
                Source::Trace {
                    is_block_trace: trace.format().is_block_trace(),
                    trace: Box::new(trace),
                    object_bytes: positive(*object_bytes)?,
                    pieces: None,
                }
            }
        };
        Ok(RequestStream { source, skipped: 0 })
    }

    /// Lines or records of a trace that were skipped as bad so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// If the file or trace cannot be read.
    pub fn next_request(&mut self) -> Result<Option<Planned>, EvalError> {
        match &mut self.source {
            Source::Synthetic {
                workload,
                object_bytes,
                read_bytes,
            } => {
                let id = workload.next_id();
                Ok(Some(whole_read(id, *object_bytes, *read_bytes)))
            }
            Source::Keys {
                keys,
                next,
                read_bytes,
            } => {
                let key = Arc::clone(&keys[*next]);
                *next = (*next + 1) % keys.len();
                let length = read_bytes.unwrap_or(WHOLE_OBJECT);
                Ok(Some(Planned {
                    key,
                    op: Op::Get,
                    object_bytes: length,
                    offset: 0,
                    length,
                    time_ns: None,
                }))
            }
            Source::File { ids, object_bytes } => {
                let id = ids.next().transpose()?;
                Ok(id.map(|id| whole_read(id, *object_bytes, *object_bytes)))
            }
            Source::Trace {
                trace,
                object_bytes,
                is_block_trace,
                pieces,
            } => loop {
                if let Some(piece) = pieces.as_mut().and_then(Pieces::next) {
                    return Ok(Some(piece));
                }
                let request = trace.next().transpose()?;
                self.skipped = trace.skipped();
                match request {
                    None => return Ok(None),
                    Some(request) if *is_block_trace => {
                        *pieces = Some(Pieces::new(&request, *object_bytes));
                    }
                    Some(request) => return Ok(Some(traced(&request, *object_bytes))),
                }
            },
        }
    }
}

fn whole_read(id: u64, object_bytes: u64, read_bytes: u64) -> Planned {
    Planned {
        key: id.to_string().into(),
        op: Op::Get,
        object_bytes,
        offset: 0,
        length: read_bytes,
        time_ns: None,
    }
}

/// The objects of one request to a block device. A device counts as many
/// objects, each a piece of the object size.
struct Pieces {
    name: String,
    op: Op,
    time_ns: Option<u64>,
    object_bytes: u64,
    left: ByteRange,
}

impl Pieces {
    fn new(request: &crate::trace::Request, object_bytes: u64) -> Self {
        Pieces {
            name: name(&request.key),
            op: request.op,
            time_ns: request.time_ns,
            object_bytes,
            left: request.range.unwrap_or(ByteRange::new(0, object_bytes)),
        }
    }

    fn next(&mut self) -> Option<Planned> {
        let ByteRange { offset, length } = self.left;
        let within = offset % self.object_bytes;
        let taken = length.min(self.object_bytes - within);
        self.left = ByteRange::new(offset + taken, length - taken);
        (taken > 0).then(|| Planned {
            key: format!("{}.{}", self.name, offset / self.object_bytes).into(),
            op: self.op,
            object_bytes: self.object_bytes,
            offset: within,
            length: taken,
            time_ns: self.time_ns,
        })
    }
}

fn traced(request: &crate::trace::Request, object_bytes: u64) -> Planned {
    let range = request.range.unwrap_or(ByteRange::new(0, u64::MAX));
    let object_bytes = request.size.unwrap_or(object_bytes);
    let offset = range.offset.min(object_bytes.saturating_sub(1));
    Planned {
        key: name(&request.key).into(),
        op: request.op,
        object_bytes,
        offset,
        length: range.length.min(object_bytes - offset),
        time_ns: request.time_ns,
    }
}

fn name(key: &Key) -> String {
    match key {
        Key::Id(id) => id.to_string(),
        Key::Bytes(bytes) => printable(bytes),
    }
}

/// Converts a key to a part of object names: text as it is, other bytes as hex.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn positive(object_bytes: u64) -> Result<u64, EvalError> {
    match object_bytes {
        0 => Err(EvalError::Option {
            option: "object_bytes",
            reason: "an object of no bytes cannot be measured; give at least 1".into(),
        }),
        bytes => Ok(bytes),
    }
}
