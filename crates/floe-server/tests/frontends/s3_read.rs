//! GET and HEAD through the cache.

use floe::origin::Attributes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{connect, connect_http2, pattern, reply, request, rig, rig_holding, rig_with};

#[tokio::test]
async fn an_object_comes_with_all_its_headers() {
    let rig = rig().await;
    let bytes = pattern(1, 300_000);
    let attributes = Attributes {
        content_type: Some("text/plain".into()),
        content_encoding: Some("gzip".into()),
        content_language: Some("de".into()),
        content_disposition: Some("attachment".into()),
        cache_control: Some("no-store".into()),
        storage_class: None,
        user: vec![("colour".into(), "blue".into())],
        headers: vec![("expires".into(), "never".into())],
    };
    let meta = rig
        .origin
        .store_with("bucket", "a/key", bytes.clone(), attributes);
    for method in ["GET", "HEAD"] {
        let response = rig.send(method, "/bucket/a/key", &[], "").await;
        assert_eq!(response.status, 200, "{method}");
        for (name, value) in [
            ("etag", meta.etag.as_deref().unwrap()),
            ("last-modified", "Sun, 13 Sep 2020 12:26:40 GMT"),
            ("content-type", "text/plain"),
            ("content-encoding", "gzip"),
            ("content-language", "de"),
            ("content-disposition", "attachment"),
            ("cache-control", "no-store"),
            ("expires", "never"),
            ("accept-ranges", "bytes"),
            ("x-amz-meta-colour", "blue"),
            ("content-length", "300000"),
            ("server", "Floe"),
        ] {
            assert_eq!(response.header(name), value, "{method} {name}");
        }
        assert!(!response.header("x-floe-cache").is_empty());
        assert_eq!(response.header("x-amz-request-id").len(), 16);
        match method {
            "GET" => assert!(response.body == bytes),
            _ => assert!(response.body.is_empty()),
        }
    }
}

#[tokio::test]
async fn the_matrix_of_ranges_over_the_wire() {
    let rig = rig().await;
    let bytes = pattern(2, 10_000);
    rig.origin.store("bucket", "key", bytes.clone());
    let cases: &[(&str, Option<std::ops::Range<usize>>)] = &[
        ("bytes=0-0", Some(0..1)),
        ("bytes=0-9999", Some(0..10_000)),
        ("bytes=0-", Some(0..10_000)),
        ("bytes=4095-4097", Some(4095..4098)),
        ("bytes=9999-20000", Some(9999..10_000)),
        ("bytes=-1", Some(9999..10_000)),
        ("bytes=-20000", Some(0..10_000)),
        ("bytes=10000-", None),
        ("bytes=-0", None),
    ];
    for (range, expected) in cases {
        for method in ["GET", "HEAD"] {
            let response = rig
                .send(method, "/bucket/key", &[("range", range)], "")
                .await;
            let Some(expected) = expected else {
                assert_eq!(response.status, 416, "{method} {range}");
                assert_eq!(response.header("content-range"), "bytes */10000");
                if method == "GET" {
                    assert_eq!(response.code(), "InvalidRange");
                }
                continue;
            };
            assert_eq!(response.status, 206, "{method} {range}");
            let last = expected.end - 1;
            assert_eq!(
                response.header("content-range"),
                format!("bytes {}-{last}/10000", expected.start)
            );
            assert_eq!(
                response.header("content-length"),
                expected.len().to_string()
            );
            if method == "GET" {
                assert!(response.body == bytes[expected.clone()], "{range}");
            }
        }
    }
    for ignored in ["bytes=0-1,5-6", "bytes=9-1", "lines=0-1", "nonsense"] {
        let response = rig.get("/bucket/key", &[("range", ignored)]).await;
        assert_eq!(
            (response.status, response.body.len()),
            (200, 10_000),
            "{ignored}"
        );
    }
}

#[tokio::test]
async fn conditions_over_the_wire() {
    let rig = rig().await;
    let meta = rig.origin.store("bucket", "key", pattern(3, 1000));
    let etag = meta.etag.as_deref().unwrap();
    let at = "Sun, 13 Sep 2020 12:26:40 GMT";
    let before = "Sat, 12 Sep 2020 12:26:40 GMT";
    let cases: &[(&[(&str, &str)], u16)] = &[
        (&[("if-match", etag)], 200),
        (&[("if-match", "\"other\"")], 412),
        (&[("if-none-match", etag)], 304),
        (&[("if-none-match", "\"other\"")], 200),
        (&[("if-modified-since", at)], 304),
        (&[("if-modified-since", before)], 200),
        (&[("if-unmodified-since", before)], 412),
        (&[("if-unmodified-since", at)], 200),
        (&[("if-match", etag), ("if-unmodified-since", before)], 200),
        (
            &[("if-none-match", "\"x\""), ("if-modified-since", at)],
            200,
        ),
        (&[("if-modified-since", "rubbish")], 200),
        (&[("range", "bytes=0-9"), ("if-range", etag)], 206),
        (&[("range", "bytes=0-9"), ("if-range", "\"x\"")], 200),
        (&[("range", "bytes=0-9"), ("if-none-match", etag)], 304),
        (&[("range", "bytes=5000-"), ("if-match", "\"x\"")], 412),
    ];
    for (headers, status) in cases {
        for method in ["GET", "HEAD"] {
            let response = rig.send(method, "/bucket/key", headers, "").await;
            assert_eq!(response.status, *status, "{method} {headers:?}");
            if *status == 304 {
                assert_eq!(response.header("etag"), etag);
                assert!(response.body.is_empty());
            }
            if *status == 412 && method == "GET" {
                assert_eq!(response.code(), "PreconditionFailed");
            }
        }
    }
}

