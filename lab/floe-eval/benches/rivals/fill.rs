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

/// One row for each peer, one after the other.
pub(crate) fn run(case: &Case, peers: &[Peer]) -> Result<Vec<Value>, AnyError> {
    let values = Values::new();
    let filled = peers.iter().filter(|peer| peer.has_flash);
    filled
        .map(|peer| {
            eprintln!("fill: {}", peer.name);
            fill(case, peer, &values)
        })
        .collect()
}

fn fill(case: &Case, peer: &Peer, values: &Values) -> Result<Value, AnyError> {
    let object = (KEY_BYTES as u64 + u64::from(case.value_bytes)) as f64;
    let count = (case.flash_bytes as f64 * FILLED / object) as u64;
    let keys: Vec<u64> = (0..count).map(mix).collect();
    let mut client = Client::new(peer.connect()?, values)?;
    let before = peer.used()?;
    let began = Instant::now();
    let mut batch = Vec::with_capacity(PIPELINED);
    for keys in keys.chunks(PIPELINED) {
        batch.clear();
        batch.extend(keys.iter().map(|key| case.request(Ask::Set, *key)));
        client.ask(&batch, |_| {})?;
    }
    let seconds = began.elapsed().as_secs_f64();
    settle(peer)?;
    let after = peer.used()?;
    let tally = &client.tally;
    let written = after.written_bytes - before.written_bytes;
    let read = after.read_bytes - before.read_bytes;
    let mut row = json!({
        "peer": peer.name,
        "value_bytes": case.value_bytes,
        "fill_sets_per_second": (tally.requests as f64 / seconds).round(),
        "fill_sets_per_cpu_second":
            (tally.requests as f64 / (after.cpu_seconds - before.cpu_seconds).max(1e-9)).round(),
        "fill_refused": tally.refused,
        "fill_p99_us": tally.latency_us(0.99),
        "fill_write_amplification": written as f64 / tally.accepted_bytes.max(1) as f64,
        "fill_read_bytes_each": (read as f64 / tally.requests.max(1) as f64).round(),
        "resident_mib": peer.resident_bytes()? >> 20,
    });
    let newest = &keys[keys.len() / 8 * 7..];
    let sample: Vec<u64> = newest.iter().step_by(ASKED_ONE_IN).copied().collect();
    let mut missing = 0;
    for keys in sample.chunks(PIPELINED) {
        let gets: Vec<_> = keys
            .iter()
            .map(|key| case.request(Ask::Get, *key))
            .collect();
        client.ask(&gets, |_| missing += 1)?;
    }
    row["newest_missing_percent"] = json!(100.0 * f64::from(missing) / sample.len() as f64);
    Ok(row)
}
