//! Commands that the caller waits for, by the kernel's ioctl.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::command::{Command, IOCTL_ADMIN, IOCTL_BYTES, IOCTL_IO, IOCTL_RESULT_AT};
use super::status::Status;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The kernel did not execute it.
    #[error(transparent)]
    Kernel(#[from] io::Error),
    /// The drive failed it.
    #[error(transparent)]
    Drive(#[from] Status),
}

/// Executes an admin command that returns `data`. Returns the drive's result.
pub(super) fn admin(file: &File, command: &Command, data: &mut [u8]) -> Result<u64, CommandError> {
    run(file, IOCTL_ADMIN, command, data)
}

/// Executes an I/O command that returns `data`. Returns the drive's result.
pub(super) fn io(file: &File, command: &Command, data: &mut [u8]) -> Result<u64, CommandError> {
    run(file, IOCTL_IO, command, data)
}

fn run(
    file: &File,
    request_code: u32,
    command: &Command,
    data: &mut [u8],
) -> Result<u64, CommandError> {
    let address = match data.is_empty() {
        true => 0,
        false => data.as_mut_ptr() as u64,
    };
    let bytes = command.for_kernel(address, data.len() as u32);
    // SAFETY: the command's data is `data`, which outlives the call and is not used
    // otherwise during it.
    let (code, value) = unsafe { submit(file, request_code, bytes) };
    match u32::try_from(code) {
        Ok(result) => Status::from_result(result).map_or(Ok(value), |status| Err(status.into())),
        Err(_) => Err(io::Error::from_raw_os_error(-code).into()),
    }
}

/// Executes a command. Returns a negative error or the drive's status, and the drive's
/// result.
///
/// # Safety
/// The data that `command` points to is valid for the call, and is not used by others.
pub(crate) unsafe fn submit(
    file: &File,
    request_code: u32,
    mut command: [u8; IOCTL_BYTES],
) -> (i32, u64) {
    // SAFETY: both requests read and write a `struct nvme_passthru_cmd64` of this length,
    // at any alignment, since the kernel copies it. Its data is valid, as the caller promises.
    let code = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            request_code as libc::Ioctl,
            command.as_mut_ptr(),
        )
    };
    let code = match code {
        -1 => -io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
        code => code,
    };
    let result = command[IOCTL_RESULT_AT..].first_chunk();
    (code, result.map_or(0, |result| u64::from_ne_bytes(*result)))
}

/// The number of the namespace that `file` is.
pub(super) fn namespace_number(file: &File) -> io::Result<u32> {
    const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
    // SAFETY: the request takes no argument and returns a number.
    let number = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}
