//! Requests to a tiny engine: drawn from published tables and
//! distributions, or read from traces.
//!
//! A stream yields [`Draw`]s. Generating one takes constant time for any number
//! of keys, and the same seed gives the same ones. After a `get` that misses,
//! the driver inserts the object, see `driver.rs`.

mod alias;
mod cachebench;
mod draw;
mod recorded;
mod sizes;
#[cfg(test)]
mod tests;
mod twitter;

use std::path::Path;

use floe_core::hash::KeyHash;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

pub use cachebench::{CacheBench, CacheBenchStream};
pub use draw::Draw;
pub use recorded::{Recorded, RecordedStream};
pub use sizes::SizeModel;
pub use twitter::{Cluster, PAPER_FLASH_BYTES, PAPER_OBJECT_BYTES, TwitterMix, TwitterStream};

use crate::error::EvalError;
use crate::trace::Op;
use crate::workload::{Distribution, Workload, WorkloadError, WorkloadSpec};
use draw::REQUESTS_PER_SECOND;
use sizes::Sizes;
pub(super) use sizes::mix;

/// The source of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum TinyWorkload {
    /// Requests like those of the Twitter clusters that Nemo's evaluation
    /// interleaves.
    Twitter(TwitterMix),
    /// Ids from a distribution.
    Synthetic(Synthetic),
    /// CacheBench's popularity and size distributions.
    Cachebench(CacheBench),
    /// A trace.
    Trace(Recorded),
}

/// Ids from a distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Synthetic {
    /// The distribution of ids.
    pub distribution: Distribution,
    /// Bytes of all objects as a multiple of the flash.
    pub working_set: f64,
    /// Sizes of objects.
    pub size: SizeModel,
    /// Share of requests that write.
    #[serde(default)]
    pub sets: f64,
    /// Share of requests that delete.
    #[serde(default)]
    pub deletes: f64,
}

/// A stream of requests.
#[derive(Debug)]
pub enum Stream {
    /// See [`TwitterMix`].
    Twitter(TwitterStream),
    /// See [`Synthetic`].
    Synthetic(SyntheticStream),
    /// See [`CacheBench`].
    CacheBench(Box<CacheBenchStream>),
    /// See [`Recorded`].
    Recorded(Box<RecordedStream>),
}

impl TinyWorkload {
    /// A stream of requests to a cache with `flash_bytes` of flash. Files are
    /// searched next to the experiment at `experiment`.
    ///
    /// # Errors
    /// If a setting is out of range or a file cannot be read;
    /// [`EvalError::Absent`] if it does not exist.
    pub fn stream(
        &self,
        flash_bytes: u64,
        seed: u64,
        experiment: &Path,
    ) -> Result<Stream, EvalError> {
        Ok(match self {
            TinyWorkload::Twitter(mix) => Stream::Twitter(mix.stream(flash_bytes, seed)?),
            TinyWorkload::Synthetic(from) => {
                Stream::Synthetic(SyntheticStream::new(from, flash_bytes, seed)?)
            }
            TinyWorkload::Cachebench(from) => {
                Stream::CacheBench(from.stream(flash_bytes, seed, experiment)?.into())
            }
            TinyWorkload::Trace(from) => Stream::Recorded(from.stream(seed, experiment)?.into()),
        })
    }
}

impl Stream {
    /// The next request; `None` at the end of a trace.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn draw(&mut self) -> Result<Option<Draw>, EvalError> {
        match self {
            Stream::Twitter(stream) => Ok(Some(stream.draw())),
            Stream::Synthetic(stream) => Ok(Some(stream.draw())),
            Stream::CacheBench(stream) => Ok(Some(stream.draw())),
            Stream::Recorded(stream) => stream.draw(),
        }
    }

    /// Requests that were skipped because their object does not fit a page.
    pub fn left_out(&self) -> u64 {
        match self {
            Stream::Twitter(_) | Stream::Synthetic(_) => 0,
            Stream::CacheBench(stream) => stream.left_out(),
            Stream::Recorded(stream) => stream.left_out(),
        }
    }

    /// Lines of a trace that were skipped as bad.
    pub fn skipped(&self) -> u64 {
        match self {
            Stream::Recorded(stream) => stream.skipped(),
            _ => 0,
        }
    }
}

/// Draws from a distribution.
#[derive(Clone, Debug)]
pub struct SyntheticStream {
    ids: Workload,
    rng: Xoshiro256PlusPlus,
    sizes: Sizes,
    seed: u64,
    set_upto: f64,
    delete_upto: f64,
    drawn: u64,
}

impl SyntheticStream {
    fn new(from: &Synthetic, flash_bytes: u64, seed: u64) -> Result<Self, WorkloadError> {
        let sizes = from.size.sizes(1)?;
        let items = from.working_set * flash_bytes as f64 / sizes.mean();
        if !(1.0..=1e12).contains(&items) {
            return Err(WorkloadError::new(format!(
                "a working set of {} times the flash is {items} objects",
                from.working_set
            )));
        }
        let shares = [from.sets, from.deletes, 1.0 - from.sets - from.deletes];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err(WorkloadError::new(
                "sets and deletes must be shares that do not exceed 1 together",
            ));
        }
        Ok(SyntheticStream {
            ids: Workload::new(&WorkloadSpec {
                distribution: from.distribution.clone(),
                items: items as u64,
                seed,
            })?,
            rng: Xoshiro256PlusPlus::seed_from_u64(mix(seed)),
            sizes,
            seed,
            set_upto: from.sets,
            delete_upto: from.sets + from.deletes,
            drawn: 0,
        })
    }

    /// The next request.
    pub fn draw(&mut self) -> Draw {
        let hash = KeyHash(mix(self.ids.next_id() ^ mix(self.seed)));
        let point: f64 = self.rng.random();
        let op = match point {
            point if point < self.set_upto => Op::Put,
            point if point < self.delete_upto => Op::Delete,
            _ => Op::Get,
        };
        self.drawn += 1;
        Draw {
            hash,
            op,
            bytes: self.sizes.of(hash),
            ttl_seconds: 0,
            now_seconds: 1 + (self.drawn / REQUESTS_PER_SECOND) as u32,
        }
    }
}
