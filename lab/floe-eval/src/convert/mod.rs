//! Traces in other formats: block traces as libCacheSim's oracleGeneral or as
//! Alibaba's CSV, and oracleGeneral back as CSV.
//!
//! oracleGeneral knows objects. A block is the object `volume << 48 | number`, and
//! its number is its place among the volume's blocks. A request that stays whole has
//! the number of its first sector.

mod lost;
mod out;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use crate::error::EvalError;
use crate::trace::{
    BlockOp, BlockRequest, BlockTrace, NS_PER_S, SECTOR_BYTES, Trace, TraceError, TraceFormat,
    TraceOptions, check_rereadable, generated,
};
use lost::Lost;
use out::Out;
pub use unit::Unit;

/// Bits of an object's number that count blocks or sectors.
const BLOCK_BITS: u32 = 48;

/// A format that traces are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// libCacheSim's oracleGeneral.
    OracleGeneral,
    /// Alibaba's CSV of requests.
    Alibaba,
}

impl Target {
    const ALL: [Target; 2] = [Target::OracleGeneral, Target::Alibaba];

    fn format(self) -> TraceFormat {
        match self {
            Target::OracleGeneral => TraceFormat::OracleGeneral,
            Target::Alibaba => TraceFormat::Alibaba,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format().fmt(f)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Target::ALL.into_iter();
        named
            .clone()
            .find(|target| target.format().name() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = named.map(|target| target.format().name()).collect();
                format!(
                    "traces are not written as `{text}`; choose one of {}",
                    names.join(", ")
                )
            })
    }
}

/// A conversion.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// The trace.
    pub from: PathBuf,
    /// How to read it.
    pub options: TraceOptions,
    /// The file to write; one that ends in `.zst` is compressed.
    pub into: PathBuf,
    /// The format to write.
    pub target: Target,
    /// The objects of oracleGeneral.
    pub unit: Unit,
}

/// The account of a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Converted {
    /// The format that was read.
    pub from: String,
    /// The format that was written.
    pub into: Target,
    /// The objects of oracleGeneral: a size of blocks, or `request`.
    pub unit: String,
    /// Requests read.
    pub requests: u64,
    /// Records written.
    pub records: u64,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// The properties that the new file lacks.
    pub lost: Vec<String>,
}

/// Writes a trace in another format. A trace that becomes oracleGeneral is read twice.
///
/// # Errors
/// When the trace cannot be read, or is a pipe that would be read twice, the file cannot be written, or the target
/// cannot express a request. A stand-in is refused: no other format names it.
pub fn convert(options: &ConvertOptions) -> Result<Converted, EvalError> {
    if same_file(&options.from, &options.into) {
        return Err(EvalError::Option {
            option: "OUT",
            reason: "this is the trace itself; name another file".into(),
        });
    }
    if generated(&options.from) == Some(TraceFormat::StandIn) {
        return Err(EvalError::Option {
            option: "FILE",
            reason: "a synthetic stand-in is not written to a file, which would not say so; \
                every command reads it by its name"
                .into(),
        });
    }
    match options.target {
        Target::OracleGeneral => into_oracle_general(options),
        Target::Alibaba => into_alibaba(options),
    }
}

fn same_file(from: &Path, into: &Path) -> bool {
    match (from.canonicalize(), into.canonicalize()) {
        (Ok(from), Ok(into)) => from == into,
        _ => false,
    }
}

/// Two passes: records name the next access, which the first finds. It keeps 8 bytes
/// for each record and the last access of each object, where one pass would keep whole
/// records of 24 bytes.
fn into_oracle_general(options: &ConvertOptions) -> Result<Converted, EvalError> {
    check_rereadable(&options.from)?;
    let mut next: Vec<i64> = Vec::new();
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut lost = Lost::default();
    let mut trace = BlockTrace::open(&options.from, options.options)?.clamp_times();
    for request in trace.by_ref() {
        let request = request?;
        lost.note(&request, options.unit);
        for_each_object(&request, options.unit, |id, _| {
            let index = next.len();
            if let Some(before) = last.insert(id, index) {
                // libCacheSim's files count accesses from one.
                next[before] = index as i64 + 1;
            }
            next.push(-1);
            Ok(())
        })?;
    }
    drop(last);
    let mut out = Out::create(&options.into)?;
    let mut next = next.into_iter();
    let mut records = 0;
    for request in BlockTrace::open(&options.from, options.options)?.clamp_times() {
        let request = request?;
        let time_s = seconds(request.time_ns)?;
        for_each_object(&request, options.unit, |id, bytes| {
            records += 1;
            let mut record = [0; 24];
            record[..4].copy_from_slice(&time_s.to_le_bytes());
            record[4..12].copy_from_slice(&id.to_le_bytes());
            record[12..16].copy_from_slice(&bytes.to_le_bytes());
            record[16..].copy_from_slice(&next.next().unwrap_or(-1).to_le_bytes());
            out.write(&record)
        })?;
    }
    out.finish()?;
    Ok(Converted {
        from: trace.format().to_string(),
        into: options.target,
        unit: options.unit.to_string(),
        requests: lost.requests,
        records,
        skipped: trace.skipped(),
        lost: lost.in_oracle_general(options.unit),
    })
}

