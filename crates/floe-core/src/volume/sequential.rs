//! Sequential cut-off: long sequential streams go past the cache.
//!
//! A backing device is good at long sequential runs, and data that is read once in
//! a row displaces data that is reused. As in OCF, a request that continues a
//! stream of [`SequentialConfig::threshold`] bytes or more is not inserted. Sectors
//! that the cache has are still served and updated.
//!
//! Each volume has a table of [`STREAMS`] streams. A stream is known by its
//! direction and the byte that comes next; the one that has been quiet for the
//! longest is forgotten for a new one.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{ByteSize, parse_by_name};

/// Streams that are tracked at once in each volume. OCF tracks 128 per volume
/// and 64 per queue.
pub const STREAMS: usize = 64;

/// When streams are cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutOff {
    /// Never.
    Never,
    /// While the cache is full.
    #[default]
    Full,
    /// Always.
    Always,
}

parse_by_name!(CutOff);

/// The settings of the cut-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SequentialConfig {
    /// When streams are cut off. Default `full`.
    pub cut_off: CutOff,
    /// Length of a stream from which on it is cut off. Default 1 MiB.
    pub threshold: ByteSize,
}

impl Default for SequentialConfig {
    fn default() -> Self {
        SequentialConfig {
            cut_off: CutOff::default(),
            threshold: ByteSize::mib(1),
        }
    }
}

/// Detects sequential streams.
#[derive(Clone, Debug)]
pub struct Sequential {
    config: SequentialConfig,
    volumes: BTreeMap<u16, Box<Streams>>,
}

impl Sequential {
    /// Knows no stream.
    pub fn new(config: SequentialConfig) -> Self {
        Sequential {
            config,
            volumes: BTreeMap::new(),
        }
    }

    /// Notes a read or write of `bytes` of `volume`; returns whether it must not
    /// be inserted.
    pub fn cuts_off(&mut self, volume: u16, write: bool, bytes: Range<u64>, is_full: bool) -> bool {
        if self.config.cut_off == CutOff::Never {
            return false;
        }
        let streams = self.volumes.entry(volume).or_default();
        let length = streams.advance(write, bytes);
        length >= self.config.threshold.bytes()
            && (is_full || self.config.cut_off == CutOff::Always)
    }

    /// Bytes of RAM that the streams take.
    pub fn memory_bytes(&self) -> u64 {
        (self.volumes.len() * size_of::<Streams>()) as u64
    }
}

/// The streams of one volume.
#[derive(Clone, Debug)]
struct Streams {
    /// The byte that comes next, doubled; odd for writes. All bits are set where
    /// there is no stream.
    next: [u64; STREAMS],
    length_bytes: [u64; STREAMS],
    /// The number of requests when a stream last advanced.
    advanced_at: [u64; STREAMS],
    requests: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Streams {
            next: [u64::MAX; STREAMS],
            length_bytes: [0; STREAMS],
            advanced_at: [0; STREAMS],
            requests: 0,
        }
    }
}

impl Streams {
    /// Continues the stream that `bytes` follow, or begins one; returns its length.
    fn advance(&mut self, write: bool, bytes: Range<u64>) -> u64 {
        self.requests += 1;
        let key = |at: u64| at << 1 | u64::from(write);
        let stream = match self.next.iter().position(|next| *next == key(bytes.start)) {
            Some(stream) => stream,
            None => self.replace_quietest(),
        };
        self.next[stream] = key(bytes.end);
        self.length_bytes[stream] += bytes.end.saturating_sub(bytes.start);
        self.advanced_at[stream] = self.requests;
        self.length_bytes[stream]
    }

    /// Empties the stream that has been quiet for the longest.
    fn replace_quietest(&mut self) -> usize {
        let advanced_at = self.advanced_at.iter().enumerate();
        let quietest = advanced_at.min_by_key(|(_, at)| **at);
        let stream = quietest.map_or(0, |(stream, _)| stream);
        self.length_bytes[stream] = 0;
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn sequential(cut_off: CutOff) -> Sequential {
        Sequential::new(SequentialConfig {
            cut_off,
            ..SequentialConfig::default()
        })
    }

    /// The number of 64 KiB reads of one stream before the cut-off, of 32.
    fn reads_inserted(mut sequential: Sequential, is_full: bool) -> usize {
        let reads = (0..32).map(|read| read * 64 * KIB..(read + 1) * 64 * KIB);
        reads
            .filter(|bytes| !sequential.cuts_off(1, false, bytes.clone(), is_full))
            .count()
    }

    #[test]
    fn a_stream_is_cut_off_once_it_has_a_mebibyte() {
        for (cut_off, is_full, inserted) in [
            (CutOff::Never, true, 32),
            (CutOff::Full, false, 32),
            (CutOff::Full, true, 15),
            (CutOff::Always, false, 15),
        ] {
            assert_eq!(reads_inserted(sequential(cut_off), is_full), inserted);
        }
    }

    #[test]
    fn one_large_request_is_a_stream() {
        let mut sequential = sequential(CutOff::Always);
        assert!(sequential.cuts_off(1, false, 0..1024 * KIB, true));
        assert!(!sequential.cuts_off(1, false, 0..1023 * KIB, true));
    }

    #[test]
    fn streams_of_other_volumes_and_directions_are_apart() {
        let mut sequential = sequential(CutOff::Always);
        sequential.cuts_off(1, false, 0..1000 * KIB, true);
        let next = 1000 * KIB..1100 * KIB;
        assert!(!sequential.cuts_off(2, false, next.clone(), true));
        assert!(!sequential.cuts_off(1, true, next.clone(), true));
        assert!(sequential.cuts_off(1, false, next, true));
    }

    #[test]
    fn as_many_interleaved_streams_as_the_table_has_are_found() {
        for (streams, found) in [(STREAMS as u64, true), (STREAMS as u64 + 1, false)] {
            let mut sequential = sequential(CutOff::Always);
            let mut last = vec![];
            for read in 0..20 {
                let at = read * 64 * KIB;
                last = (0..streams)
                    .map(|stream| (stream << 40) + at)
                    .map(|at| sequential.cuts_off(1, false, at..at + 64 * KIB, true))
                    .collect();
            }
            assert!(last.iter().all(|cut_off| *cut_off == found), "{streams}");
        }
    }
}
