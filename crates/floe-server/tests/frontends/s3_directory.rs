//! S3 in front of a directory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use floe::OriginConfig;

use crate::origins::rig_over;
use crate::support::Rig;

struct Fixture {
    rig: Rig,
    root: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let rig = rig_over(&OriginConfig::directory(root.path())).await;
    Fixture { rig, root }
}

/// As documented in docs/operations.md.
#[tokio::test]
async fn keys_that_are_no_paths_are_objects() {
    let Fixture { rig, root } = fixture().await;
    let keys = [
        "%2e%2e", "a", "a/", "a//b", "a/../b", "a/b", "a/b/", "%01", "%2e/a", "/lead",
    ];
    for key in keys {
        let path = format!("/bucket/{key}");
        let put = rig.send("PUT", &path, &[], key).await;
        assert_eq!(put.status, 200, "{key}: {}", put.text());
    }
    for key in keys {
        let path = format!("/bucket/{key}");
        for result in ["miss", "hit"] {
            let got = rig.get(&path, &[]).await;
            assert_eq!((got.text(), got.header("x-floe-cache")), (key, result));
            rig.stored().await;
        }
    }
    let listed = rig.get("/bucket?list-type=2&encoding-type=url", &[]).await;
    let expected = [
        "%01", "..", "./a", "/lead", "a", "a/", "a/../b", "a//b", "a/b", "a/b/",
    ];
    assert_eq!(listed.tags("Key"), expected, "{}", listed.text());
    let folded = rig.get("/bucket?prefix=a/&delimiter=/", &[]).await;
    assert_eq!(folded.tags("Key"), ["a/", "a/b"]);
    assert_eq!(folded.tags("Prefix"), ["a/", "a/../", "a//", "a/b/"]);
    for key in keys {
        let path = format!("/bucket/{key}");
        assert_eq!(rig.send("DELETE", &path, &[], "").await.status, 204);
        assert_eq!(rig.get(&path, &[]).await.code(), "NoSuchKey", "{key}");
    }
    let deleted = rig.send("DELETE", "/bucket", &[], "").await;
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    assert!(!root.path().join("bucket").exists());
}

#[tokio::test]
async fn a_bucket_with_an_object_stays() {
    let Fixture { rig, root } = fixture().await;
    rig.send("PUT", "/bucket/folder/", &[], "").await;
    let deleted = rig.send("DELETE", "/bucket", &[], "").await;
    assert_eq!((deleted.status, deleted.code()), (409, "BucketNotEmpty"));
    let versions = rig.get("/bucket?versions", &[]).await;
    assert_eq!(versions.tags("Key"), ["folder/"], "{}", versions.text());
    assert_eq!(versions.tags("VersionId"), ["null"]);
    let deleted = rig.send("DELETE", "/bucket/folder/?versionId=null", &[], "");
    assert_eq!(deleted.await.status, 204);
    assert!(root.path().join("bucket").exists());
    assert_eq!(rig.send("DELETE", "/bucket", &[], "").await.status, 204);
    let gone = rig.send("DELETE", "/bucket", &[], "").await;
    assert_eq!((gone.status, gone.code()), (404, "NoSuchBucket"));
}

#[tokio::test]
async fn versions_are_listed_in_pages() {
    let Fixture { rig, root: _root } = fixture().await;
    for key in ["a", "b/1", "b/2", "c"] {
        rig.send("PUT", &format!("/bucket/{key}"), &[], "x").await;
    }
    let page = rig
        .get("/bucket?versions&max-keys=2&delimiter=/", &[])
        .await;
    assert_eq!(page.tags("Key"), ["a"]);
    assert_eq!(page.tags("NextKeyMarker"), ["b/"], "{}", page.text());
    let next = "/bucket?versions&delimiter=/&key-marker=b/&version-id-marker=null";
    let page = rig.get(next, &[]).await;
    assert_eq!(
        (page.tags("Key"), page.tags("IsTruncated")),
        (vec!["c"], vec!["false"])
    );
}

