//! A blocking client for the part of memcached's text protocol that the load needs.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the memcached frontend.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

/// A value and its `cas` number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub bytes: Vec<u8>,
    pub cas: u64,
}

impl Client {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_with_patience(address, PATIENCE)
    }

    /// As [`open`](Self::open), with another time limit of each read or write.
    pub(crate) fn open_with_patience(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        Ok(Client {
            stream: BufReader::new(super::connect(address, patience)?),
            line: Vec::new(),
        })
    }

    /// Sends a storage command: `verb key flags exptime bytes[ cas]`. Returns
    /// the response line.
    pub(crate) fn store(
        &mut self,
        verb: &str,
        key: &str,
        bytes: &[u8],
        cas: Option<u64>,
    ) -> io::Result<String> {
        self.send(&[&storage(verb, key, bytes, cas)])?;
        self.response()
    }

    /// Sets many values in one batch. Returns how many were stored.
    pub(crate) fn set_all(&mut self, items: &[(&str, Vec<u8>)]) -> io::Result<usize> {
        let requests: Vec<_> = items
            .iter()
            .map(|(key, bytes)| storage("set", key, bytes, None))
            .collect();
        self.send(&requests.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let mut stored = 0;
        for _ in items {
            stored += usize::from(self.response()? == "STORED");
        }
        Ok(stored)
    }

    pub(crate) fn delete(&mut self, key: &str) -> io::Result<String> {
        self.send(&[format!("delete {key}\r\n").as_bytes()])?;
        self.response()
    }

    pub(crate) fn get(&mut self, key: &str) -> io::Result<Option<Item>> {
        self.send(&[&retrieval(key)])?;
        self.got(key)
    }

    /// Gets many items in one batch.
    pub(crate) fn get_all(&mut self, keys: &[&str]) -> io::Result<Vec<Option<Item>>> {
        let requests: Vec<_> = keys.iter().map(|key| retrieval(key)).collect();
        self.send(&requests.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        keys.iter().map(|key| self.got(key)).collect()
    }

    /// Gets different keys with one command: the places in `keys` of those that exist, and their
    /// items.
    pub(crate) fn get_many(&mut self, keys: &[&str]) -> io::Result<Vec<(usize, Item)>> {
        self.send(&[&retrieval(&keys.join(" "))])?;
        let mut found = Vec::new();
        loop {
            let head = self.response()?;
            if head == "END" {
                return Ok(found);
            }
            let name = head.split(' ').nth(1).unwrap_or_default();
            let Some(place) = keys.iter().position(|key| *key == name) else {
                return Err(not_memcached(&head));
            };
            found.push((place, self.value(&head, keys[place])?));
        }
    }

    fn got(&mut self, key: &str) -> io::Result<Option<Item>> {
        let head = self.response()?;
        if head == "END" {
            return Ok(None);
        }
        let item = self.value(&head, key)?;
        match self.response()?.as_str() {
            "END" => Ok(Some(item)),
            other => Err(not_memcached(other)),
        }
    }

    fn value(&mut self, head: &str, key: &str) -> io::Result<Item> {
        let words: Vec<&str> = head.split(' ').collect();
        let ["VALUE", name, _flags, len, cas] = words[..] else {
            return Err(not_memcached(head));
        };
        let (Ok(len), Ok(cas)) = (len.parse::<usize>(), cas.parse()) else {
            return Err(not_memcached(head));
        };
        if name != key {
            return Err(not_memcached(head));
        }
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(not_memcached("a value without an end"));
        }
        bytes.truncate(len);
        Ok(Item { bytes, cas })
    }

    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.stream.get_mut().write_all(&parts.concat())
    }

    fn response(&mut self) -> io::Result<String> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        match self.line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if self.line.ends_with(b"\n") => {
                Err(not_memcached(&String::from_utf8_lossy(&self.line)))
            }
            // The server died.
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn retrieval(key: &str) -> Vec<u8> {
    format!("gets {key}\r\n").into_bytes()
}

fn storage(verb: &str, key: &str, bytes: &[u8], cas: Option<u64>) -> Vec<u8> {
    let cas = cas.map(|cas| format!(" {cas}")).unwrap_or_default();
    let mut request = format!("{verb} {key} 0 0 {}{cas}\r\n", bytes.len()).into_bytes();
    request.extend_from_slice(bytes);
    request.extend_from_slice(b"\r\n");
    request
}

/// An answer that says that the server failed, or one that no server may give.
fn not_memcached(line: &str) -> io::Error {
    let kind = match line.starts_with("SERVER_ERROR") {
        true => io::ErrorKind::Other,
        false => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("{line:?}"))
}
