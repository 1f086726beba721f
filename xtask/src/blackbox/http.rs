//! A minimal HTTP/1.1 client, independent of the server's libraries.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time limit of one read or write of a socket; after it the server counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// A persistent connection.
pub struct Connection {
    stream: BufReader<TcpStream>,
    host: SocketAddr,
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// The header `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Connection {
    /// Connects to `host`.
    pub fn open(host: SocketAddr) -> io::Result<Self> {
        Self::open_with_patience(host, PATIENCE)
    }

    /// As [`open`](Self::open), with another time limit.
    pub fn open_with_patience(host: SocketAddr, patience: Duration) -> io::Result<Self> {
        Ok(Connection {
            stream: BufReader::new(super::connect(host, patience)?),
            host,
        })
    }

    /// Sends a request and reads the whole response. An error makes the connection unusable.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> io::Result<Response> {
        let message = self.message(method, path, headers, body);
        self.stream.get_mut().write_all(&message)?;
        let mut response = self.head()?;
        let empty = method == "HEAD" || response.status == 204 || response.status == 304;
        if !empty {
            response.body = self.body(&response)?;
        }
        Ok(response)
    }

    /// Sends a GET and reads only the head of the response. The body, which
    /// must have a length, is read piece by piece; unless it is read to its
    /// end, the connection becomes unusable.
    pub fn stream(
        &mut self,
        path: &str,
        headers: &[(&str, String)],
    ) -> io::Result<(Response, Body<'_>)> {
        let message = self.message("GET", path, headers, b"");
        self.stream.get_mut().write_all(&message)?;
        let head = self.head()?;
        let left = content_length(&head)?;
        let stream = &mut self.stream;
        Ok((head, Body { stream, left }))
    }

    fn message(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &[u8],
    ) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if method == "PUT" || method == "POST" || !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        let mut message = head.into_bytes();
        message.extend_from_slice(body);
        message
    }

    /// Reads everything before the body.
    fn head(&mut self) -> io::Result<Response> {
        loop {
            let status = self.status()?;
            let headers = self.headers()?;
            if !(100..200).contains(&status) {
                return Ok(Response {
                    status,
                    headers,
                    body: Vec::new(),
                });
            }
        }
    }

    fn status(&mut self) -> io::Result<u16> {
        let line = self.line()?;
        line.split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| malformed(&format!("no status line: {line:?}")))
    }

    fn headers(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(headers);
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| malformed(&format!("no header: {line:?}")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn body(&mut self, response: &Response) -> io::Result<Vec<u8>> {
        if response
            .header("transfer-encoding")
            .is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
        {
            return self.chunked_body();
        }
        let length = content_length(response)?;
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default();
            let length = usize::from_str_radix(digits.trim(), 16)
                .map_err(|_| malformed(&format!("no chunk length: {line:?}")))?;
            if length == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            let start = body.len();
            body.resize(start + length, 0);
            self.stream.read_exact(&mut body[start..])?;
            self.line()?;
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// A body that is read piece by piece.
pub struct Body<'a> {
    stream: &'a mut BufReader<TcpStream>,
    left: u64,
}

impl Body<'_> {
    /// Bytes not yet read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Fills `buffer` with the next bytes; fails if fewer are left.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.left = self
            .left
            .checked_sub(buffer.len() as u64)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        self.stream.read_exact(buffer)
    }
}

fn content_length(response: &Response) -> io::Result<u64> {
    let Some(length) = response.header("content-length") else {
        return Err(malformed("an answer without a length"));
    };
    length
        .parse()
        .map_err(|_| malformed(&format!("a length that is none: {length:?}")))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