#[tokio::test]
async fn empty_objects_and_strange_keys() {
    let rig = rig_holding("bucket", "empty", "").await;
    let empty = rig.get("/bucket/empty", &[]).await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    assert_eq!(
        rig.get("/bucket/empty", &[("range", "bytes=0-")])
            .await
            .status,
        416
    );

    for (key, path) in [
        ("ä ö+?", "/bucket/%C3%A4%20%C3%B6+%3F"),
        ("a//b", "/bucket/a//b"),
        ("../up", "/bucket/../up"),
        ("trailing/", "/bucket/trailing/"),
        ("100%", "/bucket/100%25"),
    ] {
        rig.origin.store("bucket", key, key.to_owned());
        let response = rig.get(path, &[]).await;
        assert_eq!((response.status, response.text()), (200, key));
    }
}

#[tokio::test]
async fn virtual_hosts_name_buckets() {
    let rig = rig_holding("photos", "a/b", "by host").await;
    for (host, path) in [
        ("photos.floe.test", "/a/b"),
        ("photos.FLOE.test:9000", "/a/b"),
        ("floe.test", "/photos/a/b"),
        ("anything.else", "/photos/a/b"),
    ] {
        let response = rig.get(path, &[("host", host)]).await;
        assert_eq!(
            (response.status, response.text()),
            (200, "by host"),
            "{host}{path}"
        );
    }
    let listing = rig
        .get("/?list-type=2", &[("host", "photos.floe.test")])
        .await;
    assert_eq!(listing.tags("Key"), ["a/b"]);
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_http2_too() {
    let rig = rig_holding("bucket", "key", pattern(4, 100_000)).await;
    let mut sender = connect(rig.s3()).await;
    for _ in 0..20 {
        let request = request(rig.s3(), "GET", "/bucket/key", &[], "");
        let response = reply(sender.send_request(request).await.unwrap()).await;
        assert!(response.body == pattern(4, 100_000));
    }
    let sender = connect_http2(rig.s3()).await;
    let requests = (0..50).map(|i| {
        let mut sender = sender.clone();
        let range = format!("bytes={i}-");
        let uri = format!("http://{}/bucket/key", rig.s3());
        let request = http::Request::get(uri)
            .header("range", range)
            .body(Default::default())
            .unwrap();
        async move { reply(sender.send_request(request).await.unwrap()).await }
    });
    for (i, response) in futures::future::join_all(requests).await.iter().enumerate() {
        assert_eq!(response.status, 206);
        assert!(response.body == pattern(4, 100_000)[i..]);
    }
}

#[tokio::test]
async fn unsupported_headers_are_rejected_not_ignored() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    for path in [
        "/bucket/key?versionId=3",
        "/bucket/key?acl",
        "/bucket/key?tagging",
        "/bucket/key?torrent",
        "/bucket?versioning",
    ] {
        let response = rig.get(path, &[]).await;
        assert_eq!(
            (response.status, response.code()),
            (501, "NotImplemented"),
            "{path}"
        );
    }
    assert_eq!(rig.get("/bucket/key?versionId=null", &[]).await.status, 200);
    assert_eq!(rig.get("/bucket/key?x-id=GetObject", &[]).await.status, 200);
    let unsigned_override = rig.get("/bucket/key?response-content-type=a/b", &[]).await;
    assert_eq!(unsigned_override.code(), "InvalidArgument");
}

#[tokio::test]
async fn a_frontend_without_domains_is_path_style() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().domains.clear()).await;
    rig.origin.store("bucket", "key", "bytes");
    let response = rig
        .get("/bucket/key", &[("host", "bucket.s3.example.com")])
        .await;
    assert_eq!(response.text(), "bytes");
}

