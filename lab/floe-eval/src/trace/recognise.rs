//! Recognises the format of a trace file.

use std::path::Path;

use super::error::TraceError;
use super::format::TraceFormat;
use super::request::Decoded;
use super::{etw, hp_srt, synthetic, vscsi};

/// Lines of the head that are examined if the first is ambiguous.
const LINES_MAX: usize = 64;

/// Recognises the format of the file at `path` that starts with `head`, by its
/// content, or by its name for bare keys.
pub(super) fn recognise(path: &Path, head: &[u8]) -> Result<TraceFormat, TraceError> {
    let unrecognised = |why: &str| TraceError::Unrecognised {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    if let Some(format) = synthetic::generated(path).or_else(|| by_name(path)) {
        return Ok(format);
    }
    if head.is_empty() {
        return Err(unrecognised("it is empty"));
    }
    if head.starts_with(hp_srt::MAGIC) {
        return Ok(TraceFormat::HpSrt);
    }
    let looks_like_text = head
        .iter()
        .take(1024)
        .all(|&byte| byte >= 0x20 || matches!(byte, b'\n' | b'\r' | b'\t'));
    if looks_like_text {
        by_lines(head).map_err(unrecognised)
    } else if let Some(version) = vscsi_version(head) {
        Ok(version)
    } else if is_oracle_general(head) {
        Ok(TraceFormat::OracleGeneral)
    } else if lines(head).any(|line| is_one(TraceFormat::Fiu, line)) {
        // The lines lie between the headers of a tar archive.
        Ok(TraceFormat::Fiu)
    } else {
        Err(unrecognised(
            "it is binary, and bare keys do not tell their width",
        ))
    }
}

fn by_name(path: &Path) -> Option<TraceFormat> {
    const HINTS: [(&str, TraceFormat); 10] = [
        ("oraclegeneral", TraceFormat::OracleGeneral),
        ("oracle_general", TraceFormat::OracleGeneral),
        (".spc", TraceFormat::Spc),
        (".lis", TraceFormat::Arc),
        (".lbn", TraceFormat::Lbn),
        ("cache2k", TraceFormat::Cache2k),
        ("corda", TraceFormat::Corda),
        ("zncache", TraceFormat::Zncache),
        (".le32", TraceFormat::Zncache),
        ("cluster", TraceFormat::Twitter),
    ];
    let mut parts = path.components().rev().take(2);
    let file = parts.next()?.as_os_str().to_string_lossy().to_lowercase();
    let folder = parts
        .next()
        .map(|part| part.as_os_str().to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let file = file.strip_suffix(".zst").unwrap_or(&file);
    HINTS
        .into_iter()
        .find(|(hint, _)| match hint.strip_prefix('.') {
            Some(_) => file.ends_with(hint),
            None if *hint == "cluster" => {
                file.starts_with(hint) && (file.ends_with(".sort") || file.ends_with(".csv"))
            }
            None => file.contains(hint) || folder.contains(hint),
        })
        .map(|(_, format)| format)
}

/// Recognises the format of text. The error has the reason for a failure.
fn by_lines(head: &[u8]) -> Result<TraceFormat, &'static str> {
    const NO_SHAPE: &str = "its first lines are of no known shape";
    let mut useful = lines(head).filter(|line| !matches!(line.trim_ascii(), b"" | b"*"));
    let first = std::str::from_utf8(useful.next().ok_or(NO_SHAPE)?).map_err(|_| NO_SHAPE)?;
    if let Some(format) = by_header(first.trim()) {
        return Ok(format);
    }
    // Stricter formats come first: no line of a format is one of an earlier format.
    let strict = [
        TraceFormat::Twitter,
        TraceFormat::Msr,
        TraceFormat::Spc,
        TraceFormat::Alibaba,
        TraceFormat::TencentPhoto,
        TraceFormat::Fiu,
    ];
    if let Some(format) = strict
        .into_iter()
        .find(|&format| is_one(format, first.as_bytes()))
    {
        return Ok(format);
    }
    if is_one(TraceFormat::TencentCbs, first.as_bytes()) {
        return tencent_cbs(head);
    }
    // A trace of both events counts as one of queued requests.
    if let Some(format) = [TraceFormat::BlkparseQueued, TraceFormat::BlkparseDispatched]
        .into_iter()
        .find(|&format| lines(head).any(|line| is_one(format, line)))
    {
        return Ok(format);
    }
    by_numbers(first).unwrap_or(Err(NO_SHAPE))
}

/// Recognises the format by a first line that is no request.
fn by_header(first: &str) -> Option<TraceFormat> {
    let columns: Vec<&str> = first.split(',').map(str::trim).collect();
    let has = |names: &[&str]| {
        names.iter().all(|name| {
            columns
                .iter()
                .any(|column| column.eq_ignore_ascii_case(name))
        })
    };
    if first.starts_with("fio version ") {
        Some(TraceFormat::Iolog)
    } else if first == etw::HEADER_BEGINS {
        Some(TraceFormat::Etw)
    } else if has(&["cacheKey", "OpType"]) {
        Some(TraceFormat::MetaCdn)
    } else if has(&["block_id", "io_offset", "op_name"]) {
        Some(TraceFormat::MetaTectonic)
    } else if has(&["IOType", "LUN", "Offset"]) {
        Some(TraceFormat::Systor)
    } else if has(&["version", "op", "lbn"]) {
        Some(TraceFormat::CloudPhysics)
    } else if has(&["key", "op", "size"]) {
        Some(TraceFormat::MetaKv)
    } else {
        None
    }
}

/// Tells sizes in sectors from sizes in bytes: one that is no multiple of 512 is
/// in sectors.
fn tencent_cbs(head: &[u8]) -> Result<TraceFormat, &'static str> {
    let is_in_sectors = lines(head).take(LINES_MAX).any(|line| {
        let request = TraceFormat::TencentCbsBytes.decode_one(line);
        matches!(request, Ok(Decoded::Blocks(request, _)) if request.length % 512 != 0)
    });
    if is_in_sectors {
        Ok(TraceFormat::TencentCbs)
    } else {
        Err(
            "it is of Tencent CBS, but sizes may be sectors (tencent-cbs) or bytes \
             (tencent-cbs-bytes)",
        )
    }
}

