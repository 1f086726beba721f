//! A small server with bad habits.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut as _;
use floe_device::Clock;
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, WriteHalf};

use crate::backing::nbd::transport::{NbdConnect, NbdStream};
use crate::backing::nbd::wire::{
    CHUNK_MAGIC, Command, DONE, FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION_MAGIC, REPLY_MAGIC,
    REQUEST_MAGIC, SIMPLE_MAGIC, chunk, flags, info, kind, number,
};

const EVERYTHING: u16 = flags::HAS_FLAGS
    | flags::SEND_FLUSH
    | flags::SEND_TRIM
    | flags::SEND_WRITE_ZEROES
    | flags::CAN_MULTI_CONN;

#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) size_bytes: u64,
    pub(super) is_structured: bool,
    /// Data of reads arrives in pieces, the last one first, and zeros as holes.
    pub(super) in_pieces: bool,
    pub(super) flags: u16,
    pub(super) payload_bytes_max: u32,
    /// Connections that die at a request, of a thousand.
    pub(super) deaths_per_thousand: u32,
    /// Losses of everything that was not flushed, at a request, of a thousand.
    pub(super) crashes_per_thousand: u32,
    /// The longest time until a request is carried out.
    pub(super) delay_max: Duration,
    /// It answers no request.
    pub(super) is_silent: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Habits {
            size_bytes: 4 << 20,
            is_structured: false,
            in_pieces: false,
            flags: EVERYTHING,
            payload_bytes_max: 32 << 20,
            deaths_per_thousand: 0,
            crashes_per_thousand: 0,
            delay_max: Duration::ZERO,
            is_silent: false,
        }
    }
}

struct Medium {
    current: Vec<u8>,
    durable: Vec<u8>,
    random: Xoshiro256PlusPlus,
    /// Counts crashes: requests of earlier lives are not carried out.
    life: u64,
    /// Requests past the size that their connection was told.
    past_end: u64,
    fails_flushes: bool,
    deaths: u64,
    late: u64,
    flushes: u64,
}

pub(super) struct Server {
    habits: Habits,
    clock: Clock,
    medium: Mutex<Medium>,
    died: tokio::sync::Notify,
}

struct Request {
    command: Command,
    cookie: u64,
    range: Range<usize>,
    data: Vec<u8>,
    life: u64,
}

type Output = Arc<tokio::sync::Mutex<WriteHalf<DuplexStream>>>;

impl Server {
    pub(super) fn new(habits: Habits, clock: &Clock, seed: u64) -> Arc<Self> {
        Arc::new(Server {
            habits,
            clock: clock.clone(),
            medium: Mutex::new(Medium {
                current: vec![0; habits.size_bytes as usize],
                durable: vec![0; habits.size_bytes as usize],
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
                life: 0,
                past_end: 0,
                fails_flushes: false,
                deaths: 0,
                late: 0,
                flushes: 0,
            }),
            died: tokio::sync::Notify::new(),
        })
    }