#[tokio::test]
async fn writes_and_deletes_keep_their_conditions() {
    let Fixture { rig, root: _root } = fixture().await;
    let put = async |name: &str, value: &str, body: &'static str| {
        let reply = rig.send("PUT", "/bucket/key", &[(name, value)], body).await;
        (reply.status, reply.header("etag").to_owned())
    };
    assert_eq!(put("if-match", "*", "x").await.0, 404);
    assert_eq!(put("if-match", "\"x\"", "x").await.0, 404);
    let (status, tag) = put("if-none-match", "*", "hello").await;
    assert_eq!(
        (status, &*tag),
        (200, "\"5d41402abc4b2a76b9719d911017c592\"")
    );
    assert_eq!(put("if-none-match", "*", "x").await.0, 412);
    assert_eq!(put("if-none-match", &tag, "x").await.0, 412);
    assert_eq!(put("if-match", "\"x\"", "x").await.0, 412);
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "hello");
    for (conditions, named) in [
        (&[("if-none-match", "*")][..], &["If-None-Match"][..]),
        (&[("if-match", "\"x\"")], &["If-Match"]),
        (&[("if-match", "\"x\""), ("if-none-match", "*")], &[]),
    ] {
        let failed = rig.send("PUT", "/bucket/key", conditions, "x").await;
        assert_eq!(failed.tags("Condition"), named, "{}", failed.text());
    }
    // Clients send tags without quotes, too.
    let (status, tag) = put("if-match", tag.trim_matches('"'), "jello").await;
    assert_eq!(status, 200);
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "jello");

    let complete = async |name: &str, value: &str| {
        let created = rig.send("POST", "/bucket/key?uploads", &[], "").await;
        let id = created.tags("UploadId")[0].to_owned();
        let parts = [bytes::Bytes::from_static(b"part")];
        let xml = rig.upload_parts("/bucket/key", &id, &parts).await;
        let path = format!("/bucket/key?uploadId={id}");
        rig.send("POST", &path, &[(name, value)], xml).await.status
    };
    assert_eq!(complete("if-none-match", "*").await, 412);
    assert_eq!(complete("if-match", "\"x\"").await, 412);
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "jello");
    assert_eq!(complete("if-match", &tag).await, 200);
    let got = rig.get("/bucket/key", &[]).await;
    let tag = got.header("etag").to_owned();
    assert_eq!(got.text(), "part");
    assert!(tag.ends_with("-1\""), "{tag}");

    let delete = async |name: &str, value: &str| {
        let headers = [(name, value)];
        rig.send("DELETE", "/bucket/key", &headers, "").await.status
    };
    assert_eq!(delete("if-match", "\"x\"").await, 412);
    assert_eq!(delete("x-amz-if-match-size", "5").await, 412);
    let past = "Thu, 01 Jan 2015 00:00:00 GMT";
    assert_eq!(delete("x-amz-if-match-last-modified-time", past).await, 412);
    assert_eq!(delete("if-none-match", "*").await, 501);
    let many = "<Delete><Object><Key>key</Key><ETag>x</ETag></Object>\
                <Object><Key>other</Key><ETag>x</ETag></Object></Delete>";
    let reply = rig.send("POST", "/bucket?delete", &[], many).await;
    assert_eq!(
        reply.tags("Code"),
        ["PreconditionFailed"],
        "{}",
        reply.text()
    );
    assert_eq!(rig.get("/bucket/key", &[]).await.text(), "part");
    assert_eq!(delete("if-match", &tag).await, 204);
    assert_eq!(rig.get("/bucket/key", &[]).await.status, 404);
    assert_eq!(delete("if-match", "*").await, 204);
}

#[tokio::test]
async fn conditions_compare_the_tag_that_clients_see() {
    let Fixture { rig, root } = fixture().await;
    let tag = rig.send("PUT", "/bucket/key", &[], "hello").await;
    let tag = tag.header("etag").to_owned();
    for _ in 0..2 {
        let unchanged = rig.get("/bucket/key", &[("if-none-match", &tag)]).await;
        assert_eq!((unchanged.status, unchanged.header("etag")), (304, &*tag));
        let part = [("if-range", &*tag), ("range", "bytes=1-2")];
        assert_eq!(rig.get("/bucket/key", &part).await.text(), "el");
        assert_eq!(
            rig.get("/bucket/key", &[("if-match", &tag)]).await.status,
            200
        );
    }
    let copy = async |name: &str, value: &str| {
        let headers = [("x-amz-copy-source", "/bucket/key"), (name, value)];
        rig.send("PUT", "/bucket/copy", &headers, "").await.status
    };
    let bare = tag.trim_matches('"');
    for tag in [&*tag, bare] {
        assert_eq!(copy("x-amz-copy-source-if-match", tag).await, 200);
        assert_eq!(copy("x-amz-copy-source-if-none-match", tag).await, 412);
    }
    assert_eq!(copy("x-amz-copy-source-if-match", "abc").await, 412);
    assert_eq!(copy("x-amz-copy-source-if-none-match", "abc").await, 200);
    // Another program writes bytes of the same length: its tag needs no quotes either.
    std::fs::write(root.path().join("bucket/key"), "jello").unwrap();
    let got = rig.get("/bucket/key", &[("if-none-match", &tag)]).await;
    assert_eq!((got.status, got.text()), (200, "jello"));
    let own = got.header("etag").trim_matches('"').to_owned();
    assert_eq!(copy("x-amz-copy-source-if-match", &own).await, 200);
    assert_eq!(copy("x-amz-copy-source-if-match", bare).await, 412);
}

