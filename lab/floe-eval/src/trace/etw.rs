//! Event Tracing for Windows as text (Microsoft's Exchange and Production Server
//! traces). A header from `BeginHeader` to `EndHeader` names the columns of each
//! event; of the events, DiskRead, DiskWrite and DiskFlush are requests. Times
//! are microseconds, offsets and sizes bytes in hexadecimal. A volume is a disk.

use super::fields::{self, NS_PER_US, number};
use super::request::{BlockOp, Decoded, Key};

/// The line that starts a header.
pub(super) const HEADER_BEGINS: &str = "BeginHeader";

const HEADER_ENDS: &str = "EndHeader";

/// A trace with the columns that its header names.
#[derive(Default)]
pub(super) struct Etw {
    in_header: bool,
    read: Option<Columns>,
    write: Option<Columns>,
    flush: Option<Columns>,
}

/// Positions of fields in the lines of one event.
struct Columns {
    time: usize,
    disk: usize,
    /// Absent for flushes.
    range: Option<(usize, usize)>,
}

impl Etw {
    /// One line.
    pub(super) fn decode(&mut self, line: &[u8]) -> Result<Decoded, String> {
        let line = fields::text(line)?.trim();
        match line {
            HEADER_BEGINS => self.in_header = true,
            HEADER_ENDS => self.in_header = false,
            _ => {
                let event = line.split(',').next().unwrap_or_default().trim();
                let (columns, op) = match event {
                    "DiskRead" => (&mut self.read, BlockOp::Read),
                    "DiskWrite" => (&mut self.write, BlockOp::Write),
                    "DiskFlush" => (&mut self.flush, BlockOp::Flush),
                    _ => return Ok(Decoded::Nothing),
                };
                if !self.in_header {
                    let columns = columns
                        .as_ref()
                        .ok_or_else(|| format!("no header names the columns of {event}"))?;
                    return columns.decode(line, op);
                }
                *columns = Some(Columns::find(line, op)?);
            }
        }
        Ok(Decoded::Nothing)
    }
}

impl Columns {
    fn find(line: &str, op: BlockOp) -> Result<Self, String> {
        let position = |name: &str| {
            line.split(',')
                .position(|column| column.trim() == name)
                .ok_or_else(|| format!("the header has no column `{name}`"))
        };
        Ok(Columns {
            time: position("TimeStamp")?,
            disk: position("DiskNum")?,
            range: match op {
                BlockOp::Flush => None,
                _ => Some((position("ByteOffset")?, position("IOSize")?)),
            },
        })
    }

    fn decode(&self, line: &str, op: BlockOp) -> Result<Decoded, String> {
        let field = |position: usize| line.split(',').nth(position).unwrap_or_default().trim();
        let (offset, length) = match self.range {
            None => (0, 0),
            Some((offset, length)) => (
                fields::hexadecimal("the offset", field(offset))?,
                fields::hexadecimal("the size", field(length))?,
            ),
        };
        let time_ns = fields::scaled("the time", field(self.time), NS_PER_US)?;
        let disk = number("the disk", field(self.disk))?;
        Decoded::block(Some(time_ns), Key::Id(disk), op, offset, length)
    }
}
