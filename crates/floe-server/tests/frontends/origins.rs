//! The frontend over the shipped origins: a real S3 server over HTTP, a
//! directory, generated objects.

use std::net::SocketAddr;
use std::sync::Arc;

use floe::origin::emulated::{EmulatedConfig, verify};
use floe::{ObjectKey, Origin, OriginConfig};
use floe_device::Clock;
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

use crate::support::signer::{Payload, Signer};
use crate::support::{ACCESS_KEY, Rig, SECRET_KEY, loopback, pattern, rig_on, send};

/// `s3s-fs` over HTTP: another S3 server, over a directory.
struct RealS3 {
    address: SocketAddr,
    root: tempfile::TempDir,
}

async fn real_s3() -> RealS3 {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(root.path()).unwrap());
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    let service = builder.build();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            tokio::spawn(async move {
                let serve = hyper::service::service_fn(move |request: Request<_>| {
                    let service = service.clone();
                    async move {
                        let response: Response<s3s::Body> =
                            service.call(request.map(s3s::Body::from)).await?;
                        Ok::<_, s3s::HttpError>(response)
                    }
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // Clients may disconnect.
                let _ = builder.serve_connection(TokioIo::new(stream), serve).await;
            });
        }
    });
    RealS3 { address, root }
}

pub(crate) async fn rig_over(config: &OriginConfig) -> Rig {
    let clock = Clock::real();
    let origin = Origin::open(config, clock.clone()).unwrap();
    rig_on(origin, Arc::default(), clock, |_| {}).await
}

