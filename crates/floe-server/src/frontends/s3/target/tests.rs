use http::HeaderValue;

use super::*;

fn object(host: &str, uri: &str) -> Option<(String, String)> {
    let domains = Domains::new(&["s3.example.com".into(), "localhost".into()]);
    let headers =
        HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_str(host).unwrap())]);
    domains.object(&uri.parse().unwrap(), &headers)
}

#[test]
fn hosts_and_paths_name_objects() {
    let some = |bucket: &str, key: &str| Some((bucket.to_owned(), key.to_owned()));
    for (host, uri, expected) in [
        ("127.0.0.1:9000", "/bucket/key", some("bucket", "key")),
        ("cache:9000", "/bucket/a/b//c", some("bucket", "a/b//c")),
        ("s3.example.com", "/bucket/key", some("bucket", "key")),
        ("photos.s3.example.com", "/a/key", some("photos", "a/key")),
        ("Photos.S3.Example.Com:9000", "/key", some("photos", "key")),
        ("a.b.s3.example.com", "/key", some("a.b", "key")),
        ("photos.localhost:9000", "/key", some("photos", "key")),
        (".localhost", "/bucket/key", some("bucket", "key")),
        ("xs3.example.com", "/bucket/key", some("bucket", "key")),
        ("[::1]:9000", "/bucket/key", some("bucket", "key")),
        ("x", "/bucket/%C3%A4%20%2B+%3F", some("bucket", "ä ++?")),
        ("x", "/bucket/key?partNumber=1", some("bucket", "key")),
        ("x", "/bucket/", None),
        ("x", "/bucket", None),
        ("x", "/", None),
        ("photos.localhost", "/", None),
        ("x", "/bucket/%ff", None),
        ("x", "/B/key", None),
    ] {
        assert_eq!(object(host, uri), expected, "{host} {uri}");
    }
}
