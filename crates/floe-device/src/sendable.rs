//! Memory that sockets send without a copy.
//!
//! `vmsplice` and `splice` pass its pages to a socket by reference. The kernel does not say when
//! they have been sent. So a page is written once: memory that is given back is unmapped, and
//! the next bytes at its address get other pages. Huge pages are off, because the kernel changes
//! some of their kind in place.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::Advice;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use crate::mapping::Mapping;
use crate::spans::{SPAN_BYTES, Spans};

/// Most bytes of one value.
pub const SENDABLE_MAX_BYTES: usize = SPAN_BYTES;

/// Least bytes that cost less to send without a copy than with one.
pub const SENDABLE_MIN_BYTES: usize = 48 << 10;

/// Bytes that a pipe takes at once, if the system allows it.
const PIPE_BYTES: usize = 256 << 10;

/// Places for values that are kept until their last reference is dropped.
#[derive(Debug)]
pub struct SendableMemory {
    base: NonNull<u8>,
    len: usize,
    /// Unmapped with the memory, to which all kept bytes hold a reference.
    _mapping: Mapping,
    spans: Mutex<Spans>,
    kept: AtomicUsize,
}

// SAFETY: a place has one writer, before it is read; the spans are locked.
unsafe impl Send for SendableMemory {}
// SAFETY: as above.
unsafe impl Sync for SendableMemory {}

impl SendableMemory {
    /// Places for `len` bytes, rounded up to whole MiB. A place takes no memory before it is
    /// used, and is as long as the next power of two, so `len` may exceed by far the memory
    /// that is to be used.
    ///
    /// # Errors
    /// The system has no addresses for that length, or insists on huge pages.
    pub fn new(len: usize) -> io::Result<Arc<Self>> {
        let len = len
            .max(1)
            .checked_next_multiple_of(SPAN_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::of_small_pages(len)?;
        Ok(Arc::new(SendableMemory {
            base: mapping.start(),
            len,
            _mapping: mapping,
            spans: Mutex::new(Spans::new(len)),
            kept: AtomicUsize::new(0),
        }))
    }

    /// A copy of `data` here; `None` if there is no place. An empty value or one above
    /// [`SENDABLE_MAX_BYTES`] has none.
    pub fn keep(self: &Arc<Self>, data: &[u8]) -> Option<Bytes> {
        if data.is_empty() {
            return None;
        }
        // No two places share a page: a page is given back as a whole.
        let len = data.len().max(rustix::param::page_size());
        let offset = self.spans.lock().take(len)?;
        // SAFETY: the place lies inside the mapping, is as long as `data`, which lies elsewhere,
        // and is no other value's.
        unsafe {
            let place = self.base.add(offset);
            place.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
        }
        self.kept.fetch_add(data.len(), Relaxed);
        Some(Bytes::from_owner(Kept {
            memory: Arc::clone(self),
            offset,
            len: data.len(),
        }))
    }

    /// Bytes that are kept now.
    pub fn kept_bytes(&self) -> usize {
        self.kept.load(Relaxed)
    }

    /// True if `bytes` were kept here.
    pub fn has(&self, bytes: &[u8]) -> bool {
        let offset = (bytes.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize);
        offset < self.len && bytes.len() <= self.len - offset
    }

    /// Sends some of `bytes`, which were kept here, to a non-blocking stream socket, and returns
    /// how many. `more` says that other bytes follow at once. A process that does not ignore
    /// SIGPIPE, as programs in Rust do, gets it if the peer has closed the connection.
    ///
    /// # Errors
    /// Those of the socket, [`io::ErrorKind::WouldBlock`] among them; the bytes were not kept
    /// here; or the system has no pipe.
    pub fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> io::Result<usize> {
        if !self.has(bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        PIPE.with_borrow_mut(|pipe| {
            let sent = match pipe {
                Some(pipe) => pipe.pass(socket, bytes, more),
                None => pipe.insert(Pipe::new()?).pass(socket, bytes, more),
            };
            // A pipe that still has pages is closed.
            let (sent, is_empty) = sent;
            if !is_empty {
                *pipe = None;
            }
            sent
        })
    }
}

/// A place with bytes.
struct Kept {
    memory: Arc<SendableMemory>,
    offset: usize,
    len: usize,
}

impl Kept {
    fn start(&self) -> NonNull<u8> {
        // SAFETY: the place lies inside the mapping.
        unsafe { self.memory.base.add(self.offset) }
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the place was written by `keep`, and nothing writes to it before it is given
        // back, which needs exclusive access to `self`.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.memory.kept.fetch_sub(self.len, Relaxed);
        // SAFETY: the place is of no use to anyone else, and its bytes to no one.
        let unmapped = unsafe {
            let start = self.start().as_ptr().cast();
            rustix::mm::madvise(start, self.len, Advice::LinuxDontNeed)
        };
        match unmapped {
            Ok(()) => self.memory.spans.lock().give_back(self.offset),
            // A socket may still have its pages: the place is never used again.
            Err(error) => tracing::warn!(%error, "a part of the RAM tier's memory is lost"),
        }
    }
}

thread_local! {
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

/// The way of pages from memory to a socket. It is empty between calls.
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if let Err(error) = rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES) {
            tracing::debug!(%error, "large values are sent in smaller parts");
        }
        Ok(Pipe { out, into })
    }

