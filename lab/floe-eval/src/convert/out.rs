//! The file that a conversion writes.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::error::EvalError;
use crate::trace::{BlockOp, BlockRequest, NS_PER_US};

const ZSTD_LEVEL: i32 = 3;

/// The file, compressed if its name ends in `.zst`.
pub(super) struct Out {
    path: PathBuf,
    sink: Sink,
}

enum Sink {
    Plain(BufWriter<File>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Out {
    pub(super) fn create(path: &Path) -> Result<Self, EvalError> {
        let fail = EvalError::file("create", path);
        let file = BufWriter::new(File::create(path).map_err(fail)?);
        let is_zstd = path.extension().is_some_and(|ending| ending == "zst");
        Ok(Out {
            path: path.to_owned(),
            sink: match is_zstd {
                false => Sink::Plain(file),
                true => Sink::Zstd(
                    zstd::Encoder::new(file, ZSTD_LEVEL)
                        .map_err(EvalError::file("create", path))?,
                ),
            },
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        let written = match &mut self.sink {
            Sink::Plain(file) => file.write_all(bytes),
            Sink::Zstd(encoder) => encoder.write_all(bytes),
        };
        written.map_err(EvalError::file("write", &self.path))
    }

    /// A request as a line of Alibaba's. Reads and writes only.
    pub(super) fn line(&mut self, request: &BlockRequest) -> Result<(), EvalError> {
        let BlockRequest {
            time_ns,
            volume,
            op,
            offset,
            length,
        } = *request;
        let op = match op {
            BlockOp::Read => "R",
            _ => "W",
        };
        let time_us = time_ns.unwrap_or(0) / NS_PER_US;
        self.write(format!("{volume},{op},{offset},{length},{time_us}\n").as_bytes())
    }

    pub(super) fn finish(self) -> Result<(), EvalError> {
        let finished = match self.sink {
            Sink::Plain(file) => flushed(file),
            Sink::Zstd(encoder) => encoder.finish().and_then(flushed),
        };
        finished.map_err(EvalError::file("write", &self.path))
    }
}

fn flushed(mut file: BufWriter<File>) -> io::Result<()> {
    file.flush()
}
