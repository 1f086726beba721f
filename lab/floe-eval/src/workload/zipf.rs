//! Zipfian ids: rank r is drawn with a probability proportional to 1/r^θ.
//!
//! For 0 < θ < 1 this is the method of Gray et al., "Quickly generating
//! billion-record synthetic databases" (SIGMOD 1994), with the constants and
//! the scrambling of YCSB (Cooper et al., SoCC 2010). Ids so have the
//! frequencies of papers that use YCSB. For θ ≥ 1, outside that method's
//! range, it is rejection-inversion (Hörmann and Derflinger, 1996).

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::error::WorkloadError;

/// The number of ranks that YCSB's scrambled generator draws from before it
/// scrambles, whatever the number of ids.
pub const YCSB_SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// YCSB's constant for the sum of 1/r^0.99 over those ranks.
pub const YCSB_ZETA_OF_SCRAMBLED_ITEMS: f64 = 26.469_028_201_783_02;

/// The skew for which YCSB's scrambled generator knows its zeta.
const YCSB_SKEW: f64 = 0.99;

/// Draws Zipfian ids.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    scrambled: bool,
    ranks: Ranks,
}

#[derive(Clone, Debug)]
enum Ranks {
    Gray(Gray),
    Inversion(Inversion),
}

impl Zipf {
    /// A generator over `items` ids.
    ///
    /// Scrambled with a skew of 0.99 it is YCSB's `ScrambledZipfianGenerator`:
    /// ranks from [`YCSB_SCRAMBLED_ITEMS`] hashed onto the ids. With any other
    /// skew the ranks are those of the ids, hashed likewise.
    ///
    /// # Errors
    /// When `skew` is not a positive number, or `items` is zero.
    pub fn new(items: u64, skew: f64, scrambled: bool) -> Result<Self, WorkloadError> {
        if items == 0 {
            return Err(WorkloadError::new("there are no ids to draw"));
        }
        if !(skew > 0.0 && skew.is_finite()) {
            return Err(WorkloadError::new(format!(
                "Zipf skew {skew} is not a positive number; 0.99 is YCSB's, `uniform` is for 0"
            )));
        }
        let ranks = if scrambled && skew == YCSB_SKEW {
            let zeta = YCSB_ZETA_OF_SCRAMBLED_ITEMS;
            Ranks::Gray(Gray::new(YCSB_SCRAMBLED_ITEMS, skew, zeta))
        } else if skew < 1.0 {
            Ranks::Gray(Gray::new(items, skew, zeta(0, items, skew, 0.0)))
        } else {
            Ranks::Inversion(Inversion::new(items, skew))
        };
        Ok(Zipf {
            items,
            scrambled,
            ranks,
        })
    }

    /// The next id, below the number of ids.
    pub fn sample(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let rank = match &self.ranks {
            Ranks::Gray(gray) => gray.rank(rng.random()),
            Ranks::Inversion(inversion) => inversion.rank(rng),
        };
        if self.scrambled {
            fnv1a_64(rank) % self.items
        } else {
            rank
        }
    }

    /// The number of ids grows to `items` (never shrinks); what was computed
    /// for the old number is kept, as YCSB does while it inserts.
    pub fn grow(&mut self, items: u64) {
        if items <= self.items {
            return;
        }
        self.items = items;
        match &mut self.ranks {
            Ranks::Gray(gray) if gray.items < items => gray.grow(items),
            Ranks::Gray(_) => {}
            Ranks::Inversion(inversion) => *inversion = Inversion::new(items, inversion.skew),
        }
    }
}

/// Sums 1/r^θ over the ranks `from+1..=to`, added to `sum`, which is the sum up
/// to `from`: YCSB's incremental zeta.
pub fn zeta(from: u64, to: u64, skew: f64, sum: f64) -> f64 {
    (from..to).fold(sum, |sum, i| sum + 1.0 / ((i + 1) as f64).powf(skew))
}

/// FNV-1a, 64 bits, over the eight bytes of `value`, lowest first, made
/// non-negative as YCSB's `Utils.hash` does.
pub fn fnv1a_64(value: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash = value
        .to_le_bytes()
        .into_iter()
        .fold(OFFSET_BASIS, |h, b| (h ^ u64::from(b)).wrapping_mul(PRIME));
    (hash as i64).unsigned_abs()
}

/// Gray et al.'s closed form for 0 < θ < 1.
#[derive(Clone, Debug)]
struct Gray {
    items: u64,
    skew: f64,
    zeta: f64,
    zeta_2: f64,
    alpha: f64,
    eta: f64,
}

impl Gray {
    fn new(items: u64, skew: f64, zeta_items: f64) -> Self {
        let mut gray = Gray {
            items,
            skew,
            zeta: zeta_items,
            zeta_2: zeta(0, 2, skew, 0.0),
            alpha: 1.0 / (1.0 - skew),
            eta: 0.0,
        };
        gray.set_eta();
        gray
    }

    fn grow(&mut self, items: u64) {
        self.zeta = zeta(self.items, items, self.skew, self.zeta);
        self.items = items;
        self.set_eta();
    }

    fn set_eta(&mut self) {
        let tail = (2.0 / self.items as f64).powf(1.0 - self.skew);
        self.eta = (1.0 - tail) / (1.0 - self.zeta_2 / self.zeta);
    }

    /// The rank, from 0, at `u` in `[0, 1)` of the distribution.
    fn rank(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.skew) {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// Rejection-inversion for any positive θ, used for θ ≥ 1.
#[derive(Clone, Debug)]
struct Inversion {
    items: u64,
    skew: f64,
    integral_first: f64,
    integral_last: f64,
    sure: f64,
}

impl Inversion {
    fn new(items: u64, skew: f64) -> Self {
        let mut inversion = Inversion {
            items,
            skew,
            integral_first: 0.0,
            integral_last: 0.0,
            sure: 0.0,
        };
        inversion.integral_first = inversion.integral(1.5) - 1.0;
        inversion.integral_last = inversion.integral(items as f64 + 0.5);
        let second = inversion.integral(2.5) - inversion.density(2.0);
        inversion.sure = 2.0 - inversion.inverse(second);
        inversion
    }

    fn rank(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        loop {
            let u: f64 = rng.random();
            let area = self.integral_last + u * (self.integral_first - self.integral_last);
            let x = self.inverse(area);
            let k = x.round().clamp(1.0, self.items as f64);
            if k - x <= self.sure || area >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.skew * x.ln()).exp()
    }

    /// (x^(1-θ) - 1) / (1-θ), which is ln x at θ = 1, computed without loss
    /// near it.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_m1_over((1.0 - self.skew) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.skew)).max(-1.0);
        (ln_1p_over(t) * area).exp()
    }
}

/// (e^x - 1) / x, continuous at 0.
fn exp_m1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.exp_m1() / x
    } else {
        1.0 + x * 0.5 * (1.0 + x / 3.0)
    }
}

/// ln(1 + x) / x, continuous at 0.
fn ln_1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.ln_1p() / x
    } else {
        1.0 - x * (0.5 - x / 3.0)
    }
}
