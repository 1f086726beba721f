//! Clients that misbehave, and many of them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use floe::ObjectKey;
use floe_server::{Drained, Server, ServerConfig, StartError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Rig, connect, pattern, reply, request, rig, rig_holding, rig_with, send};

/// Sends raw bytes and reads until the server closes.
pub(crate) async fn raw(rig: &Rig, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(rig.s3()).await.unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    // A client that has closed its end, as if it had left, may get no answer.
    let ends = b"connection: close";
    if !bytes.windows(ends.len()).any(|part| part == ends) {
        let _ = stream.shutdown().await;
    }
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    response
}

#[tokio::test]
async fn invalid_bytes_end_only_their_own_connection() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    let long_header = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
        "y".repeat(100_000)
    );
    let many_headers = format!(
        "GET / HTTP/1.1\r\nhost: x\r\n{}\r\n",
        "a: b\r\n".repeat(5000)
    );
    for junk in [
        &b"\0\x01\x02\xff\xfe\xfd"[..],
        b"GET",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"PUT /bucket/key HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc",
        b"PUT /bucket/key HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /bucket/key HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        long_header.as_bytes(),
        many_headers.as_bytes(),
    ] {
        let response = raw(&rig, junk).await;
        assert!(
            !response.starts_with(b"HTTP/1.1 200"),
            "{:?}",
            String::from_utf8_lossy(junk)
        );
        assert!(
            !response.starts_with(b"HTTP/1.1 500"),
            "{:?}",
            String::from_utf8_lossy(junk)
        );
    }
    assert_eq!(rig.origin.bytes("bucket", "key").unwrap(), "bytes");
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
    let too_large = raw(&rig, long_header.as_bytes()).await;
    assert!(
        too_large.starts_with(b"HTTP/1.1 431"),
        "{}",
        String::from_utf8_lossy(&too_large)
    );
}

#[tokio::test]
async fn pipelined_requests_get_responses_in_order() {
    let rig = rig().await;
    for i in 0..10 {
        rig.origin.store("bucket", &i.to_string(), format!("<{i}>"));
    }
    let mut requests = String::new();
    for i in 0..10 {
        let last = if i == 9 { "connection: close\r\n" } else { "" };
        requests += &format!("GET /bucket/{i} HTTP/1.1\r\nhost: x\r\n{last}\r\n");
    }
    let responses = String::from_utf8(raw(&rig, requests.as_bytes()).await).unwrap();
    let places: Vec<_> = (0..10).map(|i| responses.find(&format!("<{i}>"))).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{responses}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections() {
    let rig = rig_holding("bucket", "key", pattern(1, 10_000)).await;
    let clients: Vec<_> = (0..1000)
        .map(|_| {
            let address = rig.s3();
            tokio::spawn(async move {
                let mut sender = connect(address).await;
                let get = request(address, "GET", "/bucket/key", &[], "");
                let response = reply(sender.send_request(get).await.unwrap()).await;
                // Held until all connections exist.
                (sender, response.body == pattern(1, 10_000))
            })
        })
        .collect();
    let mut held = Vec::new();
    for client in clients {
        let (sender, right) = client.await.unwrap();
        assert!(right);
        held.push(sender);
    }
    drop(held);
    assert_eq!(rig.server.shutdown().await, Drained::Completely);
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_their_turn() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().max_connections = 2).await;
    rig.origin.store("bucket", "key", "bytes");
    let holders = [connect(rig.s3()).await, connect(rig.s3()).await];
    let address = rig.s3();
    let third = tokio::spawn(async move {
        send(address, request(address, "GET", "/bucket/key", &[], "")).await
    });
    drop(holders);
    assert_eq!(third.await.unwrap().text(), "bytes");
}

