//! Recorded requests, read one at a time from public trace formats.
//!
//! Each format is a file that turns one line or record into requests and knows
//! nothing else. Opening, decompressing, counting and recovering from bad
//! lines happen here, once. Memory does not grow with the trace: a line is at
//! most [`LINE_BYTES_MAX`] long, and records that stand for many requests are
//! expanded as they are consumed.

mod arc;
mod fields;
mod flat_keys;
mod format;
mod lirs;
mod meta_cdn;
mod meta_kv;
mod oracle_general;
mod source;
mod spc;
mod tencent_photo;
#[cfg(test)]
mod tests;
mod twitter;

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use format::{TraceFormat, UnknownFormat};
pub use source::LINE_BYTES_MAX;

use format::Decoder;
use source::Records;

/// A cache key of a trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A number.
    Id(u64),
    /// Text or bytes.
    Bytes(Box<[u8]>),
}

impl Key {
    /// The key as bytes: numbers in decimal, as ZNCache writes them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Key::Id(id) => id.to_string().into_bytes(),
            Key::Bytes(bytes) => bytes.to_vec(),
        }
    }

    /// A 64-bit name: the number itself, or a hash of the bytes.
    pub fn to_u64(&self) -> u64 {
        match self {
            Key::Id(id) => *id,
            Key::Bytes(bytes) => xxhash_rust::xxh3::xxh3_64(bytes),
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads.
    Get,
    /// Writes or overwrites.
    Put,
    /// Removes.
    Delete,
}

/// A byte range of an object. One that runs to an end that the trace does not
/// tell has the largest possible length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `offset + length` never overflows.
    pub length: u64,
}

impl ByteRange {
    /// `length` bytes at `offset`, shortened where their end would overflow.
    pub fn new(offset: u64, length: u64) -> Self {
        ByteRange {
            offset,
            length: length.min(u64::MAX - offset),
        }
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, in nanoseconds of the trace's own time; its zero is the trace's.
    pub time_ns: Option<u64>,
    /// What is asked for.
    pub key: Key,
    /// What is done to it.
    pub op: Op,
    /// Bytes of the whole object, where the trace tells.
    pub size: Option<u64>,
    /// Which bytes of it; `None` for all.
    pub range: Option<ByteRange>,
    /// How long the object may be kept, where the trace tells.
    pub ttl: Option<Duration>,
}

impl Request {
    /// A read of a whole object about which nothing else is known.
    pub fn get(key: Key) -> Self {
        Request {
            time_ns: None,
            key,
            op: Op::Get,
            size: None,
            range: None,
            ttl: None,
        }
    }
}

/// Why a trace cannot be read (on).
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Reading or decompressing failed.
    #[error("cannot read the trace after byte {after_byte} of its (decompressed) content")]
    Read {
        /// How far reading got.
        after_byte: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Neither name nor content tells the format.
    #[error(
        "cannot tell the format of {path}: {why}; name it with --format (one of {})",
        TraceFormat::names()
    )]
    Unrecognised {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        why: String,
    },
    /// A line or record makes no sense.
    #[error(
        "{unit} {number} (byte {byte}): {reason}; fix it, choose another --format, or count and skip such {unit}s with --skip-bad"
    )]
    Bad {
        /// `line` or `record`.
        unit: &'static str,
        /// Its number, from 1.
        number: u64,
        /// Where it starts in the (decompressed) content.
        byte: u64,
        /// What is wrong.
        reason: String,
    },
}

/// How to open a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceOptions {
    /// The format; `None` recognises it by name and content.
    pub format: Option<TraceFormat>,
    /// Count and skip lines and records that make no sense, instead of failing.
    pub skip_bad: bool,
}

/// A trace being read: an iterator over its requests. After an error it is
/// over.
pub struct Trace {
    format: TraceFormat,
    decoder: Decoder,
    records: Records,
    skip_bad: bool,
    skipped: u64,
    pending: Option<Expansion>,
    over: bool,
}

