//! How often each stack distance occurs.

use std::collections::BTreeMap;

use super::Curve;

/// Weights of distances. An access in a sample weighs as many as it stands for.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    weights: BTreeMap<u64, f64>,
    total: f64,
}

impl Histogram {
    /// An access at a distance.
    pub(super) fn add(&mut self, distance: u64, weight: f64) {
        *self.weights.entry(distance).or_default() += weight;
        self.total += weight;
    }

    /// A first access, which has no distance.
    pub(super) fn add_first(&mut self, weight: f64) {
        self.total += weight;
    }

    /// The total weight so far.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// The curve of accesses that were all added.
    pub(super) fn curve(&self, unique: u64) -> Curve {
        self.curve_of(self.total.round() as u64, unique, 0.0)
    }

    /// The curve with `surplus` of weight more at the shortest distance.
    pub(super) fn curve_of(&self, accesses: u64, unique: u64, surplus: f64) -> Curve {
        let total = self.total + surplus;
        let mut hits = surplus;
        let steps = self.weights.iter().map(|(distance, weight)| {
            hits += weight;
            (*distance, (1.0 - hits / total).clamp(0.0, 1.0))
        });
        Curve {
            accesses,
            unique,
            steps: match total > 0.0 {
                true => steps.collect(),
                false => Vec::new(),
            },
        }
    }
}
