//! Tests against a small web server with prepared responses: they pin requests
//! on the wire and the meaning of errors.

use std::collections::VecDeque;
use std::sync::Arc;

use floe_core::ByteSize;
use floe_device::Clock;
use futures::TryStreamExt;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::origin::{
    ForwardRequest, Origin, OriginKeys, PayloadHash, RequestConfig, Secret, SignedTarget,
};

/// Sends its responses in order and records the requests.
struct Server {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

async fn serve(responses: Vec<String>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, responses) = (
        Arc::clone(&seen),
        Arc::new(Mutex::new(VecDeque::from(responses))),
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (log, responses) = (Arc::clone(&log), Arc::clone(&responses));
            tokio::spawn(async move {
                while let Some(request) = read_request(&mut stream).await {
                    log.lock().push(request);
                    let Some(response) = responses.lock().pop_front() else {
                        return;
                    };
                    if stream.write_all(response.as_bytes()).await.is_err() {
                        return;
                    }
                    if response.contains("X-Hang-Up") {
                        return;
                    }
                }
            });
        }
    });
    Server { address, seen }
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.trim().parse().unwrap());
            if body.len() >= length {
                return Some(text);
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

fn response(status: &str, headers: &[&str], body: &str) -> String {
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text + "\r\n" + body
}

const DATED: &str = "Last-Modified: Tue, 02 Jan 2024 03:04:05 GMT";

fn config(kind: OriginKind, server: &Server) -> OriginConfig {
    let mut config = OriginConfig {
        kind,
        endpoint: Some(server.address.clone()),
        allow_http: true,
        part_size: ByteSize::mib(5),
        requests: RequestConfig {
            max_attempts: 2,
            backoff_ms: 1,
            max_backoff_ms: 1,
            ..RequestConfig::default()
        },
        ..OriginConfig::default()
    };
    if kind == OriginKind::S3 {
        config.access_key = Some("AKID".into());
        config.secret_key = Some(Secret::new("secret"));
    }
    config
}

fn open(kind: OriginKind, server: &Server) -> Origin {
    Origin::open(&config(kind, server), Clock::real()).unwrap()
}

async fn head_error(origin: &Origin) -> OriginError {
    let head = origin.head(&key(), GetRequest::default()).await;
    head.unwrap_err()
}

fn key() -> ObjectKey {
    ObjectKey::new("bucket", "some/key with space")
}

fn range(range: std::ops::Range<u64>) -> GetRequest {
    GetRequest {
        range: Some(range),
        ..GetRequest::default()
    }
}

async fn text(read: OriginRead) -> Result<String, OriginError> {
    let pieces: Vec<Bytes> = read.body.try_collect().await?;
    Ok(String::from_utf8(pieces.concat()).unwrap())
}

#[tokio::test]
async fn a_range_of_an_s3_object_with_its_metadata() {
    let headers = [
        "Content-Range: bytes 2-4/10",
        "ETag: \"abc\"",
        DATED,
        "Content-Type: text/x",
        "x-amz-meta-colour: blue",
    ];
    let server = serve(vec![response("206 Partial Content", &headers, "cde")]).await;
    let origin = open(OriginKind::S3, &server);
    let mut request = range(2..5);
    request.if_match = Some("\"abc\"".into());
    let read = origin.get(&key(), request).await.unwrap();
    assert_eq!((read.meta.size, read.range.clone()), (10, 2..5));
    assert_eq!(read.meta.etag.as_deref(), Some("\"abc\""));
    assert_eq!(read.meta.attributes.content_type.as_deref(), Some("text/x"));
    assert_eq!(
        read.meta.attributes.user,
        [("colour".into(), "blue".into())]
    );
    assert_eq!(text(read).await.unwrap(), "cde");
    let seen = server.seen.lock()[0].to_ascii_lowercase();
    assert!(
        seen.starts_with("get /bucket/some/key%20with%20space http/1.1"),
        "{seen}"
    );
    assert!(seen.contains("range: bytes=2-4") && seen.contains("if-match: \"abc\""));
    assert!(seen.contains("authorization: aws4-hmac-sha256 credential=akid/"));
}

#[tokio::test]
async fn errors_of_s3_keep_their_meaning() {
    let error =
        |code: &str| format!("<Error><Code>{code}</Code><Message>said {code}</Message></Error>");
    type Check = fn(&OriginError) -> bool;
    let cases: [(&str, &str, usize, Check); 9] = [
        ("404 Not Found", "NoSuchKey", 1, |e| {
            matches!(e, OriginError::NotFound(_))
        }),
        (
            "404 Not Found",
            "NoSuchBucket",
            1,
            |e| matches!(e, OriginError::NoSuchBucket(b) if b == "bucket"),
        ),
        (
            "403 Forbidden",
            "AccessDenied",
            1,
            |e| matches!(e, OriginError::AccessDenied(m) if m.contains("said AccessDenied")),
        ),
        ("412 Precondition Failed", "PreconditionFailed", 1, |e| {
            matches!(e, OriginError::PreconditionFailed)
        }),
        ("416 Range Not Satisfiable", "InvalidRange", 1, |e| {
            matches!(e, OriginError::RangeNotSatisfiable { .. })
        }),
        ("400 Bad Request", "InvalidArgument", 1, |e| {
            matches!(e, OriginError::Rejected { status: 400, .. })
        }),
        ("503 Slow Down", "SlowDown", 2, |e| {
            matches!(e, OriginError::Server { status: 503, .. })
        }),
        ("500 Internal Server Error", "InternalError", 2, |e| {
            matches!(e, OriginError::Server { status: 500, .. })
        }),
        ("429 Too Many Requests", "", 2, |e| {
            matches!(e, OriginError::Server { status: 429, .. })
        }),
    ];
    for (status, code, requests, check) in cases {
        let server = serve(vec![response(status, &[], &error(code)); 2]).await;
        let origin = open(OriginKind::S3, &server);
        let error = origin.get(&key(), range(0..5)).await.unwrap_err();
        assert!(check(&error), "{status} {code}: {error:?}");
        assert_eq!(server.seen.lock().len(), requests, "{status} {code}");
    }
}

#[tokio::test]
async fn outages_are_told_apart_and_retried() {
    let server = serve(Vec::new()).await;
    let mut config = config(OriginKind::S3, &server);
    config.endpoint = Some("http://127.0.0.1:1".into());
    let origin = Origin::open(&config, Clock::real()).unwrap();
    let error = head_error(&origin).await;
    assert!(matches!(error, OriginError::Unreachable(_)), "{error:?}");
    let stats = origin.stats();
    let heads = stats.operation(crate::origin::OriginOperation::Head);
    assert_eq!((heads.failed, heads.retried), (2, 1));
    // A server that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    config.endpoint = Some(format!("http://{}", silent.local_addr().unwrap()));
    config.requests.response_timeout_ms = 30;
    let origin = Origin::open(&config, Clock::real()).unwrap();
    let error = head_error(&origin).await;
    assert!(matches!(error, OriginError::Timeout(_)), "{error:?}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_not_an_end() {
    let whole = response(
        "206 Partial Content",
        &[
            "Content-Range: bytes 0-9/10",
            "ETag: \"a\"",
            DATED,
            "X-Hang-Up: 1",
        ],
        "0123456789",
    );
    let cut = whole[..whole.len() - 4].to_owned();
    let server = serve(vec![cut]).await;
    let origin = open(OriginKind::S3, &server);
    let read = origin.get(&key(), range(0..10)).await.unwrap();
    let error = text(read).await.unwrap_err();
    assert!(error.is_retriable(), "{error:?}");
}

#[tokio::test]
async fn unmodified_objects_and_uploads() {
    let server = serve(vec![
        response("304 Not Modified", &[], ""),
        response("200 OK", &["ETag: \"new\""], ""),
        response("204 No Content", &[], ""),
    ])
    .await;
    let origin = open(OriginKind::S3, &server);
    let request = GetRequest {
        if_none_match: Some("\"abc\"".into()),
        ..GetRequest::default()
    };
    let error = origin.head(&key(), request).await.unwrap_err();
    assert!(matches!(error, OriginError::NotModified));
    let mut put = PutRequest::from_bytes(Bytes::from_static(b"hello"));
    put.attributes.content_type = Some("text/x".into());
    let etag = origin.put(&key(), put).await.unwrap().etag;
    assert_eq!(etag.as_deref(), Some("\"new\""));
    origin.delete(&key()).await.unwrap();
    let seen = server.seen.lock().clone();
    assert!(
        seen[1].starts_with("PUT ") && seen[1].ends_with("hello"),
        "{}",
        seen[1]
    );
    assert!(
        seen[1]
            .to_ascii_lowercase()
            .contains("content-type: text/x")
    );
    assert!(seen[2].starts_with("DELETE "), "{}", seen[2]);
}

#[tokio::test]
async fn a_long_upload_is_sent_in_parts_and_aborted_when_it_breaks_off() {
    let created =
        "<InitiateMultipartUploadResult><UploadId>id1</UploadId></InitiateMultipartUploadResult>";
    let completed =
        "<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>";
    let server = serve(vec![
        response("200 OK", &[], created),
        response("200 OK", &["ETag: \"p1\""], ""),
        response("200 OK", &["ETag: \"p2\""], ""),
        response("200 OK", &[], completed),
        response("200 OK", &[], created),
        response("200 OK", &["ETag: \"p1\""], ""),
        response("204 No Content", &[], ""),
    ])
    .await;
    let origin = open(OriginKind::S3, &server);
    let piece = Bytes::from(vec![b'x'; 3 << 20]);
    let upload = |pieces: Vec<Result<Bytes, crate::origin::BoxError>>, length| PutRequest {
        attributes: Attributes::default(),
        length,
        condition: None,
        body: Box::pin(futures::stream::iter(pieces)),
        late_headers: Arc::default(),
        turn: None,
    };
    let good = upload(vec![Ok(piece.clone()), Ok(piece.clone())], Some(6 << 20));
    let etag = origin.put(&key(), good).await.unwrap().etag;
    assert_eq!(etag.as_deref(), Some("\"whole\""));
    let broken = upload(
        vec![Ok(piece.clone()), Ok(piece), Err("client left".into())],
        None,
    );
    let error = origin.put(&key(), broken).await.unwrap_err();
    assert!(matches!(error, OriginError::BadUpload(_)), "{error:?}");
    while server.seen.lock().len() < 7 {
        tokio::task::yield_now().await;
    }
    let seen = server.seen.lock().clone();
    let lines: Vec<_> = seen.iter().map(|s| s.lines().next().unwrap()).collect();
    assert!(lines[1].contains("partNumber=1") && lines[2].contains("partNumber=2"));
    assert!(lines[6].starts_with("DELETE ") && lines[6].contains("uploadId=id1"));
}

#[tokio::test]
async fn listings_and_buckets_are_passed_on() {
    let listing = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>\
        <Contents><Key>a/b</Key><Size>5</Size><LastModified>2024-01-02T03:04:05.000Z</LastModified><ETag>\"e\"</ETag></Contents>\
        <CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes></ListBucketResult>";
    let buckets = "<ListAllMyBucketsResult><Buckets><Bucket><Name>one</Name></Bucket></Buckets></ListAllMyBucketsResult>";
    let server = serve(vec![
        response("200 OK", &[], listing),
        response("200 OK", &[], buckets),
    ])
    .await;
    let origin = open(OriginKind::S3, &server);
    let page = origin
        .list(
            "bucket",
            ListRequest {
                prefix: "a/".into(),
                delimiter: Some("/".into()),
                start_after: Some("a/a".into()),
                max_keys: 7,
                continuation: None,
            },
        )
        .await
        .unwrap();
    assert_eq!(page.objects[0].key, "a/b");
    assert_eq!(page.common_prefixes, ["a/c/"]);
    assert_eq!(page.next.as_deref(), Some("more"));
    assert_eq!(origin.list_buckets().await.unwrap()[0].name, "one");
    let seen = server.seen.lock().clone();
    let line = seen[0].lines().next().unwrap();
    for part in [
        "max-keys=7",
        "prefix=a%2F",
        "start-after=a%2Fa",
        "delimiter=%2F",
    ] {
        assert!(line.contains(part), "{line}");
    }
}

#[tokio::test]
async fn reports_of_intermediate_caches_are_returned() {
    let cases = [
        ("x-floe-cache: hit", Some(true)),
        ("x-floe-cache: joined", Some(false)),
        ("X-Cache: Miss from cloudfront", Some(false)),
        ("x-cache: TCP_HIT", Some(true)),
        ("x-cache: perhaps", None),
        ("x-other: hit", None),
    ];
    let responses = cases.map(|(header, _)| response("200 OK", &[header, DATED], "0123"));
    let server = serve(responses.to_vec()).await;
    let origin = open(OriginKind::S3, &server);
    for (header, expected) in cases {
        let read = origin.get(&key(), GetRequest::default()).await.unwrap();
        assert_eq!(read.from_cache, expected, "{header}");
        assert_eq!(text(read).await.unwrap(), "0123");
    }
}

#[tokio::test]
async fn a_web_server_without_ranges_and_validators_still_serves() {
    let server = serve(vec![response("200 OK", &[], "0123456789"); 2]).await;
    let origin = open(OriginKind::Http, &server);
    let read = origin.get(&key(), range(3..6)).await.unwrap();
    assert!(!read.meta.has_validator());
    assert_eq!((read.meta.size, read.range.clone()), (10, 3..6));
    assert_eq!(text(read).await.unwrap(), "345");
    let put = PutRequest::from_bytes(Bytes::new());
    let error = origin.put(&key(), put).await.unwrap_err();
    assert!(matches!(error, OriginError::Unsupported(_)));
}

/// A redirect to another port of the same machine is not followed.
#[tokio::test]
async fn redirects_stay_at_the_origin() {
    let elsewhere = serve(vec![response("200 OK", &[DATED], "secret"); 2]).await;
    let location = format!("Location: {}/bucket/x", elsewhere.address);
    let kinds = [
        OriginKind::Http,
        OriginKind::S3,
        OriginKind::Gcs,
        OriginKind::Azure,
    ];
    for kind in kinds {
        let away = response("302 Found", &[&location], "");
        let server = serve(vec![away; 2]).await;
        let mut config = config(kind, &server);
        config.anonymous = matches!(kind, OriginKind::Gcs | OriginKind::Azure);
        if kind == OriginKind::Azure {
            config.access_key = Some("account".into());
        }
        let origin = Origin::open(&config, Clock::real()).unwrap();
        let error = origin.get(&key(), GetRequest::default()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&elsewhere.address), "{kind:?}: {text}");
        assert!(text.contains("origin.redirects"), "{kind:?}: {text}");
        assert_eq!(server.seen.lock().len(), 1, "not tried again");
    }
    assert!(elsewhere.seen.lock().is_empty());

    let away = response("302 Found", &[&location], "");
    let near = response("302 Found", &["Location: /bucket/other"], "");
    let whole = response("200 OK", &[DATED], "right");
    let server = serve(vec![near, whole, away]).await;
    let mut config = config(OriginKind::Http, &server);
    config.redirects = vec![elsewhere.address.clone()];
    let origin = Origin::open(&config, Clock::real()).unwrap();
    for expected in ["right", "secret"] {
        let read = origin.get(&key(), GetRequest::default()).await.unwrap();
        assert_eq!(text(read).await.unwrap(), expected);
    }
}

/// An object with metadata that clients cannot read, written by another
/// program, is still served.
#[tokio::test]
async fn metadata_that_is_not_ascii_is_encoded_or_rejected() {
    let name = "x-amz-meta-name: gr\u{fc}n";
    let stored = response("200 OK", &[DATED, name], "bytes");
    let server = serve(vec![stored]).await;
    let origin = open(OriginKind::S3, &server);
    let read = origin.get(&key(), GetRequest::default()).await.unwrap();
    let user = read.meta.attributes.user.clone();
    assert_eq!(text(read).await.unwrap(), "bytes");
    assert_eq!(user, [("name".into(), "=?UTF-8?Q?gr=C3=BCn?=".into())]);

    let mut put = PutRequest::from_bytes(Bytes::new());
    put.attributes.user = vec![("name".into(), "gr\u{fc}n".into())];
    let error = origin.put(&key(), put).await.unwrap_err();
    assert!(
        matches!(error, OriginError::Rejected { status: 400, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("\"name\""), "{error}");
    let mut put = PutRequest::from_bytes(Bytes::new());
    put.attributes.headers = vec![("expires".into(), "never".into())];
    let error = origin.put(&key(), put).await.unwrap_err();
    assert!(error.to_string().contains("header expires"), "{error}");
    assert_eq!(server.seen.lock().len(), 1);
}

#[tokio::test]
async fn names_that_cannot_be_sent_are_rejected_before_any_request() {
    let server = serve(Vec::new()).await;
    let mut config = config(OriginKind::S3, &server);
    config.buckets.insert("public".into(), "private".into());
    let origin = Origin::open(&config, Clock::real()).unwrap();
    for bucket in ["bucket", "private", "a/b", "..", ""] {
        let error = origin
            .head(&ObjectKey::new(bucket, "x"), GetRequest::default())
            .await
            .unwrap_err();
        assert!(matches!(error, OriginError::NoSuchBucket(_)));
    }
    assert_eq!(origin.list_buckets().await.unwrap()[0].name, "public");
    let others = open(OriginKind::Http, &server);
    let of_others = ["", "/a", "a/", "a//b", "a/../b", "."];
    for (origin, key) in of_others
        .map(|key| (&others, key))
        .into_iter()
        .chain([(&origin, "")])
    {
        let error = origin
            .head(&ObjectKey::new("public", key), GetRequest::default())
            .await
            .unwrap_err();
        assert!(
            matches!(error, OriginError::InvalidKey { .. }),
            "{key}: {error:?}"
        );
    }
    assert!(server.seen.lock().is_empty());
}

#[tokio::test]
async fn every_key_of_s3_has_its_own_name_on_the_wire() {
    let keys = [
        ("/a", "//a"),
        ("a/", "/a/"),
        ("a//b", "/a//b"),
        ("a/../b/./c", "/a/../b/./c"),
        ("..", "/.."),
        ("a b+c%2F?#\u{1}\u{fc}", "/a%20b%2Bc%252F%3F%23%01%C3%BC"),
    ];
    let server = serve(vec![response("200 OK", &[DATED], ""); keys.len()]).await;
    let origin = open(OriginKind::S3, &server);
    for (key, path) in keys {
        let key = ObjectKey::new("bucket", key);
        origin.head(&key, GetRequest::default()).await.unwrap();
        let request = server.seen.lock().pop().unwrap();
        let line = request.lines().next().unwrap();
        assert_eq!(line, format!("HEAD /bucket{path} HTTP/1.1"));
    }
}

#[tokio::test]
async fn headers_that_describe_an_object_are_kept() {
    let headers = [
        DATED,
        "Expires: Wed, 21 Oct 2065 07:28:00 GMT",
        "x-amz-version-id: v1",
        "x-amz-request-id: 1",
        "x-amz-checksum-crc32: AAAAAA==",
        "Via: a proxy",
    ];
    let server = serve(vec![response("200 OK", &headers, "")]).await;
    let origin = open(OriginKind::S3, &server);
    let meta = origin.head(&key(), GetRequest::default()).await.unwrap();
    let kept = [
        ("expires", "Wed, 21 Oct 2065 07:28:00 GMT"),
        ("x-amz-version-id", "v1"),
    ];
    let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(meta.attributes.headers, kept);
}

fn forwarded(method: http::Method, key: &str) -> ForwardHead {
    ForwardHead {
        method,
        bucket: Some("public".into()),
        key: Some(key.into()),
        query: Some("tagging&x=%41+b".into()),
        headers: HeaderMap::new(),
        payload: PayloadHash::Unsigned,
        signing: Signing::Origin,
    }
}

#[tokio::test]
async fn requests_and_answers_are_forwarded_as_they_are() {
    let answers = [
        response(
            "409 Conflict",
            &["x-own: 1", "Connection: x-hop", "x-hop: 2"],
            "<why/>",
        ),
        response("204 No Content", &[], ""),
    ];
    let server = serve(answers.to_vec()).await;
    let mut config = config(OriginKind::S3, &server);
    config.buckets.insert("public".into(), "private".into());
    let origin = Origin::open(&config, Clock::real()).unwrap();
    let mut head = forwarded(http::Method::PUT, "a/b+c//");
    let source = HeaderValue::from_static("/public/old%20key?versionId=3");
    head.headers.insert("x-amz-copy-source", source);
    let pieces = futures::stream::iter([Ok(Bytes::from("by")), Ok(Bytes::from("tes"))]);
    let body = ForwardBody {
        length: Some(5),
        pieces: pieces.boxed(),
        turn: None,
    };
    let request = ForwardRequest {
        head,
        body: Some(body),
    };
    let answer = origin.forward(request).await.unwrap();
    assert_eq!(answer.status, 409);
    assert_eq!(answer.headers["x-own"], "1");
    assert!(!answer.headers.contains_key("x-hop"));
    let pieces: Vec<Bytes> = answer.body.try_collect().await.unwrap();
    assert_eq!(pieces.concat(), b"<why/>");
    let seen = server.seen.lock().pop().unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[0], "PUT /private/a/b%2Bc//?tagging&x=%41+b HTTP/1.1");
    assert!(
        lines.contains(&"x-amz-copy-source: private/old%20key?versionId=3"),
        "{seen}"
    );
    assert!(lines.contains(&"content-length: 5"), "{seen}");
    assert_eq!(lines.last(), Some(&"bytes"));

    // Buckets that the settings do not name stay hidden, as targets and as sources.
    for (bucket, source) in [
        ("private", "public/a"),
        ("public", "private/a"),
        ("public", "x%2fy"),
    ] {
        let mut head = forwarded(http::Method::PUT, "k");
        head.bucket = Some(bucket.into());
        let source = HeaderValue::from_static(source);
        head.headers.insert("x-amz-copy-source", source);
        let error = origin.forward(ForwardRequest { head, body: None }).await;
        let error = error.unwrap_err();
        assert!(matches!(error, OriginError::NoSuchBucket(_)), "{error}");
    }
    let mut head = forwarded(http::Method::GET, "k");
    head.bucket = None;
    assert!(!origin.forwards(None) && origin.forwards(Some("public")));
    let error = origin.forward(ForwardRequest { head, body: None }).await;
    assert!(matches!(error, Err(OriginError::Unsupported(_))));
    assert!(server.seen.lock().is_empty());
}

/// A client that followed it would go past the cache.
#[tokio::test]
async fn no_redirect_is_forwarded() {
    let document = "<Error><Code>PermanentRedirect</Code></Error>";
    for (header, to) in [
        (
            "Location: http://elsewhere/x?X-Amz-Signature=1",
            "http://elsewhere/x",
        ),
        ("x-amz-bucket-region: eu-west-3", "eu-west-3"),
        ("x-own: 1", "another place"),
    ] {
        let away = response("301 Moved Permanently", &[header], document);
        let server = serve(vec![away]).await;
        let origin = Origin::open(&config(OriginKind::S3, &server), Clock::real()).unwrap();
        let head = forwarded(http::Method::PUT, "k");
        let error = origin.forward(ForwardRequest { head, body: None }).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&format!("redirects to {to};")), "{text}");
    }
}