#[tokio::test]
async fn checksums_are_stored_and_returned() {
    let Fixture { rig, root } = fixture().await;
    const EXPIRES: &str = "Wed, 21 Oct 2065 07:28:00 GMT";
    let sum = "mnG7TA==";
    let put = [
        ("x-amz-checksum-crc32c", sum),
        ("expires", EXPIRES),
        ("cache-control", "no-store"),
    ];
    assert_eq!(
        rig.send("PUT", "/bucket/key", &put, "hello").await.status,
        200
    );
    let mode = [("x-amz-checksum-mode", "ENABLED")];
    for method in ["HEAD", "GET", "GET"] {
        let got = rig.send(method, "/bucket/key", &mode, "").await;
        assert_eq!(got.header("x-amz-checksum-crc32c"), sum, "{method}");
        assert_eq!(got.header("x-amz-checksum-type"), "FULL_OBJECT");
        assert_eq!(
            (got.header("expires"), got.header("cache-control")),
            (EXPIRES, "no-store")
        );
        let got = rig.send(method, "/bucket/key", &[], "").await;
        assert!(
            !got.headers.contains_key("x-amz-checksum-crc32c"),
            "{method}"
        );
    }
    let part = [mode[0], ("range", "bytes=0-1")];
    let part = rig.get("/bucket/key", &part).await;
    assert!(!part.headers.contains_key("x-amz-checksum-crc32c"));
    for directive in ["COPY", "REPLACE"] {
        let headers = [
            ("x-amz-copy-source", "/bucket/key"),
            ("x-amz-metadata-directive", directive),
        ];
        rig.send("PUT", "/bucket/copy", &headers, "").await;
        let got = rig.get("/bucket/copy", &mode).await;
        assert_eq!(got.header("x-amz-checksum-crc32c"), sum, "{directive}");
    }
    let names = [(
        "x-amz-object-attributes",
        "ETag,Checksum,ObjectSize,StorageClass",
    )];
    let got = rig.get("/bucket/key?attributes", &names).await;
    assert_eq!(got.tags("ChecksumCRC32C"), [sum], "{}", got.text());
    assert_eq!(
        (got.tags("ObjectSize"), got.tags("StorageClass")),
        (vec!["5"], vec!["STANDARD"])
    );
    // Without quotes, as in S3.
    assert_eq!(got.tags("ETag"), ["5d41402abc4b2a76b9719d911017c592"]);
    for names in [&[][..], &[("x-amz-object-attributes", "Colour")]] {
        let got = rig.get("/bucket/key?attributes", names).await;
        assert_eq!(got.code(), "InvalidArgument");
    }
    let got = rig.get("/bucket/none?attributes", &names).await;
    assert_eq!(got.code(), "NoSuchKey");
    std::fs::write(root.path().join("bucket/key"), "jello").unwrap();
    let got = rig.get("/bucket/key", &mode).await;
    assert_eq!(got.text(), "jello");
    assert!(!got.headers.contains_key("x-amz-checksum-crc32c"));
}

