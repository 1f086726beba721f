//! Items, and the buffers that receive their bytes.

use bytes::{Bytes, BytesMut};

use super::expiry::Expiry;

/// An item in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The client's flags, opaque to the cache.
    pub flags: u32,
    /// Unique, and larger than the version of every item stored earlier;
    /// memcached calls it CAS.
    pub version: u64,
    /// The expiry in seconds since 1970; 0 is never.
    pub expiry_unix_s: u32,
    /// The protocol's marks against stampedes.
    pub state: ItemState,
    /// The value.
    pub value: Bytes,
}

/// Marks against stampedes: they choose one client to refill a stale or expiring item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemState {
    /// The item is stale, and is served until a client replaces it.
    pub is_stale: bool,
    /// A client was chosen to replace it.
    pub is_claimed: bool,
}

/// An item to store, with its bytes in a buffer of its own or elsewhere.
#[derive(Debug)]
pub struct NewItem<V = ItemBuffer> {
    /// The client's flags.
    pub flags: u32,
    /// The expiry.
    pub expiry: Expiry,
    /// Marks against stampedes.
    pub state: ItemState,
    /// The value.
    pub value: V,
}

impl NewItem {
    /// An item without flags that never expires.
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

/// A buffer that receives an item's bytes, with room for the head in front: the
/// store needs at most one copy.
#[derive(Debug)]
pub struct ItemBuffer {
    /// Room for the head, then the bytes received so far.
    pub(super) bytes: BytesMut,
    len: usize,
    /// Bytes that the buffer has room for; at most `len`.
    limit: usize,
}

impl ItemBuffer {
    /// A buffer with room for `len` bytes.
    pub fn new(len: usize) -> Self {
        Self::growing(len, len)
    }

    /// A buffer for `len` bytes with room for the first `room` of them;
    /// [`grow`](ItemBuffer::grow) adds more.
    pub fn growing(len: usize, room: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES_MAX + room.min(len));
        bytes.resize(HEAD_BYTES_MAX, 0);
        ItemBuffer {
            bytes,
            len,
            limit: room.min(len),
        }
    }

    /// Bytes that have not been received.
    pub fn missing(&self) -> usize {
        self.len - self.bytes().len()
    }

    /// Bytes that fit before the buffer must [`grow`](ItemBuffer::grow).
    pub fn room(&self) -> usize {
        self.limit - self.bytes().len()
    }

    /// Adds room for exactly `more` bytes, up to the item's length.
    pub fn grow(&mut self, more: usize) {
        self.limit = self.limit.saturating_add(more).min(self.len);
        // `reserve` might allocate twice as much.
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES_MAX + self.limit);
        bytes.extend_from_slice(&self.bytes);
        self.bytes = bytes;
    }

    /// Appends the bytes that fit, and returns their number.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// The unfilled part, up to [`room`](ItemBuffer::room) bytes, for a reader
    /// to fill directly.
    pub fn rest(&mut self) -> bytes::buf::Limit<&mut BytesMut> {
        let room = self.room();
        bytes::BufMut::limit(&mut self.bytes, room)
    }

    /// The bytes received so far.
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
