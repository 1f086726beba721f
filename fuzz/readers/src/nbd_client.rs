//! An NBD server that sends anything: each operation of its client ends.
//!
//! An input is what the server sends, and once more what it sends after a handshake. Its
//! first connection is the only one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use floe::backing::nbd::wire::{
    CHUNK_MAGIC, DONE, FIXED_NEWSTYLE, GREETING, OPTION_MAGIC, REPLY_MAGIC, SIMPLE_MAGIC, chunk,
    flags, info, kind, number,
};
use floe::backing::nbd::{NbdBlocks, NbdConfig, NbdConnect, NbdStream};
use floe::device::{BlockDevice, Clock, IoBuf};

const SIZE: u64 = 1 << 20;

pub(crate) fn nbd_replies(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    for is_structured in [false, true] {
        let after = [&handshake(is_structured), data].concat();
        for sent in [data.to_vec(), after] {
            runtime.block_on(serve(sent));
        }
    }
}

async fn serve(sent: Vec<u8>) {
    let is_used = AtomicBool::new(false);
    let connect: Box<NbdConnect> = Box::new(move || {
        let sent = match is_used.swap(true, SeqCst) {
            true => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            false => Ok(io::Cursor::new(sent.clone())),
        };
        Box::pin(async move {
            let stream = tokio::io::join(sent?, tokio::io::sink());
            Ok(Box::new(stream) as Box<dyn NbdStream>)
        })
    });
    let config = NbdConfig {
        retry_seconds: 0.0,
        fence_seconds: 0.0,
        ..NbdConfig::default()
    };
    let Ok(device) = NbdBlocks::open_over(connect, "disk", &config, Clock::real()).await else {
        return;
    };
    let block = u64::from(device.block_bytes());
    assert!(device.size_bytes().is_multiple_of(block) && block <= 4096);
    let len = 4 * block.min(device.size_bytes() / 4 / block * block);
    if len == 0 {
        return;
    }
    // A server that is gone fails what it has not answered.
    let read = device.read(0, IoBuf::zeroed(len as usize));
    let write = device.write(0, IoBuf::zeroed(len as usize).freeze());
    let (zeroed, discarded) = (device.write_zeroes(0..len), device.discard(0..len));
    let flush = device.flush();
    if let Ok(found) = read.await {
        assert_eq!(found.len() as u64, len);
    }
    drop((write.await, zeroed.await, discarded.await, flush.await));
}

fn handshake(is_structured: bool) -> Vec<u8> {
    let mut bytes = GREETING.to_be_bytes().to_vec();
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    bytes.extend(FIXED_NEWSTYLE.to_be_bytes());
    let mut reply = |option: u32, kind: u32, data: &[u8]| {
        bytes.extend(REPLY_MAGIC.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    };
    let structured = if is_structured {
        kind::ACK
    } else {
        kind::ERR_UNSUP
    };
    reply(number::STRUCTURED_REPLY, structured, b"");
    let all = flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_TRIM | flags::SEND_WRITE_ZEROES;
    let mut about = info::EXPORT.to_be_bytes().to_vec();
    about.extend(SIZE.to_be_bytes());
    about.extend(all.to_be_bytes());
    reply(number::GO, kind::INFO, &about);
    reply(number::GO, kind::ACK, b"");
    bytes
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let simple = |cookie: u64, error: u32, data: &[u8]| {
        let mut bytes = SIMPLE_MAGIC.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let chunk = |flags: u16, kind: u16, cookie: u64, data: &[u8]| {
        let mut bytes = CHUNK_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let data = [&[0; 8][..], &[7; 1024]].concat();
    let hole = [&1024_u64.to_be_bytes()[..], &1024_u32.to_be_bytes()].concat();
    let error = b"\0\0\0\x05\0\x04text";
    let pieces = |cookie: u64| {
        [
            chunk(0, chunk::OFFSET_DATA, cookie, &data),
            chunk(DONE, chunk::OFFSET_HOLE, cookie, &hole),
        ]
        .concat()
    };
    let all = |each: &dyn Fn(u64) -> Vec<u8>| (1..6).flat_map(each).collect();
    vec![
        handshake(true),
        all(&|cookie| simple(cookie, 0, b"")),
        all(&|cookie| simple(cookie, 5, b"")),
        all(&|cookie| simple(cookie, 0, &[1; 2048])),
        all(&pieces),
        all(&|cookie| chunk(DONE, chunk::ERROR, cookie, error)),
        all(&|cookie| chunk(DONE, chunk::NONE, cookie, b"")),
    ]
}
