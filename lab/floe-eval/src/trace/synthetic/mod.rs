//! Block traces that are generated while they are read: stand-ins for traces that
//! are not public, and plain workloads.
//!
//! A name such as `standin:vd740` or `synthetic:zipf,skew=1.1` takes the place of a
//! file's path. Its format is [`TraceFormat::StandIn`] or
//! [`TraceFormat::Synthetic`], so that everything that names a trace's format says
//! that nothing was recorded. The same name gives the same requests.

mod generator;
mod options;
mod plain;
mod stand_in;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;

use super::format::TraceFormat;
use super::request::{BlockOp, Decoded, Key};
use generator::Generator;

/// The beginnings of names, with their formats.
const SCHEMES: [(&str, TraceFormat); 2] = [
    ("standin:", TraceFormat::StandIn),
    ("synthetic:", TraceFormat::Synthetic),
];

/// The format of a generated trace, if `path` names one.
pub fn generated(path: &Path) -> Option<TraceFormat> {
    split(path).map(|(format, _)| format)
}

fn split(path: &Path) -> Option<(TraceFormat, &str)> {
    let path = path.to_str()?;
    let named = |(scheme, format)| Some((format, path.strip_prefix(scheme)?));
    SCHEMES.into_iter().find_map(named)
}

/// The content of the generated trace that `path` names, if it names one.
///
/// # Errors
/// When there is no such trace, or an option makes no sense.
pub(super) fn open(path: &Path) -> Option<io::Result<Content>> {
    let (format, text) = split(path)?;
    let (name, options) = text.split_once(',').unwrap_or((text, ""));
    let generator = match format {
        TraceFormat::StandIn => stand_in::generator(name, options),
        _ => plain::generator(name, options),
    };
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
    Some(generator.map(Content::new).map_err(invalid))
}

/// Bytes of a record: time, offset, length, operation.
pub(super) const RECORD_BYTES: usize = 25;

/// One record of a generated trace.
pub(super) fn decode(record: &[u8]) -> Result<Decoded, String> {
    let record: &[u8; RECORD_BYTES] = record.try_into().map_err(|_| "it is cut")?;
    let word = |at: usize| {
        let bytes = record[at..at + 8].try_into();
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let op = match record[24] {
        0 => BlockOp::Read,
        1 => BlockOp::Write,
        other => return Err(format!("{other} is no operation")),
    };
    Decoded::block(Some(word(0)), Key::Id(0), op, word(8), word(16))
}

/// Records of a generator, as bytes.
pub(super) struct Content {
    generator: Generator,
    record: [u8; RECORD_BYTES],
    read: usize,
}

impl Content {
    fn new(generator: Generator) -> Self {
        Content {
            generator,
            record: [0; RECORD_BYTES],
            read: RECORD_BYTES,
        }
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.read == RECORD_BYTES {
                let Some(request) = self.generator.next() else {
                    break;
                };
                self.record[..8].copy_from_slice(&request.time_ns.to_le_bytes());
                self.record[8..16].copy_from_slice(&request.offset.to_le_bytes());
                self.record[16..24].copy_from_slice(&request.length.to_le_bytes());
                self.record[24] = u8::from(request.is_write);
                self.read = 0;
            }
            let count = (RECORD_BYTES - self.read).min(buffer.len() - filled);
            buffer[filled..filled + count]
                .copy_from_slice(&self.record[self.read..self.read + count]);
            (filled, self.read) = (filled + count, self.read + count);
        }
        Ok(filled)
    }
}
