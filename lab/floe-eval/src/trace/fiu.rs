//! FIU traces (SRCMap, deduplication), text:
//! `time pid process block blocks op major minor md5`. Time is nanoseconds,
//! a block 512 bytes. The traces are parts of tar archives, and the headers of tar
//! between the lines are skipped.

use super::fields::{self, number};
use super::request::{BlockOp, Decoded, Key, SECTOR_BYTES};

const MD5_DIGITS: usize = 32;

/// One line.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, String> {
    if line.contains(&0) || is_tar_attribute(line) {
        return Ok(Decoded::Nothing);
    }
    let line = fields::text(line)?;
    if line.trim().is_empty() {
        return Ok(Decoded::Nothing);
    }
    // From the end, because process names may contain blanks.
    let mut last = line.split_ascii_whitespace().rev();
    let (Some(md5), Some(minor), Some(major), Some(op), Some(blocks), Some(block)) = (
        last.next(),
        last.next(),
        last.next(),
        last.next(),
        last.next(),
        last.next(),
    ) else {
        return Err("the line has fewer than 9 fields".into());
    };
    if md5.len() != MD5_DIGITS || !md5.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("`{}` is no MD5 sum", fields::excerpt(md5)));
    }
    let time = line.split_ascii_whitespace().next().unwrap_or_default();
    let (major, minor): (u32, u32) = (number("the major", major)?, number("the minor", minor)?);
    Decoded::block(
        Some(number("the time", time)?),
        Key::Bytes(format!("{major},{minor}").into_bytes().into()),
        match op {
            "R" => BlockOp::Read,
            "W" => BlockOp::Write,
            other => {
                let other = fields::excerpt(other);
                return Err(format!("operation `{other}` is neither R nor W"));
            }
        },
        fields::scaled("the block", block, SECTOR_BYTES)?,
        fields::scaled("the number of blocks", blocks, SECTOR_BYTES)?,
    )
}

/// `28 ctime=1410563671.7`: a line of a tar archive's extended header.
fn is_tar_attribute(line: &[u8]) -> bool {
    let mut words = line.splitn(2, |&byte| byte == b' ');
    let length = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default();
    let name = rest
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .count();
    !length.is_empty()
        && length.iter().all(u8::is_ascii_digit)
        && name > 0
        && rest.get(name) == Some(&b'=')
}
