//! An HTTP origin with configurable faults.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::blackbox::content;

/// Bytes of every object.
pub(crate) const OBJECT_BYTES: usize = 300_000;

/// The origin's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// No faults.
    Well,
    /// Breaks every connection.
    Down,
    /// Responds late.
    Slow(Duration),
    /// Announces every body in full and breaks off midway.
    Short,
    /// Serves another version of every object at every request.
    Changing,
    /// Redirects every request to `/metrics` of another server.
    Elsewhere(SocketAddr),
}

/// A running origin. It stops when it is dropped.
pub(crate) struct Origin {
    /// The address it listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    version: AtomicU64,
    requests: AtomicU64,
    stopped: AtomicBool,
}

impl Origin {
    /// Starts an origin without faults on a free port.
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(Behaviour::Well),
            version: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let listener = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let own = Arc::clone(&own);
                // A broken connection is one of the faults, or the server's end.
                thread::spawn(move || drop(own.answer(stream)));
            }
        });
        Ok(Origin {
            address,
            shared,
            listener: Some(listener),
        })
    }

    /// Changes the behaviour from the next request on.
    pub(crate) fn be(&self, behaviour: Behaviour) {
        *self
            .shared
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = behaviour;
    }

    /// Requests received.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The current version.
    pub(crate) fn version(&self) -> u32 {
        self.shared.version()
    }

    /// The flags that make this the server's origin.
    pub(crate) fn flags(&self) -> Vec<String> {
        [
            "--origin-kind=http",
            "--origin-allow-http=true",
            &format!("--origin-endpoint=http://{}", self.address),
            "--origin-requests-response-timeout-ms=1000",
            "--origin-requests-idle-timeout-ms=1000",
            "--origin-requests-max-attempts=2",
            "--origin-requests-backoff-ms=20",
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the listener, which then stops.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Shared {
    fn version(&self) -> u32 {
        u32::try_from(self.version.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Serves one request, then closes the connection.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let request = Request::read(&mut stream)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let behaviour = *self
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match behaviour {
            Behaviour::Down => return Ok(()),
            Behaviour::Slow(time) => thread::sleep(time),
            Behaviour::Changing => drop(self.version.fetch_add(1, Ordering::Relaxed)),
            Behaviour::Elsewhere(address) => {
                let head = format!(
                    "HTTP/1.1 302 Found\r\nLocation: http://{address}/metrics\r\n\
                     Content-Length: 0\r\nConnection: close\r\n\r\n"
                );
                return stream.write_all(head.as_bytes());
            }
            Behaviour::Well | Behaviour::Short => {}
        }
        let version = self.version();
        let tag = format!("\"v{version}\"");
        if request
            .if_match
            .as_ref()
            .is_some_and(|wanted| *wanted != tag)
        {
            return stream.write_all(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        if request.if_none_match.as_ref() == Some(&tag) {
            let head =
                format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\nConnection: close\r\n\r\n");
            return stream.write_all(head.as_bytes());
        }
        let whole = content(&request.path, version, OBJECT_BYTES);
        let (status, range) = match request.range {
            Some((start, end)) => ("206 Partial Content", start..end.min(OBJECT_BYTES)),
            None => ("200 OK", 0..OBJECT_BYTES),
        };
        let mut head = format!(
            "HTTP/1.1 {status}\r\nETag: {tag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:0{} GMT\r\n\
             Content-Length: {}\r\nAccept-Ranges: bytes\r\nConnection: close\r\n",
            version % 10,
            range.len()
        );
        if request.range.is_some() {
            head += &format!(
                "Content-Range: bytes {}-{}/{OBJECT_BYTES}\r\n",
                range.start,
                range.end - 1
            );
        }
        stream.write_all((head + "\r\n").as_bytes())?;
        if request.head {
            return Ok(());
        }
        let body = &whole[range];
        let sent = if behaviour == Behaviour::Short {
            body.len() / 2
        } else {
            body.len()
        };
        stream.write_all(&body[..sent])
    }
}

struct Request {
    head: bool,
    path: String,
    range: Option<(usize, usize)>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

impl Request {
    fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let head = words.next() == Some("HEAD");
        let path = words.next().ok_or(io::ErrorKind::InvalidData)?.to_owned();
        let mut request = Request {
            head,
            path,
            range: None,
            if_match: None,
            if_none_match: None,
        };
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
                return Ok(request);
            }
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "range" => request.range = parse_range(value),
                "if-match" => request.if_match = Some(value.to_owned()),
                "if-none-match" => request.if_none_match = Some(value.to_owned()),
                _ => {}
            }
        }
    }
}

/// `bytes=A-B` as a half-open range.
fn parse_range(value: &str) -> Option<(usize, usize)> {
    let (start, end) = value.strip_prefix("bytes=")?.split_once('-')?;
    let end = if end.is_empty() {
        OBJECT_BYTES
    } else {
        end.parse::<usize>().ok()? + 1
    };
    Some((start.parse().ok()?, end))
}