    /// Passes some of `bytes` to `socket`. Also returns true if the pipe is empty.
    fn pass(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> (io::Result<usize>, bool) {
        let part = &bytes[..bytes.len().min(PIPE_BYTES)];
        let slice = IoSliceRaw::from_slice(part);
        // SAFETY: these pages are never written again; see the top of this file.
        let filled = unsafe { rustix::pipe::vmsplice(&self.into, &[slice], SpliceFlags::NONBLOCK) };
        let filled = match filled {
            Ok(filled) => filled,
            Err(error) => return (Err(error.into()), true),
        };
        let mut flags = SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more || filled < bytes.len());
        let sent = loop {
            match rustix::pipe::splice(&self.out, None, socket, None, filled, flags) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        let left = filled - sent.unwrap_or(0).min(filled);
        (sent.map_err(io::Error::from), self.discard(left).is_some())
    }

    /// Empties the pipe of `left` bytes; `None` if it cannot.
    fn discard(&self, mut left: usize) -> Option<()> {
        if left == 0 {
            return Some(());
        }
        thread_local! {
            static NOWHERE: Option<OwnedFd> = rustix::fs::open(
                "/dev/null",
                OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .ok();
        }
        NOWHERE.with(|nowhere| {
            let nowhere = nowhere.as_ref()?.as_fd();
            let flags = SpliceFlags::NONBLOCK;
            while left > 0 {
                match rustix::pipe::splice(&self.out, None, nowhere, None, left, flags) {
                    Ok(more @ 1..) => left = left.saturating_sub(more),
                    Err(Errno::INTR) => {}
                    Ok(0) | Err(_) => return None,
                }
            }
            Some(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pattern(seed: u8, len: usize) -> Vec<u8> {
        (0..len)
            .map(|at| (at as u8).wrapping_mul(31) ^ seed)
            .collect()
    }

    #[test]
    fn kept_bytes_stay_and_their_places_are_used_again() {
        let memory = SendableMemory::new(4 << 20).unwrap();
        for round in 0..3 {
            let mut kept = Vec::new();
            for seed in 0..=u8::MAX {
                let data = pattern(seed ^ round, 100_000);
                let Some(bytes) = memory.keep(&data) else {
                    break;
                };
                kept.push((data, bytes));
            }
            assert_eq!(kept.len(), (4 << 20) >> 17, "a place is a power of two");
            for (data, bytes) in &kept {
                assert_eq!(data, bytes);
                assert!(memory.has(bytes) && memory.has(&bytes[5..]));
            }
        }
        assert_eq!(memory.kept_bytes(), 0);
        assert!(memory.keep(&[]).is_none());
        assert!(memory.keep(&vec![1; SENDABLE_MAX_BYTES + 1]).is_none());
        assert!(!memory.has(b"elsewhere"));
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        out.set_nonblocking(true).unwrap();
        (out, listener.accept().unwrap().0)
    }

    /// A socket sends what a place had when it was passed on.
    #[test]
    fn a_socket_sends_the_bytes_of_places_that_were_used_again() {
        let memory = SendableMemory::new(1 << 20).unwrap();
        let (out, mut input) = connection();
        let mut expected = Vec::new();
        for seed in 0..20 {
            let data = pattern(seed, 300_000);
            let kept = memory.keep(&data).unwrap();
            match memory.send(out.as_fd(), &kept, true) {
                Ok(sent) => expected.extend_from_slice(&data[..sent]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            drop(kept);
            let newer = memory.keep(&pattern(!seed, 300_000)).unwrap();
            assert_eq!(memory.spans.lock().take(1 << 20), None, "the same place");
            drop(newer);
        }
        assert!(expected.len() > 300_000, "the socket took some");
        let mut received = vec![0; expected.len()];
        input.read_exact(&mut received).unwrap();
        assert!(received == expected);
    }

    #[test]
    fn a_full_socket_leaves_no_page_for_the_next_one() {
        let memory = SendableMemory::new(4 << 20).unwrap();
        let (first, second) = (memory.keep(&pattern(1, 1 << 20)), memory.keep(b"second"));
        let (first, second) = (first.unwrap(), second.unwrap());
        let (full, _kept_open) = connection();
        while memory.send(full.as_fd(), &first, true).is_ok() {}
        let (out, mut input) = connection();
        assert_eq!(memory.send(out.as_fd(), &second, false).unwrap(), 6);
        drop(out);
        let mut received = Vec::new();
        input.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"second");
        let elsewhere = memory.send(full.as_fd(), b"elsewhere", false).unwrap_err();
        assert_eq!(elsewhere.kind(), io::ErrorKind::InvalidInput);
    }
}