#[tokio::test]
async fn a_request_may_be_signed_by_other_keys_of_the_origin() {
    let refusal = "<Error><Code>InvalidAccessKeyId</Code></Error>";
    let answers = ["200 OK", "403 Forbidden"].map(|status| response(status, &[], refusal));
    let server = serve(answers.to_vec()).await;
    let mut config = config(OriginKind::S3, &server);
    config.access_key = Some("OURS".into());
    config.secret_key = Some(Secret::new("our secret"));
    let origin = Origin::open(&config, Clock::real()).unwrap();
    for is_taken in [true, false] {
        let mut head = forwarded(http::Method::PUT, "k");
        head.signing = Signing::Keys(Arc::new(OriginKeys {
            access_key: "THEIRS".into(),
            secret_key: "their secret".into(),
        }));
        let answer = origin.forward(ForwardRequest { head, body: None }).await;
        // Of keys in Floe's settings the origin's word is for the operator.
        match answer {
            Ok(answer) => assert!(is_taken && answer.status == 200),
            Err(error) => assert!(!is_taken && matches!(error, OriginError::AccessDenied(_))),
        }
        let seen = server.seen.lock().pop().unwrap();
        assert!(seen.contains("Credential=THEIRS/"), "{seen}");
        assert!(!seen.contains("OURS") && !seen.contains("secret"), "{seen}");
    }
}