/// A query takes a request off the way of plain reads.
#[tokio::test]
async fn plain_reads_get_the_responses_of_all_others() {
    let attributes = Attributes {
        content_type: Some("text/plain".into()),
        content_encoding: Some("gr\u{fc}n".into()),
        content_language: Some("de\r\nx: 1".into()),
        user: vec![("a".into(), "1".into()), ("no name".into(), "2".into())],
        headers: vec![
            ("expires".into(), "never".into()),
            ("x-amz-version-id".into(), "3".into()),
        ],
        ..Attributes::default()
    };
    let rig = rig().await;
    let bytes = pattern(1, 300_000);
    let meta = rig
        .origin
        .store_with("bucket", "a/key", bytes.clone(), attributes);
    let tag = meta.etag.unwrap();
    let date = "Sun, 13 Sep 2020 12:26:40 GMT";
    let terms: [&[(&str, &str)]; 12] = [
        &[],
        &[("range", "bytes=0-0")],
        &[("range", "bytes=100000-")],
        &[("range", "bytes=-10")],
        &[("range", "bytes=0-1,4-5")],
        &[("range", "bytes=300000-")],
        &[("range", "bytes=0-9"), ("if-range", &tag)],
        &[("range", "bytes=0-9"), ("if-range", "\"x\"")],
        &[("if-none-match", &tag)],
        &[("if-match", "\"x\"")],
        &[("if-modified-since", date)],
        &[("accept", "*/*"), ("x-own", "1")],
    ];
    for terms in terms {
        for method in ["GET", "HEAD"] {
            rig.send(method, "/bucket/a/key", terms, "").await;
            let mut plain = rig.send(method, "/bucket/a/key", terms, "").await;
            let mut other = rig.send(method, "/bucket/a/key?x-id=1", terms, "").await;
            for response in [&mut plain, &mut other] {
                assert!(response.headers.remove("date").is_some());
                let id = response.headers.remove("x-amz-request-id").unwrap();
                if response.status >= 400 {
                    let document = response.text().replace(id.to_str().unwrap(), "ID");
                    response.body = document.into();
                }
            }
            assert_eq!(plain.status, other.status, "{method} {terms:?}");
            assert_eq!(plain.headers, other.headers, "{method} {terms:?}");
            assert!(plain.body == other.body, "{method} {terms:?}");
        }
    }
}

#[tokio::test]
async fn plain_reads_and_other_requests_share_a_connection() {
    let rig = rig_holding("bucket", "key", "first").await;
    let stream = tokio::net::TcpStream::connect(rig.s3()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let requests = "GET /bucket/key HTTP/1.1\r\nHost: x\r\n\r\n\
        HEAD /bucket/key HTTP/1.1\r\nHost: x\r\n\r\n\
        GET /bucket/none HTTP/1.1\r\nHost: x\r\n\r\n\
        PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nsecond\
        GET /bucket/key HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    // In pieces that end anywhere.
    for piece in requests.as_bytes().chunks(7) {
        tokio::io::AsyncWriteExt::write_all(&mut writer, piece)
            .await
            .unwrap();
    }
    let mut received = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut received)
        .await
        .unwrap();
    let text = String::from_utf8(received).unwrap();
    let statuses: Vec<&str> = text
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|response| &response[..3])
        .collect();
    assert_eq!(statuses, ["200", "200", "404", "200", "200"], "{text}");
    assert!(text.contains("first") && text.ends_with("second"), "{text}");
}

/// Sockets send pages of the RAM tier by reference. The tier replaces its values all the time
/// here, while slow clients have not received theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_receive_the_bytes_of_values_that_have_left_the_ram_tier() {
    const OBJECTS: u64 = 24;
    const CLIENTS: u64 = 12;
    const BYTES: usize = 700_000;

    let rig = rig().await;
    assert!(rig.cache.store().resize_ram(floe::ByteSize::mib(4)));
    for number in 0..OBJECTS {
        let bytes = pattern(number, BYTES);
        rig.origin.store("bucket", &number.to_string(), bytes);
    }
    let s3 = rig.s3();
    let clients = (0..CLIENTS).map(|client| {
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(s3).await.unwrap();
            for turn in 0..50 {
                // Runs of reads of few objects, so that the tier serves most of them.
                let number = (client + turn / 6 * 5 + turn % 3) % OBJECTS;
                let start = turn as usize * 7_001;
                let head = format!(
                    "GET /bucket/{number} HTTP/1.1\r\nhost: {s3}\r\nrange: bytes={start}-\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut received = Vec::new();
                let body = loop {
                    stream.read_buf(&mut received).await.unwrap();
                    if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                        break received.split_off(end + 4);
                    }
                };
                assert!(received.starts_with(b"HTTP/1.1 206"));
                // The rest waits in the socket meanwhile.
                if client < CLIENTS / 2 {
                    tokio::time::sleep(std::time::Duration::from_millis(40)).await;
                }
                let mut body = body;
                while body.len() < BYTES - start {
                    assert!(stream.read_buf(&mut body).await.unwrap() > 0);
                }
                let expected = pattern(number, BYTES);
                assert!(body == expected[start..], "client {client}, turn {turn}");
            }
        })
    });
    for client in futures::future::join_all(clients).await {
        client.unwrap();
    }
    let counts = rig.cache.store().stats().engine.counts;
    assert!(counts.ram_hits > 100, "{counts:?}");
    let memory = rig.cache.sendable().unwrap();
    assert!(memory.kept_bytes() > 500_000, "{}", memory.kept_bytes());
}
