//! Memory mapped from the system.

use std::io;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Size of a huge page, to which mappings are aligned.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A private mapping of zeros.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Start of the mapping, which is a huge page longer than its used part.
    base: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping is plain memory with a single owner.
unsafe impl Send for Mapping {}
// SAFETY: shared access to it gives nothing but its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At least `len` bytes, in huge pages if possible.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let (mapping, advised) = Mapping::advised(len, Advice::LinuxHugepage)?;
        if let Err(error) = advised {
            tracing::debug!(%error, "no huge pages here");
        }
        Ok(mapping)
    }

    /// At least `len` bytes, never in huge pages.
    pub(crate) fn of_small_pages(len: usize) -> io::Result<Self> {
        match Mapping::advised(len, Advice::LinuxNoHugepage)? {
            // A kernel without huge pages knows no such advice.
            (mapping, Ok(()) | Err(Errno::INVAL)) => Ok(mapping),
            (_, Err(error)) => Err(error.into()),
        }
    }

    /// Also returns whether the kernel took the advice.
    fn advised(len: usize, advice: Advice) -> io::Result<(Self, Result<(), Errno>)> {
        let mapped = len
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new private anonymous mapping affects no existing memory.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { base, mapped };
        // SAFETY: advice on a mapping of ours changes no content.
        let advised = unsafe { rustix::mm::madvise(mapping.start().as_ptr().cast(), len, advice) };
        Ok((mapping, advised))
    }

    /// The first byte, on the boundary of a huge page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        let skip = self.base.as_ptr().align_offset(HUGE_PAGE_BYTES);
        debug_assert!(skip <= HUGE_PAGE_BYTES, "bytes can be aligned to anything");
        // SAFETY: the mapping is a huge page longer than its used part.
        unsafe { self.base.add(skip) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and its users do not outlive its owner.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "the mapping was made by `new`");
    }
}
