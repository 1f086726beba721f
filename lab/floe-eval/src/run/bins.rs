//! Divides a run into time bins.

use std::time::Duration;

use floe_core::Tick;
use floe_device::Metered;

use super::{BenchOptions, RunResult};
use crate::metrics::{DeviceProbe, DeviceReading, Measures, ProcessProbe, Recorder, Tally};

/// The time bins of a run, and its whole.
pub(super) struct Bins {
    start: Tick,
    bin: Duration,
    bins: Vec<Measures>,
    /// The last bin that ended. It is complete only when the next one ends,
    /// too, because a short rest at the end of a run is added to it.
    last: Option<Ended>,
    bin_start: Tick,
    whole: Tally,
    device: Option<DeviceProbe>,
    process: Option<ProcessProbe>,
    cpu_time: Duration,
    rss_bytes_max: Option<u64>,
}

/// A bin that has ended.
struct Ended {
    start: Tick,
    end: Tick,
    tally: Tally,
    device: Option<DeviceReading>,
    cpu_time: Option<Duration>,
    rss_bytes: Option<u64>,
}

impl Bins {
    pub(super) fn new(
        start: Tick,
        bin: Duration,
        device: Option<&Metered>,
        is_virtual: bool,
    ) -> Self {
        Bins {
            start,
            bin,
            bins: Vec::new(),
            last: None,
            bin_start: start,
            whole: Tally::default(),
            device: device.map(DeviceProbe::new),
            process: (!is_virtual).then(ProcessProbe::new),
            cpu_time: Duration::ZERO,
            rss_bytes_max: None,
        }
    }

    /// Time until the current bin ends.
    pub(super) fn rest(&self, now: Tick) -> Duration {
        (self.bin_start + self.bin).since(now)
    }

    /// Ends the current bin.
    pub(super) fn end_bin(&mut self, recorder: &Recorder, now: Tick) {
        let ended = self.take(recorder, now);
        if let Some(before) = self.last.replace(ended) {
            self.bins.push(before.measures(self.start));
        }
    }

    /// Ends the run.
    pub(super) fn end(&mut self, recorder: &Recorder, now: Tick) {
        let rest = self.take(recorder, now);
        let is_short = now.since(rest.start) < self.bin / 2;
        match self.last.take() {
            Some(mut last) if is_short => {
                last.absorb(&rest);
                self.bins.push(last.measures(self.start));
            }
            last => {
                let both = last.into_iter().chain(std::iter::once(rest));
                self.bins
                    .extend(both.map(|ended| ended.measures(self.start)));
            }
        }
    }

    fn take(&mut self, recorder: &Recorder, now: Tick) -> Ended {
        let sample = self.process.as_mut().and_then(ProcessProbe::sample);
        let ended = Ended {
            start: self.bin_start,
            end: now,
            tally: recorder.take(),
            device: self.device.as_mut().map(DeviceProbe::take),
            cpu_time: sample.map(|sample| sample.cpu_time),
            rss_bytes: sample.map(|sample| sample.rss_bytes),
        };
        self.cpu_time += ended.cpu_time.unwrap_or_default();
        self.rss_bytes_max = self.rss_bytes_max.max(ended.rss_bytes);
        self.whole.merge(&ended.tally);
        self.bin_start = now;
        ended
    }

    /// The run's result, without values that the bins do not have.
    pub(super) fn result(
        self,
        options: &BenchOptions,
        started_unix_s: f64,
        stored_bytes: u64,
    ) -> RunResult {
        let length = self.bin_start.since(self.start);
        let mut whole = self.whole.measures(Duration::ZERO, length);
        let device = self.device.map(|device| device.whole());
        if let Some(device) = &device {
            device.fill(&mut whole);
        }
        let mut distributions = self.whole.distributions();
        if let Some(device) = &device {
            device.fill_distributions(&mut distributions);
        }
        let requests = self.whole.requests();
        let cpu = self.rss_bytes_max.map(|_| self.cpu_time);
        whole.rss_bytes = self.bins.last().and_then(|bin| bin.rss_bytes);
        whole.cpu_percent = cpu.and_then(|cpu| cpu_percent(cpu, length));
        RunResult {
            name: options.name.clone(),
            started_unix_s,
            is_virtual: self.process.is_none(),
            requests,
            failed: 0,
            first_failure: None,
            interrupted: false,
            skipped: 0,
            verified_bytes: 0,
            whole,
            distributions,
            bins: self.bins,
            rss_bytes_max: self.rss_bytes_max,
            cpu_us_per_request: cpu
                .filter(|_| requests > 0)
                .map(|cpu| 1e6 * cpu.as_secs_f64() / requests as f64),
            write_amplification: device
                .filter(|_| stored_bytes > 0)
                .map(|device| device.written_bytes() as f64 / stored_bytes as f64),
            extra: Vec::new(),
            device: None,
            series: Vec::new(),
        }
    }
}

impl Ended {
    fn absorb(&mut self, rest: &Ended) {
        self.end = rest.end;
        self.tally.merge(&rest.tally);
        if let (Some(device), Some(more)) = (&mut self.device, &rest.device) {
            device.add(more);
        }
        if let (Some(cpu_time), Some(more)) = (&mut self.cpu_time, rest.cpu_time) {
            *cpu_time += more;
        }
        self.rss_bytes = rest.rss_bytes;
    }

    fn measures(&self, run_start: Tick) -> Measures {
        let length = self.end.since(self.start);
        let mut measures = self.tally.measures(self.start.since(run_start), length);
        if let Some(device) = &self.device {
            device.fill(&mut measures);
        }
        measures.cpu_percent = self.cpu_time.and_then(|cpu| cpu_percent(cpu, length));
        measures.rss_bytes = self.rss_bytes;
        measures
    }
}

fn cpu_percent(cpu_time: Duration, length: Duration) -> Option<f64> {
    (!length.is_zero()).then(|| 100.0 * cpu_time.as_secs_f64() / length.as_secs_f64())
}
