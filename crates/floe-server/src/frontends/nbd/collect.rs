//! The metrics of the NBD frontend.

use std::sync::atomic::Ordering::Relaxed;

use super::counters::{Counters, results};
use super::frontend::NbdFrontend;
use super::protocol::request::Command;
use crate::frontend::Frontend;
use crate::metrics::{Collect, ConnectionCounts, Count, Samples, ThreadLatency};

impl Collect for NbdFrontend {
    fn collect(&self, samples: &mut Samples) {
        for command in Command::ALL {
            self.command(command, samples);
        }
        self.connections(samples);
        let in_flight = self
            .sum(|c| &c.begun)
            .saturating_sub(self.sum(|c| &c.ended));
        for (name, help, value) in [
            (
                "floe_nbd_requests_in_flight",
                "NBD requests that were started and have not ended",
                in_flight,
            ),
            (
                "floe_nbd_memory_bytes",
                "Memory held by data that the NBD frontend receives or sends",
                self.memory.held_bytes(),
            ),
        ] {
            samples.gauge(name, help, &[], value as f64);
        }
        for (name, help, value) in [
            (
                "floe_nbd_received_bytes",
                "Bytes received over NBD connections",
                self.sum(|c| &c.received_bytes),
            ),
            (
                "floe_nbd_sent_bytes",
                "Bytes sent over NBD connections",
                self.sum(|c| &c.sent_bytes),
            ),
            (
                "floe_nbd_memory_waits",
                "Times that a connection waited for memory of the NBD frontend",
                self.memory.waits(),
            ),
        ] {
            samples.counter(name, help, &[], value);
        }
    }
}

impl NbdFrontend {
    fn sum(&self, count: impl Fn(&Counters) -> &Count) -> u64 {
        self.threads.iter().map(|thread| count(thread).get()).sum()
    }

    fn command(&self, command: Command, samples: &mut Samples) {
        let mut totals = vec![0; results().count()];
        for thread in &self.threads {
            for (total, count) in totals.iter_mut().zip(thread.requests(command)) {
                *total += count;
            }
        }
        for (result, total) in results().zip(totals) {
            let labels = [("command", command.name()), ("result", result)];
            let help = "NBD requests that have ended, by command and result";
            samples.counter("floe_nbd_requests", help, &labels, total);
        }
        let threads = self.threads.iter();
        samples.histogram(
            "floe_nbd_request_duration_seconds",
            "Time from the arrival of an NBD request until its reply is ready, by command",
            &[("command", command.name())],
            ThreadLatency::total(threads.map(|thread| thread.latency(command))),
        );
    }

    fn connections(&self, samples: &mut Samples) {
        ConnectionCounts {
            opened: self.sum(|c| &c.opened),
            open: u64::from(self.open.load(Relaxed)),
            rejected: self.sum(|c| &c.rejected),
            accept_errors: self.sum(|c| &c.accept_errors),
            failed: &[
                ("aborted", self.sum(|c| &c.aborted)),
                ("broken", self.sum(|c| &c.broken)),
                ("slow", self.sum(|c| &c.slow)),
                ("stalled", self.sum(|c| &c.stalled)),
            ],
            ..ConnectionCounts::default()
        }
        .collect(samples, Self::NAME);
    }
}
