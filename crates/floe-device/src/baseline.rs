//! The reference for benchmarks: random reads by a plain io_uring loop with
//! nothing around it. No device uses it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::buffer::IoBuf;

/// A number of random reads, as one task.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Bytes of each read; a multiple of the device's block.
    pub bytes: usize,
    /// Reads in flight.
    pub depth: usize,
    /// Total number of reads.
    pub count: u64,
    /// Bytes of the file to read from, at its start.
    pub span: u64,
    /// Seed of the offsets.
    pub seed: u64,
}

/// The cost of a number of operations.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Operations.
    pub count: u64,
    /// Elapsed time.
    pub wall: Duration,
    /// CPU time of the whole process, user and system.
    pub cpu: Duration,
}

impl Cost {
    /// CPU time per operation.
    pub fn cpu_per_operation(&self) -> Duration {
        self.cpu.div_f64(self.count.max(1) as f64)
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64()
    }

    /// Both costs together.
    pub fn plus(self, other: Cost) -> Cost {
        Cost {
            count: self.count + other.count,
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
        }
    }
}

/// Measures from [`Stopwatch::start`] to [`Stopwatch::stop`].
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Self {
        Stopwatch {
            cpu: process_cpu(),
            wall: Instant::now(),
        }
    }

    /// The cost of `count` operations since the start.
    pub fn stop(self, count: u64) -> Cost {
        Cost {
            count,
            wall: self.wall.elapsed(),
            cpu: process_cpu().saturating_sub(self.cpu),
        }
    }
}

/// CPU time of this process so far.
pub fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Random offsets for [`Reads`], the same for every peer.
#[derive(Clone, Debug)]
pub struct Offsets {
    random: Xoshiro256PlusPlus,
    bytes: u64,
    places: u64,
}

impl Offsets {
    /// The offsets of `reads`.
    pub fn new(reads: &Reads) -> Self {
        Offsets {
            random: Xoshiro256PlusPlus::seed_from_u64(reads.seed),
            bytes: reads.bytes as u64,
            places: (reads.span / reads.bytes as u64).max(1),
        }
    }

    /// The next offset.
    pub fn draw(&mut self) -> u64 {
        self.random.random_range(0..self.places) * self.bytes
    }
}

/// Runs `reads` with O_DIRECT on one thread and one ring, with a heap buffer
/// per read in flight. One call submits the pending reads and waits for at
/// least one completion. The loop never reads the data.
///
/// `registered` tells whether to register the file and the buffers with the
/// ring beforehand. An ordinary loop, such as fio's default, registers neither.
///
/// # Errors
/// An error of the system, or a short read.
pub fn plain_reads(path: &Path, reads: &Reads, registered: bool) -> io::Result<Cost> {
    plain_reads_into(path, reads, registered, |_| {})
}

/// As [`plain_reads`], and passes the data of each read to `sink` before its
/// buffer is reused.
///
/// # Errors
/// An error of the system, or a short read.
pub fn plain_reads_into(
    path: &Path,
    reads: &Reads,
    registered: bool,
    sink: impl FnMut(&[u8]),
) -> io::Result<Cost> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)?;
    let mut plain = PlainLoop::new(&file, reads, registered)?;
    let watch = Stopwatch::start();
    plain.run(reads, sink)?;
    Ok(watch.stop(reads.count))
}

struct PlainLoop {
    ring: IoUring,
    /// The file by its descriptor; registered, it is file 0.
    file: types::Fd,
    /// One per read in flight; its index is the read's token.
    buffers: Vec<IoBuf>,
    registered: bool,
    offsets: Offsets,
    in_flight: u64,
}

impl PlainLoop {
    fn new(file: &File, reads: &Reads, registered: bool) -> io::Result<Self> {
        let ring = IoUring::new(reads.depth.next_power_of_two() as u32)?;
        let mut buffers: Vec<_> = (0..reads.depth)
            .map(|_| IoBuf::zeroed(reads.bytes))
            .collect();
        if registered {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
            let vectors: Vec<_> = buffers
                .iter_mut()
                .map(|buf| libc::iovec {
                    iov_base: buf.as_mut_ptr().cast(),
                    iov_len: buf.len(),
                })
                .collect();
            // SAFETY: the buffers live as long as the ring, in the same struct.
            unsafe { ring.submitter().register_buffers(&vectors)? };
        }
        Ok(PlainLoop {
            ring,
            file: types::Fd(file.as_raw_fd()),
            buffers,
            registered,
            offsets: Offsets::new(reads),
            in_flight: 0,
        })
    }

    fn run(&mut self, reads: &Reads, mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        let mut started = 0;
        while started < reads.count.min(reads.depth as u64) {
            self.push(started as usize);
            started += 1;
        }
        let mut ended = 0;
        let mut tokens = Vec::with_capacity(reads.depth);
        while ended < reads.count {
            self.ring.submit_and_wait(1)?;
            for completion in self.ring.completion() {
                self.in_flight -= 1;
                if completion.result() != reads.bytes as i32 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                tokens.push(completion.user_data() as usize);
            }
            ended += tokens.len() as u64;
            for token in tokens.drain(..) {
                sink(&self.buffers[token]);
                if started < reads.count {
                    self.push(token);
                    started += 1;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, token: usize) {
        let offset = self.offsets.draw();
        let buf = &mut self.buffers[token];
        let (start, len) = (buf.as_mut_ptr(), buf.len() as u32);
        let entry = if self.registered {
            opcode::ReadFixed::new(types::Fixed(0), start, len, token as u16)
                .offset(offset)
                .build()
        } else {
            opcode::Read::new(self.file, start, len)
                .offset(offset)
                .build()
        };
        self.in_flight += 1;
        // SAFETY: each buffer serves one read at a time, and `drop` does not
        // free it while reads are in flight.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(token as u64)) };
        debug_assert!(pushed.is_ok(), "the queue has an entry per read in flight");
    }
}

impl Drop for PlainLoop {
    /// Keeps the buffers while reads are in flight, which can be the case after
    /// an error.
    fn drop(&mut self) {
        if self.in_flight > 0 {
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}