#[tokio::test]
async fn checksums_of_parts_make_that_of_the_whole() {
    let Fixture { rig, root: _root } = fixture().await;
    let created = rig.send("POST", "/bucket/key?uploads", &[], "").await;
    let id = created.tags("UploadId")[0].to_owned();
    let mut xml = String::new();
    for number in [1, 2] {
        let path = format!("/bucket/key?partNumber={number}&uploadId={id}");
        let sum = [("x-amz-checksum-crc32c", "mnG7TA==")];
        let part = rig.send("PUT", &path, &sum, "hello").await;
        let tag = part.header("etag");
        xml += &format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>\
             <ChecksumCRC32C>mnG7TA==</ChecksumCRC32C></Part>"
        );
    }
    let path = format!("/bucket/key?uploadId={id}");
    let parts = rig.get(&path, &[]).await;
    assert_eq!(
        parts.tags("ChecksumCRC32C"),
        ["mnG7TA=="; 2],
        "{}",
        parts.text()
    );
    let complete = |xml: &str| format!("<CompleteMultipartUpload>{xml}</CompleteMultipartUpload>");
    let wrong = complete(&xml.replacen("mnG7TA==", "AAAAAA==", 1));
    let wrong = rig.send("POST", &path, &[], wrong).await;
    assert_eq!((wrong.status, wrong.code()), (400, "InvalidPart"));
    for _ in 0..2 {
        let done = rig.send("POST", &path, &[], complete(&xml)).await;
        assert_eq!(done.status, 200, "{}", done.text());
    }
    let got = rig
        .get("/bucket/key", &[("x-amz-checksum-mode", "ENABLED")])
        .await;
    assert_eq!(got.text(), "hellohello");
    assert_eq!(got.header("x-amz-checksum-type"), "COMPOSITE");
    let names = [("x-amz-object-attributes", "ObjectParts")];
    let asked = rig.get("/bucket/key?attributes", &names).await;
    assert_eq!(asked.tags("PartsCount"), ["2"], "{}", asked.text());
    // The CRC32C of twice the four bytes of the part's.
    assert_eq!(got.header("x-amz-checksum-crc32c"), "X/LhIw==-2");
}

/// The checksum of `bytes` as S3 writes it.
fn checksum(algorithm: CrcAlgorithm, bytes: &[u8]) -> String {
    let width = match algorithm {
        CrcAlgorithm::Crc64Nvme => 8,
        _ => 4,
    };
    let sum = crc_fast::checksum(algorithm, bytes).to_be_bytes();
    STANDARD.encode(&sum[8 - width..])
}

