//! Signatures: valid, invalid, and none.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use floe_server::{Anonymous, StartError};
use http_body_util::{BodyExt, Full};
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStoreExt, PutPayload};

use crate::support::signer::{Payload, Signer};
use crate::support::{
    ACCESS_KEY, Rig, SECRET_KEY, connect_http2, pattern, reply, rig_with, send, strict_rig,
};

#[tokio::test]
async fn signed_requests_are_served_and_others_rejected() {
    let rig = strict_rig().await;
    let host = rig.s3().to_string();
    let get = |signer: Signer| {
        let request = signer.sign("GET", &host, "/bucket/key", &[], b"", Payload::Signed);
        send(rig.s3(), request)
    };
    assert_eq!(get(Signer::known()).await.text(), "bytes");

    let wrong_secret = get(Signer::new(ACCESS_KEY, "another secret")).await;
    assert_eq!(
        (wrong_secret.status, wrong_secret.code()),
        (403, "SignatureDoesNotMatch")
    );
    let wrong_key = get(Signer::new("NOBODY", SECRET_KEY)).await;
    assert_eq!(
        (wrong_key.status, wrong_key.code()),
        (403, "InvalidAccessKeyId")
    );
    let mut late = Signer::known();
    late.time = SystemTime::now() - Duration::from_secs(3600);
    let late = get(late).await;
    assert_eq!((late.status, late.code()), (403, "RequestTimeTooSkewed"));

    for (method, path) in [
        ("GET", "/bucket/key"),
        ("HEAD", "/bucket/key"),
        ("PUT", "/bucket/key"),
        ("DELETE", "/bucket/key"),
        ("GET", "/bucket?list-type=2"),
        ("GET", "/"),
        ("POST", "/bucket?delete"),
    ] {
        let unsigned = rig.send(method, path, &[], "").await;
        assert_eq!(unsigned.status, 403, "{method} {path}");
        if method != "HEAD" {
            assert_eq!(unsigned.code(), "AccessDenied", "{method} {path}");
        }
    }
    assert!(rig.origin.bytes("bucket", "key").is_some());
}

#[tokio::test]
async fn a_signature_covers_path_query_headers_and_body() {
    let rig = strict_rig().await;
    let host = rig.s3().to_string();
    let sign = || {
        Signer::known().sign(
            "GET",
            &host,
            "/bucket/key",
            &[("range", "bytes=0-1")],
            b"",
            Payload::Signed,
        )
    };
    assert_eq!(send(rig.s3(), sign()).await.text(), "by");

    let mut other_path = sign();
    *other_path.uri_mut() = "/bucket/other".parse().unwrap();
    let mut other_query = sign();
    *other_query.uri_mut() = "/bucket/key?response-content-type=a%2Fb".parse().unwrap();
    let mut other_range = sign();
    other_range
        .headers_mut()
        .insert("range", "bytes=0-3".parse().unwrap());
    for request in [other_path, other_query, other_range] {
        let rejected = send(rig.s3(), request).await;
        assert_eq!(rejected.code(), "SignatureDoesNotMatch");
    }

    let mut other_body =
        Signer::known().sign("PUT", &host, "/bucket/key", &[], b"hello", Payload::Signed);
    *other_body.body_mut() = Full::new(Bytes::from_static(b"jello"));
    let rejected = send(rig.s3(), other_body).await;
    assert_eq!(
        (rejected.status, rejected.code()),
        (400, "XAmzContentSHA256Mismatch")
    );
    assert_eq!(rig.origin.bytes("bucket", "key").unwrap(), "bytes");
}

