//! A server over a memory origin, and a raw HTTP client.

pub(crate) mod nats;
pub(crate) mod origin;
pub(crate) mod signer;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use floe::object::{ObjectCache, ObjectConfig};
use floe::origin::RequestConfig;
use floe::store::StoreConfig;
use floe::{Origin, Store};
use floe_core::{ByteSize, Geometry};
use floe_device::metered::Meters;
use floe_device::{Clock, MemoryDevice, Metered};
use floe_server::{
    AccessKey, AdminConfig, Anonymous, OxCacheConfig, S3Config, Server, ServerConfig,
};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) use origin::MemoryOrigin;

pub(crate) const ACCESS_KEY: &str = "FLOETESTKEY";
pub(crate) const SECRET_KEY: &str = "a secret of the tests";

/// A running server and its origin.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) origin: Arc<MemoryOrigin>,
    pub(crate) cache: ObjectCache,
    /// The directory of the socket.
    _directory: tempfile::TempDir,
}

/// Frontends on free ports; anonymous, with one key, and with the domain `floe.test`.
pub(crate) async fn rig() -> Rig {
    rig_with(|_| {}).await
}

/// A rig whose origin holds an object.
pub(crate) async fn rig_holding(bucket: &str, key: &str, bytes: impl Into<Bytes>) -> Rig {
    let rig = rig().await;
    rig.origin.store(bucket, key, bytes);
    rig
}

/// A rig that serves signed requests only; its origin holds `bucket/key`.
pub(crate) async fn strict_rig() -> Rig {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().anonymous = Anonymous::Rejected).await;
    rig.origin.store("bucket", "key", "bytes");
    rig
}

pub(crate) async fn rig_with(change: impl FnOnce(&mut ServerConfig)) -> Rig {
    let clock = Clock::real();
    let origin = Arc::new(MemoryOrigin::default());
    let requests = RequestConfig {
        max_attempts: 1,
        ..RequestConfig::default()
    };
    let guarded = Origin::from_backend(origin.clone(), requests, clock.clone()).unwrap();
    rig_on(guarded, origin, clock, change).await
}

pub(crate) async fn rig_on(
    guarded: Origin,
    origin: Arc<MemoryOrigin>,
    clock: Clock,
    change: impl FnOnce(&mut ServerConfig),
) -> Rig {
    rig_of(guarded, origin, clock, ObjectConfig::default(), change).await
}

/// A rig over any origin with settings of objects.
pub(crate) async fn rig_of(
    guarded: Origin,
    origin: Arc<MemoryOrigin>,
    clock: Clock,
    config: ObjectConfig,
    change: impl FnOnce(&mut ServerConfig),
) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let (store, meters) = metered_store(&clock).await;
    let cache = ObjectCache::new(store, guarded, clock.clone(), config).unwrap();
    let mut config = ServerConfig {
        events: None,
        s3: Some(S3Config {
            listen: loopback(),
            anonymous: Anonymous::Served,
            keys: vec![AccessKey::new(ACCESS_KEY, SECRET_KEY)],
            domains: vec!["floe.test".into()],
            ..S3Config::default()
        }),
        oxcache: Some(OxCacheConfig {
            path: directory.path().join("ox.sock"),
            bucket: "bucket".into(),
            ..OxCacheConfig::default()
        }),
        admin: Some(AdminConfig {
            listen: loopback(),
            ..AdminConfig::default()
        }),
        memcached: None,
        nbd: None,
        peers: None,
        control: None,
        node: None,
        leave_seconds: 0,
        drain_timeout_seconds: 10,
    };
    change(&mut config);
    let server = Server::start(config, cache.clone().into(), clock, Some(meters))
        .await
        .unwrap();
    Rig {
        server,
        origin,
        cache,
        _directory: directory,
    }
}

/// A small cache in memory.
pub(crate) async fn store(clock: &Clock) -> Store {
    metered_store(clock).await.0
}

async fn metered_store(clock: &Clock) -> (Store, Arc<Meters>) {
    let geometry = Geometry::in_place(32, 4 << 20);
    let mut config = StoreConfig::default();
    config.chunk.size = ByteSize::mib(1);
    let device = Arc::new(MemoryDevice::new(geometry));
    let device = Arc::new(Metered::new(device, clock.clone()));
    let meters = Arc::clone(device.meters());
    let store = Store::open(device, clock.clone(), &config).await.unwrap();
    (store, meters)
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Rig {
    pub(crate) fn s3(&self) -> SocketAddr {
        self.server.addresses().tcp("s3").unwrap()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.server.addresses().tcp("admin").unwrap()
    }

    /// Sends a part of a request, and expects that the server does not wait for the rest.
    pub(crate) async fn expect_timeout(&self, part: &[u8]) {
        let mut stream = TcpStream::connect(self.s3()).await.unwrap();
        stream.write_all(part).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let response = String::from_utf8_lossy(&response);
        assert!(response.contains("RequestTimeout"), "{response}");
    }

    /// An unsigned request to the S3 frontend.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        send(self.s3(), request(self.s3(), method, path, headers, body)).await
    }

    /// Uploads the parts of upload `id`; the document that completes it.
    pub(crate) async fn upload_parts(&self, path: &str, id: &str, parts: &[Bytes]) -> String {
        let mut list = String::new();
        for (number, part) in (1..).zip(parts) {
            let path = format!("{path}?partNumber={number}&uploadId={id}");
            let put = self.send("PUT", &path, &[], part.clone()).await;
            assert_eq!(put.status, 200, "{}", put.text());
            let etag = put.header("etag");
            list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        }
        format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>")
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.send("GET", path, headers, "").await
    }

    /// Waits until what was fetched is stored: answers leave before.
    pub(crate) async fn stored(&self) {
        while self.cache.fetches_in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Every text between `<tag>` and `</tag>`.
    pub(crate) fn tags(&self, tag: &str) -> Vec<&str> {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let pieces = self.text().split(open.as_str()).skip(1);
        pieces
            .map(|rest| rest.split(close.as_str()).next().unwrap())
            .collect()
    }

    /// The code of an S3 error.
    pub(crate) fn code(&self) -> &str {
        self.tags("Code").first().copied().unwrap_or("")
    }
}

pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

pub(crate) async fn connect(address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) async fn connect_http2(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Reply {
    let mut sender = connect(address).await;
    reply(sender.send_request(request).await.unwrap()).await
}

pub(crate) async fn reply(response: Response<hyper::body::Incoming>) -> Reply {
    let (head, body) = response.into_parts();
    Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

/// Bytes without a repeated pattern, different for each seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect::<Vec<u8>>()
        .into()
}
