use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::*;
use crate::frontends::s3::target::Domains;

fn policy(buckets: &[&str], prefixes: &[&str], access: KeyAccess) -> KeyPolicy {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    KeyPolicy {
        key: "k".into(),
        buckets: owned(buckets),
        prefixes: owned(prefixes),
        access,
    }
}

/// A key that reads `open`, writes below `in/` and `a b/` of `mixed`, and writes `own`.
fn rights() -> Rights {
    let rules = [
        policy(&["open"], &[], KeyAccess::Read),
        policy(&["mixed"], &["in/", "a b/"], KeyAccess::Write),
        policy(&["mixed"], &["seen/"], KeyAccess::Read),
        policy(&["own"], &[], KeyAccess::Write),
    ];
    Rights::new(Some(rules.to_vec().into()), Arc::default())
}

fn admits(rights: &Rights, method: &str, path: &str, headers: &[(&str, &str)]) -> bool {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let uri: Uri = path.parse().unwrap();
    let mut all = HeaderMap::new();
    all.insert("host", HeaderValue::from_static("h"));
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        all.append(name, HeaderValue::from_str(value).unwrap());
    }
    let domains = Domains::new(&["s3.example.com".into()]);
    let before = rights.denied.get();
    let admitted = rights.admit(&domains, &method, &uri, &all).is_ok();
    assert_eq!(rights.denied.get() - before, u64::from(!admitted));
    admitted
}

#[test]
fn what_a_policy_names_is_allowed() {
    for request in [
        "GET /",
        "GET /open/k",
        "HEAD /open/k",
        "OPTIONS /open/k",
        "GET /open/k?tagging",
        "GET /open/k?X-Amz-Signature=1&X-Amz-Date=2",
        "GET /open",
        "GET /open?list-type=2&prefix=a&X-Amz-Credential=c",
        "GET /open?uploads&max-uploads=1",
        "GET /open?location",
        "HEAD /open",
        "HEAD /mixed",
        "GET /mixed?location",
        "GET /mixed?prefix=in/",
        "GET /mixed?prefix=in%2Fdeep&delimiter=/&list-type=2",
        "GET /mixed?versions&prefix=a+b/",
        "GET /mixed/in/k",
        "GET /mixed/a%20b/k",
        "GET /mixed/seen/k",
        "PUT /mixed/in/k",
        "PUT /mixed/in//k",
        "PUT /mixed/in/k?uploadId=1&partNumber=2",
        "POST /mixed/in/k?uploads&x-id=CreateMultipartUpload",
        "PUT /mixed/in/k?X-Amz-Signature=1&x-amz-meta-a=b",
        "DELETE /mixed/in/k?versionId=1",
        "POST /mixed?delete",
        "PUT /own",
        "DELETE /own",
        "PUT /own?lifecycle",
        "GET /own?policy",
        "PUT /own/k?compose",
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        assert!(admits(&rights(), method, path, &[]), "{request}");
    }
}

#[test]
fn all_else_is_denied_and_counted() {
    for request in [
        "POST /",
        "GET /other/k",
        "HEAD /other",
        "GET /other?location",
        "GET /other",
        "PUT /open/k",
        "DELETE /open/k",
        "POST /open/k?uploads",
        "PUT /open/k?uploadId=1&partNumber=2",
        "DELETE /open/k?uploadId=1",
        "POST /open?delete",
        "PUT /open",
        "DELETE /open",
        "GET /open?policy",
        "GET /open?policy&prefix=a",
        "GET /open?Prefix=a",
        "TRACE /other/k",
        // Beside the prefixes.
        "GET /mixed/k",
        "GET /mixed/in",
        "GET /mixed/inner/k",
        "GET /mixed?prefix=i",
        "GET /mixed",
        "GET /mixed?list-type=2",
        "GET /mixed?prefix=in/&prefix=in/",
        "GET /mixed?prefix=in/&prefix=",
        "GET /mixed?prefix=in/&versioning",
        "GET /mixed?x-id=;prefix=k&prefix=in/",
        "PUT /mixed/seen/k",
        "PUT /mixed",
        "DELETE /mixed",
        "PUT /mixed?lifecycle",
        "POST /mixed?delete&lifecycle",
        "PUT /mixed/in/k?compose",
        "POST /mixed/in/k?renameObject",
        // Other names of an object.
        "GET /mixed/in/../k",
        "GET /mixed/in/%2e%2e/k",
        "GET /mixed/in/../in/k",
        "GET /mixed/in/./k",
        "GET /mixed?prefix=in/../",
        "GET /open/../other/k",
        "GET /open%2Fk",
        "GET /open/%ff",
        // Documents that name other buckets.
        "PUT /own?replication",
        "PUT /own?logging",
        "POST /own/k?restore",
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        assert!(!admits(&rights(), method, path, &[]), "{request}");
    }
}

