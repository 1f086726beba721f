//! Cache-only buckets, beside those of an S3 origin and of a directory.

use std::sync::Arc;

use floe::object::{CacheOnlyBucket, ObjectConfig};
use floe::origin::{Origin, OriginConfig, OriginKeys, Signing};
use floe_device::Clock;
use floe_server::{KeyAccess, KeyPolicy};

use crate::s3_forward::{Recorder, recorded_origin};
use crate::support::signer::{Payload, Signer};
use crate::support::{ACCESS_KEY, Rig, rig_of, send};

fn config() -> ObjectConfig {
    ObjectConfig {
        cache_only: vec![CacheOnlyBucket {
            bucket: "kept".into(),
            ..CacheOnlyBucket::default()
        }],
        ..ObjectConfig::default()
    }
}

async fn beside_s3() -> (Rig, Arc<Recorder>) {
    let (origin, recorder) = recorded_origin();
    let objects = Arc::clone(&recorder.objects);
    let rig = rig_of(origin, objects, Clock::real(), config(), |_| {}).await;
    (rig, recorder)
}

#[tokio::test]
async fn an_s3_origin_sees_nothing_of_them() {
    let (rig, recorder) = beside_s3().await;
    let body = "b".repeat(300_000);
    let headers = [("x-amz-meta-a", "1"), ("content-type", "text/x")];
    let put = rig.send("PUT", "/kept/a/b", &headers, body.clone()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    for _ in 0..2 {
        let got = rig.get("/kept/a/b", &[]).await;
        assert_eq!((got.status, got.text()), (200, &*body));
        assert_eq!(got.header("x-floe-cache"), "hit");
        assert_eq!(got.header("x-amz-meta-a"), "1");
        assert_eq!(got.header("etag"), put.header("etag"));
    }
    let part = rig.get("/kept/a/b", &[("range", "bytes=299990-")]).await;
    assert_eq!((part.status, part.text()), (206, "bbbbbbbbbb"));
    let head = rig.send("HEAD", "/kept/a/b", &[], "").await;
    assert_eq!(head.header("content-length"), "300000");
    let listed = rig.get("/kept?list-type=2&prefix=a/", &[]).await;
    assert_eq!(listed.tags("Key"), ["a/b"], "{}", listed.text());
    let buckets = rig.get("/", &[]).await;
    assert!(buckets.tags("Name").contains(&"kept"), "{}", buckets.text());
    for (path, code) in [("/kept/none", "NoSuchKey"), ("/kept?acl", "NotImplemented")] {
        assert_eq!(rig.get(path, &[]).await.code(), code, "{path}");
    }
    let absent = [("if-none-match", "*")];
    let refused = rig.send("PUT", "/kept/a/b", &absent, "x").await;
    assert_eq!(refused.code(), "PreconditionFailed");
    assert_eq!(rig.send("DELETE", "/kept/a/b", &[], "").await.status, 204);
    assert_eq!(rig.get("/kept/a/b", &[]).await.code(), "NoSuchKey");
    // An origin with other ideas of names must not copy from a bucket of its own.
    for source in ["//kept/a/b", "arn:aws:s3:x", "kept"] {
        let copy = [("x-amz-copy-source", source)];
        let refused = rig.send("PUT", "/other/k", &copy, "").await;
        assert!(refused.status >= 400, "{source}: {}", refused.text());
    }
    let (host, copy) = (rig.s3().to_string(), "/other/k?x-amz-copy-source=kept%2Fa");
    let url = Signer::known().presign("PUT", &host, copy, 60);
    let refused = rig.send("PUT", &url, &[], "").await;
    assert_eq!(refused.code(), "NotImplemented", "{}", refused.text());
    let dotted = rig.get("/other/../kept/a/b", &[]).await;
    assert!(dotted.status >= 400, "{}", dotted.text());
    assert!(recorder.seen.lock().is_empty());
    // Other buckets are the origin's.
    rig.send("PUT", "/other/k", &[], "x").await;
    assert_eq!(recorder.seen.lock().len(), 1);
}

#[tokio::test]
async fn uploads_in_parts_have_the_announced_size() {
    let (rig, _) = beside_s3().await;
    let begun = rig.send("POST", "/kept/m?uploads", &[], "").await;
    let id = begun.tags("UploadId")[0].to_owned();
    let part = format!("/kept/m?partNumber=1&uploadId={id}");
    let sent = rig.send("PUT", &part, &[], "12345").await;
    let tag = sent.header("etag").to_owned();
    let whole = format!("/kept/m?uploadId={id}");
    let parts = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
    let parts = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    // As the AWS CRT sends it.
    let size = |size| [("x-amz-mp-object-size", size)];
    for (announced, code) in [("6", "InvalidRequest"), ("five", "InvalidArgument")] {
        let refused = rig
            .send("POST", &whole, &size(announced), parts.clone())
            .await;
        assert_eq!(refused.code(), code, "{}", refused.text());
    }
    for _ in 0..2 {
        let done = rig.send("POST", &whole, &size("5"), parts.clone()).await;
        assert_eq!(done.status, 200, "{}", done.text());
    }
    assert_eq!(rig.get("/kept/m", &[]).await.text(), "12345");
}

/// Floe would write them by its own keys.
#[tokio::test]
async fn keys_of_the_origin_sign_no_copies_out_of_them() {
    let (origin, recorder) = recorded_origin();
    let objects = Arc::clone(&recorder.objects);
    let rig = rig_of(origin, objects, Clock::real(), config(), |config| {
        let s3 = config.s3.as_mut().unwrap();
        s3.keys[0].origin = Some(OriginKeys {
            access_key: "THEIRS".into(),
            secret_key: "a secret at the origin".into(),
        });
        s3.policies = vec![KeyPolicy {
            key: ACCESS_KEY.into(),
            buckets: vec!["*".into()],
            prefixes: Vec::new(),
            access: KeyAccess::Write,
        }];
    })
    .await;
    let host = rig.s3().to_string();
    let signed = async |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let signer = Signer::known();
        let request = signer.sign(method, &host, path, headers, body, Payload::Signed);
        send(rig.s3(), request).await
    };
    assert_eq!(signed("PUT", "/kept/x", &[], b"x").await.status, 200);
    let copy = [("x-amz-copy-source", "kept/x")];
    for path in ["/other/k", "/other/k?partNumber=1&uploadId=u"] {
        let refused = signed("PUT", path, &copy, b"").await;
        assert_eq!(refused.code(), "AccessDenied", "{path}: {}", refused.text());
    }
    assert_eq!(signed("PUT", "/kept/y", &copy, b"").await.status, 200);
    assert!(recorder.objects.bytes("other", "k").is_none());
    // A HEAD is the origin's to answer, by the keys that fill the cache.
    signed("HEAD", "/other/k", &[], b"").await;
    let (head, _) = recorder.seen.lock().pop().unwrap();
    assert!(
        matches!(head.signing, Signing::Origin),
        "{:?}",
        head.signing
    );
}

