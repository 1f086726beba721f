//! Nodes that ask each other for missing objects, over TCP, and false ones.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use floe::Origin;
use floe::membership::HolderOrder;
use floe::origin::RequestConfig;
use floe_device::Clock;
use floe_server::PeersConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{MemoryOrigin, Reply, Rig, loopback, pattern, request, rig_on, send};

const SECRET: &str = "a secret of nodes";
const JSON: (&str, &str) = ("content-type", "application/json");
const MIB: usize = 1 << 20;

/// A node over `origin` that asks `nodes`.
async fn node(origin: &Arc<MemoryOrigin>, listen: SocketAddr, nodes: &[SocketAddr]) -> Rig {
    let peers = PeersConfig {
        listen: Some(listen),
        nodes: nodes.iter().map(SocketAddr::to_string).collect(),
        secret: SECRET.into(),
        ..PeersConfig::default()
    };
    node_with(origin, peers).await
}

async fn node_with(origin: &Arc<MemoryOrigin>, peers: PeersConfig) -> Rig {
    let clock = Clock::real();
    let requests = RequestConfig::default();
    let guarded = Origin::from_backend(origin.clone(), requests, clock.clone()).unwrap();
    let change = |config: &mut floe_server::ServerConfig| config.peers = Some(peers);
    rig_on(guarded, origin.clone(), clock, change).await
}

fn peers_of(rig: &Rig) -> SocketAddr {
    rig.server.addresses().tcp("peers").unwrap()
}

/// An address where nothing listens, or only what a test opens.
async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    listener.local_addr().unwrap()
}

async fn page(rig: &Rig, path: &str) -> Reply {
    send(rig.admin(), request(rig.admin(), "GET", path, &[], "")).await
}

/// The metrics of `rig` must say so.
async fn expect_failing(rig: &Rig, nodes: usize) {
    let metrics = page(rig, "/metrics").await;
    let failing = format!("floe_peers_nodes{{state=\"failing\"}} {nodes}.0\n");
    assert!(metrics.text().contains(&failing), "{}", metrics.text());
}

async fn ask(rig: &Rig, path: &str, secret: &str, question: impl Into<Bytes>) -> Reply {
    let bearer = format!("Bearer {secret}");
    let headers = [JSON, ("authorization", &bearer)];
    let address = peers_of(rig);
    send(address, request(address, "POST", path, &headers, question)).await
}

#[tokio::test]
async fn a_new_node_fills_from_another_one() {
    for order in [HolderOrder::Rendezvous, HolderOrder::Haproxy] {
        let origin = Arc::new(MemoryOrigin::default());
        let bytes = pattern(1, 3 * MIB + 77);
        origin.store("bucket", "a b/ü", bytes.clone());
        let old = node(&origin, loopback(), &[]).await;
        let own = free_address().await;
        let new = PeersConfig {
            listen: Some(own),
            nodes: vec![peers_of(&old).to_string(), own.to_string()],
            order,
            secret: SECRET.into(),
            ..PeersConfig::default()
        };
        let new = node_with(&origin, new).await;
        let path = "/bucket/a%20b/%C3%BC";
        assert_eq!(old.get(path, &[]).await.body, bytes);
        let middle = new.get(path, &[("range", "bytes=5-1048999")]).await;
        assert_eq!(middle.body, bytes[5..1_049_000]);
        assert_eq!(new.get(path, &[]).await.body, bytes);
        let stats = new.cache.stats();
        assert_eq!((stats.peer_bytes, stats.fetches), (bytes.len() as u64, 0));
        // A change past both: the old node's copy is of no use.
        let newer = pattern(2, 3 * MIB + 77);
        origin.store("bucket", "a b/ü", newer.clone());
        assert_eq!(new.get(path, &[]).await.body, newer);
        assert_eq!(new.cache.stats().peer_bytes, stats.peer_bytes);
        let metrics = page(&new, "/metrics").await;
        for line in [
            "floe_peers_nodes{state=\"answering\"} 1.0\n",
            "floe_peers_nodes{state=\"failing\"} 0.0\n",
            "floe_peers_asked_total{result=\"failed\"} 0\n",
        ] {
            assert!(
                metrics.text().contains(line),
                "{line} of {}",
                metrics.text()
            );
        }
    }
}

