//! An S3 service that is some way off: it waits before each answer, and counts requests.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::peer::OLD_AT_ONCE;

/// Bytes after which an object's content repeats.
const PERIOD: u64 = 251;

/// Bytes that the service writes in one go.
const PIECE: u64 = 64 << 10;

/// The service. It has every object `SIZE-NAME` of every bucket, of that many bytes.
pub(crate) struct FarOrigin {
    pub(crate) address: SocketAddr,
    pub(crate) heads: Arc<AtomicU64>,
    pub(crate) gets: Arc<AtomicU64>,
}

impl FarOrigin {
    /// Serves until the process ends.
    pub(crate) fn start(distance: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let origin = FarOrigin {
            address: listener.local_addr()?,
            heads: Arc::default(),
            gets: Arc::default(),
        };
        let (heads, gets) = (Arc::clone(&origin.heads), Arc::clone(&origin.gets));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heads, gets) = (Arc::clone(&heads), Arc::clone(&gets));
                // A connection that breaks off is its client's affair.
                std::thread::spawn(move || serve(stream, distance, &heads, &gets));
            }
        });
        Ok(origin)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.heads.load(Relaxed) + self.gets.load(Relaxed)
    }
}

fn serve(
    mut stream: TcpStream,
    distance: Duration,
    heads: &AtomicU64,
    gets: &AtomicU64,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(first) = lines.next() {
        let first = first?;
        let mut range = None;
        let mut known = None;
        for line in lines.by_ref() {
            let line = line?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(tag) = line.strip_prefix("if-none-match: ") {
                known = Some(tag.to_owned());
            }
            if let Some(bytes) = line.strip_prefix("range: bytes=") {
                let (from, to) = bytes.split_once('-').unwrap_or((bytes, ""));
                range = from.parse::<u64>().ok().map(|from| (from, to.parse().ok()));
            }
        }
        std::thread::sleep(distance);
        let name = first.split(' ').nth(1).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        let size: u64 = name
            .split('-')
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap_or(0);
        let tag = format!("\"{name}\"");
        let described = format!(
            "ETag: {tag}\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n{OLD_AT_ONCE}: @1\r\n"
        );
        if known.is_some_and(|known| known == tag.to_lowercase()) {
            heads.fetch_add(1, Relaxed);
            let head = format!("HTTP/1.1 304 Not Modified\r\n{described}\r\n");
            stream.write_all(head.as_bytes())?;
            continue;
        }
        if first.starts_with("HEAD ") {
            heads.fetch_add(1, Relaxed);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{described}\r\n");
            stream.write_all(head.as_bytes())?;
            continue;
        }
        gets.fetch_add(1, Relaxed);
        let (from, to) = range.map_or((0, size), |(from, to)| {
            (from.min(size), to.map_or(size, |to: u64| to + 1).min(size))
        });
        let partial = match range {
            Some(_) => format!(
                "206 Partial Content\r\nContent-Range: bytes {from}-{}/{size}",
                to - 1
            ),
            None => "200 OK".to_owned(),
        };
        let length = to - from;
        let head = format!("HTTP/1.1 {partial}\r\nContent-Length: {length}\r\n{described}\r\n");
        // The head leaves with the first bytes, as that of a real server does.
        let mut piece = head.into_bytes();
        for start in (from..to).step_by(PIECE as usize) {
            piece.extend_from_slice(&content(start..to.min(start + PIECE)));
            stream.write_all(&piece)?;
            piece.clear();
        }
        stream.write_all(&piece)?;
    }
    Ok(())
}

/// Bytes of each object.
pub(crate) fn content(range: std::ops::Range<u64>) -> Vec<u8> {
    static BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..PERIOD + PIECE).map(|at| (at % PERIOD) as u8).collect());
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let from = (at % PERIOD) as usize;
        let length = PIECE.min(range.end - at);
        bytes.extend_from_slice(&BYTES[from..from + length as usize]);
        at += length;
    }
    bytes
}
