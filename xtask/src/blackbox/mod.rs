//! Tests of the real binary from outside: starts it, talks to it over sockets, kills it.

pub mod http;
pub(crate) mod memcached;
pub(crate) mod nbd;
pub(crate) mod origin;
pub mod scenario;
pub(crate) mod sectors;
pub mod server;
pub(crate) mod signature;
pub(crate) mod volume_load;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A connection whose reads and writes wait no longer than `patience`.
fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// The bytes of version `version` of `key`.
pub fn content(key: &str, version: u32, len: usize) -> Vec<u8> {
    let seed = xxh3_64_with_seed(key.as_bytes(), u64::from(version));
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
