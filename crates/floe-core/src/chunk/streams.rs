//! The choice of large values that may stream in.
//!
//! A large value's room is promised when its first piece is written, and what
//! is promised is no use to anybody until the value is whole. Where the flash
//! is the limit, more streams at once write no faster and only hold more of
//! the cache empty; where the sources are slow, more streams at once are what
//! keeps the flash busy. So a stream begins if what is promised is a small
//! share of the cache and fits the write buffer, or if the device has little to
//! write. Streams that have to share the buffer piece by piece would land piece by
//! piece among each other, and a drive that collects garbage would have more to move. Sources that
//! stand still send nothing to the device, and so keep no other out, up to the
//! share of the cache that may be promised in all.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Tick;

/// Part of the cache that may be promised without further ado: 1/64.
const SHARE_FREELY: u64 = 64;
/// Part of the cache that may be promised at all: 1/4.
const SHARE_MOST: u64 = 4;
/// Pieces in flight below which the device has little to write.
const FEW_PIECES: u64 = 8;
/// How long a stream counts as busy that waits for its source.
const PATIENCE: Duration = Duration::from_millis(100);

/// A stream that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// Why a stream may not begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// When to ask again, if nothing was written and no stream ended until then.
    pub retry_at: Option<Tick>,
}

/// The large values that are streaming in.
#[derive(Debug)]
pub struct Streams {
    freely_bytes: u64,
    most_bytes: u64,
    piece_bytes: u64,
    promised_bytes: u64,
    next: u64,
    running: BTreeMap<StreamId, Stream>,
}

#[derive(Debug)]
struct Stream {
    in_flight_bytes: u64,
    /// Since when it waits for its source, if it does.
    idle_since: Option<Tick>,
    has_sent: bool,
}

impl Stream {
    /// Until when it counts as busy; `None` for as long as nothing changes.
    fn busy_until(&self) -> Option<Tick> {
        self.idle_since.map(|since| since + PATIENCE)
    }
}

impl Streams {
    /// None yet, for a cache of `capacity_bytes` that writes pieces of `piece_bytes`
    /// from a buffer of `buffer_bytes`.
    pub fn new(capacity_bytes: u64, buffer_bytes: u64, piece_bytes: u64) -> Self {
        Streams {
            freely_bytes: (capacity_bytes / SHARE_FREELY).min(buffer_bytes),
            most_bytes: capacity_bytes / SHARE_MOST,
            piece_bytes,
            promised_bytes: 0,
            next: 0,
            running: BTreeMap::new(),
        }
    }

    /// Begins a stream of `bytes` in all, which must be [ended](Self::end).
    ///
    /// # Errors
    /// [`Backoff`] while the device is busy with those that run, or while they
    /// hold too much of the cache. Never while none runs.
    pub fn begin(&mut self, bytes: u64, now: Tick) -> Result<StreamId, Backoff> {
        let promised = self.promised_bytes.saturating_add(bytes);
        if !self.running.is_empty() && promised > self.freely_bytes {
            if promised > self.most_bytes {
                return Err(Backoff { retry_at: None });
            }
            self.is_device_idle(now)?;
        }
        let id = StreamId(self.next);
        self.next += 1;
        self.promised_bytes = promised;
        let stream = Stream {
            in_flight_bytes: 0,
            idle_since: None,
            has_sent: false,
        };
        self.running.insert(id, stream);
        Ok(id)
    }

