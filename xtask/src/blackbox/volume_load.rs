//! A seeded load on a part of a volume over NBD, whose every reply is judged.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use rand::{Rng, RngExt};

use super::nbd::{Client, Command, Endpoint, Reply};
use super::sectors::{Allowed, SECTOR_BYTES, Sectors};
use super::server::VOLUME;

/// Requests of one connection in flight.
const DEPTH: usize = 8;

/// Sectors of the largest request: 64 KiB.
const REQUEST_SECTORS_MAX: u64 = 128;

/// Sectors of a read that verifies: 256 KiB.
const VERIFIED_SECTORS: u64 = 512;

/// Sectors of a volume that one connection at a time reads and writes.
pub(crate) struct Part {
    server: Endpoint,
    sectors: Sectors,
    in_flight: BTreeMap<u64, InFlight>,
    /// The writes that the last connection left without an answer.
    left: Vec<Range<u64>>,
    /// Figures of all connections.
    pub(crate) counts: Counts,
}

/// Replies of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Sectors of reads that were judged.
    pub(crate) judged: u64,
    /// Acknowledged writes.
    pub(crate) writes: u64,
    /// Acknowledged flushes, and writes with FUA.
    pub(crate) flushes: u64,
    /// Requests that failed with an error.
    pub(crate) errors: u64,
}

/// The flushed versions of a part's sectors at one moment.
pub(crate) struct Moment(Vec<u64>);

enum InFlight {
    Read(Range<u64>, Vec<Allowed>),
    Write(Range<u64>, u64, bool),
    Flush(u64),
}