/// What one line or record stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Nothing: a header, a marker, an empty line.
    Nothing,
    /// One request.
    One(Request),
    /// The same request again and again.
    Repeat(Request, u64),
    /// Reads of this many consecutive ids from the first.
    Run(u64, u64),
}

#[derive(Debug)]
struct Expansion {
    request: Request,
    left: u64,
    step: u64,
}

impl Trace {
    /// Opens the trace at `path`, decompressing it if it is zstd.
    ///
    /// # Errors
    /// When it cannot be opened or its format is not recognised.
    pub fn open(path: &Path, options: TraceOptions) -> Result<Self, TraceError> {
        let input = source::open(path)?;
        Self::from_input(path, input, options)
    }

    /// Reads a trace from `bytes` as if they were the content of a file called
    /// `name`. Never panics, whatever the bytes; this is what fuzzing drives.
    ///
    /// # Errors
    /// When no format is given and none is recognised.
    pub fn from_vec(name: &str, bytes: Vec<u8>, options: TraceOptions) -> Result<Self, TraceError> {
        let input = Box::new(std::io::Cursor::new(bytes));
        Self::from_input(Path::new(name), input, options)
    }

    fn from_input(
        path: &Path,
        mut input: Box<dyn BufRead + Send>,
        options: TraceOptions,
    ) -> Result<Self, TraceError> {
        let format = match options.format {
            Some(format) => format,
            None => format::recognise(path, source::peek(&mut input)?)?,
        };
        Ok(Trace {
            format,
            decoder: Decoder::new(format),
            records: Records::new(input),
            skip_bad: options.skip_bad,
            skipped: 0,
            pending: None,
            over: false,
        })
    }

    /// The format that is being read.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// Lines or records that were skipped because they made no sense.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes of (decompressed) content consumed so far.
    pub fn consumed_bytes(&self) -> u64 {
        self.records.position()
    }

    /// Lines or records consumed so far, bad ones and headers included.
    pub fn records(&self) -> u64 {
        self.records.number()
    }

    fn next_decoded(&mut self) -> Result<Option<Decoded>, TraceError> {
        let unit = self.decoder.unit();
        loop {
            let start = self.records.position();
            let record = match self.decoder.record_bytes() {
                None => self.records.line(),
                Some(bytes) => self.records.record(bytes),
            }?;
            let decoded = match record {
                None => return Ok(None),
                Some(Ok(bytes)) => self.decoder.decode(bytes),
                Some(Err(reason)) => Err(reason),
            };
            match decoded {
                Ok(decoded) => return Ok(Some(decoded)),
                Err(_) if self.skip_bad => self.skipped += 1,
                Err(reason) => {
                    return Err(TraceError::Bad {
                        unit,
                        number: self.records.number(),
                        byte: start,
                        reason,
                    });
                }
            }
        }
    }

    fn next_pending(&mut self) -> Option<Request> {
        let pending = self.pending.as_mut()?;
        if pending.left == 0 {
            self.pending = None;
            return None;
        }
        pending.left -= 1;
        let request = pending.request.clone();
        if let Key::Id(id) = &mut pending.request.key {
            *id = id.wrapping_add(pending.step);
        }
        Some(request)
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(request) = self.next_pending() {
                return Some(Ok(request));
            }
            if self.over {
                return None;
            }
            match self.next_decoded() {
                Ok(Some(Decoded::Nothing)) => {}
                Ok(Some(Decoded::One(request))) => return Some(Ok(request)),
                Ok(Some(Decoded::Repeat(request, left))) => {
                    self.pending = Some(Expansion {
                        request,
                        left,
                        step: 0,
                    });
                }
                Ok(Some(Decoded::Run(first, left))) => {
                    self.pending = Some(Expansion {
                        request: Request::get(Key::Id(first)),
                        left,
                        step: 1,
                    });
                }
                Ok(None) => {
                    self.over = true;
                    return None;
                }
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("format", &self.format)
            .field("position", &self.consumed_bytes())
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}
