//! A server with a memcached frontend, and a raw client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use floe::object::{ObjectCache, ObjectConfig};
use floe::origin::{Origin, OriginConfig};
use floe::{Store, StoreConfig};
use floe_core::{ByteSize, Geometry};
use floe_device::{Clock, MemoryDevice};
use floe_server::{AdminConfig, MemcachedConfig, Server, ServerConfig, StartError};
use tokio::runtime::Runtime;

/// A running server.
pub(crate) struct Rig {
    server: Option<Server>,
    pub(crate) store: Store,
    pub(crate) path: PathBuf,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

/// A server whose RAM tier holds all items.
pub(crate) fn rig() -> Rig {
    rig_with(ByteSize::mib(64), |_| {})
}

/// A server without a RAM tier, so that gets read flash.
pub(crate) fn rig_on_flash() -> Rig {
    rig_with(ByteSize(0), |_| {})
}

pub(crate) fn rig_with(ram: ByteSize, change: impl FnOnce(&mut MemcachedConfig)) -> Rig {
    try_rig_with(ram, change).unwrap()
}

pub(crate) fn try_rig_with(
    ram: ByteSize,
    change: impl FnOnce(&mut MemcachedConfig),
) -> Result<Rig, StartError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memcached.sock");
    let mut memcached = MemcachedConfig {
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        path: path.clone(),
        threads: 2,
        ..MemcachedConfig::default()
    };
    change(&mut memcached);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (server, store) = runtime.block_on(async {
        let clock = Clock::real();
        let store = store(&clock, ram).await;
        let origin = OriginConfig {
            root: Some(folder.path().to_owned()),
            ..OriginConfig::default()
        };
        let origin = Origin::open(&origin, clock.clone()).unwrap();
        let config = ObjectConfig::default();
        let cache = ObjectCache::new(store.clone(), origin, clock.clone(), config).unwrap();
        let config = ServerConfig {
            memcached: Some(memcached),
            admin: Some(AdminConfig {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                ..AdminConfig::default()
            }),
            ..ServerConfig::default()
        };
        let server = Server::start(config, cache.clone().into(), clock, None).await?;
        Ok::<_, StartError>((server, store))
    })?;
    Ok(Rig {
        server: Some(server),
        store,
        path,
        runtime,
        _folder: folder,
    })
}

async fn store(clock: &Clock, ram: ByteSize) -> Store {
    let geometry = Geometry::in_place(32, 8 << 20);
    // The default chunk size, so that items of a megabyte exceed it.
    let mut config = StoreConfig::default();
    config.ram.size = ram;
    let device = Arc::new(MemoryDevice::new(geometry));
    Store::open(device, clock.clone(), &config).await.unwrap()
}

impl Rig {
    pub(crate) fn address(&self) -> SocketAddr {
        let server = self.server.as_ref().unwrap();
        server.addresses().tcp("memcached").unwrap()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        let server = self.server.as_ref().unwrap();
        server.addresses().tcp("admin").unwrap()
    }

    /// A connection over TCP.
    pub(crate) fn client(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    /// A connection over TCP with a longer time limit: other clients delay its
    /// responses until the server detects them.
    pub(crate) fn patient_client(&self) -> Client<TcpStream> {
        let client = self.client();
        let patience = Some(4 * PATIENCE);
        client.stream.set_read_timeout(patience).unwrap();
        client
    }

    /// A connection over the Unix socket.
    pub(crate) fn local_client(&self) -> Client<UnixStream> {
        unix_client(&self.path)
    }

    /// Puts everything accepted so far on flash.
    pub(crate) fn flush(&self) {
        self.runtime.block_on(self.store.flush()).unwrap();
    }

    pub(crate) fn shut_down(&mut self) -> floe_server::Drained {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.shutdown())
    }
}

/// The page of all metrics.
pub(crate) fn metrics(rig: &Rig) -> String {
    let mut stream = TcpStream::connect(rig.admin()).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    metrics
}

/// The value of a metric, with its labels as written.
pub(crate) fn metric(rig: &Rig, name: &str) -> u64 {
    let metrics = metrics(rig);
    let line = metrics
        .lines()
        .find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        })
        .unwrap_or_else(|| panic!("{name} is not in {metrics}"));
    let value = line.rsplit_once(' ').unwrap().1;
    value.parse::<f64>().unwrap() as u64
}

pub(crate) fn unix_client(path: &std::path::Path) -> Client<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client { stream }
}

/// Time limit of a response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A client for raw bytes.
pub(crate) struct Client<S> {
    pub(crate) stream: S,
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends requests and reads all their responses.
    pub(crate) fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let mut all = bytes.as_ref().to_vec();
        all.extend(b"mn\r\n");
        self.send(all);
        self.until_noop()
    }

    pub(crate) fn until_noop(&mut self) -> Vec<u8> {
        let mut response = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while response != b"MN\r\n" && !response.ends_with(b"\nMN\r\n") {
            let len = self.stream.read(&mut buffer).expect("it answers in time");
            assert!(
                len > 0,
                "the connection ended after {:?}",
                String::from_utf8_lossy(&response)
            );
            response.extend(&buffer[..len]);
        }
        response.truncate(response.len() - 4);
        response
    }

    /// Sends requests and compares the responses, as text.
    #[track_caller]
    pub(crate) fn expect(&mut self, request: &str, expected: &str) {
        let response = self.response_text(request);
        assert_eq!(response, expected, "request: {request:?}");
    }

    /// Sends requests and compares the responses, as text. `{left}` stands for
    /// a number of seconds that counts down from `seconds`; a slow machine may
    /// reach a lower one.
    #[track_caller]
    pub(crate) fn expect_left(&mut self, request: &str, expected: &str, seconds: u64) {
        let response = self.response_text(request);
        let with = |left: u64| expected.replace("{left}", &left.to_string());
        let may_be_left = seconds - PATIENCE.as_secs()..=seconds;
        if !may_be_left.into_iter().any(|left| response == with(left)) {
            assert_eq!(response, with(seconds), "request: {request:?}");
        }
    }

    /// The responses, as text.
    fn response_text(&mut self, request: &str) -> String {
        let response = self.ask(request.replace('\n', "\r\n"));
        String::from_utf8_lossy(&response).replace("\r\n", "\n")
    }

    /// All bytes until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return rest,
                Ok(len) => rest.extend(&buffer[..len]),
                // Closed with unread bytes of this client.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return rest,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The version of an item.
    pub(crate) fn version(&mut self, key: &str) -> u64 {
        let response = self.ask(format!("mg {key} c\r\n"));
        let response = String::from_utf8(response).unwrap();
        let version = response.trim_end().strip_prefix("HD c");
        let version = version.expect("it is there");
        // Marks may follow.
        version.split(' ').next().unwrap().parse().unwrap()
    }
}
