//! The work of a device: its zones, and what it did below its interface, if it reports that.

use floe_core::ssd::Statistics;
use floe_device::{CounterSnapshot, Device};

use super::{Measures, counted_figures};
use crate::run::ExtraFigure;

pub(super) fn figure(metric: &str, unit: &str, value: f64) -> ExtraFigure {
    ExtraFigure {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        value,
    }
}

/// The figure of operations that failed because of a zone.
pub const ZONE_ERRORS: &str = "device_zone_errors";

/// A device's counts at one moment.
#[derive(Clone, Debug)]
pub struct DeviceCounts {
    ours: CounterSnapshot,
    /// Those of the device itself, if it reports any.
    own: Option<Statistics>,
}

impl DeviceCounts {
    /// The counts of `device` now.
    pub fn of(device: &dyn Device) -> Self {
        DeviceCounts {
            ours: device.counters().snapshot(),
            own: device.media_statistics(),
        }
    }

    /// The figures of the work of `device` between two times of a run of `elapsed_s`, which
    /// measured `whole`.
    pub fn figures(
        &self,
        device: &dyn Device,
        now: &Self,
        whole: &Measures,
        elapsed_s: f64,
    ) -> Vec<ExtraFigure> {
        let ours = now.ours.since(&self.ours);
        let mut figures = counted_figures(whole.hit.count, whole.miss.count, &ours);
        figures.extend([
            figure("device_written", "B", ours.written_bytes() as f64),
            figure(ZONE_ERRORS, "count", ours.zone_errors as f64),
        ]);
        if let Some(peaks) = device.zone_peaks() {
            for (metric, value) in [
                ("device_zone_writes_in_flight_max", peaks.writes_in_flight),
                ("device_open_zones_max", peaks.open),
                ("device_active_zones_max", peaks.active),
            ] {
                figures.push(figure(metric, "count", value.into()));
            }
        }
        if let Some((before, now)) = self.own.as_ref().zip(now.own.as_ref()) {
            let rest = now.since(before);
            let media = rest.programmed.total_bytes();
            figures.push(figure(
                "device_host_written",
                "B",
                rest.host_written_bytes as f64,
            ));
            figures.push(figure("device_media_written", "B", media as f64));
            figures.extend(media_figures(before, now, elapsed_s));
        }
        figures
    }
}

/// The figures of a device's work between two times of a run of `elapsed_s`.
pub fn media_figures(earlier: &Statistics, now: &Statistics, elapsed_s: f64) -> Vec<ExtraFigure> {
    let rest = now.since(earlier);
    let mut figures = Vec::new();
    let mut add = |metric: &str, unit: &str, value: f64| figures.push(figure(metric, unit, value));
    let programmed = &rest.programmed;
    let per_host_byte = |bytes: u64| bytes as f64 / programmed.host_bytes as f64;
    if programmed.host_bytes > 0 {
        add(
            "device_write_amplification",
            "ratio",
            per_host_byte(programmed.total_bytes()),
        );
        add(
            "device_collected_per_host_byte",
            "ratio",
            per_host_byte(programmed.collected_bytes),
        );
        add(
            "device_rewritten_per_host_byte",
            "ratio",
            per_host_byte(programmed.rewritten_bytes),
        );
        add(
            "device_padding_per_host_byte",
            "ratio",
            per_host_byte(programmed.padding_bytes),
        );
    }
    let erases = now.wear.erases.saturating_sub(earlier.wear.erases);
    add("device_erases", "count", erases as f64);
    add("device_throttled", "s", rest.throttled_ns as f64 / 1e9);
    let dies = rest.dies.len() as f64;
    if dies > 0.0 && elapsed_s > 0.0 {
        let busy_ns: u64 = rest.dies.iter().map(|die| die.total_ns()).sum();
        let share = busy_ns as f64 / 1e9 / dies / elapsed_s;
        add("device_die_utilisation", "ratio", share);
    }
    figures
}