#[tokio::test]
async fn the_checksum_of_all_bytes_is_made_of_those_of_the_parts() {
    let Fixture { rig, root: _root } = fixture().await;
    let parts = ["hello, ", "", "wide world"];
    for (name, algorithm) in [
        ("CRC32", CrcAlgorithm::Crc32IsoHdlc),
        ("CRC32C", CrcAlgorithm::Crc32Iscsi),
        ("CRC64NVME", CrcAlgorithm::Crc64Nvme),
    ] {
        let header = format!("x-amz-checksum-{}", name.to_lowercase());
        let kind = [
            ("x-amz-checksum-algorithm", name),
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ];
        let begun = rig.send("POST", "/bucket/key?uploads", &kind, "").await;
        assert_eq!(begun.header("x-amz-checksum-type"), "FULL_OBJECT");
        assert_eq!(begun.header("x-amz-checksum-algorithm"), name);
        let id = begun.tags("UploadId")[0].to_owned();
        let mut list = String::new();
        for (number, part) in (1..).zip(parts) {
            let path = format!("/bucket/key?partNumber={number}&uploadId={id}");
            let sum = checksum(algorithm, part.as_bytes());
            let sent = rig.send("PUT", &path, &[(&header, &sum)], part).await;
            let tag = sent.header("etag");
            list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        let path = format!("/bucket/key?uploadId={id}");
        let known = rig.get(&path, &[]).await;
        assert_eq!(
            known.tags("ChecksumType"),
            ["FULL_OBJECT"],
            "{}",
            known.text()
        );
        let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
        let wrong = checksum(algorithm, b"others");
        let whole = checksum(algorithm, parts.concat().as_bytes());
        for (announced, code) in [
            ((&*header, &*wrong), "BadDigest"),
            (("x-amz-checksum-type", "COMPOSITE"), "InvalidRequest"),
            (("x-amz-checksum-sha256", "AAAA"), "InvalidRequest"),
        ] {
            let refused = rig.send("POST", &path, &[announced], list.clone()).await;
            assert_eq!(refused.code(), code, "{}", refused.text());
        }
        // Errors of the list come first.
        let first = list.find("</Part>").unwrap() + 7;
        let twice = list.replacen("</Part>", &format!("</Part>{}", &list[25..first]), 1);
        let unknown = list.replace("<PartNumber>3<", "<PartNumber>4<");
        for (list, code) in [(twice, "InvalidPartOrder"), (unknown, "InvalidPart")] {
            let refused = rig.send("POST", &path, &[(&*header, &*whole)], list).await;
            assert_eq!(refused.code(), code, "{}", refused.text());
        }
        let announced = [(&*header, &*whole), ("x-amz-checksum-type", "FULL_OBJECT")];
        for _ in 0..2 {
            let done = rig.send("POST", &path, &announced, list.clone()).await;
            assert_eq!(done.status, 200, "{}", done.text());
        }
        let copy = [("x-amz-copy-source", "/bucket/key")];
        rig.send("PUT", "/bucket/copy", &copy, "").await;
        for key in ["key", "copy"] {
            let mode = [("x-amz-checksum-mode", "ENABLED")];
            let got = rig.get(&format!("/bucket/{key}"), &mode).await;
            assert_eq!(got.text(), parts.concat());
            assert_eq!(got.header(&header), whole, "{key}");
            assert_eq!(got.header("x-amz-checksum-type"), "FULL_OBJECT");
            assert!(!got.headers.contains_key("x-floe-parts"));
        }
        for method in ["GET", "HEAD"] {
            let empty = rig.send(method, "/bucket/key?partNumber=2", &[], "").await;
            assert_eq!((empty.status, empty.text()), (206, ""), "{method}");
            assert_eq!(empty.header("content-length"), "0");
            assert!(!empty.headers.contains_key("content-range"));
        }
    }
}

#[tokio::test]
async fn kinds_of_checksums_fit_their_algorithms() {
    let Fixture { rig, root: _root } = fixture().await;
    let begin =
        async |headers: &[(&str, &str)]| rig.send("POST", "/bucket/key?uploads", headers, "").await;
    const NAME: &str = "x-amz-checksum-algorithm";
    const KIND: &str = "x-amz-checksum-type";
    for refused in [
        &[(KIND, "FULL_OBJECT")][..],
        &[(NAME, "SHA256"), (KIND, "FULL_OBJECT")],
        &[(NAME, "CRC64NVME"), (KIND, "COMPOSITE")],
    ] {
        let begun = begin(refused).await;
        assert_eq!(begun.code(), "InvalidRequest", "{refused:?}");
    }
    assert_eq!(begin(&[(NAME, "XXHASH64")]).await.code(), "NotImplemented");
    for (name, kind) in [
        ("CRC32", "COMPOSITE"),
        ("crc32c", "COMPOSITE"),
        ("SHA1", "COMPOSITE"),
        ("CRC64NVME", "FULL_OBJECT"),
    ] {
        assert_eq!(begin(&[(NAME, name)]).await.header(KIND), kind, "{name}");
    }
}

#[tokio::test]
async fn parts_are_read_as_they_were_uploaded() {
    let Fixture { rig, root } = fixture().await;
    let begun = rig.send("POST", "/bucket/key?uploads", &[], "").await;
    let id = begun.tags("UploadId")[0].to_owned();
    let sent = ["first", "again", "the end"].map(Bytes::from);
    let list = rig.upload_parts("/bucket/key", &id, &sent).await;
    let path = format!("/bucket/key?uploadId={id}");
    assert_eq!(rig.send("POST", &path, &[], list).await.status, 200);
    for (number, bytes, range) in [
        (1, "first", "bytes 0-4/17"),
        (2, "again", "bytes 5-9/17"),
        (3, "the end", "bytes 10-16/17"),
    ] {
        let path = format!("/bucket/key?partNumber={number}");
        for method in ["GET", "HEAD"] {
            let got = rig.send(method, &path, &[], "").await;
            assert_eq!(got.status, 206, "{}", got.text());
            assert_eq!(got.header("x-amz-mp-parts-count"), "3");
            assert_eq!(got.header("content-range"), range);
            assert_eq!(got.header("content-length"), bytes.len().to_string());
            let body = if method == "GET" { bytes } else { "" };
            assert_eq!(got.text(), body);
        }
        let tag = rig.get("/bucket/key", &[]).await.header("etag").to_owned();
        let got = rig.get(&path, &[("if-none-match", &tag)]).await;
        assert_eq!(got.status, 304);
    }
    let got = rig.get("/bucket/key?partNumber=4", &[]).await;
    assert_eq!((got.status, got.code()), (416, "InvalidPartNumber"));
    for wrong in ["partNumber=0", "partNumber=x", "partNumber=1&partNumber=2"] {
        let got = rig.get(&format!("/bucket/key?{wrong}"), &[]).await;
        assert_eq!(got.code(), "InvalidArgument", "{wrong}");
    }
    let ranged = [("range", "bytes=0-1")];
    let got = rig.get("/bucket/key?partNumber=1", &ranged).await;
    assert_eq!(got.code(), "InvalidRequest");
    let asked = [
        ("x-amz-object-attributes", "ObjectParts"),
        ("x-amz-max-parts", "1"),
        ("x-amz-part-number-marker", "1"),
    ];
    let got = rig.get("/bucket/key?attributes", &asked).await;
    let of = |tag: &str| got.tags(tag).join(" ");
    assert_eq!(
        (of("PartsCount"), of("Size"), of("PartNumber")),
        ("3".into(), "5".into(), "2".into())
    );
    assert_eq!(
        (of("IsTruncated"), of("NextPartNumberMarker")),
        ("true".into(), "2".into())
    );
    for marker in ["4294967294", "4294967295"] {
        let asked = [
            ("x-amz-object-attributes", "ObjectParts"),
            ("x-amz-part-number-marker", marker),
        ];
        let got = rig.get("/bucket/key?attributes", &asked).await;
        assert!(
            got.tags("Part").is_empty() && got.status == 200,
            "{}",
            got.text()
        );
    }
    // An object that was uploaded as a whole is one part.
    for (key, text) in [("whole", "text"), ("empty", "")] {
        rig.send("PUT", &format!("/bucket/{key}"), &[], text).await;
        let got = rig.get(&format!("/bucket/{key}?partNumber=1"), &[]).await;
        assert_eq!(got.text(), text);
        assert!(!got.headers.contains_key("x-amz-mp-parts-count"));
        let got = rig.get(&format!("/bucket/{key}?partNumber=2"), &[]).await;
        assert_eq!(got.code(), "InvalidPartNumber", "{key}");
    }
    // Another program's bytes have no parts.
    std::fs::write(root.path().join("bucket/key"), "seventeen  bytes!").unwrap();
    let got = rig.get("/bucket/key?partNumber=1", &[]).await;
    assert_eq!(got.text(), "seventeen  bytes!");
}

/// A copy is one piece.
#[tokio::test]
async fn a_copy_has_no_checksums_of_parts() {
    let Fixture { rig, root } = fixture().await;
    let created = rig.send("POST", "/bucket/key?uploads", &[], "").await;
    let id = created.tags("UploadId")[0].to_owned();
    let path = format!("/bucket/key?partNumber=1&uploadId={id}");
    let sum = [("x-amz-checksum-crc32c", "mnG7TA==")];
    let part = rig.send("PUT", &path, &sum, "hello").await;
    let xml = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag>\
         <ChecksumCRC32C>mnG7TA==</ChecksumCRC32C></Part></CompleteMultipartUpload>",
        part.header("etag")
    );
    let path = format!("/bucket/key?uploadId={id}");
    let done = rig.send("POST", &path, &[], xml).await;
    assert_eq!(done.tags("ChecksumType"), ["COMPOSITE"], "{}", done.text());
    let source = [("x-amz-copy-source", "/bucket/key")];
    rig.send("PUT", "/bucket/copy", &source, "").await;
    let mode = [("x-amz-checksum-mode", "ENABLED")];
    let copy = rig.get("/bucket/copy", &mode).await;
    assert_eq!(copy.header("etag"), "\"5d41402abc4b2a76b9719d911017c592\"");
    assert!(!copy.headers.contains_key("x-amz-checksum-crc32c"));
    assert_eq!(
        std::fs::read(root.path().join("bucket/copy")).unwrap(),
        b"hello"
    );
}

#[tokio::test]
async fn uploads_under_way_are_folded() {
    let Fixture { rig, root: _root } = fixture().await;
    for key in ["a", "b/1", "b/2", "c/1", "d"] {
        rig.send("POST", &format!("/bucket/{key}?uploads"), &[], "")
            .await;
    }
    let all = rig.get("/bucket?uploads&delimiter=/", &[]).await;
    assert_eq!(all.tags("Key"), ["a", "d"]);
    assert_eq!(all.tags("Prefix"), ["b/", "c/"], "{}", all.text());
    let (mut seen, mut marker) = (Vec::new(), String::new());
    loop {
        let path = format!("/bucket?uploads&delimiter=/&max-uploads=1&key-marker={marker}");
        let page = rig.get(&path, &[]).await;
        let found = [page.tags("Key"), page.tags("Prefix")].concat();
        seen.extend(found.into_iter().map(str::to_owned));
        match page.tags("NextKeyMarker").first() {
            Some(next) => marker = (*next).to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b/", "c/", "d"]);
}