#[test]
fn an_object_is_allowed_under_all_its_names() {
    let slashed = policy(&["bucket"], &["in//"], KeyAccess::Read);
    let rights = Rights::new(Some(vec![slashed].into()), Arc::default());
    assert!(!admits(&rights, "GET", "/bucket/in//k", &[]));
    let lead = policy(&["bucket"], &["/"], KeyAccess::Read);
    let rights = Rights::new(Some(vec![lead].into()), Arc::default());
    assert!(
        !admits(&rights, "GET", "/bucket//", &[]),
        "the bucket itself"
    );
}

#[test]
fn sources_of_copies_are_read() {
    let copies = |source: &str| {
        let header = [("x-amz-copy-source", source)];
        let as_header = admits(&rights(), "PUT", "/own/k", &header);
        let encoded =
            percent_encoding::utf8_percent_encode(source, percent_encoding::NON_ALPHANUMERIC);
        let path = format!("/own/k?X-Amz-Signature=1&X-Amz-Copy-Source={encoded}");
        assert_eq!(admits(&rights(), "PUT", &path, &[]), as_header, "{source}");
        as_header
    };
    for source in [
        "open/k",
        "/open/k",
        "open%2Fk",
        "mixed/seen/k",
        "/mixed/a%20b/k?versionId=1",
        "own/a%2Bb",
    ] {
        assert!(copies(source), "{source}");
    }
    for source in [
        "other/k",
        "mixed/k",
        "mixed/seen/../k",
        "mixed/seen/%2e%2e/k",
        "//open/other/k",
        "open/k?a",
        "open/k#a",
        "open/a+b",
        "open",
        "arn:aws:s3:us-east-1:123456789012:accesspoint/open/object/k",
        "%ff",
    ] {
        assert!(!copies(source), "{source}");
    }
    let both = [
        ("x-amz-copy-source", "open/k"),
        ("x-amz-copy-source", "other/k"),
    ];
    assert!(!admits(&rights(), "PUT", "/own/k", &both));
    let header = [("x-amz-copy-source", "open/k")];
    assert!(!admits(&rights(), "PUT", "/open/copy", &header));
}

#[test]
fn buckets_in_the_host_are_named_too() {
    let uri: Uri = "/k".parse().unwrap();
    let domains = Domains::new(&["s3.example.com".into()]);
    for (host, is_admitted) in [
        ("open.s3.example.com", true),
        ("other.s3.example.com", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static(host));
        let admitted = rights().admit(&domains, &Method::GET, &uri, &headers);
        assert_eq!(admitted.is_ok(), is_admitted, "{host}");
    }
}

#[test]
fn all_buckets_and_no_policy() {
    let all = policy(&["*"], &[], KeyAccess::Write);
    let all = Rights::new(Some(vec![all].into()), Arc::default());
    let free = Rights::new(None, Arc::default());
    for rights in [&all, &free] {
        for request in [
            "PUT /bucket/k",
            "DELETE /bucket",
            "PUT /bucket?replication",
            "GET /bucket?policy",
        ] {
            let (method, path) = request.split_once(' ').unwrap();
            assert!(admits(rights, method, path, &[]), "{request}");
        }
    }
    assert!(admits(&free, "GET", "/bucket/../c/k", &[]));
    let none = Rights::new(Some(Arc::default()), Arc::default());
    assert!(
        !admits(&none, "GET", "/bucket/k", &[]),
        "a key that is gone"
    );
}

#[test]
fn changes_are_checked_one_by_one() {
    let rights = rights();
    let key = |key: &str| ObjectKey::new("mixed", key);
    assert!(rights.require_writes(&[key("in/a"), key("in/b")]).is_ok());
    assert!(
        rights
            .require_writes(&[key("in/a"), key("seen/b")])
            .is_err()
    );
    assert!(rights.has_bucket("open") && !rights.has_bucket("other"));
}
