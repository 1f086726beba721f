//! Items, and the buffers that they are gathered in.

use bytes::{Bytes, BytesMut};

use super::expiry::Expiry;

/// An item that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The client's flags, not interpreted.
    pub flags: u32,
    /// Unique among all versions of all items, and larger than that of
    /// whatever was stored before; memcached calls it CAS.
    pub version: u64,
    /// When it ends, in seconds since 1970; 0 is never.
    pub expiry_unix_s: u32,
    /// Marks of the protocol against stampedes.
    pub state: ItemState,
    /// The bytes.
    pub value: Bytes,
}

/// Marks against stampedes: who may refill an item that is stale or about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemState {
    /// It was marked as stale, and is served until somebody replaces it.
    pub is_stale: bool,
    /// Somebody was told to replace it.
    pub is_claimed: bool,
}

/// An item to store.
#[derive(Debug)]
pub struct NewItem {
    /// The client's flags.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Marks against stampedes.
    pub state: ItemState,
    /// The bytes.
    pub value: ItemBuffer,
}

impl NewItem {
    /// An item without flags that never ends.
    pub fn new(value: ItemBuffer) -> Self {
        NewItem {
            flags: 0,
            expiry: Expiry::Never,
            state: ItemState::default(),
            value,
        }
    }

    /// A copy of `item`, to change and store again.
    pub fn copy_of(item: &Item) -> Self {
        NewItem {
            flags: item.flags,
            expiry: Expiry::from_unix(item.expiry_unix_s),
            state: item.state,
            value: ItemBuffer::from(&item.value[..]),
        }
    }
}

/// Bytes of the longest head: form, version, flags, expiry.
pub(super) const HEAD_BYTES_MAX: usize = 1 + 8 + 4 + 4;

/// An item's bytes being gathered, with room for the head in front, so that
/// they are copied once at most on their way to the store.
#[derive(Debug)]
pub struct ItemBuffer {
    /// Room for the head, then the bytes.
    pub(super) bytes: BytesMut,
    len: usize,
    /// Bytes that there is room for; at most `len`.
    limit: usize,
}

impl ItemBuffer {
    /// A buffer for `len` bytes.
    pub fn new(len: usize) -> Self {
        Self::growing(len, len)
    }

    /// A buffer for `len` bytes of which the first `room` may come now:
    /// [`grow`](ItemBuffer::grow) makes room for more.
    pub fn growing(len: usize, room: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES_MAX + room.min(len));
        bytes.resize(HEAD_BYTES_MAX, 0);
        ItemBuffer {
            bytes,
            len,
            limit: room.min(len),
        }
    }

    /// Bytes that are still missing.
    pub fn missing(&self) -> usize {
        self.len - self.bytes().len()
    }

    /// Bytes that may come before the buffer must [`grow`](ItemBuffer::grow).
    pub fn room(&self) -> usize {
        self.limit - self.bytes().len()
    }

    /// Makes room for `more` bytes, and for no byte besides.
    pub fn grow(&mut self, more: usize) {
        self.limit = self.limit.saturating_add(more).min(self.len);
        // `reserve` would take up to twice as much.
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES_MAX + self.limit);
        bytes.extend_from_slice(&self.bytes);
        self.bytes = bytes;
    }

    /// Adds bytes; what exceeds the room is left, and the number of bytes
    /// taken returned.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Where the next bytes may be put directly: give it to a reader that
    /// fills what [`room`](ItemBuffer::room) says at most.
    pub fn rest(&mut self) -> bytes::buf::Limit<&mut BytesMut> {
        let room = self.room();
        bytes::BufMut::limit(&mut self.bytes, room)
    }

    /// What was gathered so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[HEAD_BYTES_MAX..]
    }
}

impl From<&[u8]> for ItemBuffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = ItemBuffer::new(bytes.len());
        buffer.fill(bytes);
        buffer
    }
}
