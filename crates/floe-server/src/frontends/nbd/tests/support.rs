//! A server with exports of the tests, and a client that sees every byte.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_core::ByteSize;
use floe_device::{BlockDevice, Clock, Completer, Counters, IoBuf, IoData, MemoryBlocks, OpFuture};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::frontend::{Frontend as _, Serving};
use crate::frontends::nbd::config::NbdConfig;
use crate::frontends::nbd::export::Export;
use crate::frontends::nbd::exports::{Exports, Served};
use crate::frontends::nbd::frontend::NbdFrontend;
use crate::frontends::nbd::protocol::options::{self, kind, number};
use crate::frontends::nbd::protocol::reply::{self, chunk};
use crate::frontends::nbd::protocol::request::{self, Command};
use crate::metrics::{Collect as _, Samples};
use crate::net::{Listeners, Shutdown};

/// Time limit of every answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the exports `disk` and `fixed`.
pub(super) const SIZE: u64 = 8 << 20;

/// The name `disk` is writable, `fixed` is read-only, `null` keeps nothing.
pub(super) struct Rig {
    pub(super) path: PathBuf,
    pub(super) frontend: Arc<NbdFrontend>,
    pub(super) shutdown: Shutdown,
    pub(super) disk: Arc<Gated>,
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

pub(super) fn rig() -> Rig {
    rig_with(|_| {})
}

pub(super) fn rig_with(change: impl FnOnce(&mut NbdConfig)) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let mut config = NbdConfig {
        threads: 2,
        ..NbdConfig::default()
    };
    change(&mut config);
    let disk = Arc::new(Gated::new());
    let fixed = Arc::new(MemoryBlocks::new(ByteSize(SIZE), 512).unwrap());
    let served = vec![
        Served::new("disk", Export::Memory(disk.clone()), false),
        Served::new("fixed", Export::Memory(fixed), true),
        Served::new(
            "null",
            Export::null(1 << 40, config.payload_bytes_max()),
            false,
        ),
    ];
    let runtime = Runtime::new().unwrap();
    let listeners = runtime
        .block_on(Listeners::bind("nbd", None, &path, 2))
        .unwrap();
    let shutdown = Shutdown::default();
    let exports = Exports::new(&config, served);
    let draining = shutdown.drain.clone();
    let frontend = NbdFrontend::new(&config, exports, Clock::real(), draining).unwrap();
    let frontend = Arc::new(frontend);
    let serving = Serving {
        shutdown: shutdown.clone(),
        metrics: Arc::from([]),
    };
    let service = Arc::clone(&frontend).serve(listeners, serving);
    service.start("nbd", &shutdown).unwrap();
    Rig {
        path,
        frontend,
        shutdown,
        disk,
        _runtime: runtime,
        _folder: folder,
    }
}

impl Rig {
    pub(super) fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A client in the middle of the handshake.
    pub(super) fn client(&self) -> Client<UnixStream> {
        Client::greet(self.stream(), 3)
    }

    /// A client in the middle of the handshake, with structured replies, that
    /// has selected the allocation of `disk`.
    pub(super) fn selecting(&self) -> Client<UnixStream> {
        let mut client = self.client();
        client.expect(number::STRUCTURED_REPLY, b"", &[kind::ACK]);
        let selected = contexts("disk", &["base:allocation"]);
        let replies = [kind::META_CONTEXT, kind::ACK];
        client.expect(number::SET_META_CONTEXT, &selected, &replies);
        client
    }

    /// A client of `disk` with structured replies.
    pub(super) fn disk(&self) -> Client<UnixStream> {
        let mut client = self.client();
        client.expect(number::STRUCTURED_REPLY, b"", &[kind::ACK]);
        client.go("disk");
        client
    }

    /// The value of a metric.
    pub(super) fn metric(&self, line: &str) -> f64 {
        let mut samples = Samples::default();
        self.frontend.collect(&mut samples);
        let text = samples.into_text().unwrap();
        let value = text.lines().find_map(|l| l.strip_prefix(line));
        let value = value.unwrap_or_else(|| panic!("{line} is not in {text}"));
        value.trim().parse().unwrap()
    }

