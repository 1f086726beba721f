//! A zone's bytes with made-up content elided: what an emulated origin made up
//! is kept as the number it follows from, everything else as it is.

use std::collections::BTreeMap;

use floe_core::content::MadeUp;

/// Made-up bytes are looked for in pieces of this many bytes, once in each.
const PROBE_BYTES: usize = 2048;
/// Shorter runs of made-up bytes are kept as they are: an entry would not be
/// smaller by much.
const RUN_BYTES_MIN: usize = 512;
const WORD: usize = 8;

/// Bytes by where they begin; zeros in between. Spans do not overlap.
#[derive(Default)]
pub(super) struct Spans(BTreeMap<u64, Span>);

struct Span {
    len: u64,
    bytes: Bytes,
}

enum Bytes {
    Kept(Box<[u8]>),
    /// From byte `skip` (less than a word) of a stream.
    MadeUp(MadeUp, u64),
}

impl Spans {
    /// Fills `buf` with what begins at `offset`.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        let first = self.0.range(..=offset).next_back();
        let first = first.filter(|(start, span)| *start + span.len > offset);
        let from = first.map_or(offset, |(start, _)| *start);
        let mut at = offset;
        for (&start, span) in self.0.range(from..end) {
            let (begin, stop) = (start.max(offset), (start + span.len).min(end));
            buf[(at - offset) as usize..(begin - offset) as usize].fill(0);
            let part = &mut buf[(begin - offset) as usize..(stop - offset) as usize];
            span.read(begin - start, part);
            at = stop;
        }
        buf[(at - offset) as usize..].fill(0);
    }

    /// Replaces what begins at `offset` by `data`.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        self.cut(offset, offset + data.len() as u64);
        let mut kept = 0;
        let mut at = 0;
        while let Some(run) = next_run(data, at, kept) {
            self.keep(offset, &data[kept..run.start], kept);
            let stream = Bytes::MadeUp(run.stream, run.skip);
            self.insert(offset + run.start as u64, run.end - run.start, stream);
            (kept, at) = (run.end, run.end);
        }
        self.keep(offset, &data[kept..], kept);
    }

    fn keep(&mut self, offset: u64, bytes: &[u8], at: usize) {
        if bytes.iter().any(|byte| *byte != 0) {
            self.insert(offset + at as u64, bytes.len(), Bytes::Kept(bytes.into()));
        }
    }

    fn insert(&mut self, start: u64, len: usize, bytes: Bytes) {
        let len = len as u64;
        // Appends continue each other's streams.
        if let Bytes::MadeUp(stream, skip) = &bytes
            && let Some((before, span)) = self.0.range_mut(..start).next_back()
            && before + span.len == start
            && span.is_continued_by(stream, *skip)
        {
            span.len += len;
            return;
        }
        self.0.insert(start, Span { len, bytes });
    }

    /// Forgets what lies from `start` to `end`.
    fn cut(&mut self, start: u64, end: u64) {
        if let Some((&before, span)) = self.0.range_mut(..start).next_back() {
            let rest = (before + span.len).saturating_sub(end);
            let tail = (rest > 0).then(|| span.part(end - before, rest));
            if before + span.len > start {
                *span = span.part(0, start - before);
            }
            if let Some(tail) = tail {
                self.0.insert(end, tail);
            }
        }
        while let Some((&inside, span)) = self.0.range(start..end).next() {
            let rest = (inside + span.len).saturating_sub(end);
            let tail = (rest > 0).then(|| span.part(end - inside, rest));
            self.0.remove(&inside);
            if let Some(tail) = tail {
                self.0.insert(end, tail);
            }
        }
    }
}

impl Span {
    fn read(&self, from: u64, part: &mut [u8]) {
        match &self.bytes {
            Bytes::Kept(bytes) => {
                let from = from as usize;
                part.copy_from_slice(&bytes[from..from + part.len()]);
            }
            Bytes::MadeUp(stream, skip) => stream.fill(skip + from, part),
        }
    }

    fn part(&self, from: u64, len: u64) -> Span {
        let bytes = match &self.bytes {
            Bytes::Kept(bytes) => Bytes::Kept(bytes[from as usize..(from + len) as usize].into()),
            Bytes::MadeUp(stream, skip) => {
                let position = skip + from;
                let word = (position / WORD as u64) as i64;
                Bytes::MadeUp(stream.shifted(word), position % WORD as u64)
            }
        };
        Span { len, bytes }
    }

    fn is_continued_by(&self, stream: &MadeUp, skip: u64) -> bool {
        let Bytes::MadeUp(own, own_skip) = &self.bytes else {
            return false;
        };
        let position = own_skip + self.len;
        let word = (position / WORD as u64) as i64;
        position % WORD as u64 == skip && own.shifted(word) == *stream
    }
}

/// Made-up bytes in a piece of data.
struct Run {
    start: usize,
    end: usize,
    stream: MadeUp,
    /// Byte of the stream's first word that `start` is.
    skip: u64,
}

