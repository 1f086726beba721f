//! Every header of a request is honoured or rejected, never dropped.

use crate::support::{rig, rig_holding};

/// An entry with a condition gets an error, and its object stays.
#[tokio::test]
async fn a_conditional_entry_of_a_batch_deletes_nothing() {
    let rig = rig().await;
    let conditions = [
        "<ETag>\"another\"</ETag>",
        "<Size>999</Size>",
        "<LastModifiedTime>Wed, 21 Oct 2015 07:28:00 GMT</LastModifiedTime>",
        "<VersionId>7</VersionId>",
    ];
    let mut entries = String::from("<Object><Key>plain</Key></Object>");
    for (i, condition) in conditions.iter().enumerate() {
        rig.origin.store("bucket", &format!("key-{i}"), "bytes");
        entries += &format!("<Object><Key>key-{i}</Key>{condition}</Object>");
    }
    rig.origin.store("bucket", "plain", "bytes");
    let body = format!("<Delete>{entries}</Delete>");
    let response = rig.send("POST", "/bucket?delete", &[], body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(rig.origin.bytes("bucket", "plain"), None);
    for (i, condition) in conditions.iter().enumerate() {
        let key = format!("key-{i}");
        assert!(rig.origin.bytes("bucket", &key).is_some(), "{condition}");
    }
    assert_eq!(
        response.tags("Error").len(),
        conditions.len(),
        "{}",
        response.text()
    );
    assert_eq!(response.tags("Deleted").len(), 1, "{}", response.text());
}

/// A request: method, path and body.
type Operation = (&'static str, &'static str, &'static str);

const PUT: Operation = ("PUT", "/bucket/new", "x");
const COPY: Operation = ("PUT", "/bucket/new", "");
const CREATE_UPLOAD: Operation = ("POST", "/bucket/new?uploads", "");
const GET: Operation = ("GET", "/bucket/key", "");
const HEAD: Operation = ("HEAD", "/bucket/key", "");
const LIST: Operation = ("GET", "/bucket?list-type=2", "");
const DELETE: Operation = ("DELETE", "/bucket/key", "");
const HEAD_BUCKET: Operation = ("HEAD", "/bucket", "");
const DELETE_BATCH: Operation = (
    "POST",
    "/bucket?delete",
    "<Delete><Object><Key>key</Key></Object></Delete>",
);

/// Headers that no operation honours are rejected, and nothing changes.
#[tokio::test]
async fn headers_are_honoured_or_rejected() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    let all = [
        PUT,
        COPY,
        CREATE_UPLOAD,
        GET,
        HEAD,
        LIST,
        DELETE,
        HEAD_BUCKET,
        DELETE_BATCH,
    ];
    let writes = [PUT, COPY, CREATE_UPLOAD];
    let cases: [(&str, &str, &[Operation]); 17] = [
        ("x-amz-expected-bucket-owner", "111122223333", &all),
        ("x-amz-server-side-encryption", "AES256", &all),
        (
            "x-amz-server-side-encryption-customer-algorithm",
            "AES256",
            &all,
        ),
        ("x-amz-grant-read", "id=1", &all),
        ("x-amz-object-lock-mode", "GOVERNANCE", &all),
        ("x-amz-tagging", "a=b", &all),
        ("x-amz-acl", "public-read", &writes),
        ("x-amz-mfa", "1 2", &[DELETE, DELETE_BATCH]),
        ("x-amz-bypass-governance-retention", "true", &[PUT, LIST]),
        ("x-amz-something-of-tomorrow", "1", &all),
        ("x-amz-website-redirect-location", "/x", &writes),
        ("x-amz-write-offset-bytes", "5", &[PUT]),
        (
            "x-amz-checksum-sha512",
            "x",
            &[PUT, COPY, CREATE_UPLOAD, DELETE_BATCH],
        ),
        ("x-amz-source-expected-bucket-owner", "1", &[COPY]),
        ("x-amz-meta-a", "1", &[GET, DELETE, LIST]),
        (
            "if-match",
            "\"x\"",
            &[COPY, CREATE_UPLOAD, DELETE, DELETE_BATCH],
        ),
        (
            "if-unmodified-since",
            "Wed, 21 Oct 2015 07:28:00 GMT",
            &[PUT, COPY, DELETE],
        ),
    ];
    for (name, value, operations) in cases {
        for operation in operations {
            let (method, path, body) = *operation;
            let mut headers = vec![(name, value)];
            if *operation == COPY {
                headers.push(("x-amz-copy-source", "/bucket/key"));
            }
            let response = rig.send(method, path, &headers, body).await;
            assert!(
                matches!(response.status, 400..=499 | 501),
                "{method} {path} with {name}: {}",
                response.status
            );
            assert_eq!(rig.origin.bytes("bucket", "new"), None, "{method} {name}");
            assert!(
                rig.origin.bytes("bucket", "key").is_some(),
                "{method} {name}"
            );
        }
    }
    for parameter in [
        "x-amz-acl=public-read",
        "X-Amz-Meta-A=1",
        "x%2Damz-tagging=a",
    ] {
        let path = format!("/bucket/new?{parameter}");
        let response = rig.send("PUT", &path, &[], "x").await;
        assert!(matches!(response.status, 400..=499 | 501), "{parameter}");
        assert_eq!(rig.origin.bytes("bucket", "new"), None, "{parameter}");
    }
}

/// Accepted attributes come back.
#[tokio::test]
async fn accepted_headers_are_returned() {
    let rig = rig_holding("bucket", "other", "").await;
    let headers = [
        ("content-type", "text/x"),
        ("content-language", "de"),
        ("content-disposition", "attachment; filename=\"a b\""),
        ("cache-control", "max-age=5"),
        ("content-encoding", "gzip"),
        ("expires", "Wed, 21 Oct 2065 07:28:00 GMT"),
        ("x-amz-storage-class", "GLACIER_IR"),
        ("x-amz-meta-name", "gr\u{fc}n"),
        ("x-amz-meta-word", "=?UTF-8?Q?gr=C3=BCn?="),
    ];
    assert_eq!(
        rig.send("PUT", "/bucket/key", &headers, "x").await.status,
        200
    );
    let response = rig.get("/bucket/key", &[]).await;
    for (name, value) in headers {
        assert_eq!(
            response.headers[name].as_bytes(),
            value.as_bytes(),
            "{name}"
        );
    }
    for (name, value) in [
        ("cache-control", &b"\xff"[..]),
        ("content-disposition", b"\xff"),
        ("x-amz-meta-name", b"gr\xfcn"),
    ] {
        let value = http::HeaderValue::from_bytes(value).unwrap();
        let mut put = crate::support::request(rig.s3(), "PUT", "/bucket/latin", &[], "x");
        put.headers_mut().insert(name, value);
        let response = crate::support::send(rig.s3(), put).await;
        assert_eq!(response.status, 400, "{name}");
        assert!(response.text().contains(name), "{}", response.text());
        assert_eq!(rig.origin.bytes("bucket", "latin"), None, "{name}");
    }
}

#[tokio::test]
async fn parameters_of_listings_are_honoured() {
    let rig = rig().await;
    for bucket in ["alpha", "beta", "beta-two"] {
        rig.origin.store(bucket, "key", "bytes");
    }
    let names = |response: &crate::support::Reply| -> Vec<String> {
        response
            .tags("Name")
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    };
    assert_eq!(names(&rig.get("/", &[]).await).len(), 3);
    let page = rig.get("/?prefix=beta&max-buckets=1", &[]).await;
    assert_eq!(names(&page), ["beta"]);
    let token = page.tags("ContinuationToken")[0];
    let path = format!("/?prefix=beta&max-buckets=1&continuation-token={token}");
    let page = rig.get(&path, &[]).await;
    assert_eq!(names(&page), ["beta-two"]);
    assert!(page.tags("ContinuationToken").is_empty());
    assert!(names(&rig.get("/?bucket-region=elsewhere", &[]).await).is_empty());

    let plain = rig.get("/alpha?list-type=2", &[]).await;
    assert!(plain.tags("Owner").is_empty());
    let owned = rig.get("/alpha?list-type=2&fetch-owner=true", &[]).await;
    assert_eq!(owned.tags("Owner").len(), 1);
    let elsewhere = "<CreateBucketConfiguration>\
        <LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    let [here, there] = ["", elsewhere];
    let here = rig.send("PUT", "/gamma", &[], here).await;
    let there = rig.send("PUT", "/gamma", &[], there).await;
    assert_eq!(here.code(), there.code(), "every region is this one");
    // No bucket has locks, so that one without them can be had.
    const LOCKS: &str = "x-amz-bucket-object-lock-enabled";
    let lock = async |value| rig.send("PUT", "/gamma", &[(LOCKS, value)], "").await;
    let (locked, unlocked) = (lock("true").await, lock("False").await);
    assert!(locked.text().contains("object locks"), "{}", locked.text());
    assert!(!unlocked.text().contains(LOCKS), "{}", unlocked.text());
}

/// Announced hashes are compared with the body, signed or not.
#[tokio::test]
async fn announced_hashes_are_compared() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    let list = DELETE_BATCH.2;
    let zeros = "0".repeat(64);
    for header in [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-checksum-sha256", "AAAA"),
        ("x-amz-content-sha256", zeros.as_str()),
        ("x-amz-content-sha256", "nonsense"),
    ] {
        let response = rig.send("POST", "/bucket?delete", &[header], list).await;
        assert_eq!(response.status, 400, "{header:?}: {}", response.text());
        assert!(rig.origin.bytes("bucket", "key").is_some(), "{header:?}");
        let response = rig.send("PUT", "/bucket/new", &[header], "x").await;
        assert_eq!(response.status, 400, "{header:?}: {}", response.text());
        assert_eq!(rig.origin.bytes("bucket", "new"), None, "{header:?}");
    }
    let right = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
    let header = [("x-amz-content-sha256", right)];
    assert_eq!(
        rig.send("PUT", "/bucket/new", &header, "x").await.status,
        200
    );
    assert_eq!(
        rig.send("POST", "/bucket?delete", &[], list).await.status,
        200
    );
    assert_eq!(rig.origin.bytes("bucket", "key"), None);
}
