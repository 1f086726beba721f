//! Writes, which are forwarded to the origin.

use crate::support::{pattern, rig, rig_holding, rig_with};
use floe_core::ByteSize;

#[tokio::test]
async fn put_then_get_then_delete() {
    let rig = rig_holding("bucket", "key", "old").await;
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "old");
    let bytes = pattern(1, 100_000);
    let headers = [
        ("content-type", "text/x"),
        ("content-encoding", "gzip"),
        ("x-amz-meta-b", "2"),
        ("x-amz-meta-a", "1"),
    ];
    let put = rig
        .send("PUT", "/bucket/key", &headers, bytes.clone())
        .await;
    assert_eq!(put.status, 200, "{}", put.text());
    let response = rig.get("/bucket/key", &[]).await;
    assert!(response.body == bytes);
    assert_eq!(response.header("etag"), put.header("etag"));
    assert_eq!(response.header("content-type"), "text/x");
    assert_eq!(response.header("content-encoding"), "gzip");
    assert_eq!(response.header("x-amz-meta-a"), "1");

    assert_eq!(rig.send("DELETE", "/bucket/key", &[], "").await.status, 204);
    assert_eq!(rig.get("/bucket/key", &[]).await.code(), "NoSuchKey");
    assert_eq!(rig.send("DELETE", "/bucket/key", &[], "").await.status, 204);
}

#[tokio::test]
async fn conditional_puts() {
    let rig = rig().await;
    let meta = rig.origin.store("bucket", "key", "old");
    for (name, value, status) in [
        ("if-none-match", "*", 412),
        ("if-match", "\"other\"", 412),
        ("if-match", meta.etag.as_deref().unwrap(), 200),
        ("if-match", "*", 200),
        ("if-none-match", "\"x\"", 200),
    ] {
        let put = rig
            .send("PUT", "/bucket/key", &[(name, value)], "new")
            .await;
        assert_eq!(put.status, status, "{name}: {value}: {}", put.text());
    }
    let put = rig
        .send("PUT", "/bucket/fresh", &[("if-none-match", "*")], "x")
        .await;
    assert_eq!(put.status, 200);
}

#[tokio::test]
async fn wrong_checksums_store_nothing() {
    let rig = rig_holding("bucket", "other", "").await;
    for (name, value) in [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-checksum-crc32c", "AAAAAA=="),
        (
            "x-amz-checksum-sha256",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ),
    ] {
        let put = rig
            .send("PUT", "/bucket/key", &[(name, value)], "hello")
            .await;
        assert_eq!((put.status, put.code()), (400, "BadDigest"), "{name}");
        assert_eq!(rig.origin.bytes("bucket", "key"), None, "{name}");
    }
    for (name, value) in [
        ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        ("x-amz-checksum-crc32c", "mnG7TA=="),
    ] {
        let put = rig
            .send("PUT", "/bucket/key", &[(name, value)], "hello")
            .await;
        assert_eq!(put.status, 200, "{name}: {}", put.text());
    }
}