    fn is_device_idle(&self, now: Tick) -> Result<(), Backoff> {
        let mut busy_bytes = 0;
        let mut retry_at: Option<Tick> = None;
        for stream in self.running.values() {
            let until = stream.busy_until();
            if until.is_some_and(|until| until <= now) {
                continue;
            }
            // One that has just begun will send its first piece any moment.
            busy_bytes += match stream.has_sent {
                true => stream.in_flight_bytes,
                false => self.piece_bytes,
            };
            retry_at = match (retry_at, until) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        match busy_bytes >= FEW_PIECES * self.piece_bytes {
            true => Err(Backoff { retry_at }),
            false => Ok(()),
        }
    }

    /// A stream has `bytes` for the device to write.
    pub fn sent(&mut self, stream: StreamId, bytes: u64) {
        if let Some(stream) = self.running.get_mut(&stream) {
            stream.has_sent = true;
            stream.in_flight_bytes += bytes;
        }
    }

    /// The device has written, or failed to write, `bytes` of a stream.
    pub fn written(&mut self, stream: StreamId, bytes: u64) {
        if let Some(stream) = self.running.get_mut(&stream) {
            stream.in_flight_bytes = stream.in_flight_bytes.saturating_sub(bytes);
        }
    }

    /// A stream waits for its source from `now` on. What it has in flight lands
    /// unseen meanwhile, so that it does not count for long.
    pub fn idle(&mut self, stream: StreamId, now: Tick) {
        if let Some(stream) = self.running.get_mut(&stream) {
            stream.idle_since = Some(now);
        }
    }

    /// A stream's source has given it something.
    pub fn busy(&mut self, stream: StreamId) {
        if let Some(stream) = self.running.get_mut(&stream) {
            stream.idle_since = None;
        }
    }

    /// A stream of `bytes` is over, well or badly.
    pub fn end(&mut self, stream: StreamId, bytes: u64) {
        if self.running.remove(&stream).is_some() {
            self.promised_bytes = self.promised_bytes.saturating_sub(bytes);
        }
    }

    /// Bytes that are promised to streams.
    pub fn promised_bytes(&self) -> u64 {
        self.promised_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn streams() -> Streams {
        Streams::new(6400 * MIB, 1000 * MIB, MIB)
    }

    fn at(ms: u64) -> Tick {
        Tick(ms * 1_000_000)
    }

    #[test]
    fn a_busy_device_lets_only_a_share_of_the_cache_be_promised() {
        let mut streams = streams();
        let mut running = Vec::new();
        while let Ok(id) = streams.begin(10 * MIB, at(0)) {
            streams.sent(id, 3 * MIB);
            running.push(id);
        }
        assert_eq!(running.len(), 10, "a 64th of the cache");
        streams.end(running[0], 10 * MIB);
        assert!(streams.begin(10 * MIB, at(0)).is_ok());
        assert!(streams.begin(10 * MIB, at(0)).is_err());
    }

    #[test]
    fn a_busy_device_gets_streams_that_the_buffer_holds_whole() {
        let mut streams = Streams::new(6400 * MIB, 40 * MIB, MIB);
        let mut running = 0;
        while let Ok(id) = streams.begin(10 * MIB, at(0)) {
            streams.sent(id, 3 * MIB);
            running += 1;
        }
        assert_eq!(running, 4);
    }

    #[test]
    fn sources_that_stand_still_keep_no_other_out() {
        let mut streams = streams();
        let mut begun = 0;
        for step in 0..100 {
            while let Ok(id) = streams.begin(10 * MIB, at(step * 100)) {
                // Some have sent pieces that are not written yet.
                if begun % 2 == 0 {
                    streams.sent(id, 3 * MIB);
                }
                streams.idle(id, at(step * 100));
                begun += 1;
            }
        }
        assert_eq!(begun, 160, "until a quarter of the cache is promised");
        assert_eq!(
            streams.begin(10 * MIB, at(10_000)),
            Err(Backoff { retry_at: None })
        );
    }

    #[test]
    fn a_stream_that_may_not_begin_learns_when_to_ask_again() {
        let mut streams = streams();
        let refused = loop {
            match streams.begin(10 * MIB, at(5)) {
                Ok(id) => streams.idle(id, at(5)),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.retry_at, Some(at(105)));
        assert!(streams.begin(10 * MIB, at(105)).is_ok());
    }

    #[test]
    fn one_stream_always_may_run() {
        let mut streams = Streams::new(MIB, MIB, MIB);
        let id = streams.begin(100 * MIB, at(0)).expect("the only one");
        assert!(streams.begin(MIB, at(0)).is_err());
        streams.end(id, 100 * MIB);
        assert!(streams.begin(100 * MIB, at(0)).is_ok());
    }

    proptest::proptest! {
        /// Whatever happens, what is promised is what runs, within the bound,
        /// and once all have ended nothing is left.
        #[test]
        fn nothing_is_promised_twice_or_forgotten(
            steps in proptest::collection::vec((0u8..4, 0usize..16, 1u64..40), 1..300)
        ) {
            let mut streams = streams();
            let mut running: Vec<(StreamId, u64, u64)> = Vec::new();
            for (now, (what, which, mib)) in steps.into_iter().enumerate() {
                let bytes = mib * MIB;
                let index = which % running.len().max(1);
                match (what, running.get_mut(index)) {
                    (0, _) | (_, None) => {
                        if let Ok(id) = streams.begin(bytes, at(now as u64 * 7)) {
                            running.push((id, bytes, 0));
                        }
                    }
                    (1, Some((id, _, in_flight))) => {
                        streams.sent(*id, MIB);
                        *in_flight += MIB;
                    }
                    (2, Some((id, _, in_flight))) if *in_flight > 0 => {
                        streams.written(*id, MIB);
                        *in_flight -= MIB;
                    }
                    _ => {
                        let (id, bytes, _) = running.swap_remove(index);
                        streams.end(id, bytes);
                    }
                }
                let promised: u64 = running.iter().map(|(_, bytes, _)| bytes).sum();
                proptest::prop_assert_eq!(streams.promised_bytes(), promised);
                proptest::prop_assert!(promised <= 1600 * MIB || running.len() == 1);
            }
            for (id, bytes, _) in running {
                streams.end(id, bytes);
            }
            proptest::prop_assert_eq!(streams.promised_bytes(), 0);
            proptest::prop_assert!(streams.running.is_empty());
        }
    }
}
