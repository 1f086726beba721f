//! Relays that only find the ends of messages. A cache in their place costs about as much or more.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use crate::origin::content;

/// The work of a relay for each request.
#[derive(Clone, Copy)]
pub(crate) enum Relay {
    /// Passes the request on, and the answer back, as a miss.
    Forward,
    /// Asks by a HEAD, and answers with 4 KiB from memory, as a validated hit.
    Validate,
}

impl Relay {
    /// Serves until the process ends, with a thread and a connection to the origin for each client.
    pub(crate) fn start(self, origin: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that breaks off is its client's affair.
                std::thread::spawn(move || self.serve(client, origin));
            }
        });
        Ok(address)
    }

    fn serve(self, mut client: TcpStream, origin: SocketAddr) -> io::Result<()> {
        let mut service = TcpStream::connect(origin)?;
        client.set_nodelay(true)?;
        service.set_nodelay(true)?;
        let mut validated = b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n".to_vec();
        validated.extend_from_slice(&content(0..4096));
        let mut buffer = vec![0; 64 << 10];
        loop {
            let request = head(&mut client, &mut buffer)?;
            match self {
                Relay::Validate => {
                    // Instead of GET.
                    let question = [b"HEAD", &buffer[3..request.received]].concat();
                    service.write_all(&question)?;
                    head(&mut service, &mut buffer)?;
                    client.write_all(&validated)?;
                }
                Relay::Forward => {
                    service.write_all(&buffer[..request.received])?;
                    let answer = head(&mut service, &mut buffer)?;
                    client.write_all(&buffer[..answer.received])?;
                    let mut left = (answer.bytes + answer.body).saturating_sub(answer.received);
                    while left > 0 {
                        let count = some(&mut service, &mut buffer)?;
                        client.write_all(&buffer[..count])?;
                        left = left.saturating_sub(count);
                    }
                }
            }
        }
    }
}

/// A head that was received.
struct Head {
    /// Its own bytes.
    bytes: usize,
    /// Bytes of the body behind it.
    body: usize,
    /// Bytes that were received with it.
    received: usize,
}

fn head(from: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Head> {
    let mut received = 0;
    loop {
        received += some(from, &mut buffer[received..])?;
        let so_far = &buffer[..received];
        let Some(end) = so_far.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&so_far[..end]).to_ascii_lowercase();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        return Ok(Head {
            bytes: end + 4,
            body: length.and_then(|length| length.parse().ok()).unwrap_or(0),
            received,
        });
    }
}

/// The next bytes, one at least.
fn some(from: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match from.read(buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}