/// The first run that is found from `at` on; it begins at `floor` or later.
fn next_run(data: &[u8], mut at: usize, floor: usize) -> Option<Run> {
    while at < data.len() {
        // Wherever in a word the probe falls, a word begins within the next eight bytes.
        for begin in at..at + WORD {
            let Some(stream) = data.get(begin..).and_then(MadeUp::recognise) else {
                continue;
            };
            let run = grow(data, begin, stream, floor);
            if run.end - run.start >= RUN_BYTES_MIN {
                return Some(run);
            }
        }
        at = (at / PROBE_BYTES + 1) * PROBE_BYTES;
    }
    None
}

/// The run around `begin`, where a word of `stream` begins.
fn grow(data: &[u8], begin: usize, stream: MadeUp, floor: usize) -> Run {
    let end = begin + stream.agreement(0, &data[begin..]);
    let mut words = 0;
    let mut start = begin;
    while start >= floor + WORD {
        let earlier = stream.shifted(-(words + 1));
        if earlier.agreement(0, &data[start - WORD..start]) < WORD {
            break;
        }
        words += 1;
        start -= WORD;
    }
    // Of the word before, the end may still be the stream's.
    let mut word = [0; WORD];
    stream.shifted(-(words + 1)).fill(0, &mut word);
    let room = (start - floor).min(WORD - 1);
    let before = data[start - room..start].iter().rev();
    let more = before
        .zip(word.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    match more {
        0 => Run {
            start,
            end,
            stream: stream.shifted(-words),
            skip: 0,
        },
        more => Run {
            start: start - more,
            end,
            stream: stream.shifted(-(words + 1)),
            skip: (WORD - more) as u64,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZONE: usize = 64 << 10;

    #[derive(Clone, Debug)]
    struct Write {
        offset: usize,
        parts: Vec<Part>,
    }

    #[derive(Clone, Debug)]
    enum Part {
        Zeros(usize),
        Noise(Vec<u8>),
        Stream { seed: u64, offset: u64, len: usize },
    }

    impl Write {
        fn bytes(&self) -> Vec<u8> {
            let mut bytes = Vec::new();
            for part in &self.parts {
                match part {
                    Part::Zeros(len) => bytes.resize(bytes.len() + len, 0),
                    Part::Noise(noise) => bytes.extend(noise),
                    Part::Stream { seed, offset, len } => {
                        let at = bytes.len();
                        bytes.resize(at + len, 0);
                        MadeUp::new(*seed).fill(*offset, &mut bytes[at..]);
                    }
                }
            }
            bytes.truncate(ZONE - self.offset);
            bytes
        }
    }

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            (0usize..5000).prop_map(Part::Zeros),
            proptest::collection::vec(any::<u8>(), 0..3000).prop_map(Part::Noise),
            (0u64..3, 0u64..5000, 0usize..20_000)
                .prop_map(|(seed, offset, len)| { Part::Stream { seed, offset, len } }),
        ]
    }

    fn write() -> impl Strategy<Value = Write> {
        let parts = proptest::collection::vec(part(), 1..6);
        (0..ZONE, parts).prop_map(|(offset, parts)| Write { offset, parts })
    }

    proptest! {
        #[test]
        fn it_reads_as_it_was_written(writes in proptest::collection::vec(write(), 1..12), reads in proptest::collection::vec((0..ZONE, 0..ZONE), 8)) {
            let mut model = vec![0; ZONE];
            let mut spans = Spans::default();
            for write in writes {
                let bytes = write.bytes();
                model[write.offset..write.offset + bytes.len()].copy_from_slice(&bytes);
                spans.write(write.offset as u64, &bytes);
            }
            for (from, len) in reads.into_iter().chain([(0, ZONE)]) {
                let mut buf = vec![0xaa; len.min(ZONE - from)];
                spans.read(from as u64, &mut buf);
                prop_assert_eq!(&buf[..], &model[from..from + buf.len()]);
            }
        }
    }

    #[test]
    fn made_up_bytes_take_no_space() {
        let mut spans = Spans::default();
        let mut record = vec![0; 1 << 20];
        record[..100].fill(7);
        MadeUp::new(3).fill(11, &mut record[100..1 << 19]);
        MadeUp::new(4).fill(0, &mut record[1 << 19..]);
        spans.write(4096, &record[..100_000]);
        spans.write(4096 + 100_000, &record[100_000..]);
        assert_eq!(spans.0.len(), 3, "a header and two runs");
        let kept: u64 = spans
            .0
            .values()
            .map(|span| match span.bytes {
                Bytes::Kept(_) => span.len,
                Bytes::MadeUp(..) => 0,
            })
            .sum();
        assert_eq!(kept, 100);
        let mut back = vec![0; 1 << 20];
        spans.read(4096, &mut back);
        assert!(back == record);
    }
}
