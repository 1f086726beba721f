//! The bytes of a trace, cut into lines and fixed-size records. Must not depend
//! on their meaning.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::error::TraceError;

/// The longest line that is accepted; no known trace comes near it.
pub const LINE_BYTES_MAX: usize = 64 << 10;

const BUFFER_BYTES: usize = 128 << 10;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens `path` and decompresses it if its content starts as zstd does.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, TraceError> {
    let fail = |source| TraceError::Open {
        path: path.to_owned(),
        source,
    };
    let mut plain = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(fail)?);
    if !plain.fill_buf().map_err(fail)?.starts_with(&ZSTD_MAGIC) {
        return Ok(Box::new(plain));
    }
    let decoder = zstd::Decoder::with_buffer(plain).map_err(fail)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

/// The first bytes, not consumed.
pub(super) fn peek(input: &mut dyn BufRead) -> Result<&[u8], TraceError> {
    input.fill_buf().map_err(|source| TraceError::Read {
        after_byte: 0,
        source,
    })
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

    /// The next line without its end.
    pub(super) fn line(&mut self) -> Result<Option<Piece<'_>>, TraceError> {
        self.piece.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.input)
            .take(limit)
            .read_until(b'\n', &mut self.piece);
        let read = self.checked(read)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
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
    pub(super) fn record(&mut self, bytes: usize) -> Result<Option<Piece<'_>>, TraceError> {
        self.piece.clear();
        let read = (&mut self.input)
            .take(bytes as u64)
            .read_to_end(&mut self.piece);
        let read = self.checked(read)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read < bytes {
            return Ok(Some(Err(format!(
                "the content ends inside a record ({read} of {bytes} bytes)"
            ))));
        }
        Ok(Some(Ok(&self.piece)))
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
