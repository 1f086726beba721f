//! Recorded requests, read one at a time from public trace formats.
//!
//! Each format is a file that only decodes one line or record into requests. This
//! module opens, decompresses and counts, and recovers from bad lines. Memory
//! does not grow with the trace: a line has at most [`LINE_BYTES_MAX`], and a
//! record of many requests is expanded as they are consumed.
//!
//! A name such as `standin:vd740` takes the place of a path: its requests are
//! generated as they are read, in a format that says so.

mod alibaba;
mod arc;
mod binary;
mod blkparse;
mod block;
mod cloudphysics;
mod decoder;
mod disksim;
mod error;
mod etw;
mod fields;
mod fiu;
mod flat_keys;
mod format;
mod hp_srt;
mod iolog;
mod lbn;
mod lirs;
mod meta_cdn;
mod meta_kv;
mod meta_tectonic;
mod msr;
mod oracle_general;
mod recognise;
mod request;
mod scsi;
mod source;
mod spc;
mod synthetic;
mod systor;
mod tencent_cbs;
mod tencent_photo;
#[cfg(test)]
mod tests;
mod twitter;
mod vscsi;

use std::io::BufRead;
use std::path::Path;

pub use block::BlockTrace;
pub use error::TraceError;
pub use format::{TraceFormat, UnknownFormat};
pub use request::{BlockOp, BlockRequest, ByteRange, Decoded, Key, Op, Request, SECTOR_BYTES};
pub use source::LINE_BYTES_MAX;
pub(crate) use source::check_rereadable;
pub use synthetic::generated;

use decoder::Decoder;
pub(crate) use fields::{NS_PER_S, NS_PER_US};
use source::Records;

/// How to open a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceOptions {
    /// The format; `None` recognises it by name and content.
    pub format: Option<TraceFormat>,
    /// Count and skip invalid lines and records, instead of failing.
    pub skip_bad: bool,
}

/// A trace being read: an iterator over its requests, which ends after an error.
pub struct Trace {
    format: TraceFormat,
    decoder: Decoder,
    records: Records,
    skip_bad: bool,
    skipped: u64,
    pending: Option<Expansion>,
    over: bool,
}

#[derive(Debug)]
struct Expansion {
    request: Request,
    left: u64,
    step: u64,
}

impl Trace {
    /// Opens the trace at `path`, decompressing it if it is zstd, or the generated
    /// trace of that name.
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
            None => recognise::recognise(path, source::peek(&mut input)?)?,
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

    /// Invalid lines or records that were skipped.
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
            let decoded = match self.records.next(self.decoder.cut())? {
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
                Ok(Some(Decoded::Blocks(request, left))) => {
                    self.pending = request.into_request().map(|request| Expansion {
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
