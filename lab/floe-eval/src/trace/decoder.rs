//! Decoding a format, and recognising one.

use std::path::Path;

use super::error::TraceError;
use super::fields::Table;
use super::format::TraceFormat;
use super::request::Decoded;
use super::{arc, flat_keys, lirs, meta_cdn, meta_kv, oracle_general, spc, tencent_photo, twitter};

impl TraceFormat {
    /// Decodes one line (without its end) or record of this format. For formats
    /// with a header the line is taken as the header. Pure and total.
    ///
    /// # Errors
    /// The reason why it makes no sense.
    pub fn decode_one(self, record: &[u8]) -> Result<Decoded, String> {
        Decoder::new(self).decode(record)
    }
}

/// A format with what it remembers between lines.
pub(super) enum Decoder {
    Table(Box<Table<7>>, fn([&str; 7]) -> Result<Decoded, String>),
    Line(fn(&[u8]) -> Result<Decoded, String>),
    Record(usize, fn(&[u8]) -> Result<Decoded, String>),
}

impl Decoder {
    pub(super) fn new(format: TraceFormat) -> Self {
        match format {
            TraceFormat::MetaCdn => Decoder::Table(Box::new(meta_cdn::table()), meta_cdn::decode),
            TraceFormat::MetaKv => Decoder::Table(Box::new(meta_kv::table()), meta_kv::decode),
            TraceFormat::Twitter => Decoder::Line(twitter::decode),
            TraceFormat::Spc => Decoder::Line(spc::decode),
            TraceFormat::TencentPhoto => Decoder::Line(tencent_photo::decode),
            TraceFormat::Lirs => Decoder::Line(lirs::decode),
            TraceFormat::Arc => Decoder::Line(arc::decode),
            TraceFormat::OracleGeneral => {
                Decoder::Record(oracle_general::RECORD_BYTES, oracle_general::decode)
            }
            TraceFormat::Cache2k => Decoder::Record(4, flat_keys::decode_be32),
            TraceFormat::Corda => Decoder::Record(8, flat_keys::decode_be64),
            TraceFormat::Zncache => Decoder::Record(4, flat_keys::decode_le32),
        }
    }

    /// The size of records, or `None` for lines.
    pub(super) fn record_bytes(&self) -> Option<usize> {
        match self {
            Decoder::Record(bytes, _) => Some(*bytes),
            _ => None,
        }
    }

    pub(super) fn unit(&self) -> &'static str {
        match self {
            Decoder::Record(..) => "record",
            _ => "line",
        }
    }

    pub(super) fn decode(&mut self, record: &[u8]) -> Result<Decoded, String> {
        match self {
            Decoder::Table(table, decode) => match table.row(record)? {
                Some(row) => decode(row),
                None => Ok(Decoded::Nothing),
            },
            Decoder::Line(decode) | Decoder::Record(_, decode) => decode(record),
        }
    }
}

/// Recognises the format of the file at `path` that starts with `head`: by
/// content where that is telling, by name for bare keys.
pub(super) fn recognise(path: &Path, head: &[u8]) -> Result<TraceFormat, TraceError> {
    let unrecognised = |why: &str| TraceError::Unrecognised {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    if let Some(format) = by_name(path) {
        return Ok(format);
    }
    if head.is_empty() {
        return Err(unrecognised("it is empty"));
    }
    let looks_like_text = head
        .iter()
        .take(1024)
        .all(|&byte| byte >= 0x20 || matches!(byte, b'\n' | b'\r' | b'\t'));
    if looks_like_text {
        by_lines(head).ok_or_else(|| unrecognised("its first lines are of no known shape"))
    } else if is_oracle_general(head) {
        Ok(TraceFormat::OracleGeneral)
    } else {
        Err(unrecognised(
            "it is binary, and bare keys do not tell their width",
        ))
    }
}

fn by_name(path: &Path) -> Option<TraceFormat> {
    const HINTS: [(&str, TraceFormat); 9] = [
        ("oraclegeneral", TraceFormat::OracleGeneral),
        ("oracle_general", TraceFormat::OracleGeneral),
        (".spc", TraceFormat::Spc),
        (".lis", TraceFormat::Arc),
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

fn by_lines(head: &[u8]) -> Option<TraceFormat> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && *line != "*");
    let first = lines.next()?;
    let columns: Vec<&str> = first.split(',').map(str::trim).collect();
    let has = |name: &str| {
        columns
            .iter()
            .any(|column| column.eq_ignore_ascii_case(name))
    };
    if has("cacheKey") && has("OpType") {
        return Some(TraceFormat::MetaCdn);
    }
    if has("key") && has("op") && has("size") {
        return Some(TraceFormat::MetaKv);
    }
    // Stricter formats first: a line of one is never a line of an earlier one.
    [
        TraceFormat::Twitter,
        TraceFormat::Spc,
        TraceFormat::TencentPhoto,
    ]
    .into_iter()
    .find(|format| matches!(format.decode_one(first.as_bytes()), Ok(Decoded::One(_))))
    .or_else(|| numbers(first))
}

/// One number in a line, or four, and nothing else.
fn numbers(line: &str) -> Option<TraceFormat> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if !fields.iter().all(|field| field.parse::<u64>().is_ok()) {
        return None;
    }
    match fields.len() {
        1 => Some(TraceFormat::Lirs),
        4 => Some(TraceFormat::Arc),
        _ => None,
    }
}

/// Times never run backwards and the next access lies in the future: a chance
/// in millions for other content.
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