#[tokio::test]
async fn every_kind_of_signed_payload() {
    let rig = strict_rig().await;
    let host = rig.s3().to_string();
    let bytes = pattern(9, 200_000);
    for payload in [
        Payload::Signed,
        Payload::Unsigned,
        Payload::Streamed(64 << 10),
        Payload::Streamed(200_000),
    ] {
        let path = "/bucket/put";
        let put = Signer::known().sign("PUT", &host, path, &[], &bytes, payload);
        let put = send(rig.s3(), put).await;
        assert_eq!(put.status, 200, "{}", put.text());
        assert!(rig.origin.bytes("bucket", "put").unwrap() == bytes);
        assert_eq!(
            rig.origin.attributes("bucket", "put").content_encoding,
            None
        );
        assert_eq!(right_delete(&rig, path).await, 204);
    }
    let trailer = Payload::Trailer("mnG7TA==");
    let put = Signer::known().sign("PUT", &host, "/bucket/put", &[], b"hello", trailer);
    let put = send(rig.s3(), put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(rig.origin.bytes("bucket", "put").unwrap(), "hello");
}

async fn right_delete(rig: &Rig, path: &str) -> u16 {
    let host = rig.s3().to_string();
    let request = Signer::known().sign("DELETE", &host, path, &[], b"", Payload::Signed);
    send(rig.s3(), request).await.status
}

#[tokio::test]
async fn tampered_streams_store_nothing() {
    let rig = strict_rig().await;
    let host = rig.s3().to_string();
    let bytes = pattern(9, 100_000);
    // Within one second: the signatures of the body's chunks depend on the head's.
    let signer = Signer::known();
    let signed = || {
        signer.sign(
            "PUT",
            &host,
            "/bucket/put",
            &[],
            &bytes,
            Payload::Streamed(8192),
        )
    };
    let body = { signed().into_body().collect().await.unwrap().to_bytes() };
    // A flipped byte in the ninth chunk; a missing end.
    let mut flipped = body.to_vec();
    flipped[8 * 8300 + 4000] ^= 1;
    let cut = body.slice(..body.len() - 20_000);
    for (tampered, code) in [
        (flipped.into(), "SignatureDoesNotMatch"),
        (cut, "IncompleteBody"),
    ] {
        let mut request = signed();
        *request.body_mut() = Full::new(tampered);
        let put = send(rig.s3(), request).await;
        assert_eq!(put.code(), code, "{}", put.text());
        assert_eq!(rig.origin.bytes("bucket", "put"), None, "{code}");
    }
    let wrong = Payload::Trailer("AAAAAA==");
    let put = Signer::known().sign("PUT", &host, "/bucket/put", &[], b"hello", wrong);
    assert_eq!(send(rig.s3(), put).await.code(), "BadDigest");
    assert_eq!(rig.origin.bytes("bucket", "put"), None);
}

/// The library wraps the error of the body below the chunks.
#[tokio::test]
async fn a_stalled_stream_of_chunks_is_a_timeout() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().stall_timeout_seconds = 1).await;
    rig.origin.store("bucket", "key", "bytes");
    let host = rig.s3().to_string();
    let bytes = pattern(9, 100_000);
    for payload in [Payload::Signed, Payload::Streamed(8192)] {
        let signed = Signer::known().sign("PUT", &host, "/bucket/put", &[], &bytes, payload);
        let (head, body) = signed.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut text = "PUT /bucket/put HTTP/1.1\r\n".to_owned();
        for (name, value) in &head.headers {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let half = &body[..body.len() / 2];
        rig.expect_timeout(&[text.as_bytes(), half].concat()).await;
        assert_eq!(rig.origin.bytes("bucket", "put"), None);
    }
}

#[tokio::test]
async fn presigned_urls() {
    let rig = strict_rig().await;
    let host = rig.s3().to_string();
    let path = Signer::known().presign("GET", &host, "/bucket/key", 60);
    assert_eq!(rig.get(&path, &[]).await.text(), "bytes");
    assert_eq!(rig.get(&path, &[("range", "bytes=1-2")]).await.text(), "yt");
    let as_put = rig.send("PUT", &path, &[], "x").await;
    assert_eq!(as_put.code(), "SignatureDoesNotMatch");
    let elsewhere = rig
        .get(&path.replace("/bucket/key", "/bucket/kez"), &[])
        .await;
    assert_eq!(elsewhere.code(), "SignatureDoesNotMatch");
    let mut early = Signer::known();
    early.time = SystemTime::now() - Duration::from_secs(120);
    let expired = rig
        .get(&early.presign("GET", &host, "/bucket/key", 60), &[])
        .await;
    assert_eq!((expired.status, expired.code()), (403, "AccessDenied"));
    let forged = Signer::new(ACCESS_KEY, "another secret").presign("GET", &host, "/bucket/key", 60);
    assert_eq!(rig.get(&forged, &[]).await.code(), "SignatureDoesNotMatch");
}

/// A URL for an upload must not become a copy of another object.
#[tokio::test]
async fn headers_of_s3_must_be_signed() {
    let rig = strict_rig().await;
    rig.origin.store("bucket", "secret", "secret bytes");
    let host = rig.s3().to_string();
    let url = Signer::known().presign("PUT", &host, "/bucket/key", 60);
    let copy = [("x-amz-copy-source", "/bucket/secret")];
    let rejected = rig.send("PUT", &url, &copy, "").await;
    assert_eq!((rejected.status, rejected.code()), (403, "AccessDenied"));
    let mut meta = Signer::known().sign("PUT", &host, "/bucket/key", &[], b"x", Payload::Signed);
    meta.headers_mut()
        .insert("x-amz-meta-a", "1".parse().unwrap());
    let rejected = send(rig.s3(), meta).await;
    assert_eq!((rejected.status, rejected.code()), (403, "AccessDenied"));
    assert_eq!(rig.origin.bytes("bucket", "key").unwrap(), "bytes");

    let extra = [
        ("x-amz-meta-a", "1"),
        ("x-amz-copy-source", "/bucket/secret"),
    ];
    let signed = Signer::known().sign("PUT", &host, "/bucket/copy", &extra, b"", Payload::Signed);
    assert_eq!(send(rig.s3(), signed).await.status, 200);
    assert_eq!(rig.origin.bytes("bucket", "copy").unwrap(), "secret bytes");
    assert_eq!(rig.send("PUT", &url, &[], "by URL").await.status, 200);
}

