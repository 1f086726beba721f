//! How often a request continues an earlier one.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use crate::ratio::ratio;
use crate::trace::BlockRequest;

/// Requests that start where one of the volume's last [`STREAMS`](Self::STREAMS)
/// requests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sequential {
    /// Their share of the reads and writes.
    pub request_share: f64,
    /// Their share of the bytes.
    pub byte_share: f64,
}

impl Sequential {
    /// The streams of a volume that are told apart.
    pub const STREAMS: usize = 32;
}

/// Collects the requests that continue others.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    ends: HashMap<u32, VecDeque<u64>>,
    requests: u64,
    bytes: u64,
    sequential_requests: u64,
    sequential_bytes: u64,
}

impl Sequence {
    pub(crate) fn add(&mut self, request: &BlockRequest) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(request.length);
        let ends = self.ends.entry(request.volume).or_default();
        match ends.iter().rposition(|&end| end == request.offset) {
            Some(place) => {
                ends.remove(place);
                self.sequential_requests += 1;
                self.sequential_bytes = self.sequential_bytes.saturating_add(request.length);
            }
            None if ends.len() == Sequential::STREAMS => {
                ends.pop_front();
            }
            None => {}
        }
        ends.push_back(request.offset + request.length);
    }

    pub(crate) fn finish(&self) -> Sequential {
        Sequential {
            request_share: ratio(self.sequential_requests, self.requests),
            byte_share: ratio(self.sequential_bytes, self.bytes),
        }
    }
}