fn s3_config(real: &RealS3, secret: &str) -> OriginConfig {
    toml::from_str(&format!(
        "kind = \"s3\"\nendpoint = \"http://{}\"\nallow_http = true\n\
         access_key = \"{ACCESS_KEY}\"\nsecret_key = \"{secret}\"",
        real.address
    ))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_to_a_real_s3_server_and_back() {
    let real = real_s3().await;
    let rig = rig_over(&s3_config(&real, SECRET_KEY)).await;
    let bytes = pattern(1, 5_000_000);
    let headers = [("content-type", "text/x"), ("x-amz-meta-a", "1")];
    let put = rig
        .send("PUT", "/bucket/a/key", &headers, bytes.clone())
        .await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert!(std::fs::read(real.root.path().join("bucket/a/key")).unwrap() == bytes);

    for cached in ["miss", "hit"] {
        let response = rig.get("/bucket/a/key", &[]).await;
        assert!(response.body == bytes, "{cached}");
        assert_eq!(response.header("x-floe-cache"), cached);
        rig.stored().await;
        assert_eq!(response.header("content-type"), "text/x");
        assert_eq!(response.header("x-amz-meta-a"), "1");
        assert_eq!(response.header("etag"), put.header("etag"));
    }
    let range = [("range", "bytes=1048570-1048590")];
    assert!(rig.get("/bucket/a/key", &range).await.body == bytes[1_048_570..=1_048_590]);
    assert_eq!(
        rig.get("/bucket?list-type=2", &[]).await.tags("Key"),
        ["a/key"]
    );
    assert_eq!(rig.get("/", &[]).await.tags("Name"), ["bucket"]);

    let newer = pattern(2, 1_000_000);
    assert_eq!(
        rig.send("PUT", "/bucket/a/key", &[], newer.clone())
            .await
            .status,
        200
    );
    assert!(rig.get("/bucket/a/key", &[]).await.body == newer);
    assert_eq!(
        rig.send("DELETE", "/bucket/a/key", &[], "").await.status,
        204
    );
    assert_eq!(rig.get("/bucket/a/key", &[]).await.code(), "NoSuchKey");
    // The origin decides whether the bucket or the key is missing.
    assert_eq!(rig.get("/missing/key", &[]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multipart_upload_through_to_a_real_s3_server() {
    let real = real_s3().await;
    let rig = rig_over(&s3_config(&real, SECRET_KEY)).await;
    let created = rig.send("POST", "/bucket/big?uploads", &[], "").await;
    assert_eq!(created.status, 200, "{}", created.text());
    let id = created.tags("UploadId")[0].to_owned();
    let parts = [pattern(1, 5 << 20), pattern(2, 5 << 20), pattern(3, 1000)];
    let xml = rig.upload_parts("/bucket/big", &id, &parts).await;
    let path = format!("/bucket/big?uploadId={id}");
    let done = rig.send("POST", &path, &[], xml).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let whole = parts.concat();
    assert!(std::fs::read(real.root.path().join("bucket/big")).unwrap() == whole);
    for _ in 0..2 {
        assert!(rig.get("/bucket/big", &[]).await.body == whole);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_an_origin_that_rejects_or_is_gone() {
    let real = real_s3().await;
    std::fs::write(real.root.path().join("bucket/key"), "bytes").unwrap();
    let rig = rig_over(&s3_config(&real, "another secret")).await;
    let rejected = rig.get("/bucket/key", &[]).await;
    assert_eq!((rejected.status, rejected.code()), (403, "AccessDenied"));

    let mut config = s3_config(&real, SECRET_KEY);
    config.endpoint = Some("http://127.0.0.1:1".into());
    config.requests.max_attempts = 2;
    let rig = rig_over(&config).await;
    let gone = rig.get("/bucket/key", &[]).await;
    assert_eq!(
        (gone.status, gone.code()),
        (503, "ServiceUnavailable"),
        "{}",
        gone.text()
    );
}

#[tokio::test]
async fn a_directory_is_an_origin() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("bucket")).unwrap();
    std::fs::write(directory.path().join("bucket/file"), "first").unwrap();
    let rig = rig_over(&OriginConfig::directory(directory.path())).await;
    for header in ["miss", "hit"] {
        let response = rig.get("/bucket/file", &[]).await;
        assert_eq!(
            (response.text(), response.header("x-floe-cache")),
            ("first", header)
        );
        rig.stored().await;
    }
    assert_eq!(
        rig.send("PUT", "/bucket/new", &[], "second").await.status,
        200
    );
    assert_eq!(
        std::fs::read(directory.path().join("bucket/new")).unwrap(),
        b"second"
    );
    assert_eq!(
        rig.get("/bucket?list-type=2", &[]).await.tags("Key"),
        ["file", "new"]
    );
    for path in [
        "/bucket/../bucket/file",
        "/bucket/a/../../etc/passwd",
        "/bucket/%2e%2e/x",
    ] {
        let response = rig.get(path, &[]).await;
        assert!(
            (400..500).contains(&response.status),
            "{path}: {}",
            response.status
        );
    }
}

#[tokio::test]
async fn a_directory_makes_buckets() {
    let directory = tempfile::tempdir().unwrap();
    let rig = rig_over(&OriginConfig::directory(directory.path())).await;
    let made = rig.send("PUT", "/new-bucket", &[], "").await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(made.header("location"), "/new-bucket");
    assert!(directory.path().join("new-bucket").is_dir());
    assert_eq!(
        rig.send("PUT", "/new-bucket/key", &[], "x").await.status,
        200
    );
    let again = rig.send("PUT", "/new-bucket", &[], "").await;
    assert_eq!(
        (again.status, again.code()),
        (409, "BucketAlreadyOwnedByYou")
    );
    for name in ["no", "-hyphen", "under_score", "UPPER", "a..b"] {
        let rejected = rig.send("PUT", &format!("/{name}"), &[], "").await;
        let code = rejected.code();
        assert_eq!(
            (rejected.status, code),
            (400, "InvalidBucketName"),
            "{name}"
        );
        assert!(rejected.text().contains("3 to 63"), "{}", rejected.text());
    }
    assert_eq!(rig.get("/", &[]).await.tags("Name"), ["new-bucket"]);
    let location = rig.get("/new-bucket?location", &[]).await;
    assert_eq!(location.status, 200, "{}", location.text());
}

#[tokio::test]
async fn uploads_under_way_are_listed_and_parts_copied() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("bucket")).unwrap();
    let rig = rig_over(&OriginConfig::directory(directory.path())).await;
    let source = pattern(9, 3_000_000);
    let put = rig.send("PUT", "/bucket/source", &[], source.clone()).await;
    assert_eq!(put.status, 200);
    let mut ids = Vec::new();
    for key in ["a", "big", "c"] {
        let created = rig
            .send("POST", &format!("/bucket/{key}?uploads"), &[], "")
            .await;
        ids.push(created.tags("UploadId")[0].to_owned());
    }
    let uploads = rig.get("/bucket?uploads", &[]).await;
    assert_eq!(uploads.tags("Key"), ["a", "big", "c"]);
    assert_eq!(uploads.tags("UploadId"), ids);
    let page = rig.get("/bucket?uploads&max-uploads=2", &[]).await;
    assert_eq!(page.tags("IsTruncated"), ["true"]);
    let next = format!(
        "/bucket?uploads&key-marker={}&upload-id-marker={}",
        page.tags("NextKeyMarker")[0],
        page.tags("NextUploadIdMarker")[0]
    );
    assert_eq!(rig.get(&next, &[]).await.tags("Key"), ["c"]);
    let prefixed = rig.get("/bucket?uploads&prefix=bi", &[]).await;
    assert_eq!(prefixed.tags("Key"), ["big"]);

    let upload = |rest: &str| format!("/bucket/big?{rest}uploadId={}", ids[1]);
    let part = rig
        .send("PUT", &upload("partNumber=3&"), &[], "the end")
        .await;
    let mut etags = vec![part.header("etag").to_owned()];
    for (number, range) in [(1, "bytes=0-999999"), (2, "bytes=1000000-2999999")] {
        let headers = [
            ("x-amz-copy-source", "/bucket/source"),
            ("x-amz-copy-source-range", range),
        ];
        let copied = rig
            .send(
                "PUT",
                &upload(&format!("partNumber={number}&")),
                &headers,
                "",
            )
            .await;
        assert_eq!(copied.status, 200, "{}", copied.text());
        etags.insert(number - 1, copied.tags("ETag")[0].replace("&quot;", "\""));
    }
    let parts = rig.get(&upload(""), &[]).await;
    assert_eq!(parts.tags("PartNumber"), ["1", "2", "3"]);
    assert_eq!(parts.tags("Size"), ["1000000", "2000000", "7"]);
    let page = rig
        .get(&upload("max-parts=1&part-number-marker=1&"), &[])
        .await;
    assert_eq!(page.tags("PartNumber"), ["2"]);
    assert_eq!(page.tags("NextPartNumberMarker"), ["2"]);

    for (header, status, code) in [
        ("bytes=0-3000000", 400, "InvalidArgument"),
        ("bytes=5-4", 400, "InvalidArgument"),
        ("bytes=-5", 400, "InvalidArgument"),
        ("bytes=3000000-3000001", 416, "InvalidRange"),
    ] {
        let headers = [
            ("x-amz-copy-source", "/bucket/source"),
            ("x-amz-copy-source-range", header),
        ];
        let rejected = rig
            .send("PUT", &upload("partNumber=4&"), &headers, "")
            .await;
        assert_eq!(
            (rejected.status, rejected.code()),
            (status, code),
            "{header}"
        );
    }

    let parts: Vec<String> = (1..)
        .zip(&etags)
        .map(|(n, tag)| format!("<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>"))
        .collect();
    let complete =
        |parts: String| format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let descending = complete(parts.iter().rev().cloned().collect());
    let rejected = rig.send("POST", &upload(""), &[], descending).await;
    assert_eq!(
        (rejected.status, rejected.code()),
        (400, "InvalidPartOrder")
    );
    let done = rig
        .send("POST", &upload(""), &[], complete(parts.concat()))
        .await;
    assert_eq!(done.status, 200, "{}", done.text());
    let whole = [&source[..], b"the end"].concat();
    assert!(rig.get("/bucket/big", &[]).await.body == whole);
    assert_eq!(
        rig.get("/bucket?uploads", &[]).await.tags("Key"),
        ["a", "c"]
    );
    assert_eq!(rig.get(&upload(""), &[]).await.code(), "NoSuchUpload");
}

/// A key that `object_store` cannot express is rejected, not confused with another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_s3_origin_answers_for_itself() {
    let real = real_s3().await;
    let rig = rig_over(&s3_config(&real, SECRET_KEY)).await;
    let host = rig.s3().to_string();
    for (method, status) in [("PUT", 200), ("DELETE", 204)] {
        let request = Signer::known().sign(method, &host, "/another", &[], b"", Payload::Signed);
        let reply = send(rig.s3(), request).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        let is_there = real.root.path().join("another").is_dir();
        assert_eq!(is_there, method == "PUT");
    }
    // Its own words, which name neither Floe nor a cache.
    let request = Signer::known().sign("GET", &host, "/bucket?policy", &[], b"", Payload::Signed);
    let policy = send(rig.s3(), request).await;
    assert_eq!((policy.status, policy.code()), (501, "NotImplemented"));
    assert!(!policy.text().contains("cache"), "{}", policy.text());
}

#[tokio::test]
async fn generated_objects_are_equal_over_both_frontends() {
    let emulated = EmulatedConfig::default();
    let seed = emulated.seed;
    let rig = rig_over(&OriginConfig::emulated(emulated)).await;
    let response = rig.get("/bucket/7", &[]).await;
    assert_eq!(response.status, 200, "{}", response.text());
    verify(seed, &ObjectKey::new("bucket", "7"), 0, &response.body).unwrap();
    let mut client = crate::oxcache::Client::connect(&rig).await;
    let expected = response.body[100..4196].to_vec();
    let response = client.get("7", 100, 4096).await;
    assert!(response == floe_server::oxcache::codec::Response::Response(expected));
}
