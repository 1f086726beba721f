//! What a cache and its device counted: figures that do not depend on the device's speed.

use floe_device::CounterSnapshot;

use crate::run::ExtraFigure;

/// Hits and misses of a run, and the operations and bytes of its device. Zone errors are left
/// out, because few devices count them.
pub fn counted_figures(hits: u64, misses: u64, device: &CounterSnapshot) -> Vec<ExtraFigure> {
    let served = [("hits", hits), ("misses", misses)];
    let served = served.map(|(name, count)| (name.to_owned(), count));
    let device = device.named().into_iter();
    let device = device.filter(|(name, ..)| *name != "zone_errors");
    let device = device.map(|(name, _, count)| (format!("device_{name}"), count));
    let figures = served.into_iter().chain(device);
    let figures = figures.map(|(metric, count)| {
        let unit = match metric.ends_with("_bytes") {
            true => "B",
            false => "count",
        };
        ExtraFigure {
            metric,
            unit: unit.to_owned(),
            value: count as f64,
        }
    });
    figures.collect()
}
