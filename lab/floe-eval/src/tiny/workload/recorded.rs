//! The requests of a trace. If it has no sizes, a model provides them.

use std::path::{Path, PathBuf};

use floe_core::hash::KeyHash;
use floe_core::tiny::OBJECT_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::Draw;
use super::sizes::{SizeModel, Sizes, mix};
use crate::error::EvalError;
use crate::shared::{TraceCase, find_shared};
use crate::trace::{Request, Trace, TraceOptions};

/// A trace, possibly repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recorded {
    /// The file: a path, or relative to the experiment, to `$FLOE_TRACES`, or
    /// to `../shared/traces`.
    pub path: PathBuf,
    /// The file's format; detected if absent.
    #[serde(default)]
    pub format: Option<String>,
    /// Skip and count invalid lines.
    #[serde(default)]
    pub skip_bad: bool,
    /// Number of disjoint key spaces. Each request is repeated in all of them,
    /// as if the trace ran that many times in parallel.
    #[serde(default = "one")]
    pub key_spaces: u32,
    /// Number of passes over the trace.
    #[serde(default = "one")]
    pub passes: u32,
    /// Sizes of objects if the trace has none.
    #[serde(default = "default_size")]
    pub size: SizeModel,
    /// Objects expire as the trace says.
    #[serde(default)]
    pub ttl: bool,
}

fn one() -> u32 {
    1
}

/// The mean object of Nemo's evaluation.
fn default_size() -> SizeModel {
    SizeModel::Lognormal {
        mean: super::PAPER_OBJECT_BYTES,
        spread: 0.5,
    }
}

/// Reads such requests.
#[derive(Debug)]
pub struct RecordedStream {
    of: Recorded,
    path: PathBuf,
    options: TraceOptions,
    trace: Trace,
    pass: u32,
    sizes: Sizes,
    seed: u64,
    /// A request, and the key spaces in which it is still to be made.
    current: Option<(Request, u32)>,
    first_ns: Option<u64>,
    /// Duration of earlier passes in seconds.
    passed_seconds: u32,
    now_seconds: u32,
    left_out: u64,
    skipped: u64,
}

impl Recorded {
    /// A stream of the trace's requests.
    ///
    /// # Errors
    /// If the trace cannot be opened; [`EvalError::Absent`] if it does not
    /// exist.
    pub fn stream(&self, seed: u64, experiment: &Path) -> Result<RecordedStream, EvalError> {
        if self.passes == 0 || self.key_spaces == 0 {
            return Err(EvalError::Option {
                option: "passes",
                reason: "passes and key-spaces must be at least 1".into(),
            });
        }
        let case = TraceCase {
            path: self.path.clone(),
            format: self.format.clone(),
            skip_bad: self.skip_bad,
        };
        let options = TraceOptions {
            format: case.format()?,
            skip_bad: self.skip_bad,
        };
        let path = find_shared(&self.path, experiment)?;
        Ok(RecordedStream {
            trace: Trace::open(&path, options)?,
            path,
            options,
            pass: 1,
            sizes: self.size.sizes(1)?,
            seed: mix(seed),
            current: None,
            first_ns: None,
            passed_seconds: 0,
            now_seconds: 0,
            left_out: 0,
            skipped: 0,
            of: self.clone(),
        })
    }
}

impl RecordedStream {
    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn draw(&mut self) -> Result<Option<Draw>, EvalError> {
        loop {
            let Some((request, space)) = self.next_in_a_space()? else {
                return Ok(None);
            };
            let draw = self.request(&request, space);
            if draw.bytes as usize <= OBJECT_BYTES_MAX {
                return Ok(Some(draw));
            }
            self.left_out += 1;
        }
    }

    fn next_in_a_space(&mut self) -> Result<Option<(Request, u32)>, EvalError> {
        loop {
            if let Some((request, spaces)) = &mut self.current {
                if let Some(left) = spaces.checked_sub(1) {
                    *spaces = left;
                    return Ok(Some((request.clone(), left)));
                }
                self.current = None;
            }
            match self.trace.next().transpose()? {
                Some(request) => self.current = Some((request, self.of.key_spaces)),
                None if self.pass < self.of.passes => {
                    self.skipped += self.trace.skipped();
                    self.trace = Trace::open(&self.path, self.options)?;
                    self.pass += 1;
                    self.first_ns = None;
                    self.passed_seconds = self.now_seconds;
                }
                None => return Ok(None),
            }
        }
    }

    fn request(&mut self, request: &Request, space: u32) -> Draw {
        let key = request.key.to_u64();
        let hash = KeyHash(mix(mix(key ^ self.seed) ^ u64::from(space)));
        let bytes = match request.size {
            Some(bytes) => u32::try_from(bytes).unwrap_or(u32::MAX).max(1),
            None => self.sizes.of(hash),
        };
        Draw {
            hash,
            op: request.op,
            bytes,
            ttl_seconds: match request.ttl {
                Some(ttl) if self.of.ttl => u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX).max(1),
                _ => 0,
            },
            now_seconds: self.time(request.time_ns),
        }
    }

    /// Seconds since the first request, over all passes. Never goes back,
    /// although the time of some traces does.
    fn time(&mut self, time_ns: Option<u64>) -> u32 {
        if let Some(ns) = time_ns {
            let first = *self.first_ns.get_or_insert(ns);
            let seconds = ns.saturating_sub(first) / 1_000_000_000;
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            let now = self.passed_seconds.saturating_add(seconds);
            self.now_seconds = self.now_seconds.max(now);
        }
        // An expiry time of 0 would mean "never".
        self.now_seconds.saturating_add(1)
    }

    /// Requests that were skipped.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Lines that were skipped as bad.
    pub fn skipped(&self) -> u64 {
        self.skipped + self.trace.skipped()
    }
}