    /// Waits until a metric has a value.
    #[track_caller]
    pub(super) fn reaches(&self, line: &str, value: f64) {
        until(|| self.metric(line) == value, line);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown.drain.cancel();
        self.shutdown.abort.cancel();
    }
}

#[track_caller]
pub(super) fn until(reached: impl Fn() -> bool, what: &str) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A chunk of a reply, or a simple reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    pub(super) errno: u32,
    pub(super) data: Vec<u8>,
}

pub(super) struct Client<S> {
    pub(super) stream: S,
    structured: bool,
}

impl<S: Read + Write> Client<S> {
    /// Reads the server's greeting, and sends these flags.
    pub(super) fn greet(mut stream: S, flags: u32) -> Self {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(&flags.to_be_bytes()).unwrap();
        Client::new(stream)
    }

    pub(super) fn new(stream: S) -> Self {
        Client {
            stream,
            structured: false,
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn take_vec(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The replies to an option: their types and data.
    pub(super) fn option(&mut self, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option_bytes(number, data));
        let mut replies = Vec::new();
        loop {
            assert_eq!(u64::from_be_bytes(self.take()), options::REPLY_MAGIC);
            assert_eq!(u32::from_be_bytes(self.take()), number);
            let kind = u32::from_be_bytes(self.take());
            let len = u32::from_be_bytes(self.take());
            let data = self.take_vec(len as usize);
            replies.push((kind, data));
            if kind == kind::ACK || kind >> 31 == 1 {
                self.structured |= (number, kind) == (number::STRUCTURED_REPLY, kind::ACK);
                return replies;
            }
        }
    }

    /// Sends an option, and compares the types of its replies.
    #[track_caller]
    pub(super) fn expect(&mut self, number: u32, data: &[u8], kinds: &[u32]) {
        let replies = self.option(number, data);
        let given: Vec<u32> = replies.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(given, kinds, "option {number} with {data:?}");
    }

    #[track_caller]
    pub(super) fn go(&mut self, name: &str) {
        self.expect(number::GO, &query(name, &[]), &[kind::INFO, kind::ACK]);
    }

    /// Sends a request without flags, and returns the data of its reply or its error.
    pub(super) fn ask(&mut self, command: Command, at: u64, len: u32, data: &[u8]) -> Reply {
        self.send(&request_bytes(0, command as u16, 7, at, len));
        self.send(data);
        let reply = self.reply();
        assert_eq!(reply.cookie, 7);
        reply
    }

    #[track_caller]
    pub(super) fn write(&mut self, at: u64, data: &[u8]) {
        let reply = self.ask(Command::Write, at, data.len() as u32, data);
        assert_eq!(reply.errno, 0);
    }

    #[track_caller]
    pub(super) fn read(&mut self, at: u64, len: u32) -> Vec<u8> {
        let reply = self.read_reply(at, len);
        assert_eq!(reply.errno, 0);
        reply.data
    }

    /// Reads with whichever replies were negotiated.
    pub(super) fn read_reply(&mut self, at: u64, len: u32) -> Reply {
        self.send(&request_bytes(0, Command::Read as u16, 7, at, len));
        let mut reply = self.reply();
        if !self.structured && reply.errno == 0 {
            reply.data = self.take_vec(len as usize);
        }
        reply
    }

    /// The next reply. The data of a simple one is left in the stream.
    pub(super) fn reply(&mut self) -> Reply {
        let magic = u32::from_be_bytes(self.take());
        if magic == reply::SIMPLE_MAGIC {
            return Reply {
                errno: u32::from_be_bytes(self.take()),
                cookie: u64::from_be_bytes(self.take()),
                data: Vec::new(),
            };
        }
        assert_eq!((magic, self.structured), (reply::CHUNK_MAGIC, true));
        assert_eq!(u16::from_be_bytes(self.take()), reply::DONE);
        let kind = u16::from_be_bytes(self.take());
        let cookie = u64::from_be_bytes(self.take());
        let len = u32::from_be_bytes(self.take());
        let data = self.take_vec(len as usize);
        let (errno, data) = match kind {
            chunk::OFFSET_DATA => (0, data[8..].to_vec()),
            chunk::BLOCK_STATUS => (0, data),
            chunk::ERROR => {
                let (errno, reason) = data.split_first_chunk().unwrap();
                assert_eq!(reason.len(), 2 + usize::from(reason[1]));
                (u32::from_be_bytes(*errno), Vec::new())
            }
            kind => panic!("a chunk of type {kind}"),
        };
        Reply {
            cookie,
            errno,
            data,
        }
    }

    /// True if the server has closed the connection.
    pub(super) fn is_closed(&mut self) -> bool {
        is_end(self.stream.read(&mut [0; 64]))
    }
}

pub(super) fn is_end(read: io::Result<usize>) -> bool {
    match read {
        Ok(len) => len == 0,
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
        ),
    }
}

pub(super) fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = options::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The data of INFO and GO.
pub(super) fn query(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut bytes = text(name);
    bytes.extend((infos.len() as u16).to_be_bytes());
    bytes.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    bytes
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub(super) fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = text(name);
    bytes.extend((queries.len() as u32).to_be_bytes());
    bytes.extend(queries.iter().flat_map(|query| text(query)));
    bytes
}

pub(super) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub(super) fn request_bytes(flags: u16, command: u16, cookie: u64, at: u64, len: u32) -> Vec<u8> {
    let mut bytes = request::MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(at.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// Blocks in memory. Operations from [`GATE`] to [`GATE_END`] wait until
/// [`Gated::open`].
pub(super) struct Gated {
    blocks: MemoryBlocks,
    waiting: Mutex<Vec<Waiting>>,
}

/// An operation that waits.
type Waiting = Box<dyn FnOnce(&MemoryBlocks) + Send>;

/// The first byte behind the gate.
pub(super) const GATE: u64 = 4 << 20;
const GATE_END: u64 = 5 << 20;

impl Gated {
    fn new() -> Self {
        Gated {
            blocks: MemoryBlocks::new(ByteSize(SIZE), 512).unwrap(),
            waiting: Mutex::default(),
        }
    }

    /// Operations that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Carries out the operations that wait.
    pub(super) fn open(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting
            .into_iter()
            .for_each(|carry_out| carry_out(&self.blocks));
    }

    fn gate<T: Send + 'static>(
        &self,
        at: u64,
        operate: impl FnOnce(&MemoryBlocks) -> OpFuture<T> + Send + 'static,
    ) -> OpFuture<T> {
        if !(GATE..GATE_END).contains(&at) {
            return operate(&self.blocks);
        }
        let (completer, operation): (Completer<T>, _) = OpFuture::pending();
        let carry_out = move |blocks: &MemoryBlocks| {
            let done = operate(blocks).now_or_never().unwrap();
            completer.complete(done);
        };
        self.waiting.lock().push(Box::new(carry_out));
        operation
    }
}

impl std::fmt::Debug for Gated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gated")
    }
}

impl BlockDevice for Gated {
    fn size_bytes(&self) -> u64 {
        self.blocks.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.blocks.block_bytes()
    }

    fn describe(&self) -> String {
        "blocks behind a gate".to_owned()
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.gate(at, move |blocks| blocks.read(at, buf))
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.gate(at, move |blocks| blocks.write(at, data))
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.gate(range.start, move |blocks| blocks.write_zeroes(range))
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.gate(range.start, move |blocks| blocks.discard(range))
    }

    fn flush(&self) -> OpFuture<()> {
        self.blocks.flush()
    }

    fn counters(&self) -> &Counters {
        self.blocks.counters()
    }
}
