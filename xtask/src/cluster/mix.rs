//! The operations of clients: a synthetic mix on a few keys, or one of recorded traces.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::body::CELL_BYTES;
use crate::project;

/// The protocol of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Sets, gets and deletes.
    Memcached,
    /// PUTs and GETs of objects, which never disappear.
    S3,
}

/// Keys of the synthetic mix. Those of the recorded one follow.
pub(super) const KEYS: usize = 300;

/// Cells of a value of the synthetic mix.
const CELLS: u32 = 8;

/// All cells of a value.
const WHOLE: Range<u32> = 0..u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    /// Reads several keys by one command.
    ReadMany,
    Write,
    /// Replaces a value by another one, if it is still the newest.
    Exchange,
    Delete,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) key: usize,
    /// Of a value that is written.
    pub(super) cells: u32,
    /// The cells to read.
    pub(super) range: Range<u32>,
    /// A read that misses is followed by a write, as with clients of a real cache.
    pub(super) fills: bool,
}

/// The operations of one client.
pub(super) struct Steps<'a> {
    recorded: Option<&'a Recorded>,
    protocol: Protocol,
    rng: Xoshiro256PlusPlus,
    /// The next request of the trace.
    place: usize,
}

impl<'a> Steps<'a> {
    /// The recorded mix from any place on, or the synthetic one.
    pub(super) fn new(recorded: Option<&'a Recorded>, protocol: Protocol, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let place = recorded.map_or(0, |mix| rng.random_range(0..mix.requests.len()));
        Steps {
            recorded,
            protocol,
            rng,
            place,
        }
    }

    pub(super) fn next(&mut self) -> Step {
        match self.recorded {
            Some(recorded) => {
                let step = recorded.step(self.place, &mut self.rng);
                self.place = (self.place + 1) % recorded.requests.len();
                step
            }
            None => self.synthetic(),
        }
    }

    fn synthetic(&mut self) -> Step {
        // A few keys are hot, as in real loads.
        let key = match self.rng.random_ratio(1, 2) {
            true => self.rng.random_range(0..KEYS / 10),
            false => self.rng.random_range(0..KEYS),
        };
        let is_memcached = self.protocol == Protocol::Memcached;
        let action = match self.rng.random_range(0..10) {
            0 if is_memcached => Action::Exchange,
            0..3 => Action::Write,
            3 if is_memcached => Action::Delete,
            4 if is_memcached => Action::ReadMany,
            _ => Action::Read,
        };
        Step {
            action,
            key,
            cells: CELLS,
            range: WHOLE,
            fills: false,
        }
    }
}

/// A mix of operations of public traces.
pub(super) struct Recorded {
    /// Keys and ranges in the order of the trace.
    requests: Vec<(usize, Range<u32>)>,
    /// Drawn with equal chances.
    actions: Vec<Action>,
    sizes: Sizes,
    keys: usize,
}

/// Cells of values.
enum Sizes {
    /// Drawn with equal chances.
    Drawn(Vec<u32>),
    OfKey(Vec<u32>),
}

impl Recorded {
    /// Keys of the trace.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    fn step(&self, place: usize, rng: &mut Xoshiro256PlusPlus) -> Step {
        let (key, range) = self.requests[place].clone();
        let cells = match &self.sizes {
            Sizes::Drawn(sizes) => sizes[rng.random_range(0..sizes.len())],
            Sizes::OfKey(sizes) => sizes[key],
        };
        Step {
            action: self.actions[rng.random_range(0..self.actions.len())],
            key: KEYS + key,
            cells,
            range,
            fills: true,
        }
    }
}

/// The recorded mixes of both protocols.
pub(super) struct Mixes {
    memcached: Recorded,
    s3: Recorded,
}

/// Keys in the order of a web shop's requests.
const KEY_TRACE: &str = "kv_cache2k_web/web07.trace.zst";
/// Operations and sizes of a key-value cache.
const OPERATION_TRACE: &str = "kv_meta_kvcache_head/kv_traces_1.csv.zst";
/// Objects, sizes and ranges of a content delivery network.
const OBJECT_TRACE: &str = "obj_meta_bigcache/short_bigcache_traces.csv.zst";

