//! From a workload, a file or a trace to a stream of requests that a target
//! can serve.

use std::sync::Arc;

use super::RequestSource;
use crate::error::EvalError;
use crate::trace::{ByteRange, Key, Op, Trace};
use crate::workload::{Workload, WorkloadFileError, read_ids};

/// A request ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which object.
    pub key: Arc<str>,
    /// What is done.
    pub op: Op,
    /// Bytes of the whole object.
    pub object_bytes: u64,
    /// First byte wanted.
    pub offset: u64,
    /// Bytes wanted; they lie inside the object.
    pub length: u64,
    /// When, in nanoseconds of the trace.
    pub time_ns: Option<u64>,
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
    File {
        ids: Box<dyn Iterator<Item = Result<u64, WorkloadFileError>> + Send>,
        object_bytes: u64,
    },
    Trace {
        trace: Box<Trace>,
        object_bytes: u64,
        is_block_trace: bool,
    },
}

impl RequestStream {
    /// Opens a source.
    ///
    /// # Errors
    /// When it cannot be opened or makes no sense.
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
    /// When a file or trace cannot be read on.
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
            Source::File { ids, object_bytes } => {
                let id = ids.next().transpose()?;
                Ok(id.map(|id| whole_read(id, *object_bytes, *object_bytes)))
            }
            Source::Trace {
                trace,
                object_bytes,
                is_block_trace,
            } => {
                let Some(request) = trace.next().transpose()? else {
                    self.skipped = trace.skipped();
                    return Ok(None);
                };
                self.skipped = trace.skipped();
                Ok(Some(traced(&request, *object_bytes, *is_block_trace)))
            }
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

/// A block device is not one object: its requests are cut to the object size,
/// each piece of the device an object of its own.
fn traced(request: &crate::trace::Request, object_bytes: u64, is_block_trace: bool) -> Planned {
    let name = match &request.key {
        Key::Id(id) => id.to_string(),
        Key::Bytes(bytes) => printable(bytes),
    };
    let range = request.range.unwrap_or(ByteRange::new(0, u64::MAX));
    let (key, object_bytes, range) = if is_block_trace {
        let piece = range.offset / object_bytes;
        let within = ByteRange::new(range.offset % object_bytes, range.length);
        (format!("{name}.{piece}"), object_bytes, within)
    } else {
        (name, request.size.unwrap_or(object_bytes), range)
    };
    let offset = range.offset.min(object_bytes.saturating_sub(1));
    Planned {
        key: key.into(),
        op: request.op,
        object_bytes,
        offset,
        length: range.length.min(object_bytes - offset),
        time_ns: request.time_ns,
    }
}

/// Keys become parts of object names: text as it is, other bytes as hex.
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