#[tokio::test]
async fn requests_that_clients_signed_are_sent_as_they_are() {
    let refusal = "<Error><Code>SignatureDoesNotMatch</Code></Error>";
    let server = serve(vec![response("403 Forbidden", &[], refusal)]).await;
    let mut config = config(OriginKind::S3, &server);
    config.access_key = Some("OURS".into());
    config.secret_key = Some(Secret::new("our secret"));
    let origin = Origin::open(&config, Clock::real()).unwrap();
    assert_eq!(origin.signed_host().unwrap(), "127.0.0.1");
    let mut head = forwarded(http::Method::GET, "a+b/");
    head.headers
        .insert("authorization", HeaderValue::from_static("theirs"));
    head.signing = Signing::Client(SignedTarget {
        host: "public.s3.example.com".into(),
        path_and_query: "/a+b%2f//?x=%41+b&y".into(),
    });
    let answer = origin
        .forward(ForwardRequest { head, body: None })
        .await
        .unwrap();
    // Its word on credentials is for the client.
    assert_eq!(answer.status, 403);
    let pieces: Vec<Bytes> = answer.body.try_collect().await.unwrap();
    assert_eq!(pieces.concat(), refusal.as_bytes());
    let seen = server.seen.lock().pop().unwrap().to_lowercase();
    let mut lines: Vec<&str> = seen.trim_end().lines().collect();
    lines.sort_unstable();
    let sent = [
        "authorization: theirs",
        "get /a+b%2f//?x=%41+b&y http/1.1",
        "host: public.s3.example.com",
    ];
    assert_eq!(lines, sent);

    // No signature of a client holds under other names or paths.
    config.buckets.insert("public".into(), "private".into());
    let mapped = Origin::open(&config, Clock::real()).unwrap();
    assert!(
        mapped
            .signed_host()
            .unwrap_err()
            .to_string()
            .contains("origin.buckets")
    );
    config.buckets.clear();
    config.endpoint = config.endpoint.map(|endpoint| endpoint + "/below");
    let below = Origin::open(&config, Clock::real()).unwrap();
    assert!(
        below
            .signed_host()
            .unwrap_err()
            .to_string()
            .contains("origin.endpoint")
    );
}

