//! The miss-ratio curve of a trace in a file.

use std::path::PathBuf;

use floe_core::ByteSize;
use serde::Serialize;

use super::{Curve, Exact, FixedRate, FixedSize, StackDistances, measure};
use crate::error::EvalError;
use crate::replay::policy::CacheUnit;
use crate::trace::{Trace, TraceOptions};

/// The keys that are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// All of them: exact.
    Everything,
    /// SHARDS of a fixed rate, above 0 and at most 1.
    Rate(f64),
    /// SHARDS of a fixed size: at most so many keys.
    Size(usize),
}

/// A curve to measure.
#[derive(Clone, Debug)]
pub struct MrcOptions {
    /// The trace.
    pub trace: PathBuf,
    /// How to read it.
    pub options: TraceOptions,
    /// Bytes of the blocks that requests of a block trace are cut into.
    pub block_bytes: u64,
    /// The sample.
    pub sample: Sample,
    /// Measure everything, too, for the error of the sample.
    pub compare: bool,
    /// Sizes to show, equally far apart up to the working set.
    pub points: u64,
}

/// The curve of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissRatioCurve {
    /// The trace's file name.
    pub trace: String,
    /// Its format.
    pub format: String,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// The blocks or objects that are counted.
    pub unit: String,
    /// The sample, in words.
    pub sample: String,
    /// Accesses of the trace.
    pub accesses: u64,
    /// Distinct blocks or objects, estimated where a sample is measured.
    pub unique: u64,
    /// The curve at some sizes.
    pub points: Vec<Point>,
    /// How far the sample is off.
    pub error: Option<CurveError>,
}

/// The miss ratio at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Blocks or objects of the cache.
    pub count: u64,
    /// Bytes of the cache, where blocks are counted.
    pub bytes: Option<u64>,
    /// The miss ratio.
    pub miss_ratio: f64,
    /// The miss ratio that all accesses give.
    pub exact_miss_ratio: Option<f64>,
}

/// The error of a sample, in miss ratio, over a hundred sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurveError {
    /// The mean of the absolute differences.
    pub mean: f64,
    /// The largest absolute difference.
    pub max: f64,
}

/// Measures the curve of a trace.
///
/// # Errors
/// When the trace cannot be read, or an option makes no sense.
pub fn run(options: &MrcOptions) -> Result<MissRatioCurve, EvalError> {
    const ERROR_POINTS: u64 = 100;
    if options.block_bytes == 0 {
        return Err(EvalError::Option {
            option: "block-size",
            reason: "blocks of no bytes hold nothing; give at least 512B".into(),
        });
    }
    let mut trace = Trace::open(&options.trace, options.options)?;
    let blocks = trace
        .format()
        .is_block_trace()
        .then_some(options.block_bytes);
    let unit = blocks.map_or(CacheUnit::Object, CacheUnit::Chunk);
    let mut sampled = measure_of(options.sample);
    let mut exact = Exact::default();
    match options.compare {
        true => measure(&mut trace, unit, &mut [sampled.as_mut(), &mut exact])?,
        false => measure(&mut trace, unit, &mut [sampled.as_mut()])?,
    }
    let curve = sampled.curve();
    let exact = options.compare.then(|| exact.curve());
    let file = options.trace.file_name().unwrap_or_default();
    Ok(MissRatioCurve {
        trace: file.to_string_lossy().into_owned(),
        format: trace.format().to_string(),
        skipped: trace.skipped(),
        unit: match blocks {
            Some(bytes) => format!("blocks of {}", ByteSize(bytes)),
            None => "objects".to_owned(),
        },
        sample: match options.sample {
            Sample::Everything => "exact".to_owned(),
            Sample::Rate(rate) => format!("a sample of {rate} of them"),
            Sample::Size(size) => format!("a sample of at most {size} of them"),
        },
        accesses: curve.accesses,
        unique: curve.unique,
        points: points(&curve, exact.as_ref(), blocks, options.points),
        error: exact.map(|exact| CurveError {
            mean: curve.mean_absolute_error(&exact, ERROR_POINTS),
            max: curve.max_absolute_error(&exact, ERROR_POINTS),
        }),
    })
}

fn measure_of(sample: Sample) -> Box<dyn StackDistances> {
    match sample {
        Sample::Everything => Box::new(Exact::default()),
        Sample::Rate(rate) => Box::new(FixedRate::new(rate)),
        Sample::Size(size) => Box::new(FixedSize::new(size)),
    }
}

fn points(curve: &Curve, exact: Option<&Curve>, blocks: Option<u64>, points: u64) -> Vec<Point> {
    let unique = exact.unwrap_or(curve).unique;
    let mut points: Vec<Point> = super::sizes(unique, points)
        .map(|count| Point {
            count,
            bytes: blocks.map(|bytes| count.saturating_mul(bytes)),
            miss_ratio: curve.miss_ratio(count),
            exact_miss_ratio: exact.map(|exact| exact.miss_ratio(count)),
        })
        .collect();
    points.dedup_by_key(|point| point.count);
    points
}