/// Recognises a format of one, four or five numbers per line.
fn by_numbers(line: &str) -> Option<Result<TraceFormat, &'static str>> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let are_whole = fields.iter().all(|field| field.parse::<u64>().is_ok());
    match fields.len() {
        1 if are_whole => Some(Ok(TraceFormat::Lirs)),
        4 if are_whole => Some(Ok(TraceFormat::Arc)),
        5 if are_whole => Some(Err(
            "its columns are DiskSim's and MQSim's, but times may be milliseconds (disksim) \
             or nanoseconds (mqsim)",
        )),
        5 if is_one(TraceFormat::DiskSim, line.as_bytes()) => Some(Ok(TraceFormat::DiskSim)),
        _ => None,
    }
}

/// True if `line` is a request of `format`.
fn is_one(format: TraceFormat, line: &[u8]) -> bool {
    matches!(
        format.decode_one(line),
        Ok(Decoded::One(_) | Decoded::Blocks(..))
    )
}

/// The first lines of `head`, without the last, which may be cut.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = match head.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => &head[..end],
        None => head,
    };
    whole
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .take(LINES_MAX)
}

/// The version of VSCSI that all records of the head have.
fn vscsi_version(head: &[u8]) -> Option<TraceFormat> {
    fn all<const N: usize>(head: &[u8], format: TraceFormat) -> bool {
        let (records, _) = head.as_chunks::<N>();
        !records.is_empty()
            && records
                .iter()
                .take(LINES_MAX)
                .all(|record| format.decode_one(record).is_ok())
    }
    if all::<{ vscsi::V1_BYTES }>(head, TraceFormat::VscsiV1) {
        Some(TraceFormat::VscsiV1)
    } else if all::<{ vscsi::V2_BYTES }>(head, TraceFormat::VscsiV2) {
        Some(TraceFormat::VscsiV2)
    } else {
        None
    }
}

/// True if times ascend and every next access lies in the future. Other content
/// is unlikely to meet both in all records.
fn is_oracle_general(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<24>();
    let mut last_time = 0;
    for (index, record) in records.iter().take(64).enumerate() {
        let [t0, t1, t2, t3, .., n0, n1, n2, n3, n4, n5, n6, n7] = *record;
        let time = u32::from_le_bytes([t0, t1, t2, t3]);
        let next = i64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        if time < last_time || next < -1 || (0..=index as i64).contains(&next) {
            return false;
        }
        if next > 1 << 40 && next != i64::MAX {
            return false;
        }
        last_time = time;
    }
    !records.is_empty()
}