/// A full frontend closes the connection that has been idle longest, not a busy one.
#[tokio::test]
async fn idle_connections_make_room() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().max_connections = 3).await;
    rig.origin.store("bucket", "key", "bytes");
    let put = b"PUT /bucket/new HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel";
    let mut busy = TcpStream::connect(rig.s3()).await.unwrap();
    busy.write_all(put).await.unwrap();
    wait_for(&rig, "floe_requests_in_flight", "s3", 1.0).await;
    let mut silent = TcpStream::connect(rig.s3()).await.unwrap();
    wait_for(&rig, "floe_connections_total", "s3", 2.0).await;
    let mut slow = TcpStream::connect(rig.s3()).await.unwrap();
    slow.write_all(b"GET /buck").await.unwrap();
    wait_for(&rig, "floe_connections_total", "s3", 3.0).await;

    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
    let mut rest = Vec::new();
    assert_eq!(silent.read_to_end(&mut rest).await.unwrap_or(0), 0);
    let get = request(rig.s3(), "GET", "/bucket/key", &[], "");
    let mut kept = connect(rig.s3()).await;
    assert_eq!(
        reply(kept.send_request(get).await.unwrap()).await.text(),
        "bytes"
    );
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(TcpStream::connect(rig.s3()).await.unwrap());
        assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
    }
    busy.write_all(b"lo").await.unwrap();
    let mut status = [0; 12];
    busy.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    wait_for(&rig, "floe_connections_evicted_total", "s3", 3.0).await;
}

#[tokio::test]
async fn a_client_with_too_many_busy_connections_is_slowed_and_no_other() {
    let only_one = |config: &mut ServerConfig| {
        config.s3.as_mut().unwrap().max_connections_per_client = Some(1);
    };
    let rig = rig_with(only_one).await;
    rig.origin.store("bucket", "key", "bytes");
    let put = b"PUT /bucket/new HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhel";
    let mut busy = TcpStream::connect(rig.s3()).await.unwrap();
    busy.write_all(put).await.unwrap();
    wait_for(&rig, "floe_requests_in_flight", "s3", 1.0).await;
    for (method, body) in [("GET", ""), ("PUT", "x")] {
        let slowed = rig.send(method, "/bucket/key", &[], body).await;
        assert_eq!(
            (slowed.status, slowed.code()),
            (503, "SlowDown"),
            "{method}"
        );
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(rig.s3()).await.unwrap();
    other
        .write_all(b"GET /bucket/key HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut served = String::new();
    other.read_to_string(&mut served).await.unwrap();
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    busy.write_all(b"lo").await.unwrap();
    let mut status = [0; 12];
    busy.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    wait_for(&rig, "floe_requests_in_flight", "s3", 0.0).await;
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
    let page = send(
        rig.admin(),
        request(rig.admin(), "GET", "/metrics", &[], ""),
    )
    .await;
    assert!(page.text().contains("\nfloe_s3_requests_slowed_total 2\n"));
}

/// A rig that waits a second for a stalled client; its origin holds an object.
async fn impatient_rig(bucket: &str, key: &str, bytes: impl Into<Bytes>) -> Rig {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().stall_timeout_seconds = 1).await;
    rig.origin.store(bucket, key, bytes);
    rig
}

/// Over HTTP/1.1 the socket fills up; the connection is closed and no other waits.
#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected() {
    let rig = impatient_rig("bucket", "big", pattern(1, 32 << 20)).await;
    rig.origin.store("bucket", "key", "bytes");
    let mut stalled = TcpStream::connect(rig.s3()).await.unwrap();
    stalled
        .write_all(b"GET /bucket/big HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
    wait_for(&rig, "floe_connections_failed_total", "s3", 1.0).await;
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest).await;
    assert!(rest.len() < 32 << 20);
}

