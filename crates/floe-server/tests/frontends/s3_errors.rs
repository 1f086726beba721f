//! Errors have S3's codes and format.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use floe::origin::OriginError;
use http_body_util::BodyExt;

use crate::support::{connect, pattern, request, rig, rig_holding, strict_rig};

#[tokio::test]
async fn errors_of_the_origin_have_s3_codes() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    let io = std::io::Error::other("disk on fire");
    let cases = [
        (
            OriginError::Unreachable("connection refused".into()),
            503,
            "ServiceUnavailable",
            "connection refused",
        ),
        (
            OriginError::Timeout(Duration::from_secs(7)),
            503,
            "ServiceUnavailable",
            "7s",
        ),
        (
            OriginError::Server {
                status: 500,
                message: "oops".into(),
            },
            503,
            "ServiceUnavailable",
            "oops",
        ),
        (
            OriginError::Overloaded("queue is full"),
            503,
            "SlowDown",
            "queue is full",
        ),
        (
            OriginError::Io(Arc::new(io)),
            503,
            "ServiceUnavailable",
            "disk on fire",
        ),
        (
            OriginError::Protocol("no size".into()),
            503,
            "ServiceUnavailable",
            "no size",
        ),
        (
            OriginError::AccessDenied("credentials".into()),
            403,
            "AccessDenied",
            "credentials",
        ),
        (
            OriginError::InvalidKey {
                key: "x".into(),
                reason: "dots".into(),
            },
            400,
            "InvalidArgument",
            "dots",
        ),
        (
            OriginError::Rejected {
                status: 400,
                message: "why".into(),
            },
            400,
            "InvalidRequest",
            "why",
        ),
        (
            OriginError::Unsupported("write".into()),
            501,
            "NotImplemented",
            "write",
        ),
        (
            OriginError::NoSuchBucket("bucket".into()),
            404,
            "NoSuchBucket",
            "bucket",
        ),
        (OriginError::NotFound("key".into()), 404, "NoSuchKey", "key"),
    ];
    for (fault, status, code, message) in cases {
        rig.origin.fail_with(Some(fault.clone()));
        for (method, path) in [
            ("GET", "/bucket/unseen"),
            ("GET", "/bucket?list-type=2"),
            ("DELETE", "/bucket/unseen"),
            ("PUT", "/bucket/unseen"),
        ] {
            let is_negative = matches!(fault, OriginError::NotFound(_));
            if is_negative && (method != "GET" || path.contains('?')) {
                continue;
            }
            let response = rig.send(method, path, &[], "").await;
            assert_eq!(
                (response.status, response.code()),
                (status, code),
                "{method} {path} {fault}"
            );
            assert!(
                response.text().contains(message),
                "{fault}: {}",
                response.text()
            );
            if status == 503 {
                assert_eq!(response.header("retry-after"), "1");
            }
        }
        let head = rig.send("HEAD", "/bucket/unseen", &[], "").await;
        assert_eq!((head.status, head.body.len()), (status, 0), "HEAD {fault}");
    }
    rig.origin.fail_with(None);
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "bytes");
}

#[tokio::test]
async fn a_body_that_fails_breaks_the_connection() {
    let rig = rig().await;
    let bytes = pattern(1, 3_000_000);
    rig.origin.store("bucket", "key", bytes.clone());
    rig.origin.cut_at.store(2_500_000, Relaxed);
    let mut sender = connect(rig.s3()).await;
    let get = request(rig.s3(), "GET", "/bucket/key", &[], "");
    let response = sender.send_request(get).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-length"], "3000000");
    assert!(response.into_body().collect().await.is_err());
    // The connection was closed; the next request succeeds.
    let again = request(rig.s3(), "GET", "/bucket/key", &[], "");
    assert!(sender.send_request(again).await.is_err());
    rig.origin.cut_at.store(0, Relaxed);
    assert!(rig.get("/bucket/key", &[]).await.body == bytes);
}

#[tokio::test]
async fn client_errors_are_never_500() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    for (method, path, headers, body) in [
        ("GET", "/UPPER_case!/key", vec![], ""),
        ("GET", "/bucket/%ff%fe", vec![], ""),
        ("GET", "/b/key", vec![], ""),
        ("PATCH", "/bucket/key", vec![], ""),
        ("OPTIONS", "/bucket/key", vec![], ""),
        ("POST", "/bucket/key", vec![], ""),
        ("PUT", "/bucket/key?partNumber=x&uploadId=y", vec![], ""),
        (
            "PUT",
            "/bucket/key?partNumber=70000&uploadId=y",
            vec![],
            "x",
        ),
        ("PUT", "/bucket/key?partNumber=1&uploadId=nope", vec![], "x"),
        ("POST", "/bucket/key?uploadId=nope", vec![], "<broken"),
        (
            "PUT",
            "/bucket/key",
            vec![("content-md5", "not base64")],
            "x",
        ),
        (
            "PUT",
            "/bucket/key",
            vec![("x-amz-decoded-content-length", "x")],
            "x",
        ),
        (
            "PUT",
            "/bucket/key",
            vec![("x-amz-copy-source", "nonsense")],
            "",
        ),
        ("GET", "/bucket/key?X-Amz-Signature=abc", vec![], ""),
        ("GET", "/bucket?list-type=9", vec![], ""),
        ("GET", "/bucket?list-type=2&max-keys=many", vec![], ""),
        ("PUT", "/bucket?policy", vec![], "{}"),
        ("DELETE", "/bucket/key?versionId=7", vec![], ""),
    ] {
        let response = rig.send(method, path, &headers, body).await;
        let status = response.status;
        assert!(
            (200..500).contains(&status) || status == 501,
            "{method} {path}: {status} {}",
            response.text()
        );
    }
    let long = format!("/bucket/{}", "k".repeat(1025));
    assert_eq!(rig.get(&long, &[]).await.code(), "KeyTooLongError");
    assert_eq!(rig.get("/bucket/missing", &[]).await.code(), "NoSuchKey");
}

/// On the short way of plain reads, and on the other one.
#[tokio::test]
async fn errors_name_the_request_and_what_it_was_for() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    for (method, path, resource) in [
        ("GET", "/bucket/a%26b%20c", "/bucket/a&amp;b c"),
        (
            "GET",
            "/bucket/a%26b%20c?x-id=GetObject",
            "/bucket/a&amp;b c",
        ),
        ("GET", "/missing?list-type=2", "/missing"),
    ] {
        let error = rig.send(method, path, &[], "").await;
        assert_eq!(error.status, 404, "{}", error.text());
        assert_eq!(error.tags("Resource"), [resource], "{path}");
        assert_eq!(error.tags("RequestId"), [error.header("x-amz-request-id")]);
        let length = error.header("content-length").parse();
        assert_eq!(length, Ok(error.body.len()), "{path}");
    }
}

/// The rest of a refused upload is not read, so the connection says that it closes.
#[tokio::test]
async fn an_upload_refused_before_its_body_closes_the_connection() {
    let rig = strict_rig().await;
    let head = "PUT /bucket/new HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    let answer = crate::robustness::raw(&rig, head.as_bytes()).await;
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    assert!(answer.starts_with("http/1.1 403"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    // A body that has been read, or none, costs no connection.
    for body in ["", "bytes"] {
        let refused = rig.send("PUT", "/bucket/new", &[], body).await;
        assert_eq!(refused.status, 403);
        let closes = refused.header("connection") == "close";
        assert!(!closes || !body.is_empty(), "{body:?}");
    }
}