/// Sizes and ranges of [`OBJECT_TRACE`] are divided by it, since its objects are videos.
const OBJECT_SCALE: u64 = 64;

/// [`OBJECT_TRACE`] has no writes: one request of so many is one.
const READS_OF_A_WRITE: usize = 9;

impl Mixes {
    /// The mixes, if the traces are there: in `$FLOE_TRACES`, or in `../shared/traces` beside the
    /// workspace.
    pub(super) fn load() -> Result<Self> {
        let folder = folder();
        let read = |trace| unpacked(&folder, trace);
        Ok(Mixes {
            memcached: memcached(&read(KEY_TRACE)?, &read(OPERATION_TRACE)?)?,
            s3: s3(&read(OBJECT_TRACE)?)?,
        })
    }

    /// # Errors
    /// There are no traces.
    pub(super) fn check() -> Result<()> {
        let traces = [KEY_TRACE, OPERATION_TRACE, OBJECT_TRACE];
        let are_there = traces.iter().all(|trace| folder().join(trace).is_file());
        ensure!(are_there, "no traces; set FLOE_TRACES to their folder");
        Ok(())
    }

    pub(super) fn of(&self, protocol: Protocol) -> &Recorded {
        match protocol {
            Protocol::Memcached => &self.memcached,
            Protocol::S3 => &self.s3,
        }
    }
}

fn folder() -> PathBuf {
    let folder = std::env::var_os("FLOE_TRACES").map(PathBuf::from);
    folder.unwrap_or_else(|| project::root().join("../shared/traces"))
}

fn unpacked(folder: &Path, trace: &str) -> Result<Vec<u8>> {
    let path = folder.join(trace);
    let read = || zstd::decode_all(File::open(&path)?);
    read().with_context(|| path.display().to_string())
}

/// Keys are 32-bit numbers in big-endian order; operations are lines
/// `op_time,key,key_size,op,op_count,size,…`.
fn memcached(keys: &[u8], operations: &[u8]) -> Result<Recorded> {
    let mut names = Names::default();
    let numbers = keys.chunks_exact(4).map(|number| names.number(number));
    let requests = numbers.map(|key| (key, WHOLE)).collect();
    let mut actions = Vec::new();
    let mut sizes = Vec::new();
    for fields in lines(operations)? {
        let action = match fields.get(3).copied() {
            Some("GET" | "GET_LEASE") => Action::Read,
            Some("SET" | "SET_LEASE") => Action::Write,
            Some("DELETE") => Action::Delete,
            other => anyhow::bail!("an operation {other:?}"),
        };
        let count = number(&fields, 4)? as usize;
        actions.extend(std::iter::repeat_n(action, count));
        // 0 is a miss.
        if let bytes @ 1.. = number(&fields, 5)? {
            sizes.extend(std::iter::repeat_n(cells(bytes), count));
        }
    }
    ensure!(!actions.is_empty() && !sizes.is_empty(), "no operations");
    Ok(Recorded {
        requests,
        actions,
        sizes: Sizes::Drawn(sizes),
        keys: names.0.len(),
    })
}

/// Lines `timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,…`.
fn s3(text: &[u8]) -> Result<Recorded> {
    let mut names = Names::default();
    let mut requests = Vec::new();
    let mut sizes = Vec::new();
    for fields in lines(text)? {
        let name = fields.get(1).context("a line without a key")?;
        let key = names.number(name.as_bytes());
        sizes.resize(names.0.len(), 1);
        let size = known(&fields, 3)?.unwrap_or(0);
        sizes[key] = sizes[key].max(cells(size / OBJECT_SCALE));
        let range = match (known(&fields, 6)?, known(&fields, 7)?) {
            (Some(first), Some(last)) => {
                let bytes = (last + 1).saturating_sub(first);
                let first = (first / OBJECT_SCALE / CELL_BYTES as u64) as u32;
                let range = first..first + cells(bytes / OBJECT_SCALE);
                // Some sizes are unknown.
                sizes[key] = sizes[key].max(range.end);
                range
            }
            _ => WHOLE,
        };
        requests.push((key, range));
    }
    let mut actions = vec![Action::Read; READS_OF_A_WRITE];
    actions.push(Action::Write);
    ensure!(!requests.is_empty(), "no requests");
    Ok(Recorded {
        requests,
        actions,
        sizes: Sizes::OfKey(sizes),
        keys: names.0.len(),
    })
}

