//! A client that asks in batches and checks every byte of what comes back.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags};

use crate::AnyError;

/// Bytes of a key: its number in hexadecimal digits.
pub(crate) const KEY_BYTES: usize = 16;

/// A request for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    Set,
    Delete,
}

/// A request. The length of a key's value is always the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) ask: Ask,
    pub(crate) key: u64,
    pub(crate) value_bytes: u32,
}

/// Values that are cheap to make, and that follow from their keys.
#[derive(Debug)]
pub(crate) struct Values(Vec<u8>);

const NOISE_BYTES: usize = 64 << 10;

impl Values {
    pub(crate) fn new() -> Self {
        let mut state = 1u64;
        let noise = (0..NOISE_BYTES + 8192).map(|_| {
            state = mix(state);
            state as u8
        });
        Values(noise.collect())
    }

    /// The value of `key`: its number, then noise that starts where it says.
    fn parts(&self, key: u64, len: usize) -> ([u8; 8], &[u8]) {
        let start = (mix(key) % NOISE_BYTES as u64) as usize;
        (key.to_le_bytes(), &self.0[start..start + len - 8])
    }

    fn put(&self, key: u64, len: usize, into: &mut Vec<u8>) {
        let (head, rest) = self.parts(key, len);
        into.extend(head);
        into.extend(rest);
    }

    fn is_of(&self, key: u64, value: &[u8]) -> bool {
        let (head, rest) = self.parts(key, value.len().max(8));
        value.len() >= 8 && value[..8] == head && &value[8..] == rest
    }
}

/// Spreads numbers over all numbers (SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The outcome of requests.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    /// Sets that were not answered `STORED`.
    pub(crate) refused: u64,
    /// Keys and values that were stored.
    pub(crate) accepted_bytes: u64,
    pub(crate) requests: u64,
    /// Of a request, in nanoseconds: from when its batch was sent to its answer.
    pub(crate) latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Result<Self, AnyError> {
        Ok(Tally {
            gets: 0,
            hits: 0,
            sets: 0,
            refused: 0,
            accepted_bytes: 0,
            requests: 0,
            latency: Histogram::new(3)?,
        })
    }

    pub(crate) fn add(&mut self, other: &Tally) -> Result<(), AnyError> {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.refused += other.refused;
        self.accepted_bytes += other.accepted_bytes;
        self.requests += other.requests;
        self.latency.add(&other.latency)?;
        Ok(())
    }

    pub(crate) fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// A socket on which answers are waited for with `poll`, as by clients with an
/// event loop. One that waits in `read` would be woken for nothing whenever
/// the server takes a request from a Unix socket, and the kernel counts
/// waking it as the server's time.
struct Polled(UnixStream);

impl Read for Polled {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut waits = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut waits, None))?;
        self.0.read(into)
    }
}

/// A connection.
pub(crate) struct Client<'a> {
    input: BufReader<Polled>,
    output: Vec<u8>,
    line: Vec<u8>,
    value: Vec<u8>,
    values: &'a Values,
    pub(crate) tally: Tally,
}

impl<'a> Client<'a> {
    pub(crate) fn new(stream: UnixStream, values: &'a Values) -> Result<Self, AnyError> {
        Ok(Client {
            input: BufReader::with_capacity(256 << 10, Polled(stream)),
            output: Vec::new(),
            line: Vec::new(),
            value: Vec::new(),
            values,
            tally: Tally::new()?,
        })
    }

    /// Asks all at once; calls `missed` with each get that found nothing.
    pub(crate) fn ask(
        &mut self,
        batch: &[Request],
        missed: impl FnMut(&Request),
    ) -> Result<(), AnyError> {
        self.ask_since(batch, |_, sent| sent, missed)
    }

