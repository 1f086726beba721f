//! A load below what any peer can do, the same for all: each request has its time, from which its
//! latency counts, whether or not the response before it has come. The time in which its thread
//! wakes up is a part of it, for all peers alike.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::AnyError;
use crate::load::Case;
use crate::peer::Peer;

/// Most bytes of a head.
const LONGEST_HEAD: usize = 4 << 10;

/// Requests per second for objects of a length: at most a fifth of what nginx reached with `wrk`
/// on two processors, so that no queue of a busy server is measured.
pub(crate) fn rate(case: &Case) -> Option<u32> {
    match case.bytes >> 10 {
        4 => Some(8_000),
        64 => Some(4_000),
        1024 => Some(400),
        _ => None,
    }
}

pub(crate) const CONNECTIONS: u32 = 64;

/// Asks for objects at random times by 64 connections, a thread for each. Microseconds at the
/// 50th, 99th and 99.9th percentile.
pub(crate) fn slice(
    peer: &Peer,
    case: &Case,
    rate: u32,
    seconds: u32,
    seed: u64,
) -> Result<[u64; 3], AnyError> {
    let gap = f64::from(CONNECTIONS) / f64::from(rate);
    let address = peer.address;
    let client = |number| {
        move || {
            let rng = SmallRng::seed_from_u64(seed * 1_000 + u64::from(number));
            client(address, case, gap, seconds, rng)
        }
    };
    let mut latencies: Vec<Duration> = Vec::new();
    thread::scope(|scope| {
        let all: Vec<_> = (0..CONNECTIONS).map(|n| scope.spawn(client(n))).collect();
        for one in all {
            latencies.extend(one.join().map_err(|_| "a client panicked")??);
        }
        latencies.sort_unstable();
        let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_micros();
        Ok([0.5, 0.99, 0.999].map(|share| at(share) as u64))
    })
}

/// The latencies of a connection's requests, which follow each other by `gap` seconds on average.
fn client(
    address: SocketAddr,
    case: &Case,
    gap: f64,
    seconds: u32,
    mut rng: SmallRng,
) -> Result<Vec<Duration>, AnyError> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LONGEST_HEAD + case.bytes];
    let mut latencies = Vec::new();
    let start = Instant::now();
    let mut at = 0.0;
    loop {
        at += -gap * (1.0 - rng.random::<f64>()).ln();
        if at > f64::from(seconds) {
            return Ok(latencies);
        }
        let due = start + Duration::from_secs_f64(at);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let object = case.object(rng.random_range(0..case.objects));
        let request = format!("GET /bucket/{object} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        read_response(&mut stream, &mut buffer, case.bytes)?;
        latencies.push(due.elapsed());
    }
}

/// Reads a whole response, which must be a success with a body of so many bytes.
fn read_response(stream: &mut TcpStream, buffer: &mut [u8], body: usize) -> Result<(), AnyError> {
    let mut filled = 0;
    let mut whole = None;
    while whole.is_none_or(|whole| filled < whole) {
        let more = stream.read(&mut buffer[filled..])?;
        if more == 0 {
            return Err("a connection ended within a response".into());
        }
        filled += more;
        if whole.is_none() {
            let head = &buffer[..filled.min(LONGEST_HEAD)];
            let end = head.windows(4).position(|four| four == b"\r\n\r\n");
            whole = end.map(|end| end + 4 + body);
        }
    }
    match buffer.starts_with(b"HTTP/1.1 200") && whole == Some(filled) {
        true => Ok(()),
        false => Err("a response has another status or length".into()),
    }
}
