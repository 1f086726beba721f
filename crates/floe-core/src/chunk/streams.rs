//! Decides when a large value may stream in.
//!
//! Room on flash is reserved for the whole value when its first piece is
//! written, and is of no use until the value is complete. If flash is the
//! bottleneck, more streams write no faster and only hold more of the cache
//! empty. If sources are slow, more streams keep flash busy. So a stream begins
//! if reservations are a small share of the cache and fit the write buffer, or
//! if the device has little to write. Streams that shared the buffer piece by
//! piece would interleave on flash, and a drive that collects garbage would
//! move more. A stalled source sends nothing to the device. It keeps no other
//! stream from starting, up to the share of the cache that may be reserved.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Tick;

/// Part of the cache that may always be reserved: 1/64.
const SHARE_FREELY: u64 = 64;
/// Part of the cache that may be reserved at most: 1/4.
const SHARE_MOST: u64 = 4;
/// Pieces in flight below which the device has little to write.
const FEW_PIECES: u64 = 8;
/// Time for which a stream counts as busy while it waits for its source.
const PATIENCE: Duration = Duration::from_millis(100);

/// Identifies a running stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// A stream may not begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// When to try again, unless a write completes or a stream ends before.
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
    /// The time since which the stream waits for its source, if it does.
    idle_since: Option<Tick>,
    has_sent: bool,
}

impl Stream {
    /// The time until which the stream counts as busy; `None` if only an event
    /// can change that.
    fn busy_until(&self) -> Option<Tick> {
        self.idle_since.map(|since| since + PATIENCE)
    }
}

impl Streams {
    /// No streams, for a cache of `capacity_bytes` that writes pieces of
    /// `piece_bytes` from a buffer of `buffer_bytes`.
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

    /// Begins a stream of `bytes` in total, which must be [ended](Self::end).
    ///
    /// # Errors
    /// [`Backoff`] while running streams keep the device busy or hold too much
    /// of the cache. Never if none runs.
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
            // A stream that has just begun will send its first piece soon.
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

    /// A stream has sent `bytes` to the device.
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

    /// Marks the stream as waiting for its source as of `now`. Its writes in
    /// flight finish meanwhile, so it counts as busy only for a while.
    pub fn idle(&mut self, stream: StreamId, now: Tick) {
        if let Some(stream) = self.running.get_mut(&stream) {
            stream.idle_since = Some(now);
        }
    }

    /// The stream's source has delivered data.
    pub fn busy(&mut self, stream: StreamId) {
        if let Some(stream) = self.running.get_mut(&stream) {
            stream.idle_since = None;
        }
    }

    /// Ends a stream of `bytes`, whether it succeeded or failed.
    pub fn end(&mut self, stream: StreamId, bytes: u64) {
        if self.running.remove(&stream).is_some() {
            self.promised_bytes = self.promised_bytes.saturating_sub(bytes);
        }
    }

    /// Bytes that are reserved for streams.
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
    fn a_busy_device_limits_reservations_to_a_share_of_the_cache() {
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
    fn a_busy_device_takes_streams_that_fit_the_buffer() {
        let mut streams = Streams::new(6400 * MIB, 40 * MIB, MIB);
        let mut running = 0;
        while let Ok(id) = streams.begin(10 * MIB, at(0)) {
            streams.sent(id, 3 * MIB);
            running += 1;
        }
        assert_eq!(running, 4);
    }

    #[test]
    fn stalled_sources_block_no_other_stream() {
        let mut streams = streams();
        let mut begun = 0;
        for step in 0..100 {
            while let Ok(id) = streams.begin(10 * MIB, at(step * 100)) {
                // Some streams have sent pieces that are not written yet.
                if begun % 2 == 0 {
                    streams.sent(id, 3 * MIB);
                }
                streams.idle(id, at(step * 100));
                begun += 1;
            }
        }
        assert_eq!(begun, 160, "until a quarter of the cache is reserved");
        assert_eq!(
            streams.begin(10 * MIB, at(10_000)),
            Err(Backoff { retry_at: None })
        );
    }

    #[test]
    fn backoff_has_the_time_to_retry() {
        let mut streams = streams();
        let rejected = loop {
            match streams.begin(10 * MIB, at(5)) {
                Ok(id) => streams.idle(id, at(5)),
                Err(rejected) => break rejected,
            }
        };
        assert_eq!(rejected.retry_at, Some(at(105)));
        assert!(streams.begin(10 * MIB, at(105)).is_ok());
    }

    #[test]
    fn a_single_stream_may_always_run() {
        let mut streams = Streams::new(MIB, MIB, MIB);
        let id = streams.begin(100 * MIB, at(0)).expect("the only one");
        assert!(streams.begin(MIB, at(0)).is_err());
        streams.end(id, 100 * MIB);
        assert!(streams.begin(100 * MIB, at(0)).is_ok());
    }

    proptest::proptest! {
        /// Reservations always equal the running streams' bytes, stay within
        /// the bound, and are zero once all have ended.
        #[test]
        fn reservations_equal_the_running_streams(
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
