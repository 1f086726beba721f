//! The work of a device below its interface, if it reports any.

use floe_core::ssd::Statistics;

use crate::run::ExtraFigure;

/// The figures of a device's work between two times of a run of `elapsed_s`.
pub fn media_figures(earlier: &Statistics, now: &Statistics, elapsed_s: f64) -> Vec<ExtraFigure> {
    let rest = now.since(earlier);
    let mut figures = Vec::new();
    let mut add = |metric: &str, unit: &str, value: f64| {
        figures.push(ExtraFigure {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value,
        });
    };
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
