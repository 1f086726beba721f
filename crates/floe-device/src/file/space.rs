//! Ranges of a file or block device that lose their content.
//!
//! Must not depend on: requests, zones.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::FallocateFlags;

/// Frees or zeroes a range of a regular file, whose length stays.
pub(crate) fn punch(file: &File, how: FallocateFlags, position: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(
        file,
        how | FallocateFlags::KEEP_SIZE,
        position,
        len,
    )?)
}

/// Discards a range of a block device. It may have any content then.
pub(crate) fn discard(file: &File, position: u64, len: u64) -> io::Result<()> {
    const BLKDISCARD: libc::Ioctl = 0x1277;
    on_range(file, BLKDISCARD, position, len)
}

/// Fills a range of a block device with zeros. The kernel writes them where the drive has no
/// command for it.
pub(crate) fn zero_out(file: &File, position: u64, len: u64) -> io::Result<()> {
    const BLKZEROOUT: libc::Ioctl = 0x127f;
    on_range(file, BLKZEROOUT, position, len)
}

fn on_range(file: &File, request: libc::Ioctl, position: u64, len: u64) -> io::Result<()> {
    let range = [position, len];
    // SAFETY: both requests read two u64 from a pointer that is valid for the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), request, range.as_ptr()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
