//! How unequally accesses are distributed over blocks or objects.

use serde::Serialize;

use crate::ratio::ratio;

/// The skew of accesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Skew {
    /// The share of accesses that the most popular hundredth gets.
    pub top_1_percent_share: f64,
    /// The share of accesses that the most popular tenth gets.
    pub top_10_percent_share: f64,
    /// The Zipf exponent that fits best; `None` where too few are accessed twice.
    pub zipf: Option<Zipf>,
    /// Ranks, equally far apart on a logarithmic axis, with their accesses.
    pub popularity: Vec<(u64, u64)>,
}

/// A least-squares line through the logarithms of frequency and rank, at ranks
/// that are equally far apart on the logarithmic axis and accessed at least twice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Zipf {
    /// The negated slope.
    pub exponent: f64,
    /// The share of the variance that the line explains; below 0.9 the popularity
    /// is not Zipf-like.
    pub r_squared: f64,
}

/// Ranks that the line is fitted to.
const RANKS: usize = 200;

impl Skew {
    /// The skew of these counts, which are sorted.
    pub(super) fn of(counts: &mut [u64]) -> Self {
        counts.sort_unstable_by(|first, second| second.cmp(first));
        let total: u64 = counts.iter().sum();
        let top = |part: usize| {
            let most = &counts[..counts.len().div_ceil(part)];
            ratio(most.iter().sum(), total)
        };
        Skew {
            top_1_percent_share: top(100),
            top_10_percent_share: top(10),
            zipf: Zipf::fit(counts),
            popularity: ranks(counts.len())
                .into_iter()
                .map(|rank| (rank as u64, counts[rank - 1]))
                .collect(),
        }
    }
}

/// Up to [`RANKS`] ranks from 1 to `last`, equally far apart on a logarithmic axis.
fn ranks(last: usize) -> Vec<usize> {
    if last == 0 {
        return Vec::new();
    }
    let step = (last as f64).ln() / (RANKS - 1) as f64;
    let mut ranks: Vec<usize> = (0..RANKS)
        .map(|number| (step * number as f64).exp().round() as usize)
        .map(|rank| rank.clamp(1, last))
        .collect();
    ranks.dedup();
    ranks
}

impl Zipf {
    fn fit(counts: &[u64]) -> Option<Self> {
        let ranks_max = counts.partition_point(|&count| count >= 2);
        if ranks_max < 3 {
            return None;
        }
        let points: Vec<(f64, f64)> = ranks(ranks_max)
            .into_iter()
            .map(|rank| ((rank as f64).ln(), (counts[rank - 1] as f64).ln()))
            .collect();
        let n = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
        let sum = |of: fn(f64, f64) -> f64| {
            let terms = points.iter().map(|(x, y)| of(x - mean_x, y - mean_y));
            terms.sum::<f64>()
        };
        let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
        Some(Zipf {
            exponent: -xy / xx,
            // Equal counts lie on a line, too.
            r_squared: if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 },
        })
    }
}