/// Calls `object` with number and bytes of each object that a request reads or
/// writes.
fn for_each_object(
    request: &BlockRequest,
    unit: Unit,
    mut object: impl FnMut(u64, u32) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    if !is_access(request.op) || request.length == 0 {
        return Ok(());
    }
    let (first, end, bytes) = match unit {
        Unit::Requests => (request.offset / SECTOR_BYTES, None, request.length),
        Unit::Blocks(bytes) => {
            let end = (request.offset + request.length).div_ceil(bytes);
            (request.offset / bytes, Some(end), bytes)
        }
    };
    let bytes = u32::try_from(bytes).map_err(|_| EvalError::Option {
        option: "unit",
        reason: format!("oracleGeneral has no objects of {bytes} bytes; 4GiB - 1 is the most"),
    })?;
    for number in first..end.unwrap_or(first + 1) {
        object(object_id(request.volume, number)?, bytes)?;
    }
    Ok(())
}

fn is_access(op: BlockOp) -> bool {
    match op {
        BlockOp::Read | BlockOp::Write | BlockOp::WriteZeroes => true,
        BlockOp::Flush | BlockOp::Trim => false,
    }
}

fn object_id(volume: u32, number: u64) -> Result<u64, EvalError> {
    if volume >> (u64::BITS - BLOCK_BITS) > 0 || number >> BLOCK_BITS > 0 {
        return Err(EvalError::Option {
            option: "unit",
            reason: format!(
                "block {number} of volume {volume} has no object: 2^16 volumes of 2^48 blocks \
                 have; choose larger blocks, or a part of the trace with fewer volumes"
            ),
        });
    }
    Ok(u64::from(volume) << BLOCK_BITS | number)
}

fn seconds(time_ns: Option<u64>) -> Result<u32, EvalError> {
    let seconds = time_ns.unwrap_or(0) / NS_PER_S;
    u32::try_from(seconds).map_err(|_| EvalError::Option {
        option: "OUT",
        reason: format!("oracleGeneral has no time {seconds} s; 2^32 - 1 is the latest"),
    })
}

fn into_alibaba(options: &ConvertOptions) -> Result<Converted, EvalError> {
    let mut trace = Trace::open(&options.from, options.options)?;
    let format = trace.format();
    if !format.has_blocks() && format != TraceFormat::OracleGeneral {
        let path = options.from.clone();
        return Err(TraceError::NoBlocks { path, format }.into());
    }
    let mut out = Out::create(&options.into)?;
    let mut lost = Lost::default();
    let mut records = 0;
    let skipped = match format.has_blocks() {
        true => {
            let mut trace = BlockTrace::new(&options.from, trace)?;
            for request in trace.by_ref() {
                let request = request?;
                lost.note(&request, options.unit);
                if is_access(request.op) {
                    records += 1;
                    out.line(&request)?;
                }
            }
            trace.skipped()
        }
        false => {
            for request in trace.by_ref() {
                let request = request?;
                let id = request.key.to_u64();
                let number = id & ((1 << BLOCK_BITS) - 1);
                let offset = number.checked_mul(options.unit.step_bytes());
                out.line(&BlockRequest {
                    time_ns: request.time_ns,
                    volume: (id >> BLOCK_BITS) as u32,
                    op: BlockOp::Read,
                    offset: offset.ok_or_else(|| EvalError::Option {
                        option: "unit",
                        reason: format!("object {id} lies past 2^64 bytes; choose smaller blocks"),
                    })?,
                    length: request.size.unwrap_or(0),
                })?;
                records += 1;
            }
            lost.requests = records;
            trace.skipped()
        }
    };
    out.finish()?;
    Ok(Converted {
        from: format.to_string(),
        into: options.target,
        unit: options.unit.to_string(),
        requests: lost.requests,
        records,
        skipped,
        lost: match format {
            TraceFormat::OracleGeneral => vec!["the next accesses, which are no requests".into()],
            _ => lost.in_alibaba(),
        },
    })
}