impl Part {
    /// A part of [`VOLUME`] that reads as zeros.
    pub(crate) fn new(server: Endpoint, sectors: Range<u64>) -> Self {
        Part {
            server,
            sectors: Sectors::new(sectors),
            in_flight: BTreeMap::new(),
            left: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Connects. Requests that the last connection left in flight have no answer.
    pub(crate) fn connect(&mut self) -> io::Result<Client> {
        for request in std::mem::take(&mut self.in_flight).into_values() {
            if let InFlight::Write(sectors, ..) = request {
                self.left.push(sectors);
            }
        }
        Client::open(&self.server, VOLUME)
    }

    /// Sends random requests until [`DEPTH`] are in flight, and judges one reply.
    pub(crate) fn step(&mut self, client: &mut Client, random: &mut impl Rng) -> io::Result<()> {
        while self.in_flight.len() < DEPTH {
            let sectors = self.random_range(random);
            match random.random_range(0..100) {
                0..55 if !self.is_written(&sectors) => {
                    self.write(client, sectors, random.random_ratio(1, 20))?;
                }
                55..58 => self.flush(client)?,
                _ => self.read(client, sectors)?,
            }
        }
        self.receive(client)
    }

    /// Judges the replies of all requests in flight.
    pub(crate) fn drain(&mut self, client: &mut Client) -> io::Result<()> {
        while !self.in_flight.is_empty() {
            self.receive(client)?;
        }
        Ok(())
    }

    /// Writes what dead connections left unanswered again, or reads it, by the choice of
    /// `random`: neither may change later.
    pub(crate) fn take_over(
        &mut self,
        client: &mut Client,
        random: &mut impl Rng,
    ) -> io::Result<()> {
        for sectors in std::mem::take(&mut self.left) {
            match random.random() {
                true => self.write(client, sectors, false)?,
                false => self.settle(client, sectors)?,
            }
            self.drain(client)?;
        }
        Ok(())
    }

    /// Writes all sectors in order, and waits for every reply.
    pub(crate) fn fill(&mut self, client: &mut Client) -> io::Result<()> {
        for sectors in pieces(self.sectors.all(), REQUEST_SECTORS_MAX) {
            self.write(client, sectors, false)?;
            if self.in_flight.len() == DEPTH {
                self.receive(client)?;
            }
        }
        self.drain(client)
    }

    /// Reads and judges all sectors, whose versions then stay.
    pub(crate) fn verify(&mut self) -> io::Result<()> {
        let mut client = self.connect()?;
        self.left.clear();
        for sectors in pieces(self.sectors.all(), VERIFIED_SECTORS) {
            self.settle(&mut client, sectors)?;
        }
        Ok(())
    }

    /// This part as it was `then` after a loss of power, or at any moment since. Another server has it.
    pub(crate) fn since(&self, then: &Moment, server: Endpoint) -> Part {
        Part {
            sectors: self.sectors.since(&then.0),
            ..Part::new(server, 0..0)
        }
    }

    /// The versions that a loss of power leaves from now on.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.sectors.flushed().to_vec())
    }

    /// The power fails: only what was flushed is promised.
    pub(crate) fn lose_power(&mut self) {
        self.sectors.lose_power();
    }

    /// Judges the sectors in the bytes of the whole volume. No write is in flight.
    pub(crate) fn compare(&mut self, volume: &[u8]) -> Result<(), String> {
        let sectors = self.sectors.all();
        let start = offset(&sectors) as usize;
        let end = start + bytes_of(&sectors) as usize;
        self.sectors.settle(sectors, &volume[start..end])
    }

    /// Breaks the connection off, sometimes in the middle of a write.
    pub(crate) fn break_off(&mut self, client: Client, random: &mut impl Rng) {
        let sectors = self.random_range(random);
        let (_, bytes) = self.sectors.write(sectors.clone());
        let sent_bytes = random.random_range(0..2 * bytes.len()).min(bytes.len());
        client.break_off(offset(&sectors), &bytes, sent_bytes);
    }

    /// Sends a flush.
    pub(crate) fn flush(&mut self, client: &mut Client) -> io::Result<()> {
        let covered = self.sectors.begin_flush();
        let cookie = client.send(Command::Flush, 0)?;
        self.in_flight.insert(cookie, InFlight::Flush(covered));
        Ok(())
    }

    fn read(&mut self, client: &mut Client, sectors: Range<u64>) -> io::Result<()> {
        let since = self.sectors.begin_read(sectors.clone());
        let cookie = client.send(Command::Read(bytes_of(&sectors)), offset(&sectors))?;
        self.in_flight
            .insert(cookie, InFlight::Read(sectors, since));
        Ok(())
    }

    fn write(&mut self, client: &mut Client, sectors: Range<u64>, durable: bool) -> io::Result<()> {
        let (version, bytes) = self.sectors.write(sectors.clone());
        let sent = client.send(Command::Write(&bytes, durable), offset(&sectors));
        match sent {
            Ok(cookie) => {
                let write = InFlight::Write(sectors, version, durable);
                self.in_flight.insert(cookie, write);
                Ok(())
            }
            Err(error) => {
                self.left.push(sectors);
                Err(error)
            }
        }
    }

    /// Receives one reply and judges it.
    fn receive(&mut self, client: &mut Client) -> io::Result<()> {
        let Reply {
            cookie,
            error,
            data,
        } = client.receive()?;
        let request = self.in_flight.remove(&cookie);
        if error != 0 {
            // A failed write may have changed some of its sectors.
            self.counts.errors += 1;
            return Ok(());
        }
        match request {
            Some(InFlight::Read(sectors, since)) => {
                let judged = self.sectors.judge(sectors, &since, &data).map_err(lied)?;
                self.counts.judged += judged.len() as u64;
            }
            Some(InFlight::Write(sectors, version, durable)) => {
                self.sectors.acknowledge(sectors, version, durable);
                self.counts.writes += 1;
                self.counts.flushes += u64::from(durable);
            }
            Some(InFlight::Flush(covered)) => {
                self.sectors.end_flush(covered);
                self.counts.flushes += 1;
            }
            None => return Err(lied(format!("reply {cookie} belongs to no request"))),
        }
        Ok(())
    }

    /// Reads sectors while nothing is in flight, and lets their versions stay.
    fn settle(&mut self, client: &mut Client, sectors: Range<u64>) -> io::Result<()> {
        client.send(Command::Read(bytes_of(&sectors)), offset(&sectors))?;
        let Reply { error, data, .. } = client.receive()?;
        if error != 0 {
            let what = format!("a read of sectors {sectors:?} failed with error {error}");
            return Err(io::Error::other(what));
        }
        self.counts.judged += sectors.end - sectors.start;
        self.sectors.settle(sectors, &data).map_err(lied)
    }

    /// True if a write in flight has one of these sectors.
    fn is_written(&self, sectors: &Range<u64>) -> bool {
        self.in_flight.values().any(|request| match request {
            InFlight::Write(other, ..) => other.start < sectors.end && sectors.start < other.end,
            InFlight::Read(..) | InFlight::Flush(_) => false,
        })
    }

    /// Mostly 4 KiB and less, in the first eighth of the part half of the time.
    fn random_range(&self, random: &mut impl Rng) -> Range<u64> {
        let all = self.sectors.all();
        let len = match random.random_range(0..4) {
            0 => random.random_range(1..=8),
            1 | 2 => 8,
            _ => random.random_range(8..=REQUEST_SECTORS_MAX),
        };
        let share = if random.random() { 8 } else { 1 };
        let start = random.random_range(0..(all.end - all.start) / share - len);
        let start = all.start + start;
        start..start + len
    }
}

/// `sectors` in pieces of at most `len`.
fn pieces(sectors: Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = sectors.clone().step_by(len as usize);
    starts.map(move |start| start..sectors.end.min(start + len))
}

fn offset(sectors: &Range<u64>) -> u64 {
    sectors.start * SECTOR_BYTES as u64
}

fn bytes_of(sectors: &Range<u64>) -> u32 {
    (sectors.end - sectors.start) as u32 * SECTOR_BYTES as u32
}

fn lied(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
