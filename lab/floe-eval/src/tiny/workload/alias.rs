//! Draws from a weighted list in constant time: Walker's alias method in Vose's
//! version (IEEE Transactions on Software Engineering, 1991).

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::workload::WorkloadError;

#[derive(Clone, Debug)]
pub(crate) struct Alias {
    /// For each column, its own share, and the entry that has the rest.
    columns: Vec<(f64, u32)>,
}

impl Alias {
    /// Draws indexes of `weights` in proportion to the weights.
    pub(crate) fn new(weights: &[f64]) -> Result<Self, WorkloadError> {
        let total: f64 = weights.iter().sum();
        let are_good = weights.iter().all(|weight| *weight >= 0.0);
        if !(are_good && total > 0.0 && total.is_finite()) || u32::try_from(weights.len()).is_err()
        {
            return Err(WorkloadError::new(
                "weights must be positive numbers, at least one of them above 0",
            ));
        }
        let mean = total / weights.len() as f64;
        let mut columns: Vec<(f64, u32)> = weights
            .iter()
            .zip(0..)
            .map(|(weight, own)| (weight / mean, own))
            .collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|at| columns[*at].0 < 1.0);
        while let (Some(needy), Some(giver)) = (small.pop(), large.last().copied()) {
            columns[needy].1 = giver as u32;
            columns[giver].0 -= 1.0 - columns[needy].0;
            if columns[giver].0 < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        // Entries that rounding left over have a share of one.
        for at in small.into_iter().chain(large) {
            columns[at].0 = 1.0;
        }
        Ok(Alias { columns })
    }

    pub(crate) fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> usize {
        let at = rng.random_range(0..self.columns.len());
        let (own, other) = self.columns[at];
        if rng.random::<f64>() < own {
            at
        } else {
            other as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn weights_are_kept() {
        let weights = [5.0, 0.0, 1.0, 3.0, 0.5, 0.5];
        let alias = Alias::new(&weights).expect("good weights");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut counts = [0u32; 6];
        for _ in 0..1_000_000 {
            counts[alias.draw(&mut rng)] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let share = f64::from(*count) / 1e6;
            assert!((share - weight / 10.0).abs() < 0.002, "{counts:?}");
        }
    }

    #[test]
    fn invalid_weights_are_rejected() {
        for weights in [&[][..], &[0.0, 0.0], &[-1.0, 2.0], &[f64::NAN]] {
            assert!(Alias::new(weights).is_err(), "{weights:?}");
        }
    }
}
