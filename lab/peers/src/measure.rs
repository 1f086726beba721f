//! The resources that this process used, as counted by the kernel.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Processor time and bytes written so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Wall clock.
    at: Instant,
    /// User and system time of all threads.
    cpu: Duration,
    /// Bytes that this process caused to be written to the device.
    written_bytes: u64,
}

/// The difference of two [`Usage`]s.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub wall: Duration,
    pub cpu: Duration,
    pub written_bytes: u64,
}

impl Usage {
    pub fn now() -> Result<Self> {
        Ok(Usage {
            at: Instant::now(),
            cpu: cpu_time(),
            written_bytes: written_bytes()?,
        })
    }

    pub fn since(self) -> Result<Used> {
        let now = Usage::now()?;
        Ok(Used {
            wall: now.at - self.at,
            cpu: now.cpu.saturating_sub(self.cpu),
            written_bytes: now.written_bytes.saturating_sub(self.written_bytes),
        })
    }
}

/// User and system time of all threads of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives through the call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "every Linux has a process clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes written to the block layer, page cache excluded.
pub fn written_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io").context("reading /proc/self/io")?;
    text.lines()
        .find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
        .context("/proc/self/io has no write_bytes")
}

/// Resident memory of this process.
pub fn resident_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let kib: u64 = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .trim()
                .parse()
                .ok()
        })
        .context("/proc/self/status has no VmRSS")?;
    Ok(kib * 1024)
}
