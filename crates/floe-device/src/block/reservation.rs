//! Persistent reservations: of several machines that a block device is attached to, one
//! alone writes it (Linux, Documentation/block/pr.rst; NVMe and SCSI have them).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The answer to a request for a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The medium refuses writes of other machines.
    Held {
        /// It has refused them since this key took it last: nothing else was written.
        was_held: bool,
    },
    /// Another machine holds it.
    Elsewhere(Holder),
    /// The medium, or the kernel for it, has no reservations.
    Unsupported,
}

/// The machine that holds a reservation, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its key, if the kernel tells it.
    pub key: Option<u64>,
    /// Its name, if it gave one.
    pub name: Option<String>,
}

/// Others may read, and may not write.
const WRITE_EXCLUSIVE: u32 = 1;

/// A registration replaces any key that this machine has registered before.
const IGNORE_KEY: u32 = 1;

/// `struct pr_registration`.
#[repr(C)]
struct Registration {
    old_key: u64,
    new_key: u64,
    flags: u32,
    reserved: u32,
}

/// `struct pr_reservation`.
#[repr(C)]
struct Reservation {
    key: u64,
    kind: u32,
    flags: u32,
}

/// `struct pr_preempt`. Its fields are `old_key` and `new_key`, which the drivers of NVMe and
/// SCSI pass on as the key of this machine and the key to preempt.
#[repr(C)]
struct Preemption {
    own_key: u64,
    their_key: u64,
    kind: u32,
    flags: u32,
}

/// `struct pr_read_reservation`.
#[repr(C)]
#[derive(Default)]
struct Found {
    key: u64,
    generation: u32,
    kind: u32,
}

const WRITE: u32 = 1;
const READ: u32 = 2;

/// A request that takes a `T`, of `_IOW('p', …)` or `_IOR('p', …)`.
const fn code<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | (b'p' as u32) << 8 | number
}

const REGISTER: u32 = code::<Registration>(WRITE, 200);
const RESERVE: u32 = code::<Reservation>(WRITE, 201);
const RELEASE: u32 = code::<Reservation>(WRITE, 202);
const PREEMPT: u32 = code::<Preemption>(WRITE, 203);
/// Linux 7.0; older kernels have no such request.
const READ_RESERVATION: u32 = code::<Found>(READ, 207);

/// The end of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// Another machine holds the reservation.
    Conflict,
    Unsupported,
}

/// The key of a machine that has not [confirmed](confirm) its reservation yet.
fn provisional(key: u64) -> u64 {
    // A key is not 0.
    if key == 1 { 2 } else { key ^ 1 }
}

/// Reserves a block device for this machine, by `key`. If the machine with the key
/// `taken_from` holds it, it loses it, and the medium refuses its writes from then on.
///
/// A machine that loses its reservation loses its registration with it. So being registered by
/// `key` shows that this machine has held it all the time. It is registered so from [`confirm`]
/// to [`release`] only: a process that ends before or after leaves the provisional key.
pub(super) fn reserve(file: &File, key: u64, taken_from: Option<u64>) -> io::Result<Reserved> {
    let was_held = match register(file, key, key, 0)? {
        Answer::Done => true,
        Answer::Conflict => false,
        Answer::Unsupported => return Ok(Reserved::Unsupported),
    };
    let own = match was_held {
        true => key,
        false => provisional(key),
    };
    if !was_held {
        let mut answer = register(file, 0, own, IGNORE_KEY)?;
        if answer == Answer::Conflict {
            // A host that is registered by another key must replace it. Linux leaves NVMe hosts
            // registered by the key 0.
            answer = register(file, own, own, IGNORE_KEY)?;
        }
        match answer {
            Answer::Done => {}
            Answer::Conflict => return Ok(Reserved::Elsewhere(holder(file))),
            Answer::Unsupported => return Ok(Reserved::Unsupported),
        }
    }
    let mut answer = change(file, RESERVE, own)?;
    if let (Answer::Conflict, Some(theirs)) = (&answer, taken_from) {
        let mut preemption = Preemption {
            own_key: own,
            their_key: theirs,
            kind: WRITE_EXCLUSIVE,
            flags: 0,
        };
        // A key that nothing is registered by is a conflict. If its machine is not the holder, it
        // is done, and nothing is held.
        if request(file, PREEMPT, &mut preemption)? == Answer::Done {
            answer = change(file, RESERVE, own)?;
        }
    }
    match answer {
        Answer::Done => Ok(Reserved::Held { was_held }),
        Answer::Conflict => {
            let holder = holder(file);
            register(file, own, 0, 0)?;
            Ok(Reserved::Elsewhere(holder))
        }
        Answer::Unsupported => {
            register(file, own, 0, 0)?;
            Ok(Reserved::Unsupported)
        }
    }
}

