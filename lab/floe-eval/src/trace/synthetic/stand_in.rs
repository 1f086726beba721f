//! Synthetic stand-ins for the volumes of AdaCache's evaluation (Yang et al.,
//! "AdaCache: a disaggregated cache system with adaptive block size for cloud block
//! storage"), whose traces are not at hand.
//!
//! Request counts, read shares, mean sizes and the share of small requests are the
//! paper's. The paper tells the volumes of one family apart only for *alibaba*, by
//! the operation that dominates. The stand-ins of *msr* and *systor* volumes
//! therefore differ by their seed alone. Locality is not in the paper: it is that
//! of [`LOCALITY`], for all of them.

use super::generator::{ClassSpec, Generator, Pace, Spec};
use super::options::{REQUESTS_DEFAULT, SEED_DEFAULT, each_option, parsed};
use crate::workload::Distribution;

const KIB: u64 = 1 << 10;
/// Sizes of requests. Ours: powers of two, from a page to the largest request of
/// the shared traces of cloud volumes.
const SIZES: [u64; 8] = [4, 8, 16, 32, 64, 128, 256, 512];

/// One family of traces.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// Table II, "#Reads" and "#Writes", in millions, of all volumes together.
    pub(super) reads_m: f64,
    pub(super) writes_m: f64,
    /// Table II, "Read Traffic GiB" and "Write Traffic GiB".
    pub(super) read_gib: f64,
    pub(super) write_gib: f64,
    /// The size that Fig. 3's description in §II-B names, in KiB.
    pub(super) small_kib: u64,
    /// Shares of the reads and of the writes up to that size. §II-B: "more than
    /// half" of *alibaba* and *systor* are small, "more than half" of *msr* larger.
    /// Ours: 55 %; of *msr*'s writes fewer are large, for Table II's mean allows no
    /// more.
    pub(super) small_reads: f64,
    pub(super) small_writes: f64,
    /// The volumes that §IV names, with the difference of their share of reads to
    /// that of the family.
    pub(super) volumes: &'static [(&'static str, f64)],
}

/// §IV: "write-dominant", "read-dominant", "a similar amount". Ours: 30 points.
const READS: f64 = 0.3;
const WRITES: f64 = -0.3;

pub(super) const FAMILIES: [Family; 3] = [
    Family {
        name: "alibaba",
        reads_m: 24.5,
        writes_m: 25.5,
        read_gib: 607.3,
        write_gib: 375.9,
        small_kib: 4,
        small_reads: 0.55,
        small_writes: 0.55,
        volumes: &[
            ("vd2", WRITES),
            ("vd10", READS),
            ("vd49", 0.0),
            ("vd124", READS),
            ("vd740", WRITES),
        ],
    },
    Family {
        name: "msr",
        reads_m: 61.0,
        writes_m: 9.0,
        read_gib: 2416.8,
        write_gib: 207.2,
        small_kib: 32,
        small_reads: 0.44,
        small_writes: 0.75,
        volumes: &[
            ("prn_1", 0.0),
            ("proj_1", 0.0),
            ("proj_2", 0.0),
            ("src1_0", 0.0),
            ("src1_1", 0.0),
            ("usr_1", 0.0),
            ("usr_2", 0.0),
        ],
    },
    Family {
        name: "systor",
        reads_m: 40.7,
        writes_m: 19.3,
        read_gib: 1109.2,
        write_gib: 271.9,
        small_kib: 4,
        small_reads: 0.55,
        small_writes: 0.55,
        volumes: &[
            ("lun0", 0.0),
            ("lun1", 0.0),
            ("lun2", 0.0),
            ("lun3", 0.0),
            ("lun4", 0.0),
            ("lun5", 0.0),
        ],
    },
];

/// The properties that the paper does not give.
struct Locality {
    /// Zipf exponent of the accesses to places of one size.
    skew: f64,
    /// Sets the number of places: as many as the accesses that this share leaves.
    /// The tail of a Zipf distribution is not drawn whole, so that the measured
    /// reuse is higher.
    reuse_share: f64,
    /// Share of the requests that continue the last one of their size.
    sequential_share: f64,
}

