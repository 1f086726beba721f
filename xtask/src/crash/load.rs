//! A seeded mixed load on the S3 frontend; every response is judged.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::blackbox::content;
use crate::blackbox::http::{Connection, Response};

use super::ledger::{Ledger, Seen, State, Written};
use super::verdicts::{Stop, Verdicts};

/// The bucket of all objects.
pub(super) const BUCKET: &str = "crash";

/// Size of the largest written object: several batches, one chunk.
const OBJECT_BYTES_MAX: usize = 400 * 1024;

/// The objects of one cache, and their observed states.
pub(super) struct World {
    /// Read only, written before the server starts.
    pub fixed: Vec<Ledger>,
    /// Written, overwritten and deleted through the server.
    pub changing: Vec<Ledger>,
    /// Verdicts on the server's responses.
    pub verdicts: Verdicts,
}

impl World {
    /// One connection's load until `stop` or until the connection breaks.
    pub(super) fn drive(&self, s3: SocketAddr, seed: u64, stop: &AtomicBool) {
        let step = |connection: &mut _, random: &mut _| self.step(connection, random);
        self.verdicts.drive(Connection::open(s3), seed, stop, step);
    }

    /// Reads and judges every object once, whole. A broken connection is a
    /// failure too, since nothing kills the server.
    pub(super) fn verify(&self, s3: SocketAddr) -> io::Result<()> {
        let mut connection = Connection::open(s3)?;
        for ledger in self.fixed.iter().chain(&self.changing) {
            match self.read(&mut connection, ledger, None) {
                Ok(()) => {}
                Err(Stop::Lie(lie)) => self.verdicts.lie(lie),
                Err(Stop::Broken) => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
        Ok(())
    }

    /// Reads and judges the first `count` fixed objects once, whole.
    pub(super) fn probe(&self, s3: SocketAddr, count: usize) -> io::Result<()> {
        let mut connection = Connection::open(s3)?;
        for ledger in self.fixed.iter().take(count) {
            match self.read(&mut connection, ledger, None) {
                Ok(()) => {}
                Err(Stop::Lie(lie)) => self.verdicts.lie(lie),
                Err(Stop::Broken) => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
        Ok(())
    }

    /// Reads the first `count` fixed objects repeatedly until `stop` or until
    /// the connection breaks.
    pub(super) fn reread(&self, s3: SocketAddr, count: usize, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) && self.probe(s3, count).is_ok() {}
    }

    fn step(
        &self,
        connection: &mut Connection,
        random: &mut Xoshiro256PlusPlus,
    ) -> Result<(), Stop> {
        let changing = &self.changing[random.random_range(0..self.changing.len())];
        match random.random_range(0..100) {
            0..25 => self.read(connection, changing, None),
            25..45 => self.read(connection, changing, Some(random_range(random))),
            45..60 => {
                let fixed = &self.fixed[random.random_range(0..self.fixed.len())];
                self.read(connection, fixed, None)
            }
            60..70 => {
                let fixed = &self.fixed[random.random_range(0..self.fixed.len())];
                self.read(connection, fixed, Some(random_range(random)))
            }
            70..90 => self.put(connection, changing, random_len(random)),
            _ => self.delete(connection, changing),
        }
    }

    fn read(
        &self,
        connection: &mut Connection,
        ledger: &Ledger,
        range: Option<Range<usize>>,
    ) -> Result<(), Stop> {
        let headers: Vec<(&str, String)> = range
            .iter()
            .map(|r| ("Range", format!("bytes={}-{}", r.start, r.end - 1)))
            .collect();
        let since = ledger.begin_read();
        let response = connection.request("GET", &path(ledger.key()), &headers, b"")?;
        let seen = match response.status {
            200 if range.is_some() => return Err(unexpected("GET of a range", ledger, &response)),
            200 | 206 => Seen::Bytes(response.body),
            404 => Seen::Absent,
            416 => Seen::NotSatisfiable,
            _ => return Err(unexpected("GET", ledger, &response)),
        };
        ledger.judge(since, range, &seen).map_err(Stop::Lie)?;
        self.verdicts.answer_judged();
        Ok(())
    }

    fn put(&self, connection: &mut Connection, ledger: &Ledger, len: usize) -> Result<(), Stop> {
        let operation = |state| {
            let State::Present { version, len } = state else {
                return Ok(Written::Rejected);
            };
            let body = content(ledger.key(), version, len);
            let response = connection.request("PUT", &path(ledger.key()), &[], &body)?;
            expect_status(&response, &[200, 204], "PUT", ledger)?;
            Ok(Written::Done)
        };
        self.acknowledge(ledger.write(|version| State::Present { version, len }, operation))
    }

    fn delete(&self, connection: &mut Connection, ledger: &Ledger) -> Result<(), Stop> {
        let operation = |_| {
            let response = connection.request("DELETE", &path(ledger.key()), &[], b"")?;
            expect_status(&response, &[200, 204, 404], "DELETE", ledger)?;
            Ok(Written::Done)
        };
        self.acknowledge(ledger.write(|_| State::Absent, operation))
    }

    fn acknowledge(&self, outcome: Option<Result<Written, Stop>>) -> Result<(), Stop> {
        let Some(result) = outcome else { return Ok(()) };
        result?;
        self.verdicts.write_acknowledged();
        Ok(())
    }
}

fn path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}

fn expect_status(
    response: &Response,
    allowed: &[u16],
    operation: &str,
    ledger: &Ledger,
) -> Result<(), Stop> {
    if allowed.contains(&response.status) {
        return Ok(());
    }
    Err(unexpected(operation, ledger, response))
}

fn unexpected(operation: &str, ledger: &Ledger, response: &Response) -> Stop {
    const SHOWN_BYTES: usize = 300;
    let body = &response.body[..response.body.len().min(SHOWN_BYTES)];
    Stop::Lie(format!(
        "{operation} {}: status {}: {}",
        ledger.key(),
        response.status,
        String::from_utf8_lossy(body)
    ))
}

/// Mostly small, some empty, some of several hundred KiB.
fn random_len(random: &mut Xoshiro256PlusPlus) -> usize {
    match random.random_range(0..20) {
        0 => 0,
        1..12 => random.random_range(1..16 * 1024),
        _ => random.random_range(16 * 1024..OBJECT_BYTES_MAX),
    }
}

fn random_range(random: &mut Xoshiro256PlusPlus) -> Range<usize> {
    let start = random.random_range(0..OBJECT_BYTES_MAX);
    start..start + random.random_range(1..100_000)
}