    /// Asks all at once. The first was due at `first`, each further one `gap` later: their
    /// latencies count from then.
    pub(crate) fn ask_due(
        &mut self,
        batch: &[Request],
        first: Instant,
        gap: Duration,
    ) -> Result<(), AnyError> {
        self.ask_since(batch, |at, _| first + gap * at as u32, |_| {})
    }

    fn ask_since(
        &mut self,
        batch: &[Request],
        since: impl Fn(usize, Instant) -> Instant,
        mut missed: impl FnMut(&Request),
    ) -> Result<(), AnyError> {
        self.output.clear();
        for request in batch {
            self.write(request)?;
        }
        let sent = Instant::now();
        self.input.get_mut().0.write_all(&self.output)?;
        for (at, request) in batch.iter().enumerate() {
            match request.ask {
                Ask::Get => {
                    if !self.read_value(request)? {
                        missed(request);
                    }
                }
                Ask::Set => self.read_stored(request)?,
                Ask::Delete => self.read_line()?,
            }
            self.tally
                .latency
                .record(since(at, sent).elapsed().as_nanos() as u64)?;
        }
        self.tally.requests += batch.len() as u64;
        Ok(())
    }

    fn write(&mut self, request: &Request) -> Result<(), AnyError> {
        let Request {
            ask,
            key,
            value_bytes,
        } = *request;
        match ask {
            Ask::Get => write!(self.output, "get {key:016x}\r\n")?,
            Ask::Delete => write!(self.output, "delete {key:016x}\r\n")?,
            Ask::Set => {
                write!(self.output, "set {key:016x} 0 0 {value_bytes}\r\n")?;
                self.values.put(key, value_bytes as usize, &mut self.output);
                self.output.extend(b"\r\n");
            }
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<(), AnyError> {
        self.line.clear();
        match self.input.read_until(b'\n', &mut self.line)? {
            0 => Err("the server ended".into()),
            _ => Ok(()),
        }
    }

    fn read_stored(&mut self, request: &Request) -> Result<(), AnyError> {
        self.read_line()?;
        self.tally.sets += 1;
        match self.line == b"STORED\r\n" {
            true => self.tally.accepted_bytes += KEY_BYTES as u64 + u64::from(request.value_bytes),
            false => self.tally.refused += 1,
        }
        Ok(())
    }

    /// True if there was a value; it must be the key's.
    fn read_value(&mut self, request: &Request) -> Result<bool, AnyError> {
        self.read_line()?;
        self.tally.gets += 1;
        if self.line == b"END\r\n" {
            return Ok(false);
        }
        let line = String::from_utf8_lossy(&self.line);
        let len = line.trim_end().rsplit(' ').next().map(str::parse::<usize>);
        let Some(Ok(len)) = len.filter(|_| line.starts_with("VALUE ")) else {
            return Err(format!("a get was answered {line:?}").into());
        };
        self.value.resize(len + 2, 0);
        self.input.read_exact(&mut self.value)?;
        self.read_line()?;
        let is_right = len == request.value_bytes as usize
            && self.values.is_of(request.key, &self.value[..len])
            && self.line == b"END\r\n";
        if !is_right {
            return Err(format!("a wrong value of {:016x}: {len} bytes", request.key).into());
        }
        self.tally.hits += 1;
        Ok(true)
    }
}

/// Gets answered with a value, and those of them by flash, as a server counts
/// them; `None` of one that does not.
pub(crate) fn hits(stream: UnixStream) -> Result<Option<(u64, u64)>, AnyError> {
    let mut input = BufReader::new(stream);
    input.get_mut().write_all(b"stats\r\n")?;
    let (mut all, mut flash) = (None, None);
    let mut line = String::new();
    while line != "END\r\n" {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Err("the server ended".into());
        }
        let count = |name: &str| line.strip_prefix(name)?.trim().parse().ok();
        all = all.or_else(|| count("STAT get_hits "));
        flash = flash.or_else(|| count("STAT get_extstore "));
    }
    Ok(all.map(|all| (all, flash.unwrap_or(0))))
}