/// Answers every question with `answer` on each connection, and keeps it open.
async fn false_node(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(answer).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_node_that_fails_or_lies_about_lengths_costs_little() {
    let long = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    let answers: [&[u8]; 8] = [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        // It stalls before the first byte, or has none.
        b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        long,
    ];
    for answer in answers {
        let origin = Arc::new(MemoryOrigin::default());
        let bytes = pattern(3, 300_000);
        origin.store("bucket", "key", bytes.clone());
        let rig = node(&origin, loopback(), &[false_node(answer).await]).await;
        for _ in 0..2 {
            let shown = String::from_utf8_lossy(answer);
            assert_eq!(rig.get("/bucket/key", &[]).await.body, bytes, "{shown}");
        }
        assert_eq!(rig.cache.stats().peer_bytes, 0);
    }
}

/// A node whose connections break off after `bytes` bytes, or go silent then.
async fn weak_link(to: SocketAddr, bytes: u64, breaks: bool) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let node = TcpStream::connect(to).await.unwrap();
            tokio::spawn(async move {
                let (mut questions, mut answers) = client.into_split();
                let (from_node, mut to_node) = node.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut questions, &mut to_node).await });
                let _ = tokio::io::copy(&mut from_node.take(bytes), &mut answers).await;
                if !breaks {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn what_a_broken_body_lacks_comes_from_the_origin() {
    for breaks in [true, false] {
        let origin = Arc::new(MemoryOrigin::default());
        let bytes = pattern(6, 700_000);
        origin.store("bucket", "key", bytes.clone());
        let old = node(&origin, loopback(), &[]).await;
        old.get("/bucket/key", &[]).await;
        // In the middle of the second chunk.
        let link = weak_link(peers_of(&old), 400_000, breaks).await;
        let new = node(&origin, loopback(), &[link]).await;
        for _ in 0..2 {
            assert_eq!(new.get("/bucket/key", &[]).await.body, bytes);
        }
        let stats = new.cache.stats();
        assert!(stats.peer_bytes > 262_144, "{stats:?}");
        assert_eq!((stats.peer_fetches_broken, stats.fetches), (1, 1));
        expect_failing(&new, 1).await;
    }
}

#[tokio::test]
async fn a_node_that_hangs_is_left_out() {
    let origin = Arc::new(MemoryOrigin::default());
    let bytes = pattern(4, 1000);
    for key in 0..50 {
        origin.store("bucket", &key.to_string(), bytes.clone());
    }
    let peers = PeersConfig {
        listen: Some(loopback()),
        nodes: vec![
            false_node(b"").await.to_string(),
            free_address().await.to_string(),
        ],
        timeout_ms: 300,
        ..PeersConfig::default()
    };
    let rig = node_with(&origin, peers).await;
    let clock = Clock::real();
    let begun = clock.now();
    for key in 0..50 {
        assert_eq!(rig.get(&format!("/bucket/{key}"), &[]).await.body, bytes);
    }
    let took = clock.now().since(begun);
    // Not 50 times 300 ms: a second passes between two waits.
    assert!(took.as_secs() < 8, "{took:?}");
    expect_failing(&rig, 2).await;
}

#[tokio::test]
async fn questions_are_admitted_and_bounded() {
    let origin = Arc::new(MemoryOrigin::default());
    let bytes = pattern(5, 300_000);
    let meta = origin.store("bucket", "key", bytes.clone());
    let rig = node(&origin, loopback(), &[]).await;
    rig.get("/bucket/key", &[]).await;
    rig.stored().await;

    let holds =
        |key: &str, offset: u64| format!(r#"{{"bucket":"bucket","key":{key},"offset":{offset}}}"#);
    let status = async |question: String| ask(&rig, "/v1/holds", SECRET, question).await.status;
    assert_eq!(status(holds("\"key\"", 0)).await, 204);
    assert_eq!(status(holds("\"key\"", 300_000)).await, 404);
    assert_eq!(status(holds("\"key\"", u64::MAX)).await, 404);
    assert_eq!(status(holds("\"other\"", 0)).await, 404);
    assert_eq!(status(holds("\"\\u0000\"", 0)).await, 404);
    assert_eq!(status(holds("7", 0)).await, 422);
    assert_eq!(status("{".into()).await, 400);
    assert_eq!(status("x".repeat(1 << 20)).await, 413);
    assert_eq!(
        ask(&rig, "/v1/holds", "guess", holds("\"key\"", 0))
            .await
            .status,
        403
    );
    assert_eq!(
        ask(&rig, "/v1/bytes", "", holds("\"key\"", 0)).await.status,
        403
    );
    assert_eq!(ask(&rig, "/", SECRET, "").await.status, 404);

    let modified = meta.last_modified.unwrap();
    let modified = serde_json::to_value(modified).unwrap();
    let wanted = |size: u64, etag: &str, start: u64, end: u64| {
        serde_json::json!({
            "bucket": "bucket", "key": "key", "size": size, "etag": etag,
            "last_modified": modified, "start": start, "end": end,
        })
        .to_string()
    };
    let etag = meta.etag.unwrap();
    let part = ask(
        &rig,
        "/v1/bytes",
        SECRET,
        wanted(300_000, &etag, 7, 290_000),
    )
    .await;
    assert_eq!((part.status, &part.body), (200, &bytes.slice(7..290_000)));
    for (size, etag, start, end) in [
        (300_000, "\"another\"", 0, 10),
        (300_001, etag.as_str(), 0, 10),
        (u64::MAX, etag.as_str(), 0, u64::MAX),
        (300_000, etag.as_str(), 10, 5),
        (300_000, etag.as_str(), 300_000, 300_001),
    ] {
        let answer = ask(&rig, "/v1/bytes", SECRET, wanted(size, etag, start, end)).await;
        assert_eq!(answer.status, 404, "{size} {etag} {start} {end}");
    }
}