/// At least one.
fn cells(bytes: u64) -> u32 {
    (bytes as usize).div_ceil(CELL_BYTES).max(1) as u32
}

/// The fields of each line after the first one, which names them.
fn lines(text: &[u8]) -> Result<Vec<Vec<&str>>> {
    let lines = std::str::from_utf8(text)?.lines().skip(1);
    Ok(lines.map(|line| line.split(',').collect()).collect())
}

fn number(fields: &[&str], index: usize) -> Result<u64> {
    let field = fields.get(index).context("a short line")?;
    field
        .parse()
        .with_context(|| format!("field {index}: {field}"))
}

/// A number, unless it is -1.
fn known(fields: &[&str], index: usize) -> Result<Option<u64>> {
    match fields.get(index) {
        Some(&"-1") => Ok(None),
        _ => number(fields, index).map(Some),
    }
}

/// Numbers for keys, in the order of their first requests.
#[derive(Default)]
struct Names<'a>(HashMap<&'a [u8], usize>);

impl<'a> Names<'a> {
    fn number(&mut self, name: &'a [u8]) -> usize {
        let next = self.0.len();
        *self.0.entry(name).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, stderr};

    use super::*;

    #[test]
    fn operations_and_sizes_are_drawn_as_often_as_recorded() {
        let keys = [1u32, 2, 1].map(u32::to_be_bytes).concat();
        let text = "op_time,key,key_size,op,op_count,size\n1,a,1,GET,3,100\n1,b,1,SET,1,0\n";
        let mix = memcached(&keys, text.as_bytes()).unwrap();
        assert_eq!(mix.keys(), 2);
        let order: Vec<usize> = mix.requests.iter().map(|(key, _)| *key).collect();
        assert_eq!(order, [0, 1, 0]);
        assert_eq!(mix.actions[..3], [Action::Read; 3]);
        assert_eq!(mix.actions[3..], [Action::Write]);
        assert!(matches!(&mix.sizes, Sizes::Drawn(sizes) if *sizes == [7; 3]));
    }

    #[test]
    fn ranges_lie_in_their_objects() {
        let scale = OBJECT_SCALE * CELL_BYTES as u64;
        let line = format!(
            "1,a,1,{},0,0,{},{},0,0",
            9 * scale,
            2 * scale,
            4 * scale - 1
        );
        let text = format!("names\n{line}\n2,a,1,{},0,0,-1,-1,0,0\n", 9 * scale);
        let mix = s3(text.as_bytes()).unwrap();
        assert_eq!(mix.requests, [(0, 2..4), (0, WHOLE)]);
        assert!(matches!(&mix.sizes, Sizes::OfKey(sizes) if *sizes == [9]));
    }

    #[test]
    fn the_traces_are_read() {
        if let Err(error) = Mixes::check() {
            // Past the test harness, which hides what passing tests print.
            let _ = writeln!(stderr(), "skipped: {error:#}");
            return;
        }
        let mixes = Mixes::load().unwrap();
        let memcached = mixes.of(Protocol::Memcached);
        assert_eq!(
            (memcached.requests.len(), memcached.keys()),
            (76_118, 20_484)
        );
        assert!(memcached.actions.contains(&Action::Delete));
        let s3 = mixes.of(Protocol::S3);
        assert_eq!((s3.requests.len(), s3.keys()), (9_999, 3_125));
        let Sizes::OfKey(sizes) = &s3.sizes else {
            unreachable!("sizes of objects are recorded");
        };
        for (key, range) in s3.requests.iter().filter(|(_, range)| *range != WHOLE) {
            assert!(range.start < range.end && range.end <= sizes[*key]);
        }
    }
}