#[tokio::test]
async fn signatures_over_http2() {
    let rig = strict_rig().await;
    let host = rig.s3().to_string();
    for (signer, status) in [
        (Signer::known(), 200),
        (Signer::new(ACCESS_KEY, "another secret"), 403),
    ] {
        let mut request = signer.sign("GET", &host, "/bucket/key", &[], b"", Payload::Signed);
        request.headers_mut().remove("host");
        *request.uri_mut() = format!("http://{host}/bucket/key").parse().unwrap();
        let mut sender = connect_http2(rig.s3()).await;
        let response = reply(sender.send_request(request).await.unwrap()).await;
        assert_eq!(response.status, status, "{}", response.text());
    }
}

#[tokio::test]
async fn signature_version_2_is_rejected() {
    let rig = strict_rig().await;
    let header = [("authorization", "AWS FLOETESTKEY:c2lnbmF0dXJl")];
    let in_header = rig.get("/bucket/key", &header).await;
    assert_eq!(
        (in_header.status, in_header.code()),
        (400, "InvalidRequest")
    );
    let path = "/bucket/key?AWSAccessKeyId=FLOETESTKEY&Expires=9999999999&Signature=x";
    assert_eq!(rig.get(path, &[]).await.code(), "InvalidRequest");
    for junk in ["AWS4-HMAC-SHA256 nonsense", "Bearer x", "", "Basic eDp5"] {
        let rejected = rig.get("/bucket/key", &[("authorization", junk)]).await;
        assert!(
            (400..=403).contains(&rejected.status),
            "{junk}: {}",
            rejected.status
        );
    }
}

#[tokio::test]
async fn a_server_without_keys_says_so_to_signing_clients() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().keys.clear()).await;
    rig.origin.store("bucket", "key", "bytes");
    assert_eq!(rig.get("/bucket/key", &[]).await.status, 200);
    let host = rig.s3().to_string();
    let request = Signer::known().sign("GET", &host, "/bucket/key", &[], b"", Payload::Signed);
    let rejected = send(rig.s3(), request).await;
    assert_eq!(
        (rejected.status, rejected.code()),
        (403, "InvalidAccessKeyId")
    );
    assert!(rejected.text().contains("--no-sign-request"));
}

#[tokio::test]
async fn anonymous_frontends_listen_only_on_loopback_by_default() {
    let clock = floe_device::Clock::real();
    let origin = floe::Origin::from_backend(
        std::sync::Arc::new(crate::support::MemoryOrigin::default()),
        Default::default(),
        clock.clone(),
    )
    .unwrap();
    let store = crate::support::store(&clock).await;
    let cache = floe::ObjectCache::new(store, origin, clock.clone(), Default::default()).unwrap();
    let config = floe_server::ServerConfig {
        s3: Some(floe_server::S3Config {
            listen: ([0, 0, 0, 0], 0).into(),
            anonymous: Anonymous::OnLoopback,
            ..Default::default()
        }),
        ..Default::default()
    };
    let rejected = floe_server::Server::start(config, cache.clone().into(), clock, None).await;
    assert!(matches!(rejected, Err(StartError::Config(_))));
}

/// A third-party client.
#[tokio::test]
async fn requests_signed_by_the_object_store_crate_are_served() {
    let rig = strict_rig().await;
    let client = |secret: &str| {
        AmazonS3Builder::new()
            .with_endpoint(format!("http://{}", rig.s3()))
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name("bucket")
            .with_access_key_id(ACCESS_KEY)
            .with_secret_access_key(secret)
            .build()
            .unwrap()
    };
    let store = client(SECRET_KEY);
    let path = object_store::path::Path::from("a/b c/ä");
    let bytes = pattern(11, 150_000);
    store
        .put(&path, PutPayload::from(bytes.clone()))
        .await
        .unwrap();
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == bytes);
    assert!(store.get_range(&path, 5..77).await.unwrap() == bytes[5..77]);
    assert_eq!(store.head(&path).await.unwrap().size, 150_000);
    let listed: Vec<_> = {
        use futures::TryStreamExt;
        use object_store::ObjectStore;
        store.list(Some(&"a".into())).try_collect().await.unwrap()
    };
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].location, path);
    store.delete(&path).await.unwrap();
    assert!(matches!(
        store.get(&path).await,
        Err(object_store::Error::NotFound { .. })
    ));
    assert!(client("another secret").get(&"key".into()).await.is_err());
}
