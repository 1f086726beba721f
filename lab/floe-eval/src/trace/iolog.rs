//! fio's iolog, versions 2 and 3. The first line is `fio version N iolog`. Then
//! version 2 has `file action [offset length]`, and version 3 puts a time in
//! front, microseconds since the start. Offset and length are bytes. In version
//! 2 time comes from `wait` lines, whose microseconds add up; before the first
//! there is none.

use super::fields::{self, NS_PER_US, number};
use super::request::{BlockOp, Decoded, Key};

/// A log, with the state that its lines set for later ones.
#[derive(Default)]
pub(super) struct Iolog {
    version: Option<Version>,
}

enum Version {
    Two { waited_ns: Option<u64> },
    Three,
}

impl Iolog {
    /// One line.
    pub(super) fn decode(&mut self, line: &[u8]) -> Result<Decoded, String> {
        let line = fields::text(line)?.trim();
        if line.is_empty() {
            return Ok(Decoded::Nothing);
        }
        let Some(version) = &mut self.version else {
            self.version = Some(match line {
                "fio version 2 iolog" => Version::Two { waited_ns: None },
                "fio version 3 iolog" => Version::Three,
                other => {
                    let other = fields::excerpt(other);
                    return Err(format!("`{other}` is not `fio version 2 iolog` or `3`"));
                }
            });
            return Ok(Decoded::Nothing);
        };
        match version {
            Version::Two { waited_ns } => decode_v2(line, waited_ns),
            Version::Three => {
                let (time, line) = line.split_once(' ').unwrap_or((line, ""));
                let time_ns = fields::scaled("the time", time, NS_PER_US)?;
                decode_action(line, Some(time_ns))
            }
        }
    }
}

fn decode_v2(line: &str, waited_ns: &mut Option<u64>) -> Result<Decoded, String> {
    let mut words = line.split_ascii_whitespace();
    let (_file, action, time) = (words.next(), words.next(), words.next());
    if action != Some("wait") {
        return decode_action(line, *waited_ns);
    }
    let more = fields::scaled("the time to wait", time.unwrap_or_default(), NS_PER_US)?;
    let sum = waited_ns.unwrap_or(0).checked_add(more);
    *waited_ns = Some(sum.ok_or("the waits add up to more than 2^64 ns")?);
    Ok(Decoded::Nothing)
}

fn decode_action(line: &str, time_ns: Option<u64>) -> Result<Decoded, String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(file), Some(action)) = (words.next(), words.next()) else {
        return Err("the line has no file and action".into());
    };
    let op = match action {
        "add" | "open" | "close" | "unlink" => return Ok(Decoded::Nothing),
        "read" => BlockOp::Read,
        "write" => BlockOp::Write,
        "trim" => BlockOp::Trim,
        "sync" | "datasync" | "sync_file_range" | "syncfs" => BlockOp::Flush,
        other => return Err(format!("`{}` is no action of fio", fields::excerpt(other))),
    };
    let (offset, length) = match op {
        BlockOp::Flush => (0, 0),
        _ => (
            number("the offset", words.next().unwrap_or_default())?,
            number("the length", words.next().unwrap_or_default())?,
        ),
    };
    Decoded::block(
        time_ns,
        Key::Bytes(file.as_bytes().into()),
        op,
        offset,
        length,
    )
}
