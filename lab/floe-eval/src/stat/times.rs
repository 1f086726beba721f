//! The times of a trace.

use serde::Serialize;

/// The times of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Seconds between the earliest and the latest request.
    pub span_s: f64,
    /// Requests whose time lies before that of the request before them.
    pub backward_steps: u64,
}

/// Collects the times of requests.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    earliest_ns: Option<u64>,
    latest_ns: u64,
    last_ns: u64,
    backward_steps: u64,
}

impl Clock {
    /// Notes the time of a request, if it has one.
    pub(crate) fn note(&mut self, time_ns: Option<u64>) {
        let Some(time) = time_ns else { return };
        self.backward_steps += u64::from(time < self.last_ns);
        self.last_ns = time;
        self.earliest_ns = Some(self.earliest_ns.map_or(time, |earliest| earliest.min(time)));
        self.latest_ns = self.latest_ns.max(time);
    }

    /// The times so far; `None` if no request had one.
    pub(crate) fn times(&self) -> Option<Times> {
        self.earliest_ns.map(|earliest| Times {
            span_s: (self.latest_ns - earliest) as f64 / 1e9,
            backward_steps: self.backward_steps,
        })
    }
}
