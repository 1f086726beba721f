//! The bytes of a trace, cut into lines and fixed-size records. Must not depend
//! on their meaning.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::error::TraceError;
use super::synthetic;

/// The longest line that is accepted; no known trace comes near it.
pub const LINE_BYTES_MAX: usize = 64 << 10;

const FORM_FEED: u8 = 0x0c;
const BUFFER_BYTES: usize = 128 << 10;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens `path` and decompresses it if its content starts as zstd does, or begins
/// the generated trace of that name.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let fail = |source| TraceError::Open {
        path: path.to_owned(),
        source,
    };
    if let Some(content) = synthetic::open(path) {
        let content = content.map_err(fail)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, content)));
    }
    let mut plain = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(fail)?);
    if !plain.fill_buf().map_err(fail)?.starts_with(&ZSTD_MAGIC) {
        return Ok(Box::new(plain));
    }
    let decoder = zstd::Decoder::with_buffer(plain).map_err(fail)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

/// Rejects a trace whose content is gone after it was read once.
///
/// # Errors
/// If `path` is neither a regular file nor the name of a generated trace.
pub(crate) fn check_rereadable(path: &Path) -> Result<(), TraceError> {
    // Opening reports a file that does not exist.
    let is_other = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    match synthetic::generated(path).is_none() && std::fs::metadata(path).is_ok_and(is_other) {
        true => Err(TraceError::ReadsOnce {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

/// The first bytes, not consumed.
pub(super) fn peek(input: &mut dyn BufRead) -> Result<&[u8], TraceError> {
    input.fill_buf().map_err(|source| TraceError::Read {
        after_byte: 0,
        source,
    })
}

/// How content is cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Lines.
    Lines,
    /// Records of this many bytes.
    Records(usize),
    /// A text that ends with a form feed, then records of these sizes, which
    /// their first word (big-endian, 32 bits) tells.
    Sized { bytes_min: usize, bytes_max: usize },
}

/// Content cut into lines or records. A piece is `Err(reason)` where it cannot
/// be cut: reading goes on after it.
pub(super) struct Records {
    input: Box<dyn BufRead + Send>,
    piece: Vec<u8>,
    position: u64,
    number: u64,
}

type Piece<'a> = Result<&'a [u8], String>;

impl Records {
    pub(super) fn new(input: Box<dyn BufRead + Send>) -> Self {
        Records {
            input,
            piece: Vec::new(),
            position: 0,
            number: 0,
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next piece.
    pub(super) fn next(&mut self, cut: Cut) -> Result<Option<Piece<'_>>, TraceError> {
        match cut {
            Cut::Lines => self.line(),
            Cut::Records(bytes) => self.record(bytes),
            Cut::Sized { .. } if self.number == 0 => self.header(),
            Cut::Sized {
                bytes_min,
                bytes_max,
            } => self.sized(bytes_min, bytes_max),
        }
    }

    /// The next line without its end.
    fn line(&mut self) -> Result<Option<Piece<'_>>, TraceError> {
        if self.until(b'\n')? == 0 {
            return Ok(None);
        }
        if self.piece.last() != Some(&b'\n') && self.piece.len() > LINE_BYTES_MAX {
            self.skip_rest_of_line()?;
            return Ok(Some(Err(format!(
                "the line is longer than {LINE_BYTES_MAX} bytes"
            ))));
        }
        let mut line = self.piece.as_slice();
        line = line.strip_suffix(b"\n").unwrap_or(line);
        line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some(Ok(line)))
    }

    /// The next record of `bytes` bytes.
    fn record(&mut self, bytes: usize) -> Result<Option<Piece<'_>>, TraceError> {
        self.piece.clear();
        if self.fill(bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some(self.whole(bytes)))
    }

    /// The text before the first record.
    fn header(&mut self) -> Result<Option<Piece<'_>>, TraceError> {
        if self.until(FORM_FEED)? == 0 {
            return Ok(None);
        }
        Ok(Some(match self.piece.last() {
            Some(&FORM_FEED) => Ok(&self.piece),
            _ => Err("no form feed ends the header".into()),
        }))
    }

    /// The next record of the size that its first word tells.
    fn sized(
        &mut self,
        bytes_min: usize,
        bytes_max: usize,
    ) -> Result<Option<Piece<'_>>, TraceError> {
        self.piece.clear();
        if self.fill(4)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let Some(&size) = self.piece.first_chunk::<4>() else {
            return Ok(Some(self.whole(4)));
        };
        let bytes = u32::from_be_bytes(size) as usize;
        if !(bytes_min..=bytes_max).contains(&bytes) {
            return Ok(Some(Err(format!(
                "a record of {bytes} bytes is not one of {bytes_min} to {bytes_max}"
            ))));
        }
        self.fill(bytes - 4)?;
        Ok(Some(self.whole(bytes)))
    }

    /// Reads a piece up to and with `end`, or as long as a line may be.
    fn until(&mut self, end: u8) -> Result<usize, TraceError> {
        self.piece.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.input)
            .take(limit)
            .read_until(end, &mut self.piece);
        let read = self.checked(read)?;
        self.number += u64::from(read > 0);
        Ok(read)
    }

    /// Reads up to `bytes` more into the piece.
    fn fill(&mut self, bytes: usize) -> Result<usize, TraceError> {
        let read = (&mut self.input)
            .take(bytes as u64)
            .read_to_end(&mut self.piece);
        self.checked(read)
    }

    fn whole(&self, bytes: usize) -> Piece<'_> {
        match self.piece.len() {
            read if read < bytes => Err(format!(
                "the content ends inside a record ({read} of {bytes} bytes)"
            )),
            _ => Ok(&self.piece),
        }
    }

    fn skip_rest_of_line(&mut self) -> Result<(), TraceError> {
        loop {
            let found = self
                .input
                .fill_buf()
                .map(|buf| (buf.iter().position(|&byte| byte == b'\n'), buf.len()));
            let (end, available) = found.map_err(|source| TraceError::Read {
                after_byte: self.position,
                source,
            })?;
            let used = end.map_or(available, |at| at + 1);
            self.input.consume(used);
            self.position += used as u64;
            if end.is_some() || available == 0 {
                return Ok(());
            }
        }
    }

    fn checked(&mut self, read: io::Result<usize>) -> Result<usize, TraceError> {
        let read = read.map_err(|source| TraceError::Read {
            after_byte: self.position,
            source,
        })?;
        self.position += read as u64;
        Ok(read)
    }
}
