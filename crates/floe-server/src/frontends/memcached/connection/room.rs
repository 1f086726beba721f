//! The room of a connection for its next read.

use bytes::BytesMut;
use floe::limit::Held;

use crate::frontends::memcached::memory::{Memory, WIDE_READ_BYTES};

/// Bytes of one read.
pub(super) const READ_BYTES: usize = 16 << 10;

/// A client that sends as many requests in one read keeps many under way.
const MANY: usize = 16;

/// The room for the next read. The requests of one read share the cost of a wake-up, of a send,
/// and of a group of fences. So a client that fills the usual room with requests gets a wide one,
/// until a read brings little.
#[derive(Debug, Default)]
pub(super) struct Room {
    wide: Option<Held>,
    /// Bytes that the last read could bring, and brought.
    last: (usize, usize),
    /// Requests since then.
    pub(super) requests: usize,
}

impl Room {
    /// Sees to it that the next read has room behind `input`.
    pub(super) fn make(&mut self, input: &mut BytesMut, memory: &Memory) {
        let (room, len) = self.last;
        let requests = std::mem::take(&mut self.requests);
        if self.wide.is_none() && len == room && requests >= MANY {
            self.wide = memory.try_wide();
        } else if self.wide.is_some() && len < READ_BYTES / 2 {
            *input = BytesMut::from(&input[..]);
            self.wide = None;
        }
        let wanted = match self.wide {
            Some(_) => WIDE_READ_BYTES,
            None => READ_BYTES,
        };
        if input.capacity() - input.len() < wanted / 4 {
            input.reserve(wanted);
        }
        self.last = (input.capacity() - input.len(), 0);
    }

    /// Notes the bytes that the read brought.
    pub(super) fn was_used(&mut self, len: usize) {
        self.last.1 = len;
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;
    use floe_core::ByteSize;
    use floe_device::Clock;

    use super::*;
    use crate::frontends::memcached::config::MemcachedConfig;

    /// Makes room and reads up to `most` bytes of `requests` requests; returns the room.
    fn read(
        (room, input): (&mut Room, &mut BytesMut),
        memory: &Memory,
        most: usize,
        requests: usize,
    ) -> usize {
        room.make(input, memory);
        let had = input.capacity() - input.len();
        input.put_bytes(b'x', had.min(most));
        room.was_used(had.min(most));
        room.requests = requests;
        input.clear();
        had
    }

    #[test]
    fn a_client_that_sends_many_requests_gets_wide_reads_while_there_is_memory() {
        let config = MemcachedConfig {
            // An eighth of it is one wide read.
            memory: ByteSize::mib(2),
            ..MemcachedConfig::default()
        };
        let memory = Memory::new(&config, Clock::real());
        let (mut input, mut room) = (BytesMut::new(), Room::default());
        let mut next = |most, requests| read((&mut room, &mut input), &memory, most, requests);
        let usual = READ_BYTES..2 * READ_BYTES;
        assert!(usual.contains(&next(READ_BYTES - 1, MANY)));
        // It was not filled.
        assert!(usual.contains(&next(usize::MAX, 1)));
        // It was filled by a value.
        assert!(usual.contains(&next(usize::MAX, MANY)));
        assert_eq!(memory.used_bytes(), 0);
        // It was filled by requests.
        assert!(next(READ_BYTES, MANY) >= WIDE_READ_BYTES);
        assert_eq!(memory.used_bytes(), WIDE_READ_BYTES as u64);

        let (mut input, mut room) = (BytesMut::new(), Room::default());
        let mut other = |most, requests| read((&mut room, &mut input), &memory, most, requests);
        other(usize::MAX, MANY);
        assert!(usual.contains(&other(usize::MAX, MANY)), "no memory");

        assert!(next(100, 1) > READ_BYTES);
        // The last read brought little.
        assert!(usual.contains(&next(100, 1)));
        assert_eq!(memory.used_bytes(), 0);
    }
}