/// Over HTTP/2 no write blocks: the stream has no window left.
#[tokio::test]
async fn a_starved_http2_stream_is_reset() {
    let rig = impatient_rig("bucket", "big", pattern(1, 8 << 20)).await;
    let mut sender = crate::support::connect_http2(rig.s3()).await;
    let uri = format!("http://{}/bucket/big", rig.s3());
    let get = http::Request::get(uri).body(Default::default()).unwrap();
    // The body is kept and never polled.
    let response = sender.send_request(get).await.unwrap();
    wait_for(&rig, "floe_connections_failed_total", "s3", 1.0).await;
    use http_body_util::BodyExt;
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_stalled_upload_is_rejected() {
    let rig = impatient_rig("bucket", "other", "").await;
    let part = b"PUT /bucket/key HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nabc";
    rig.expect_timeout(part).await;
    assert_eq!(rig.origin.bytes("bucket", "key"), None);
}

/// One byte now and then avoids silence, but makes no progress.
#[tokio::test]
async fn an_upload_below_the_least_rate_is_rejected() {
    let rig = impatient_rig("bucket", "other", "").await;
    let stream = TcpStream::connect(rig.s3()).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    to.write_all(b"PUT /bucket/key HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
        .await
        .unwrap();
    let clock = floe_device::Clock::real();
    let crawl = async {
        while to.write_all(b"x").await.is_ok() {
            clock.sleep(Duration::from_millis(100)).await;
        }
    };
    let mut response = Vec::new();
    tokio::select! {
        () = crawl => {}
        _ = from.read_to_end(&mut response) => {}
    }
    let response = String::from_utf8_lossy(&response);
    assert!(response.contains("RequestTimeout"), "{response}");
    assert_eq!(rig.origin.bytes("bucket", "key"), None);
}

/// A server whose origin has these limits.
async fn bounded_rig(requests: floe::origin::RequestConfig) -> Rig {
    let clock = floe_device::Clock::real();
    let origin = std::sync::Arc::new(crate::support::MemoryOrigin::default());
    let guarded = floe::Origin::from_backend(origin.clone(), requests, clock.clone()).unwrap();
    crate::support::rig_on(guarded, origin, clock, |_| {}).await
}

/// Uploads that announce much and send one byte block no reader.
#[tokio::test]
async fn uploads_that_wait_for_their_bodies_stop_no_reader() {
    let requests = floe::origin::RequestConfig {
        max_concurrent: 4,
        queue_timeout_ms: 2_000,
        max_attempts: 1,
        ..Default::default()
    };
    let rig = bounded_rig(requests).await;
    rig.origin.store("bucket", "key", "bytes");
    let mut uploads = Vec::new();
    for i in 0..8 {
        let mut stream = TcpStream::connect(rig.s3()).await.unwrap();
        let head =
            format!("PUT /bucket/slow-{i} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nx");
        stream.write_all(head.as_bytes()).await.unwrap();
        uploads.push(stream);
    }
    wait_for(&rig, "floe_requests_in_flight", "s3", 8.0).await;
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
    assert_eq!(rig.send("PUT", "/bucket/new", &[], "new").await.status, 200);
}

/// A copy takes its upload turn before it reads its source: while it waits, it
/// holds no turn of a reader.
#[tokio::test]
async fn copies_that_wait_to_upload_stop_no_reader() {
    let requests = floe::origin::RequestConfig {
        max_concurrent: 1,
        max_uploads: 1,
        max_attempts: 1,
        ..Default::default()
    };
    let rig = bounded_rig(requests).await;
    rig.origin.store("bucket", "from", "copied");
    rig.origin.store("bucket", "key", "bytes");
    let created = rig.send("POST", "/bucket/parts?uploads", &[], "").await;
    let part = format!(
        "/bucket/parts?partNumber=1&uploadId={}",
        created.tags("UploadId")[0]
    );
    let stats = || rig.cache.origin().stats();
    for target in ["/bucket/to", part.as_str()] {
        // An answer may arrive before the turns of its request are given back.
        while stats().uploads_in_flight + stats().in_flight > 0 {
            tokio::task::yield_now().await;
        }
        rig.cache
            .invalidate(&ObjectKey::new("bucket", "from"))
            .await
            .unwrap();
        rig.cache
            .invalidate(&ObjectKey::new("bucket", "key"))
            .await
            .unwrap();
        let mut slow = TcpStream::connect(rig.s3()).await.unwrap();
        let head = "PUT /bucket/slow HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
        slow.write_all(head.as_bytes()).await.unwrap();
        slow.write_all(&[b'x'; 50_000]).await.unwrap();
        while stats().uploads_in_flight == 0 {
            tokio::task::yield_now().await;
        }
        let source = [("x-amz-copy-source", "/bucket/from")];
        let copy = rig.send("PUT", target, &source, "");
        let meanwhile = async {
            while stats().uploads_queued == 0 {
                tokio::task::yield_now().await;
            }
            let fetches = rig.cache.stats().fetches;
            assert_eq!(stats().in_flight, 0, "{target}");
            assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
            slow.write_all(&[b'x'; 50_000]).await.unwrap();
            fetches
        };
        let before = rig.cache.stats().fetches;
        let (copied, fetches) = tokio::join!(copy, meanwhile);
        assert_eq!(fetches, before, "{target}: the source is read too early");
        assert_eq!(copied.status, 200, "{}", copied.text());
    }
    assert_eq!(rig.get("/bucket/to", &[]).await.text(), "copied");
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().idle_timeout_seconds = 1).await;
    for bytes in [&b""[..], b"GET / HT", b"P", b"PRI * HTTP/2.0\r\n"] {
        let mut stream = TcpStream::connect(rig.s3()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_finishes_running_requests_and_accepts_no_more() {
    let rig = rig().await;
    let bytes = pattern(1, 8 << 20);
    rig.origin.store("bucket", "big", bytes.clone());
    let address = rig.s3();
    let mut sender = connect(address).await;
    let response = sender
        .send_request(request(address, "GET", "/bucket/big", &[], ""))
        .await
        .unwrap();
    let shutdown = tokio::spawn(rig.server.shutdown());
    let response = reply(response).await;
    assert!(response.body == bytes);
    assert_eq!(shutdown.await.unwrap(), Drained::Completely);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_shutdown_tells_load_balancers_before_it_begins() {
    let rig = rig_with(|config| config.leave_seconds = 1).await;
    rig.origin.store("bucket", "key", "bytes");
    let (s3, admin) = (rig.s3(), rig.admin());
    let asked = |path| send(admin, request(admin, "GET", path, &[], ""));
    assert_eq!(asked("/ready").await.status, 200);
    let shutdown = tokio::spawn(rig.server.shutdown());
    while asked("/ready").await.status == 200 {}
    assert_eq!(asked("/ready").await.status, 404);
    // From here on a balancer sends nothing, and what it had sent before is answered.
    let got = send(s3, request(s3, "GET", "/bucket/key", &[], "")).await;
    assert_eq!(got.text(), "bytes");
    assert_eq!(shutdown.await.unwrap(), Drained::Completely);
    assert!(TcpStream::connect(s3).await.is_err());
}

#[tokio::test]
async fn a_shutdown_aborts_requests_that_do_not_end() {
    let rig = rig_with(|config| config.drain_timeout_seconds = 1).await;
    rig.origin.store("bucket", "big", pattern(1, 32 << 20));
    let mut stalled = TcpStream::connect(rig.s3()).await.unwrap();
    stalled
        .write_all(b"GET /bucket/big HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 1];
    stalled.read_exact(&mut first).await.unwrap();
    assert_eq!(rig.server.shutdown().await, Drained::BrokenOff);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = rig().await;
    let config = ServerConfig {
        s3: Some(floe_server::S3Config {
            listen: first.s3(),
            anonymous: floe_server::Anonymous::OnLoopback,
            ..Default::default()
        }),
        ..Default::default()
    };
    let clock = floe_device::Clock::real();
    let error = Server::start(config, first.cache.clone().into(), clock, None)
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Bind(_)));
    assert!(
        error.to_string().contains(&first.s3().to_string()),
        "{error}"
    );
}

/// Waits until the sum of a metric's samples of one frontend reaches a value.
pub(crate) async fn wait_for(rig: &Rig, metric: &str, frontend: &str, value: f64) {
    let clock = floe_device::Clock::real();
    for _ in 0..400 {
        if crate::admin::metric_sum(rig, metric, &format!("frontend=\"{frontend}\"")).await >= value
        {
            return;
        }
        clock.sleep(Duration::from_millis(25)).await;
    }
    panic!("{metric} of {frontend} did not reach {value} in 10 s");
}

/// A client that leaves while the origin is asked holds no place.
#[tokio::test]
async fn plain_reads_end_with_their_client() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    rig.origin.hangs.store(true, Relaxed);
    let mut stream = TcpStream::connect(rig.s3()).await.unwrap();
    let request = b"GET /bucket/key HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    wait_for(&rig, "floe_requests_in_flight", "s3", 1.0).await;
    drop(stream);
    wait_for(&rig, "floe_connections_open", "s3", 0.0).await;
    wait_for(&rig, "floe_requests_in_flight", "s3", 0.0).await;
}