#[tokio::test]
async fn administrators_interfaces_and_paths_out_of_a_bucket_are_not_reached() {
    let server = serve(Vec::new()).await;
    let origin = open(OriginKind::S3, &server);
    for bucket in ["minio", "admin"] {
        let key = ObjectKey::new(bucket, "v3/info");
        let error = origin.get(&key, GetRequest::default()).await.unwrap_err();
        assert!(matches!(error, OriginError::AccessDenied(_)), "{error}");
        let mut head = forwarded(http::Method::GET, "v3/info");
        head.bucket = Some(bucket.into());
        let error = origin.forward(ForwardRequest { head, body: None }).await;
        assert!(matches!(error, Err(OriginError::AccessDenied(_))));
    }
    let mut config = config(OriginKind::S3, &server);
    config.buckets.insert("public".into(), "private".into());
    let origin = Origin::open(&config, Clock::real()).unwrap();
    for source in [
        "/public/../hidden/k",
        "public%2f..%2fhidden%2fk",
        "public/a/./b?versionId=1",
    ] {
        let mut head = forwarded(http::Method::PUT, "k");
        let source = HeaderValue::from_static(source);
        head.headers.insert("x-amz-copy-source", source);
        let error = origin.forward(ForwardRequest { head, body: None }).await;
        assert!(matches!(error, Err(OriginError::Rejected { .. })));
    }
    assert!(server.seen.lock().is_empty());
}