    pub(super) fn connect(self: &Arc<Self>) -> Box<NbdConnect> {
        let server = Arc::clone(self);
        Box::new(move || {
            let (near, far) = tokio::io::duplex(64 << 10);
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let life = server.medium.lock().life;
                tokio::select! {
                    _ = server.serve(far, life) => {}
                    () = server.died.notified() => {}
                }
            });
            Box::pin(async move { Ok(Box::new(near) as Box<dyn NbdStream>) })
        })
    }

    pub(super) fn durable(&self, range: Range<u64>) -> Vec<u8> {
        self.medium.lock().durable[range.start as usize..range.end as usize].to_vec()
    }

    pub(super) fn deaths(&self) -> u64 {
        self.medium.lock().deaths
    }

    /// Changes that landed after their connection had died.
    pub(super) fn late(&self) -> u64 {
        self.medium.lock().late
    }

    pub(super) fn flushes(&self) -> u64 {
        self.medium.lock().flushes
    }

    /// Connections that are there keep the size that they were told.
    pub(super) fn resize(&self, size_bytes: u64) {
        let mut medium = self.medium.lock();
        medium.current.resize(size_bytes as usize, 0);
        medium.durable.resize(size_bytes as usize, 0);
    }

    /// Requests past the size that their connection was told.
    pub(super) fn past_end(&self) -> u64 {
        self.medium.lock().past_end
    }

    pub(super) fn fail_flushes(&self, fails: bool) {
        self.medium.lock().fails_flushes = fails;
    }

    /// Loses some of what was not flushed, and all connections.
    pub(super) fn crash(&self) {
        let mut medium = self.medium.lock();
        let Medium {
            current,
            durable,
            random,
            ..
        } = &mut *medium;
        for (new, old) in current.chunks_mut(512).zip(durable.chunks_mut(512)) {
            match new != old && random.random() {
                true => old.copy_from_slice(new),
                false => new.copy_from_slice(old),
            }
        }
        medium.life += 1;
        self.died.notify_waiters();
    }

    fn happens(&self, per_thousand: u32) -> bool {
        self.medium.lock().random.random_range(0..1000) < per_thousand
    }

    async fn serve(self: &Arc<Self>, mut stream: DuplexStream, life: u64) -> io::Result<()> {
        let size = self.greet(&mut stream).await?;
        let (mut input, output) = tokio::io::split(stream);
        let output = Arc::new(tokio::sync::Mutex::new(output));
        loop {
            assert_eq!(input.read_u32().await?, REQUEST_MAGIC);
            let (_flags, number) = (input.read_u16().await?, input.read_u16().await?);
            let command = Command::of(number);
            let (cookie, at) = (input.read_u64().await?, input.read_u64().await?);
            let len = input.read_u32().await?;
            if at + u64::from(len) > size {
                self.medium.lock().past_end += 1;
                return Ok(());
            }
            let mut data = vec![
                0;
                if command == Command::Write {
                    len as usize
                } else {
                    0
                }
            ];
            input.read_exact(&mut data).await?;
            let request = Request {
                command,
                cookie,
                range: at as usize..at as usize + len as usize,
                data,
                life,
            };
            if self.happens(self.habits.crashes_per_thousand) {
                self.crash();
                return Ok(());
            }
            let dies = self.happens(self.habits.deaths_per_thousand);
            self.medium.lock().deaths += u64::from(dies);
            let delay = self.habits.delay_max;
            let delay = delay.mul_f64(self.medium.lock().random.random());
            let (server, to) = (Arc::clone(self), Arc::clone(&output));
            let carrying_out = async move {
                server.clock.sleep(delay).await;
                if !server.habits.is_silent {
                    server.carry_out(request, &to).await;
                }
            };
            match self.habits.delay_max.is_zero() {
                true => carrying_out.await,
                // It goes on after the death of the connection.
                false => drop(tokio::spawn(carrying_out)),
            }
            if dies {
                return output.lock().await.shutdown().await;
            }
        }
    }

    /// Agrees on the export; returns the size that it told.
    async fn greet(&self, stream: &mut DuplexStream) -> io::Result<u64> {
        let size = self.medium.lock().current.len() as u64;
        stream.write_u64(GREETING).await?;
        stream.write_u64(OPTION_MAGIC).await?;
        stream.write_u16(FIXED_NEWSTYLE | NO_ZEROES).await?;
        stream.read_u32().await?;
        loop {
            assert_eq!(stream.read_u64().await?, OPTION_MAGIC);
            let (option, len) = (stream.read_u32().await?, stream.read_u32().await?);
            let mut data = vec![0; len as usize];
            stream.read_exact(&mut data).await?;
            let mut replies: Vec<(u32, Vec<u8>)> = Vec::new();
            match option {
                number::STRUCTURED_REPLY if self.habits.is_structured => {
                    replies.push((kind::ACK, Vec::new()));
                }
                number::GO => {
                    let mut about = info::EXPORT.to_be_bytes().to_vec();
                    about.put_u64(size);
                    about.put_u16(self.habits.flags);
                    replies.push((kind::INFO, about));
                    let mut blocks = info::BLOCK_SIZE.to_be_bytes().to_vec();
                    blocks.put_u32(512);
                    blocks.put_u32(4096);
                    blocks.put_u32(self.habits.payload_bytes_max);
                    replies.push((kind::INFO, blocks));
                    replies.push((kind::ACK, Vec::new()));
                }
                _ => replies.push((kind::ERR_UNSUP, b"unknown".to_vec())),
            }
            for (kind, data) in replies {
                stream.write_u64(REPLY_MAGIC).await?;
                stream.write_u32(option).await?;
                stream.write_u32(kind).await?;
                stream.write_u32(data.len() as u32).await?;
                stream.write_all(&data).await?;
            }
            if option == number::GO {
                return Ok(size);
            }
        }
    }

    async fn carry_out(&self, request: Request, to: &Output) {
        let Request {
            command,
            cookie,
            range,
            data,
            life,
        } = request;
        let mut reply = Vec::new();
        {
            let mut medium = self.medium.lock();
            if medium.life != life {
                return;
            }
            let mut error = 0;
            match command {
                Command::Read => {
                    let data = &medium.current[range.clone()];
                    match self.habits.is_structured {
                        true => self.put_chunks(&mut reply, cookie, range.start as u64, data),
                        false => {
                            put_simple(&mut reply, cookie, 0);
                            reply.put_slice(data);
                        }
                    }
                }
                Command::Write => medium.current[range].copy_from_slice(&data),
                Command::WriteZeroes => medium.current[range].fill(0),
                Command::Trim => {}
                _ if medium.fails_flushes => error = 5,
                _ => {
                    medium.flushes += 1;
                    let Medium {
                        current, durable, ..
                    } = &mut *medium;
                    for (new, old) in current.chunks(512).zip(durable.chunks_mut(512)) {
                        if new != old {
                            old.copy_from_slice(new);
                        }
                    }
                }
            }
            if command != Command::Read {
                put_simple(&mut reply, cookie, error);
            }
        }
        let is_late = to.lock().await.write_all(&reply).await.is_err();
        let changes = command != Command::Read && command != Command::Flush;
        self.medium.lock().late += u64::from(is_late && changes);
    }

    fn put_chunks(&self, out: &mut Vec<u8>, cookie: u64, at: u64, data: &[u8]) {
        let middle = match self.habits.in_pieces && data.len() > 512 {
            true => data.len() / 1024 * 512,
            false => 0,
        };
        let pieces = [(middle, &data[middle..]), (0, &data[..middle])];
        for (from, piece) in pieces.into_iter().filter(|(_, piece)| !piece.is_empty()) {
            let is_hole = self.habits.in_pieces && piece.iter().all(|byte| *byte == 0);
            out.put_u32(CHUNK_MAGIC);
            out.put_u16(0);
            out.put_u16(match is_hole {
                true => chunk::OFFSET_HOLE,
                false => chunk::OFFSET_DATA,
            });
            out.put_u64(cookie);
            out.put_u32(if is_hole { 12 } else { 8 + piece.len() as u32 });
            out.put_u64(at + from as u64);
            match is_hole {
                true => out.put_u32(piece.len() as u32),
                false => out.put_slice(piece),
            }
        }
        out.put_u32(CHUNK_MAGIC);
        out.put_u16(DONE);
        out.put_u16(chunk::NONE);
        out.put_u64(cookie);
        out.put_u32(0);
    }
}

fn put_simple(out: &mut Vec<u8>, cookie: u64, error: u32) {
    out.put_u32(SIMPLE_MAGIC);
    out.put_u32(error);
    out.put_u64(cookie);
}
