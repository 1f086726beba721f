//! OxCache's protocol over its socket.

use bytes::{Buf, BytesMut};
use floe::origin::OriginError;
use floe_core::ByteSize;
use floe_server::oxcache::codec::{Request, Response, decode_response, encode_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::robustness::wait_for;
use crate::support::{Rig, pattern, rig, rig_holding, rig_with};

pub(crate) struct Client {
    stream: UnixStream,
    buffer: BytesMut,
}

impl Client {
    pub(crate) async fn connect(rig: &Rig) -> Self {
        let path = rig.server.addresses().unix("oxcache").unwrap().to_owned();
        Client {
            stream: UnixStream::connect(path).await.unwrap(),
            buffer: BytesMut::new(),
        }
    }

    async fn send(&mut self, key: &str, offset: u64, size: u64) {
        let request = Request::Get {
            key: key.into(),
            offset,
            size,
        };
        let frame = encode_request(&request).unwrap();
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The next response, or `None` when the server has closed the connection.
    async fn receive(&mut self) -> Option<Response> {
        loop {
            if let Some((head, rest)) = self.buffer.split_first_chunk::<4>() {
                let len = u32::from_be_bytes(*head) as usize;
                if let Some(body) = rest.get(..len) {
                    let response = decode_response(body).unwrap();
                    self.buffer.advance(4 + len);
                    return Some(response);
                }
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                assert!(self.buffer.is_empty(), "a part of an answer");
                return None;
            }
        }
    }

    pub(crate) async fn get(&mut self, key: &str, offset: u64, size: u64) -> Response {
        self.send(key, offset, size).await;
        self.receive().await.unwrap()
    }
}

#[tokio::test]
async fn ranges_of_any_alignment() {
    let rig = rig().await;
    let bytes = pattern(1, 3 << 20);
    rig.origin.store("bucket", "7", bytes.clone());
    let mut client = Client::connect(&rig).await;
    for round in 0..2 {
        for (offset, size) in [
            (0, 65_536),
            (0, 3 << 20),
            (1, 1),
            (65_535, 2),
            (1_000_003, 1_234_567),
            ((3 << 20) - 1, 1),
        ] {
            let expected = bytes[offset..offset + size].to_vec();
            let response = client.get("7", offset as u64, size as u64).await;
            assert!(
                response == Response::Response(expected),
                "round {round}: {offset}+{size}"
            );
        }
    }
}

#[tokio::test]
async fn invalid_requests_get_an_error_and_keep_the_connection() {
    let rig = rig_holding("bucket", "7", pattern(1, 100)).await;
    let mut client = Client::connect(&rig).await;
    for (key, offset, size, message) in [
        ("missing", 0, 1, "missing"),
        ("7", 0, 0, "size"),
        ("7", u64::MAX, 1, "exceeds"),
        ("7", u64::MAX - 11, 11, "100"),
        ("7", 1, u64::MAX, "at most"),
        ("7", 0, 101, "100 bytes"),
        ("7", 100, 1, "100"),
        ("7", 99, 2, "100 bytes"),
        ("", 0, 1, ""),
    ] {
        let Response::Error(text) = client.get(key, offset, size).await else {
            panic!("{key} {offset}+{size} was answered with data");
        };
        assert!(text.contains(message), "{key} {offset}+{size}: {text}");
    }
    rig.origin
        .fail_with(Some(OriginError::Unreachable("gone".into())));
    let Response::Error(text) = client.get("new", 0, 1).await else {
        panic!("data from an origin that is gone");
    };
    assert!(text.contains("gone"), "{text}");
    rig.origin.fail_with(None);
    let data = Response::Response(pattern(1, 100)[..50].to_vec());
    assert_eq!(client.get("7", 0, 50).await, data);
}

#[tokio::test]
async fn pipelined_requests_get_responses_in_order() {
    let rig = rig_with(|config| config.oxcache.as_mut().unwrap().max_pipeline = 8).await;
    for key in 0..50u64 {
        rig.origin.store(
            "bucket",
            &key.to_string(),
            pattern(key, 1000 + key as usize),
        );
    }
    let mut client = Client::connect(&rig).await;
    for key in 0..200u64 {
        client
            .send(&(key % 60).to_string(), 0, 1000 + key % 60)
            .await;
    }
    let close = encode_request(&Request::Close).unwrap();
    client.stream.write_all(&close).await.unwrap();
    for key in (0..200u64).map(|key| key % 60) {
        match client.receive().await.unwrap() {
            Response::Response(bytes) => assert!(bytes == pattern(key, 1000 + key as usize)),
            Response::Error(_) => assert!(key >= 50, "{key}"),
        }
    }
    assert_eq!(client.receive().await, None);
}

/// Without read-ahead, responses are read when they are due, and are correct.
#[tokio::test]
async fn without_memory_for_read_ahead() {
    let rig = rig_with(|config| config.oxcache.as_mut().unwrap().read_ahead = ByteSize(0)).await;
    let bytes = pattern(1, 3_000_000);
    rig.origin.store("bucket", "7", bytes.clone());
    let mut client = Client::connect(&rig).await;
    for offset in [0, 5, 1_000_000] {
        client.send("7", offset, 2_000_000).await;
    }
    for offset in [0, 5, 1_000_000] {
        let expected = bytes[offset..offset + 2_000_000].to_vec();
        assert!(client.receive().await == Some(Response::Response(expected)));
    }
}

#[tokio::test]
async fn an_invalid_frame_closes_the_connection_with_a_reason() {
    let rig = rig_holding("bucket", "7", pattern(1, 100)).await;
    for junk in [
        &b"GET / HTTP/1.1\r\n"[..],
        &[0, 0, 0, 0],
        &[0, 0, 0, 2, 9, 9],
        &[0xff; 64],
    ] {
        let mut client = Client::connect(&rig).await;
        // Earlier requests still get responses.
        client.send("7", 0, 10).await;
        client.stream.write_all(junk).await.unwrap();
        let data = Response::Response(pattern(1, 100)[..10].to_vec());
        assert_eq!(client.receive().await, Some(data));
        assert!(matches!(client.receive().await, Some(Response::Error(_))));
        assert_eq!(client.receive().await, None);
    }
    wait_for(&rig, "floe_connections_failed_total", "oxcache", 4.0).await;
}

#[tokio::test]
async fn a_read_that_fails_after_its_frame_began_closes() {
    let rig = rig_holding("bucket", "7", pattern(1, 8 << 20)).await;
    // Past the read-ahead, so that the frame has begun.
    let cut = std::sync::atomic::Ordering::Relaxed;
    rig.origin.cut_at.store(4 << 20, cut);
    let mut client = Client::connect(&rig).await;
    client.send("7", 0, 8 << 20).await;
    let mut all = Vec::new();
    let _ = client.stream.read_to_end(&mut all).await;
    assert!(all.len() >= 1 << 20 && all.len() < 8 << 20, "{}", all.len());
    wait_for(&rig, "floe_connections_failed_total", "oxcache", 1.0).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let rig = rig_with(|config| config.oxcache.as_mut().unwrap().stall_timeout_seconds = 1).await;
    rig.origin.store("bucket", "7", pattern(1, 8 << 20));
    let mut stalled = Client::connect(&rig).await;
    for _ in 0..10 {
        stalled.send("7", 0, 8 << 20).await;
    }
    let mut other = Client::connect(&rig).await;
    assert!(matches!(
        other.get("7", 0, 100).await,
        Response::Response(_)
    ));
    wait_for(&rig, "floe_connections_failed_total", "oxcache", 1.0).await;
}

#[tokio::test]
async fn the_socket_is_removed_with_the_server() {
    let rig = rig().await;
    let path = rig.server.addresses().unix("oxcache").unwrap().to_owned();
    let mut idle = Client::connect(&rig).await;
    rig.server.shutdown().await;
    assert_eq!(idle.receive().await, None);
    assert!(!path.exists());
}
