//! This process's CPU time and resident memory, from `/proc`.

use std::time::{Duration, Instant};

/// CPU use over a stretch and memory at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessSample {
    /// CPU time over time, in percent of one processor.
    pub cpu_percent: f64,
    /// CPU time.
    pub cpu_time: Duration,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}

/// Samples this process; yields nothing without `/proc`.
#[derive(Debug)]
pub struct ProcessProbe {
    at: Instant,
    cpu_time: Duration,
}

impl ProcessProbe {
    /// Starts now.
    pub fn new() -> Self {
        ProcessProbe {
            at: Instant::now(),
            cpu_time: cpu_time().unwrap_or_default(),
        }
    }

    /// The use since the last sample.
    pub fn sample(&mut self) -> Option<ProcessSample> {
        let (now, cpu_now) = (Instant::now(), cpu_time()?);
        let elapsed = now.duration_since(self.at).as_secs_f64();
        let used = cpu_now.saturating_sub(self.cpu_time);
        (self.at, self.cpu_time) = (now, cpu_now);
        Some(ProcessSample {
            cpu_percent: if elapsed > 0.0 {
                100.0 * used.as_secs_f64() / elapsed
            } else {
                0.0
            },
            cpu_time: used,
            rss_bytes: rss_bytes()?,
        })
    }
}

impl Default for ProcessProbe {
    fn default() -> Self {
        Self::new()
    }
}

/// User and system time: fields 14 and 15 of `/proc/self/stat`, in ticks of
/// 1/100 s, which Linux fixes for every program.
fn cpu_time() -> Option<Duration> {
    const TICKS_PER_S: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name, field 2, is in parentheses and may hold anything.
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 1000 / TICKS_PER_S))
}

fn rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}
