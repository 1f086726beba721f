//! Traces of block devices as whole requests.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;

use super::request::{BlockOp, BlockRequest, Decoded, Key, SECTOR_BYTES};
use super::{Trace, TraceError, TraceFormat, TraceOptions};

/// A block trace being read: an iterator over its requests, which ends after an
/// error.
///
/// Volumes are numbered from 0 in the order of their first requests. Times are
/// the trace's own, which in some (Tencent CBS) run backwards;
/// [`clamp_times`](Self::clamp_times) makes them monotonic.
#[derive(Debug)]
pub struct BlockTrace {
    trace: Trace,
    volumes: Volumes,
    pending: Option<(BlockRequest, u64)>,
    /// The latest time so far, if times are to be monotonic.
    latest_ns: Option<u64>,
}

impl BlockTrace {
    /// Opens the trace at `path`, decompressing it if it is zstd.
    ///
    /// # Errors
    /// When it cannot be opened, its format is not recognised, or has no requests
    /// to block devices.
    pub fn open(path: &Path, options: TraceOptions) -> Result<Self, TraceError> {
        Self::new(path, Trace::open(path, options)?)
    }

    /// Reads a trace from `bytes` as if they were the content of a file called
    /// `name`. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_vec(name: &str, bytes: Vec<u8>, options: TraceOptions) -> Result<Self, TraceError> {
        Self::new(Path::new(name), Trace::from_vec(name, bytes, options)?)
    }

    /// The requests of `trace`, which was opened at `path`.
    ///
    /// # Errors
    /// When its format has no requests to block devices.
    pub(crate) fn new(path: &Path, trace: Trace) -> Result<Self, TraceError> {
        if !trace.format().has_blocks() {
            return Err(TraceError::NoBlocks {
                path: path.to_owned(),
                format: trace.format(),
            });
        }
        Ok(BlockTrace {
            trace,
            volumes: Volumes::default(),
            pending: None,
            latest_ns: None,
        })
    }

    /// Makes times monotonic: a request has at least the time of the one before it.
    #[must_use]
    pub fn clamp_times(mut self) -> Self {
        self.latest_ns = Some(0);
        self
    }

    /// The format that is being read.
    pub fn format(&self) -> TraceFormat {
        self.trace.format()
    }

    /// Invalid lines or records that were skipped.
    pub fn skipped(&self) -> u64 {
        self.trace.skipped()
    }

    /// Lines or records consumed so far, bad ones and headers included.
    pub fn records(&self) -> u64 {
        self.trace.records()
    }

    /// The names of the volumes so far, by their numbers.
    pub fn volumes(&self) -> &[Key] {
        &self.volumes.names
    }

    fn next_request(&mut self) -> Result<Option<BlockRequest>, TraceError> {
        loop {
            if let Some((request, left)) = &mut self.pending
                && *left > 0
            {
                *left -= 1;
                return Ok(Some(*request));
            }
            self.pending = match self.trace.next_decoded()? {
                None => return Ok(None),
                Some(Decoded::Blocks(request, count)) => Some((self.numbered(request), count)),
                Some(Decoded::Run(first, sectors)) if sectors > 0 => {
                    Some((self.numbered(run(first, sectors)), 1))
                }
                // Block formats decode only to these.
                Some(_) => None,
            };
        }
    }

    fn numbered(&mut self, request: BlockRequest<Key>) -> BlockRequest {
        let mut time_ns = request.time_ns;
        if let (Some(time), Some(latest)) = (&mut time_ns, &mut self.latest_ns) {
            *latest = (*latest).max(*time);
            *time = *latest;
        }
        BlockRequest {
            time_ns,
            volume: self.volumes.number(request.volume),
            op: request.op,
            offset: request.offset,
            length: request.length,
        }
    }
}

impl Iterator for BlockTrace {
    type Item = Result<BlockRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.trace.over {
            return None;
        }
        let next = self.next_request();
        self.trace.over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// A read of consecutive sectors of the only volume.
fn run(first: u64, sectors: u64) -> BlockRequest<Key> {
    BlockRequest {
        time_ns: None,
        volume: Key::Id(0),
        op: BlockOp::Read,
        offset: first * SECTOR_BYTES,
        length: sectors * SECTOR_BYTES,
    }
}

/// The volumes by name. Requests of one volume often follow each other.
#[derive(Debug, Default)]
struct Volumes {
    names: Vec<Key>,
    numbers: HashMap<Key, u32>,
    last: u32,
}

impl Volumes {
    fn number(&mut self, name: Key) -> u32 {
        if self.names.get(self.last as usize) == Some(&name) {
            return self.last;
        }
        self.last = match self.numbers.get(&name) {
            Some(&number) => number,
            None => {
                // Each name takes more than a byte: memory ends before numbers do.
                let number = self.names.len() as u32;
                self.names.push(name.clone());
                self.numbers.insert(name, number);
                number
            }
        };
        self.last
    }
}
