//! Owned, aligned I/O buffers.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use crate::arena::Arena;

/// Alignment of every buffer: a page, which is enough for O_DIRECT on any block size up to 4 KiB.
pub const ALIGNMENT: usize = 4096;

/// A uniquely owned, page-aligned buffer.
pub struct IoBuf {
    ptr: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// The arena that owns the memory; `None` means the heap.
    arena: Option<Arc<Arena>>,
}

// SAFETY: the buffer is uniquely owned plain memory.
unsafe impl Send for IoBuf {}
// SAFETY: shared access only reads plain memory.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// A zeroed buffer of `len` bytes.
    pub fn zeroed(len: usize) -> Self {
        let capacity = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let layout =
            Layout::from_size_align(capacity, ALIGNMENT).expect("buffer size fits a layout");
        // SAFETY: the layout has a non-zero size.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else {
            handle_alloc_error(layout)
        };
        IoBuf {
            ptr,
            len,
            capacity,
            arena: None,
        }
    }

    /// A buffer of `len` bytes with stale content from `arena`, if it has any left.
    pub(crate) fn from_arena(arena: &Arc<Arena>, len: usize) -> Option<Self> {
        Some(IoBuf {
            ptr: arena.take(len)?,
            len,
            capacity: 0,
            arena: Some(Arc::clone(arena)),
        })
    }

    /// The arena that the buffer lies in, if any.
    pub(crate) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    /// A buffer holding a copy of `data`, zero-padded to `len` bytes.
    ///
    /// # Panics
    /// If `data` is longer than `len`.
    pub fn copy_of(data: &[u8], len: usize) -> Self {
        assert!(data.len() <= len, "data fits the buffer");
        let mut buf = IoBuf::zeroed(len);
        buf[..data.len()].copy_from_slice(data);
        buf
    }

    /// Makes the buffer immutable and cheap to clone.
    pub fn freeze(self) -> IoData {
        let len = self.len;
        IoData {
            buf: Arc::new(self),
            range: 0..len,
        }
    }

    /// The buffer as shared bytes, without copying.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        if let Some(arena) = &self.arena {
            // SAFETY: taken in `from_arena`, given back once.
            return unsafe { arena.give_back(self.ptr) };
        }
        let layout = Layout::from_size_align(self.capacity, ALIGNMENT)
            .expect("it was allocated with this layout");
        // SAFETY: allocated in `zeroed` with the same layout, freed once.
        unsafe { dealloc(self.ptr.as_ptr(), layout) }
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the access is unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for IoBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

/// A shared, immutable, page-aligned buffer. Writes take it, so that a failed
/// write can be retried elsewhere with the same data.
#[derive(Clone)]
pub struct IoData {
    buf: Arc<IoBuf>,
    range: Range<usize>,
}

impl IoData {
    /// The part `range` of this data, without copying.
    ///
    /// # Panics
    /// If the range does not lie inside, or does not start on a 512-byte boundary.
    pub fn slice(&self, range: Range<usize>) -> IoData {
        assert!(
            range.start <= range.end && range.end <= self.len() && range.start.is_multiple_of(512)
        );
        IoData {
            buf: Arc::clone(&self.buf),
            range: self.range.start + range.start..self.range.start + range.end,
        }
    }

    /// The data as shared bytes, without copying.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    /// The underlying buffer, and the range of this data in it.
    pub fn parts(&self) -> (&IoBuf, Range<usize>) {
        (&self.buf, self.range.clone())
    }
}

impl Deref for IoData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl AsRef<[u8]> for IoData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for IoData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoData({} bytes)", self.len())
    }
}