/// From now on this machine is the holder that `key` shows.
pub(super) fn confirm(file: &File, key: u64) -> io::Result<()> {
    let confirmed = register(file, provisional(key), key, 0)?;
    match confirmed == Answer::Done || register(file, key, key, 0)? == Answer::Done {
        true => Ok(()),
        false => Err(io::Error::other("the reservation was lost meanwhile")),
    }
}

/// Gives the reservation up, if this machine holds it by `key`.
pub(super) fn release(file: &File, key: u64) -> io::Result<()> {
    let own = provisional(key);
    register(file, key, own, 0)?;
    change(file, RELEASE, own)?;
    register(file, own, 0, 0).map(drop)
}

/// Takes the reservation or gives it up.
fn change(file: &File, code: u32, key: u64) -> io::Result<Answer> {
    let mut reservation = Reservation {
        key,
        kind: WRITE_EXCLUSIVE,
        flags: 0,
    };
    request(file, code, &mut reservation)
}

/// Replaces a registration.
fn register(file: &File, old_key: u64, new_key: u64, flags: u32) -> io::Result<Answer> {
    let mut registration = Registration {
        old_key,
        new_key,
        flags,
        reserved: 0,
    };
    request(file, REGISTER, &mut registration)
}

fn holder(file: &File) -> Holder {
    let mut found = Found::default();
    let answer = request(file, READ_RESERVATION, &mut found);
    let is_told = answer.is_ok_and(|answer| answer == Answer::Done) && found.key != 0;
    Holder {
        key: is_told.then_some(found.key),
        name: None,
    }
}

fn request<T>(file: &File, code: u32, argument: &mut T) -> io::Result<Answer> {
    // SAFETY: each code has the size of its argument, whose fields the kernel reads or
    // writes during the call, and which is valid for every content.
    let result = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            code as libc::Ioctl,
            std::ptr::from_mut(argument),
        )
    };
    answer(result, io::Error::last_os_error)
}

/// Kernels return `enum pr_status`, or before 6.2 for NVMe the drive's own status.
fn answer(result: i32, error: impl FnOnce() -> io::Error) -> io::Result<Answer> {
    /// `PR_STS_RESERVATION_CONFLICT`, and a status of NVMe.
    const CONFLICTS: [i32; 2] = [0x18, 0x83];
    const NVME_INVALID_OPCODE: i32 = 0x01;
    /// The status code and its type.
    const NVME_STATUS: i32 = 0x7ff;
    match result {
        0 => Ok(Answer::Done),
        1.. if CONFLICTS.contains(&(result & NVME_STATUS)) => Ok(Answer::Conflict),
        1.. if result & NVME_STATUS == NVME_INVALID_OPCODE => Ok(Answer::Unsupported),
        1.. => Err(io::Error::other(format!(
            "a reservation ended with status {result:#x}"
        ))),
        ..0 => match error() {
            error if error.raw_os_error() == Some(libc::EBADE) => Ok(Answer::Conflict),
            // A partition is EPERM, and a file system's file ENOTTY.
            error if is_unsupported(&error) => Ok(Answer::Unsupported),
            error => Err(error),
        },
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    const KNOWN: [i32; 5] = [
        libc::ENOTTY,
        libc::EOPNOTSUPP,
        libc::EINVAL,
        libc::EPERM,
        libc::EACCES,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| KNOWN.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_kernel() {
        // <linux/pr.h>, on x86_64.
        assert_eq!(
            [REGISTER, RESERVE, RELEASE, PREEMPT, READ_RESERVATION],
            [
                0x4018_70c8,
                0x4010_70c9,
                0x4010_70ca,
                0x4018_70cb,
                0x8010_70cf
            ]
        );
    }

    #[test]
    fn answers_of_old_and_new_kernels_are_understood() {
        let known = |result| answer(result, io::Error::last_os_error).expect("an answer");
        assert_eq!(known(0), Answer::Done);
        assert_eq!(known(0x18), Answer::Conflict);
        assert_eq!(known(0x4083), Answer::Conflict);
        assert_eq!(known(0x4001), Answer::Unsupported);
        assert!(answer(2, io::Error::last_os_error).is_err());
        let failed = |code| answer(-1, || io::Error::from_raw_os_error(code));
        assert_eq!(
            failed(libc::ENOTTY).expect("an answer"),
            Answer::Unsupported
        );
        assert_eq!(failed(libc::EBADE).expect("an answer"), Answer::Conflict);
        assert!(failed(libc::EIO).is_err());
    }

    #[test]
    fn a_provisional_key_is_another_key() {
        for key in [1, 2, 3, u64::MAX] {
            assert!(provisional(key) != key && provisional(key) != 0);
        }
    }

    #[test]
    fn a_file_has_no_reservations() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(
            reserve(&file, 7, None).expect("an answer"),
            Reserved::Unsupported
        );
    }
}
