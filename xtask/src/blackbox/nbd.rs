//! A client for NBD with simple replies that keeps requests in flight.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

const GREETING_BYTES: usize = 18;
const FIXED_NEWSTYLE_WITHOUT_ZEROES: u32 = 3;
const OPTION_EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: [u8; 4] = 0x6744_6698_u32.to_be_bytes();
const FLAG_FUA: u16 = 1;

/// A request that the load sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command<'a> {
    /// Reads as many bytes.
    Read(u32),
    /// Writes these bytes, durably if the flag is set.
    Write(&'a [u8], bool),
    Flush,
}

/// The end of a request.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    /// 0, or the protocol's error number.
    pub(crate) error: u32,
    /// The bytes of a read.
    pub(crate) data: Vec<u8>,
}

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connection's stream.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

impl Endpoint {
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// A connection that serves requests.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    next_cookie: u64,
    /// Bytes that the replies of the requests in flight carry.
    in_flight: BTreeMap<u64, usize>,
}

impl Client {
    /// Connects to a server, and selects an export.
    pub(crate) fn open(server: &Endpoint, export: &str) -> io::Result<Self> {
        let mut stream = server.connect()?;
        let mut greeting = [0; GREETING_BYTES];
        stream.read_exact(&mut greeting)?;
        let flags = FIXED_NEWSTYLE_WITHOUT_ZEROES.to_be_bytes();
        let option = OPTION_EXPORT_NAME.to_be_bytes();
        let length = (export.len() as u32).to_be_bytes();
        let choice = [&flags[..], b"IHAVEOPT", &option, &length, export.as_bytes()].concat();
        stream.write_all(&choice)?;
        let mut size_and_flags = [0; 10];
        stream.read_exact(&mut size_and_flags)?;
        Ok(Client {
            stream,
            next_cookie: 0,
            in_flight: BTreeMap::new(),
        })
    }

    /// Sends a request. Returns the cookie of its reply.
    pub(crate) fn send(&mut self, command: Command<'_>, at: u64) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let answer_bytes = match command {
            Command::Read(len) => len as usize,
            Command::Write(..) | Command::Flush => 0,
        };
        self.in_flight.insert(cookie, answer_bytes);
        self.stream.write_all(&encode(command, at, cookie))?;
        Ok(cookie)
    }

    /// Receives the next reply, of any request in flight.
    ///
    /// # Errors
    /// `InvalidData` if the server breaks the protocol; others if the connection broke.
    pub(crate) fn receive(&mut self) -> io::Result<Reply> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let (magic, rest) = head.split_at(4);
        let (error, cookie) = rest.split_at(4);
        let [error, cookie] = [error, cookie].map(|bytes| {
            let digits = bytes.iter().map(|byte| u64::from(*byte));
            digits.fold(0, |number, byte| number << 8 | byte)
        });
        let expected = self.in_flight.remove(&cookie);
        let Some(len) = expected.filter(|_| magic == REPLY_MAGIC) else {
            let what = format!("a reply that belongs to no request: {head:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        let mut data = vec![0; if error == 0 { len } else { 0 }];
        self.stream.read_exact(&mut data)?;
        Ok(Reply {
            cookie,
            error: error as u32,
            data,
        })
    }

    /// Ends the connection in the middle of a write, without reading what is in flight.
    pub(crate) fn break_off(mut self, at: u64, data: &[u8], sent_bytes: usize) {
        let request = encode(Command::Write(data, false), at, self.next_cookie);
        // The server may have closed the connection.
        let _ = self
            .stream
            .write_all(&request[..sent_bytes.min(request.len() - 1)]);
    }
}

fn encode(command: Command<'_>, at: u64, cookie: u64) -> Vec<u8> {
    let (number, flags, len, data): (u16, u16, u32, &[u8]) = match command {
        Command::Read(len) => (0, 0, len, &[]),
        Command::Write(data, durable) => {
            let flags = if durable { FLAG_FUA } else { 0 };
            (1, flags, data.len() as u32, data)
        }
        Command::Flush => (3, 0, 0, &[]),
    };
    [
        &REQUEST_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &number.to_be_bytes(),
        &cookie.to_be_bytes(),
        &at.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ]
    .concat()
}
