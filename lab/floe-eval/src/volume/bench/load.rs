//! The requests of a bench: drawn, or those of a trace.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::devices::BLOCK_BYTES;
use super::spec::VolumeBench;
use crate::error::EvalError;
use crate::shared::TraceCase;
use crate::trace::{BlockOp, BlockRequest, BlockTrace, TraceOptions};
use crate::volume::replay::each_request;
use crate::volume::working_set::WorkingSet;
use crate::workload::{Workload, WorkloadSpec};

/// Volumes are whole multiples of this.
const VOLUME_UNIT_BYTES: u64 = 1 << 20;

/// One request to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) volume: usize,
    pub(super) op: BlockOp,
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Its time in the trace, since the first request.
    pub(super) time: Option<Duration>,
}

/// A stream of requests, and the volumes that they need.
pub(super) struct Load {
    source: Source,
    /// Bytes of each volume.
    pub(super) volumes: Vec<u64>,
    /// Distinct bytes of the requests of a trace.
    pub(super) working_set_bytes: u64,
    /// Requests of a trace.
    pub(super) recorded: Option<u64>,
}

enum Source {
    Drawn {
        ids: Workload,
        random: Xoshiro256PlusPlus,
        reads: f64,
        bytes: u64,
        /// Requests between two flushes, and those until the next one.
        flush: Option<(NonZeroU64, u64)>,
    },
    Recorded(std::vec::IntoIter<Planned>),
}

impl Load {
    /// The requests of `bench`.
    pub(super) fn new(
        bench: &VolumeBench,
        seed: u64,
        experiment: &Path,
    ) -> Result<Self, EvalError> {
        match (&bench.workload, &bench.trace, bench.volume_size) {
            (Some(distribution), None, Some(size)) => {
                let bytes = bench.request_size.bytes();
                let spec = WorkloadSpec {
                    distribution: distribution.clone(),
                    items: size.bytes() / bytes.max(1),
                    seed,
                };
                Ok(Load {
                    source: Source::Drawn {
                        ids: Workload::new(&spec)?,
                        random: Xoshiro256PlusPlus::seed_from_u64(!seed),
                        reads: bench.reads,
                        bytes,
                        flush: bench.flush_every.map(|every| (every, every.get())),
                    },
                    volumes: vec![size.bytes()],
                    working_set_bytes: size.bytes(),
                    recorded: None,
                })
            }
            (None, Some(trace), None) => Load::of_trace(trace, bench.requests, experiment),
            _ => Err(EvalError::Option {
                option: "volume-bench",
                reason: "give workload and volume-size, or trace".into(),
            }),
        }
    }

    fn of_trace(
        case: &TraceCase,
        requests_max: Option<u64>,
        experiment: &Path,
    ) -> Result<Self, EvalError> {
        let options = TraceOptions {
            format: case.format()?,
            skip_bad: case.skip_bad,
        };
        let mut trace = BlockTrace::open(&case.find(experiment)?, options)?.clamp_times();
        let (mut planned, mut working_set) = (Vec::new(), WorkingSet::default());
        let mut ends: HashMap<usize, u64> = HashMap::new();
        let mut first_ns = None;
        each_request(&mut trace, requests_max, |request, volume| {
            working_set.add(request);
            let volume = usize::from(volume.0);
            let request = within_blocks(request, volume, &mut first_ns);
            let end = ends.entry(volume).or_default();
            *end = (*end).max(request.at + request.bytes);
            if request.bytes > 0 || request.op == BlockOp::Flush {
                planned.push(request);
            }
            Ok(())
        })?;
        let size = |volume: usize| {
            let end = ends.get(&volume).copied().unwrap_or_default();
            end.max(1).next_multiple_of(VOLUME_UNIT_BYTES)
        };
        let recorded = Some(planned.len() as u64);
        Ok(Load {
            source: Source::Recorded(planned.into_iter()),
            volumes: (0..trace.volumes().len()).map(size).collect(),
            working_set_bytes: working_set.bytes(),
            recorded,
        })
    }

    /// The next request; `None` at the end of a trace.
    pub(super) fn next(&mut self) -> Option<Planned> {
        match &mut self.source {
            Source::Recorded(requests) => requests.next(),
            Source::Drawn {
                ids,
                random,
                reads,
                bytes,
                flush,
            } => {
                if let Some((every, left)) = flush {
                    if *left == 0 {
                        *left = every.get();
                        return Some(Planned {
                            volume: 0,
                            op: BlockOp::Flush,
                            at: 0,
                            bytes: 0,
                            time: None,
                        });
                    }
                    *left -= 1;
                }
                let is_read = *reads >= 1.0 || random.random::<f64>() < *reads;
                Some(Planned {
                    volume: 0,
                    op: [BlockOp::Write, BlockOp::Read][usize::from(is_read)],
                    at: ids.next_id() * *bytes,
                    bytes: *bytes,
                    time: None,
                })
            }
        }
    }
}

/// `request`, widened to whole blocks.
fn within_blocks(request: &BlockRequest, volume: usize, first_ns: &mut Option<u64>) -> Planned {
    let block_bytes = u64::from(BLOCK_BYTES);
    let at = request.offset - request.offset % block_bytes;
    let end = (request.offset + request.length).next_multiple_of(block_bytes);
    let time = request.time_ns.map(|ns| {
        let first_ns = *first_ns.get_or_insert(ns);
        Duration::from_nanos(ns.saturating_sub(first_ns))
    });
    Planned {
        volume,
        op: request.op,
        at,
        bytes: if request.length == 0 { 0 } else { end - at },
        time,
    }
}