#[tokio::test]
async fn uploads_over_the_limit_are_rejected() {
    let rig = rig_with(|config| config.s3.as_mut().unwrap().max_upload_size = ByteSize(1000)).await;
    rig.origin.store("bucket", "other", "");
    let put = rig.send("PUT", "/bucket/key", &[], pattern(1, 1001)).await;
    assert_eq!(put.code(), "EntityTooLarge");
    assert_eq!(rig.origin.bytes("bucket", "key"), None);
    assert_eq!(
        rig.send("PUT", "/bucket/key", &[], pattern(1, 1000))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn properties_that_the_origin_cannot_keep_are_rejected() {
    let rig = rig_holding("bucket", "other", "").await;
    for (name, value) in [
        ("x-amz-acl", "public-read"),
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-grant-read", "id=1"),
    ] {
        let put = rig.send("PUT", "/bucket/key", &[(name, value)], "x").await;
        assert_eq!((put.status, put.code()), (501, "NotImplemented"), "{name}");
    }
    let put = rig
        .send("PUT", "/bucket/key", &[("x-amz-acl", "private")], "x")
        .await;
    assert_eq!(put.status, 200);
    let form = [("content-type", "multipart/form-data; boundary=x")];
    assert_eq!(
        rig.send("POST", "/bucket", &form, "--x--").await.code(),
        "NotImplemented"
    );
    for (method, path) in [("PUT", "/fresh"), ("DELETE", "/other")] {
        assert_eq!(
            rig.send(method, path, &[], "").await.code(),
            "NotImplemented"
        );
    }
}

#[tokio::test]
async fn multipart_uploads() {
    let rig = rig_holding("bucket", "key", "old").await;
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "old");
    let headers = [("content-type", "text/x"), ("x-amz-meta-a", "1")];
    let created = rig.send("POST", "/bucket/key?uploads", &headers, "").await;
    let id = created.tags("UploadId")[0].to_owned();
    let parts = [pattern(1, 50_000), pattern(2, 10_000)];
    let xml = rig.upload_parts("/bucket/key", &id, &parts).await;
    let path = format!("/bucket/key?uploadId={id}");
    let wrong = xml.replace("<PartNumber>2<", "<PartNumber>0<");
    assert_eq!(
        rig.send("POST", &path, &[], wrong).await.code(),
        "InvalidArgument"
    );
    let done = rig.send("POST", &path, &[], xml.clone()).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let response = rig.get("/bucket/key", &[]).await;
    assert!(response.body == parts.concat());
    assert_eq!(response.header("x-amz-meta-a"), "1");
    assert_eq!(
        rig.send("POST", &path, &[], xml).await.code(),
        "NoSuchUpload"
    );

    let created = rig.send("POST", "/bucket/other?uploads", &[], "").await;
    let path = format!("/bucket/other?uploadId={}", created.tags("UploadId")[0]);
    assert_eq!(rig.send("DELETE", &path, &[], "").await.status, 204);
    assert_eq!(
        rig.send("DELETE", &path, &[], "").await.code(),
        "NoSuchUpload"
    );
    assert_eq!(rig.get(&path, &[]).await.code(), "NotImplemented");
}

#[tokio::test]
async fn listings_page_and_fold() {
    let rig = rig().await;
    for key in ["a/1", "a/2", "b", "c/1", "d & e", "ü/1"] {
        rig.origin.store("bucket", key, "x");
    }
    let all = rig.get("/bucket?list-type=2", &[]).await;
    assert_eq!(
        all.tags("Key"),
        ["a/1", "a/2", "b", "c/1", "d &amp; e", "ü/1"]
    );
    assert_eq!(all.tags("KeyCount"), ["6"]);
    let url = rig
        .get("/bucket?list-type=2&encoding-type=url&prefix=d", &[])
        .await;
    assert_eq!(url.tags("Key"), ["d%20%26%20e"]);

    for version in ["list-type=2&", ""] {
        let (mut keys, mut prefixes, mut token) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..10 {
            let path = format!("/bucket?{version}delimiter=/&max-keys=1{token}");
            let page = rig.get(&path, &[]).await;
            assert_eq!(page.status, 200, "{}", page.text());
            keys.extend(page.tags("Key").iter().map(|k| k.to_string()));
            prefixes.extend(page.tags("CommonPrefixes").iter().map(|p| p.to_string()));
            if page.tags("IsTruncated") != ["true"] {
                break;
            }
            let encode = |text: &str| {
                percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
                    .to_string()
            };
            token = match version {
                "" => format!(
                    "&marker={}",
                    encode(&page.tags("NextMarker")[0].replace("&amp;", "&"))
                ),
                _ => format!(
                    "&continuation-token={}",
                    encode(page.tags("NextContinuationToken")[0])
                ),
            };
        }
        assert_eq!(keys, ["b", "d &amp; e"], "{version}");
        assert_eq!(
            prefixes,
            [
                "<Prefix>a/</Prefix>",
                "<Prefix>c/</Prefix>",
                "<Prefix>ü/</Prefix>"
            ],
            "{version}"
        );
    }
    for (query, code) in [
        ("list-type=2&max-keys=-1", "InvalidArgument"),
        ("list-type=2&continuation-token=%21", "InvalidArgument"),
        ("list-type=2&encoding-type=x", "InvalidArgument"),
    ] {
        let response = rig.get(&format!("/bucket?{query}"), &[]).await;
        assert_eq!(response.code(), code, "{query}");
    }
    let none = rig.get("/bucket?list-type=2&max-keys=0", &[]).await;
    assert_eq!((none.status, none.tags("KeyCount")), (200, vec!["0"]));
}

#[tokio::test]
async fn buckets() {
    let rig = rig_holding("bucket", "key", "x").await;
    rig.origin.store("another", "key", "x");
    assert_eq!(rig.get("/", &[]).await.tags("Name"), ["another", "bucket"]);
    assert_eq!(rig.send("HEAD", "/bucket", &[], "").await.status, 200);
    assert_eq!(rig.send("HEAD", "/missing", &[], "").await.status, 404);
    assert!(
        rig.get("/bucket?location", &[])
            .await
            .text()
            .contains("LocationConstraint")
    );
    assert_eq!(
        rig.get("/missing?location", &[]).await.code(),
        "NoSuchBucket"
    );
    assert_eq!(
        rig.get("/missing?list-type=2", &[]).await.code(),
        "NoSuchBucket"
    );
    assert_eq!(rig.get("/missing/key", &[]).await.code(), "NoSuchBucket");
}

#[tokio::test]
async fn deleting_many() {
    let rig = rig().await;
    for key in ["a", "b", "c"] {
        rig.origin.store("bucket", key, "x");
    }
    let body = "<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object>\
                <Object><Key>c</Key><VersionId>7</VersionId></Object></Delete>";
    let response = rig.send("POST", "/bucket?delete", &[], body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.tags("Deleted").len(), 2);
    assert_eq!(response.tags("Code"), ["NotImplemented"]);
    assert_eq!(rig.get("/bucket/a", &[]).await.code(), "NoSuchKey");
    assert_eq!(rig.get("/bucket/c", &[]).await.status, 200);
    let quiet = "<Delete><Quiet>true</Quiet><Object><Key>c</Key></Object></Delete>";
    let response = rig.send("POST", "/bucket?delete", &[], quiet).await;
    assert!(response.tags("Deleted").is_empty());
    let none = rig
        .send("POST", "/bucket?delete", &[], "<Delete></Delete>")
        .await;
    assert_eq!(none.code(), "MalformedXML");
    assert_eq!(
        rig.send("POST", "/bucket?delete", &[], "junk").await.code(),
        "MalformedXML"
    );
}

#[tokio::test]
async fn copies() {
    let rig = rig().await;
    let bytes = pattern(5, 100_000);
    rig.origin.store("bucket", "from", bytes.clone());
    let copy = rig
        .send(
            "PUT",
            "/other/to",
            &[("x-amz-copy-source", "/bucket/from")],
            "",
        )
        .await;
    // The target bucket does not exist yet.
    assert_eq!(copy.code(), "NoSuchBucket");
    rig.origin.store("other", "x", "");
    let copy = rig
        .send(
            "PUT",
            "/other/to",
            &[("x-amz-copy-source", "/bucket/from")],
            "",
        )
        .await;
    assert_eq!(copy.status, 200, "{}", copy.text());
    assert!(rig.get("/other/to", &[]).await.body == bytes);
    for (headers, code) in [
        (vec![("x-amz-copy-source", "/bucket/missing")], "NoSuchKey"),
        (vec![("x-amz-copy-source", "/other/to")], "InvalidRequest"),
        (
            vec![
                ("x-amz-copy-source", "/bucket/from"),
                ("x-amz-copy-source-if-match", "\"x\""),
            ],
            "PreconditionFailed",
        ),
    ] {
        let copy = rig.send("PUT", "/other/to", &headers, "").await;
        assert_eq!(copy.code(), code, "{headers:?}");
    }
    // Conditions on what is replaced.
    let etag = rig.get("/other/to", &[]).await.header("etag").to_owned();
    for (path, condition, status) in [
        ("/other/to", ("if-none-match", "*"), 412),
        ("/other/to", ("if-match", "\"another\""), 412),
        ("/other/to", ("if-match", &*etag), 200),
        ("/other/new", ("if-match", &*etag), 404),
        ("/other/new", ("if-none-match", "*"), 200),
    ] {
        let headers = [("x-amz-copy-source", "/bucket/from"), condition];
        let copy = rig.send("PUT", path, &headers, "").await;
        assert_eq!(copy.status, status, "{path} {condition:?}: {}", copy.text());
    }
    let replace = [
        ("x-amz-copy-source", "/other/to"),
        ("x-amz-metadata-directive", "REPLACE"),
        ("x-amz-meta-new", "1"),
    ];
    assert_eq!(rig.send("PUT", "/other/to", &replace, "").await.status, 200);
    assert_eq!(
        rig.get("/other/to", &[]).await.header("x-amz-meta-new"),
        "1"
    );
}