#[tokio::test]
async fn uploads_in_parts_are_read_by_part() {
    let (rig, _) = beside_s3().await;
    let begun = rig.send("POST", "/kept/m?uploads", &[], "").await;
    let id = begun.tags("UploadId")[0].to_owned();
    let parts = ["ab".into(), "cde".into()];
    let list = rig.upload_parts("/kept/m", &id, &parts);
    let done = format!("/kept/m?uploadId={id}");
    assert_eq!(rig.send("POST", &done, &[], list.await).await.status, 200);
    let part = rig.get("/kept/m?partNumber=2", &[]).await;
    assert_eq!((part.status, part.text()), (206, "cde"));
    assert_eq!(part.header("x-amz-mp-parts-count"), "2");
}

#[tokio::test]
async fn copies_go_into_them_out_of_them_and_between_them() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let clock = Clock::real();
    let origin = OriginConfig::directory(root.path());
    let origin = Origin::open(&origin, clock.clone()).unwrap();
    let rig = rig_of(origin, Arc::default(), clock, config(), |_| {}).await;
    rig.send("PUT", "/bucket/a", &[], "bytes").await;
    for (target, source) in [
        ("/kept/in", "bucket/a"),
        ("/kept/within", "/kept/in"),
        ("/bucket/out", "kept/within"),
    ] {
        let copied = rig
            .send("PUT", target, &[("x-amz-copy-source", source)], "")
            .await;
        assert_eq!(copied.status, 200, "{target}: {}", copied.text());
        assert_eq!(rig.get(target, &[]).await.text(), "bytes", "{target}");
    }
    assert_eq!(
        std::fs::read(root.path().join("bucket/out")).unwrap(),
        b"bytes"
    );
    assert!(!root.path().join("kept").exists());
    let (text, copy) = ("x", [("x-amz-copy-source", "kept/none")]);
    assert_eq!(
        rig.send("PUT", "/bucket/none", &copy, text).await.code(),
        "NoSuchKey"
    );
}
