//! A fill of new keys, pipelined by one client: what is written to the device for
//! each byte accepted, fences included.

use std::time::Instant;

use serde_json::{Value, json};

use crate::AnyError;
use crate::client::{Ask, Client, KEY_BYTES, Values, mix};
use crate::load::{Case, settle};
use crate::server::Peer;

/// Keys and values, as a multiple of the flash.
const FILLED: f64 = 1.05;

/// Sets that are sent before their answers are read.
const PIPELINED: usize = 64;

/// Of the newest keys, in an eighth of what was set, one in so many is asked for.
const ASKED_ONE_IN: usize = 64;

/// Sets that are sent before their answers are read, once flash is full.
const DEPTHS: [usize; 6] = [1, 4, 16, 64, 256, 1024];

/// Sets at each of these depths, for each MiB of flash: a 27th of it.
const SETS_PER_MIB: u64 = 160;

/// A row of the fill for each peer, one after the other, and one for each depth.
pub(crate) fn run(case: &Case, peers: &[Peer]) -> Result<Vec<Value>, AnyError> {
    let values = Values::new();
    let mut rows = Vec::new();
    for peer in peers {
        eprintln!("fill: {}", peer.name);
        let object = (KEY_BYTES as u64 + u64::from(case.value_bytes)) as f64;
        let count = (case.flash_bytes as f64 * FILLED / object) as u64;
        let keys: Vec<u64> = (0..count).map(mix).collect();
        let written = set(case, peer, &values, &keys, PIPELINED)?;
        rows.push(json!({
            "peer": peer.name,
            "value_bytes": case.value_bytes,
            "fill_sets_per_second": written.per_second.round(),
            "fill_sets_per_cpu_second": written.per_cpu_second.round(),
            "fill_refused": written.refused,
            "fill_p99_us": written.p99_us,
            "fill_write_amplification": written.amplification,
            "fill_read_bytes_each": written.read_bytes_each.round(),
            "resident_mib": peer.resident_bytes()? >> 20,
            "newest_missing_percent": missing_percent(case, peer, &values, &keys)?,
        }));
        let mut next = count;
        for depth in DEPTHS {
            let end = next + SETS_PER_MIB * (case.flash_bytes >> 20);
            let keys: Vec<u64> = (next..end).map(mix).collect();
            next = end;
            let written = set(case, peer, &values, &keys, depth)?;
            rows.push(json!({
                "peer": peer.name,
                "value_bytes": case.value_bytes,
                "when_full_depth": depth,
                "when_full_write_amplification": written.amplification,
                "when_full_sets_per_cpu_second": written.per_cpu_second.round(),
            }));
        }
    }
    Ok(rows)
}

/// The cost of some sets.
struct Written {
    per_second: f64,
    per_cpu_second: f64,
    refused: u64,
    p99_us: f64,
    /// Bytes that the process wrote to the device for each byte that it accepted.
    amplification: f64,
    read_bytes_each: f64,
}

/// Sets `keys`, `depth` at once, and waits until the peer writes no more.
fn set(
    case: &Case,
    peer: &Peer,
    values: &Values,
    keys: &[u64],
    depth: usize,
) -> Result<Written, AnyError> {
    let mut client = Client::new(peer.connect()?, values)?;
    let before = peer.used()?;
    let began = Instant::now();
    let mut batch = Vec::with_capacity(depth);
    for keys in keys.chunks(depth) {
        batch.clear();
        batch.extend(keys.iter().map(|key| case.request(Ask::Set, *key)));
        client.ask(&batch, |_| {})?;
    }
    let seconds = began.elapsed().as_secs_f64();
    settle(peer)?;
    let after = peer.used()?;
    let tally = &client.tally;
    let sets = tally.requests as f64;
    let written = (after.written_bytes - before.written_bytes) as f64;
    let read = (after.read_bytes - before.read_bytes) as f64;
    Ok(Written {
        per_second: sets / seconds,
        per_cpu_second: sets / (after.cpu_seconds - before.cpu_seconds).max(1e-9),
        refused: tally.refused,
        p99_us: tally.latency_us(0.99),
        amplification: written / tally.accepted_bytes.max(1) as f64,
        read_bytes_each: read / sets.max(1.0),
    })
}

/// How many of the newest eighth of `keys` the peer does not have.
fn missing_percent(
    case: &Case,
    peer: &Peer,
    values: &Values,
    keys: &[u64],
) -> Result<f64, AnyError> {
    let newest = &keys[keys.len() / 8 * 7..];
    let sample: Vec<u64> = newest.iter().step_by(ASKED_ONE_IN).copied().collect();
    let mut client = Client::new(peer.connect()?, values)?;
    let mut missing = 0;
    for keys in sample.chunks(PIPELINED) {
        let gets: Vec<_> = keys
            .iter()
            .map(|key| case.request(Ask::Get, *key))
            .collect();
        client.ask(&gets, |_| missing += 1)?;
    }
    Ok(100.0 * f64::from(missing) / sample.len() as f64)
}
