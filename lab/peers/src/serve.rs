//! foyer behind the part of memcached's text protocol that a comparison needs:
//! `get`, `set`, `delete` and `stats`, on a Unix socket. The figures include the
//! cost of the protocol, as they do for servers.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use foyer::HybridCache;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::foyer_cache::{self, FoyerIo};
use crate::peer::Sizes;

type Items = HybridCache<Bytes, Bytes>;

/// Longest line in bytes. The client, which is ours, limits the values.
const LINE_BYTES_MAX: usize = 4096;

/// Serves until standard input ends.
pub async fn serve(socket: &Path, folder: &Path, sizes: Sizes, io: FoyerIo) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let items: Items = foyer_cache::build(folder, sizes, io).await?;
    let listener = UnixListener::bind(socket)?;
    println!("ready");
    let accept = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let items = items.clone();
            tokio::spawn(async move {
                if let Err(error) = connection(stream, items).await {
                    eprintln!("a connection ended: {error:#}");
                }
            });
        }
    };
    let mut end = tokio::io::stdin();
    let mut waste = [0; 64];
    tokio::select! {
        biased;
        ended = end.read(&mut waste) => ended.map(|_| ()).map_err(Into::into),
        failed = accept => failed,
    }
}

/// A request of a client.
enum Request {
    Get(Bytes),
    Set(Bytes, Bytes),
    Delete(Bytes),
    Stats,
}

async fn connection(mut stream: UnixStream, items: Items) -> Result<()> {
    let mut input = BytesMut::with_capacity(64 << 10);
    let mut output = BytesMut::with_capacity(64 << 10);
    loop {
        let mut requests = Vec::new();
        while let Some(request) = parse(&mut input)? {
            requests.push(request);
        }
        answer(&items, requests, &mut output).await?;
        stream.write_all(&output).await?;
        output.clear();
        input.reserve(16 << 10);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// Consecutive gets read flash concurrently. Other requests run one at a time.
async fn answer(items: &Items, requests: Vec<Request>, output: &mut BytesMut) -> Result<()> {
    let mut gets: Vec<Bytes> = Vec::new();
    for request in requests {
        let Request::Get(key) = request else {
            answer_gets(items, &mut gets, output).await?;
            match request {
                Request::Set(key, value) => {
                    items.insert(key, value);
                    output.extend_from_slice(b"STORED\r\n");
                }
                Request::Delete(key) => {
                    items.remove(&key);
                    output.extend_from_slice(b"DELETED\r\n");
                }
                Request::Get(_) | Request::Stats => output.extend_from_slice(b"END\r\n"),
            }
            continue;
        };
        gets.push(key);
    }
    answer_gets(items, &mut gets, output).await
}

async fn answer_gets(items: &Items, gets: &mut Vec<Bytes>, output: &mut BytesMut) -> Result<()> {
    let found = join_all(gets.iter().map(|key| items.get(key))).await;
    for (key, found) in gets.drain(..).zip(found) {
        if let Some(entry) = found? {
            output.extend_from_slice(b"VALUE ");
            output.extend_from_slice(&key);
            output.extend_from_slice(format!(" 0 {}\r\n", entry.value().len()).as_bytes());
            output.extend_from_slice(entry.value());
            output.extend_from_slice(b"\r\n");
        }
        output.extend_from_slice(b"END\r\n");
    }
    Ok(())
}

/// Takes the next complete request off `input`.
fn parse(input: &mut BytesMut) -> Result<Option<Request>> {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
        if input.len() > LINE_BYTES_MAX {
            bail!("a line without an end");
        }
        return Ok(None);
    };
    let line = std::str::from_utf8(&input[..end])?.trim_end();
    let words: Vec<&str> = line.split(' ').collect();
    let key = |word: &str| Bytes::copy_from_slice(word.as_bytes());
    match words[..] {
        ["get", name] => {
            let request = Request::Get(key(name));
            input.advance(end + 1);
            Ok(Some(request))
        }
        ["delete", name] => {
            let request = Request::Delete(key(name));
            input.advance(end + 1);
            Ok(Some(request))
        }
        ["set", name, _, _, len] => {
            let name = key(name);
            let len: usize = len.parse().context("a length")?;
            if input.len() < end + 1 + len + 2 {
                input.reserve(len + 2);
                return Ok(None);
            }
            input.advance(end + 1);
            let value = input.split_to(len).freeze();
            input.advance(2);
            // A copy: a slice would keep the whole read buffer alive.
            Ok(Some(Request::Set(name, Bytes::copy_from_slice(&value))))
        }
        ["stats"] => {
            input.advance(end + 1);
            Ok(Some(Request::Stats))
        }
        _ => bail!("not understood: {line}"),
    }
}
