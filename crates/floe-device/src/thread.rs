//! Facts that the kernel knows of the calling thread.

use std::mem::MaybeUninit;

/// Times that the calling thread has waited so far: for a device, a lock or a timer. A thread
/// that only lost its processor to another has not waited. `None` if the kernel does not tell.
pub fn waits_of_this_thread() -> Option<u64> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for a write of the whole structure.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_nvcsw).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_sleeps_waits() {
        let before = waits_of_this_thread().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        assert!(waits_of_this_thread().unwrap() > before);
        // A fault of memory may let it wait, but not each time.
        assert!((0..10).any(|_| {
            let before = waits_of_this_thread();
            let until = Instant::now() + Duration::from_millis(1);
            while Instant::now() < until {}
            waits_of_this_thread() == before
        }));
    }
}