/// The medians of the three shared traces of requests whose popularity is Zipf-like
/// (r² of at least 0.9 by `floe trace stat`: PRXY_0_read, Financial1-snippet,
/// ajw.1week), of their exponents 0.95, 0.57, 1.01; reuse 0.719, 0.675, 0.900;
/// sequential requests 0.099, 0.723, 0.088. Set once, before any cache has served a
/// stand-in.
const LOCALITY: Locality = Locality {
    skew: 0.95,
    reuse_share: 0.719,
    sequential_share: 0.099,
};

/// The paper gives no rate. Ours; time drives nothing but cleaning.
const PACE: Pace = Pace::even(1_000_000);

impl Family {
    /// Share of the requests that read.
    pub(super) fn read_share(&self) -> f64 {
        self.reads_m / (self.reads_m + self.writes_m)
    }

    /// Mean size of a read in KiB.
    pub(super) fn read_kib_mean(&self) -> f64 {
        mean_kib(self.read_gib, self.reads_m)
    }

    /// Mean size of a write in KiB.
    pub(super) fn write_kib_mean(&self) -> f64 {
        mean_kib(self.write_gib, self.writes_m)
    }
}

fn mean_kib(gib: f64, requests_m: f64) -> f64 {
    gib * (KIB * KIB) as f64 / (requests_m * 1e6)
}

/// The stand-in of the volume `name`.
///
/// # Errors
/// When there is no such volume, or an option makes no sense.
pub(super) fn generator(name: &str, options: &str) -> Result<Generator, String> {
    let (mut requests, mut seed) = (REQUESTS_DEFAULT, SEED_DEFAULT);
    each_option(options, |key, value| {
        match key {
            "requests" => requests = parsed(value)?,
            "seed" => seed = parsed(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (family, read_share) = find(name)?;
    let reads = shares(family.small_kib, family.small_reads, family.read_kib_mean());
    let writes = shares(
        family.small_kib,
        family.small_writes,
        family.write_kib_mean(),
    );
    let class = |number: usize| {
        let share = read_share * reads[number] + (1.0 - read_share) * writes[number];
        let first_accesses = requests as f64 * share * (1.0 - LOCALITY.reuse_share);
        ClassSpec {
            bytes: SIZES[number] * KIB,
            share_of_reads: reads[number],
            share_of_writes: writes[number],
            places: (first_accesses as u64).max(1),
            distribution: Distribution::Zipf {
                skew: LOCALITY.skew,
                scrambled: true,
            },
        }
    };
    Generator::new(Spec {
        requests,
        seed: xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), seed),
        read_share,
        classes: (0..SIZES.len()).map(class).collect(),
        sequential_share: LOCALITY.sequential_share,
        pace: PACE,
    })
}

/// The family of a volume, and the volume's share of reads.
pub(super) fn find(name: &str) -> Result<(&'static Family, f64), String> {
    for family in &FAMILIES {
        let found = family.volumes.iter().find(|(volume, _)| *volume == name);
        if let Some((_, difference)) = found {
            return Ok((family, family.read_share() + difference));
        }
    }
    let names = FAMILIES.each_ref().map(|family| {
        let volumes = family.volumes.iter().map(|(volume, _)| *volume);
        let volumes: Vec<&str> = volumes.collect();
        format!("{} of {}", volumes.join(", "), family.name)
    });
    Err(format!(
        "there is no stand-in `{name}`; there is {}",
        names.join(", ")
    ))
}

/// The share of each size: `small` of the requests up to `small_kib`, the others
/// larger. Both parts fall by the same factor from one size to the next, which is
/// the one that gives the mean.
fn shares(small_kib: u64, small: f64, kib_mean: f64) -> [f64; SIZES.len()] {
    let split = SIZES.partition_point(|size| *size <= small_kib);
    let at = |factor: f64| {
        let mut shares = [0.0; SIZES.len()];
        let (below, above) = shares.split_at_mut(split);
        for (part, share) in [(below, small), (above, 1.0 - small)] {
            let powers = (0..part.len() as i32).map(|power| factor.powi(power));
            let sum: f64 = powers.clone().sum();
            for (size, power) in part.iter_mut().zip(powers) {
                *size = share * power / sum;
            }
        }
        shares
    };
    let mean = |shares: &[f64]| -> f64 {
        let sizes = SIZES.iter().zip(shares);
        sizes.map(|(size, share)| *size as f64 * share).sum()
    };
    // The mean grows with the factor.
    let (mut low, mut high) = (0.0, 4.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match mean(&at(middle)) < kib_mean {
            true => low = middle,
            false => high = middle,
        }
    }
    at(low)
}
