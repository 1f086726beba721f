//! The room of a connection for its next read.

use bytes::BytesMut;
use floe::limit::Held;

use crate::frontends::memcached::memory::{Memory, WIDE_READ_BYTES};

/// Bytes of one read.
pub(super) const READ_BYTES: usize = 16 << 10;

/// A client that sends as many requests in one read keeps many under way.
const MANY: usize = 16;

/// The room for the next read. The requests of one read share the cost of a wake-up, of a send,
/// and of a group of fences or tombstones. So a client that fills the usual room with requests
/// gets a wide one, until a read brings little. While the client is waited for, nothing of it is
/// held.
#[derive(Debug, Default)]
pub(super) struct Room {
    wide: Option<Held>,
    is_wanted: bool,
    /// Bytes that the last read could bring, and brought.
    last: (usize, usize),
    /// Requests since then.
    pub(super) requests: usize,
}

impl Room {
    /// Sees to it that there is room behind `input` for the next read. To be called before each
    /// attempt.
    pub(super) fn make(&mut self, input: &mut BytesMut, memory: &Memory) {
        let (room, len) = self.last;
        if len < READ_BYTES / 2 {
            self.is_wanted = false;
        } else if len == room && self.requests >= MANY {
            self.is_wanted = true;
        }
        match self.is_wanted {
            true if self.wide.is_none() => self.wide = memory.try_wide(),
            true => {}
            false => self.rest(input),
        }
        let wanted = match self.wide {
            Some(_) => WIDE_READ_BYTES,
            None => READ_BYTES,
        };
        if input.capacity() - input.len() < wanted / 4 {
            // A line without an end is short, so this leaves room.
            input.reserve(wanted.saturating_sub(input.len()).max(wanted / 4));
        }
    }

    /// Gives a wide room back; the client has sent nothing.
    pub(super) fn rest(&mut self, input: &mut BytesMut) {
        if self.wide.is_some() {
            *input = BytesMut::from(&input[..]);
            self.wide = None;
        }
    }

    /// Notes the bytes that a read brought, and that it had room for.
    pub(super) fn was_used(&mut self, len: usize, room: usize) {
        self.last = (room, len);
        self.requests = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf as _, BufMut as _};
    use floe_core::ByteSize;
    use floe_device::Clock;

    use super::*;
    use crate::frontends::memcached::config::MemcachedConfig;

    /// Bytes of a request that has not arrived completely.
    const LEFT: usize = 200;

    /// Makes room and reads up to `most` bytes of `requests` requests; returns the room.
    fn read(
        (room, input): (&mut Room, &mut BytesMut),
        memory: &Memory,
        most: usize,
        requests: usize,
    ) -> usize {
        room.make(input, memory);
        let had = input.capacity() - input.len();
        assert!(input.capacity() <= WIDE_READ_BYTES, "{}", input.capacity());
        input.put_bytes(b'x', had.min(most));
        room.was_used(had.min(most), had);
        room.requests = requests;
        input.advance(input.len().saturating_sub(LEFT));
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
        let usual = READ_BYTES / 4..2 * READ_BYTES;
        let wide = WIDE_READ_BYTES / 4..WIDE_READ_BYTES + 1;
        for (most, requests, expected) in [
            (READ_BYTES / 2, MANY, &usual),
            // It was not filled.
            (usize::MAX, 1, &usual),
            // It was filled by a value.
            (usize::MAX, MANY, &usual),
            // It was filled by requests.
            (READ_BYTES, MANY, &wide),
            (usize::MAX, MANY, &wide),
        ] {
            let had = read((&mut room, &mut input), &memory, most, requests);
            assert!(expected.contains(&had), "{had}");
        }
        assert_eq!(memory.used_bytes(), WIDE_READ_BYTES as u64);

        let (mut others, mut other) = (BytesMut::new(), Room::default());
        read((&mut other, &mut others), &memory, usize::MAX, MANY);
        let had = read((&mut other, &mut others), &memory, usize::MAX, MANY);
        assert!(usual.contains(&had), "there is no memory: {had}");

        // Nothing is held while the client is waited for.
        room.rest(&mut input);
        assert_eq!((memory.used_bytes(), input.len()), (0, LEFT));
        let had = read((&mut room, &mut input), &memory, 100, 1);
        assert!(wide.contains(&had), "{had}");
        // The last read brought little.
        let had = read((&mut room, &mut input), &memory, 100, 1);
        assert!(usual.contains(&had), "{had}");
        assert_eq!(memory.used_bytes(), 0);
    }
}
