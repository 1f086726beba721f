//! Policies of access keys, on every way of a request.

use floe_server::{AccessKey, KeyAccess, KeyPolicy, S3Config, ServerConfig};

use crate::support::signer::{Payload, Signer};
use crate::support::{Reply, Rig, connect_http2, reply, rig_with, send};

const READER: (&str, &str) = ("READER", "a secret of a reader");
const WRITER: (&str, &str) = ("WRITER", "a secret of a writer");
const FREE: (&str, &str) = ("FREE", "a secret of neither");

fn policy(key: &str, buckets: &[&str], prefixes: &[&str], access: KeyAccess) -> KeyPolicy {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    KeyPolicy {
        key: key.into(),
        buckets: owned(buckets),
        prefixes: owned(prefixes),
        access,
    }
}

/// The reader reads all of `open`; the writer writes below `in/` of `mixed`; unsigned requests
/// read below `public/` of `open`.
pub(crate) fn give(config: &mut ServerConfig) {
    let s3 = config.s3.as_mut().unwrap();
    s3.keys = [READER, WRITER, FREE]
        .map(|(key, secret)| AccessKey::new(key, secret))
        .into();
    s3.policies = vec![
        policy(READER.0, &["open"], &[], KeyAccess::Read),
        policy(WRITER.0, &["mixed"], &["in/"], KeyAccess::Write),
        policy("anonymous", &["open"], &["public/"], KeyAccess::Read),
    ];
}

async fn rig() -> Rig {
    let rig = rig_with(give).await;
    for key in ["k", "public/k"] {
        rig.origin.store("open", key, "open bytes");
    }
    for key in ["in/k", "k", "seen/k"] {
        rig.origin.store("mixed", key, "mixed bytes");
    }
    rig.origin.store("other", "k", "other bytes");
    rig
}

pub(crate) async fn signed(
    rig: &Rig,
    (key, secret): (&str, &str),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let host = rig.s3().to_string();
    let signer = Signer::new(key, secret);
    let request = signer.sign(
        method,
        &host,
        path,
        headers,
        body.as_bytes(),
        Payload::Signed,
    );
    send(rig.s3(), request).await
}

fn is_denied(reply: &Reply) -> bool {
    let is_denied = reply.status == 403;
    // A HEAD has no document.
    assert!(!is_denied || reply.body.is_empty() || reply.code() == "AccessDenied");
    is_denied
}

async fn denials(rig: &Rig) -> u64 {
    let page = send(
        rig.admin(),
        crate::support::request(rig.admin(), "GET", "/metrics", &[], ""),
    );
    let page = page.await;
    let line = page
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("floe_s3_requests_denied_total "));
    line.unwrap().parse().unwrap()
}

/// Signed in headers, in the URL, and over HTTP/2; the first begins on the short way.
#[tokio::test]
async fn a_reader_reads_its_bucket_on_every_way_and_nothing_else() {
    let rig = rig().await;
    let host = rig.s3().to_string();
    for (path, is_allowed) in [
        ("/open/k", true),
        ("/mixed/k", false),
        ("/other/k", false),
        ("/other/missing", false),
    ] {
        let before = denials(&rig).await;
        for method in ["GET", "HEAD"] {
            let read = signed(&rig, READER, method, path, &[], "").await;
            assert_eq!(is_denied(&read), !is_allowed, "{method} {path}");
        }
        let url = Signer::new(READER.0, READER.1).presign("GET", &host, path, 60);
        let presigned = rig.get(&url, &[]).await;
        assert_eq!(is_denied(&presigned), !is_allowed, "{path}");
        let signer = Signer::new(READER.0, READER.1);
        let mut request = signer.sign("GET", &host, path, &[], b"", Payload::Signed);
        request.headers_mut().remove("host");
        *request.uri_mut() = format!("http://{host}{path}").parse().unwrap();
        let mut sender = connect_http2(rig.s3()).await;
        let read = reply(sender.send_request(request).await.unwrap()).await;
        assert_eq!(is_denied(&read), !is_allowed, "{path}");
        let ranged = signed(&rig, READER, "GET", path, &[("range", "bytes=0-1")], "").await;
        assert_eq!(is_denied(&ranged), !is_allowed, "{path}");
        let denied = if is_allowed { 0 } else { 5 };
        assert_eq!(denials(&rig).await - before, denied, "{path}");
    }
    for (method, path) in [
        ("PUT", "/open/k"),
        ("DELETE", "/open/k"),
        ("POST", "/open/k?uploads"),
        ("PUT", "/open"),
        ("GET", "/open?policy"),
        ("GET", "/mixed?list-type=2"),
    ] {
        let reply = signed(&rig, READER, method, path, &[], "").await;
        assert!(is_denied(&reply), "{method} {path}: {}", reply.text());
    }
    assert_eq!(rig.origin.bytes("open", "k").unwrap(), "open bytes");
    let free = signed(&rig, FREE, "GET", "/other/k", &[], "").await;
    assert_eq!(free.text(), "other bytes", "a key without a policy");
}

/// One connection: a denied read between two that are allowed, the last two on the other way.
#[tokio::test]
async fn the_short_way_enforces_policies_of_unsigned_reads() {
    let rig = rig().await;
    let mut sender = crate::support::connect(rig.s3()).await;
    for (path, status) in [
        ("/open/public/k", 200),
        ("/open/public/k", 200),
        ("/open/k", 403),
        ("/open/public/k", 200),
        ("/mixed/in/k", 403),
        ("/open/public/../k", 403),
        ("/open/public/%2E%2E/k", 403),
    ] {
        let request = crate::support::request(rig.s3(), "GET", path, &[], "");
        let read = reply(sender.send_request(request).await.unwrap()).await;
        assert_eq!(read.status, status, "{path}: {}", read.text());
    }
    assert_eq!(denials(&rig).await, 4);
}

#[tokio::test]
async fn a_writer_stays_below_its_prefix() {
    let rig = rig().await;
    let ask =
        |method: &'static str, path: &'static str| signed(&rig, WRITER, method, path, &[], "x");
    for (method, path, status) in [
        ("PUT", "/mixed/in/new", 200),
        ("DELETE", "/mixed/in/new", 204),
        ("GET", "/mixed/in/k", 200),
        ("PUT", "/mixed/k", 403),
        ("DELETE", "/mixed/k", 403),
        ("GET", "/mixed/k", 403),
        ("GET", "/mixed?prefix=in%2F", 200),
        ("GET", "/mixed?list-type=2&prefix=in", 403),
        ("GET", "/mixed", 403),
        ("GET", "/mixed?uploads", 403),
        ("DELETE", "/mixed", 403),
    ] {
        let reply = ask(method, path).await;
        assert_eq!(is_denied(&reply), status == 403, "{method} {path}");
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
    }
    // Uploads by their id, under a key that is not allowed.
    let begun = ask("POST", "/mixed/in/k?uploads").await;
    let id = begun.tags("UploadId")[0].to_owned();
    for (method, what) in [
        ("PUT", "partNumber=1&"),
        ("POST", ""),
        ("DELETE", ""),
        ("GET", ""),
    ] {
        let path = format!("/mixed/k?{what}uploadId={id}");
        let reply = signed(&rig, WRITER, method, &path, &[], "").await;
        assert!(is_denied(&reply), "{method}: {}", reply.text());
    }
    let path = format!("/mixed/in/k?partNumber=1&uploadId={id}");
    assert_eq!(
        signed(&rig, WRITER, "PUT", &path, &[], "x").await.status,
        200
    );
    // Copies.
    for (target, source, status) in [
        ("/mixed/in/copy", "/mixed/in/k", 200),
        ("/mixed/in/copy", "/mixed/k", 403),
        ("/mixed/in/copy", "/other/k", 403),
        ("/mixed/copy", "/mixed/in/k", 403),
        (&*path, "/other/k", 403),
    ] {
        let header = [("x-amz-copy-source", source)];
        let copy = signed(&rig, WRITER, "PUT", target, &header, "").await;
        assert_eq!(copy.status, status, "{target} {source}: {}", copy.text());
    }
    assert!(rig.origin.bytes("mixed", "copy").is_none());
}

#[tokio::test]
async fn a_deletion_of_many_is_allowed_whole_or_refused_whole() {
    let rig = rig().await;
    let delete = |keys: &[&str]| {
        let objects = keys
            .iter()
            .map(|key| format!("<Object><Key>{key}</Key></Object>"));
        let document = format!("<Delete>{}</Delete>", objects.collect::<String>());
        let rig = &rig;
        async move { signed(rig, WRITER, "POST", "/mixed?delete", &[], &document).await }
    };
    rig.origin.store("mixed", "in/more", "x");
    assert!(is_denied(&delete(&["in/k", "seen/k"]).await));
    assert!(rig.origin.bytes("mixed", "in/k").is_some());
    let deleted = delete(&["in/k", "in/more"]).await;
    assert_eq!(
        deleted.tags("Key"),
        ["in/k", "in/more"],
        "{}",
        deleted.text()
    );
    assert!(rig.origin.bytes("mixed", "in/k").is_none());
}

#[tokio::test]
async fn buckets_are_listed_to_keys_that_may_use_them() {
    let rig = rig().await;
    for (key, names) in [
        (READER, &["open"][..]),
        (WRITER, &["mixed"]),
        (FREE, &["mixed", "open", "other"]),
    ] {
        let listed = signed(&rig, key, "GET", "/", &[], "").await;
        assert_eq!(listed.tags("Name"), names, "{}", listed.text());
    }
}

#[tokio::test]
async fn a_reload_replaces_policies_with_keys() {
    let rig = rig().await;
    let mut config = ServerConfig {
        s3: Some(S3Config {
            listen: rig.s3(),
            anonymous: floe_server::Anonymous::Served,
            ..S3Config::default()
        }),
        ..ServerConfig::default()
    };
    give(&mut config);
    assert!(is_denied(
        &signed(&rig, READER, "GET", "/other/k", &[], "").await
    ));
    let s3 = config.s3.as_mut().unwrap();
    s3.policies[0].buckets = vec!["other".into()];
    s3.keys.retain(|key| key.access_key != WRITER.0);
    s3.policies.remove(1);
    let taken = rig.server.reload(&config).unwrap();
    assert!(taken.contains(&"s3.policies") && taken.contains(&"s3.keys"));
    assert_eq!(
        signed(&rig, READER, "GET", "/other/k", &[], "")
            .await
            .status,
        200
    );
    assert!(is_denied(
        &signed(&rig, READER, "GET", "/open/k", &[], "").await
    ));
    let gone = signed(&rig, WRITER, "GET", "/mixed/in/k", &[], "").await;
    assert_eq!(gone.code(), "InvalidAccessKeyId");
    // The listener goes on to serve unsigned requests, which lose their rights.
    let unsigned = async || rig.send("GET", "/open/public/k", &[], "").await;
    assert_eq!(unsigned().await.status, 200);
    let s3 = config.s3.as_mut().unwrap();
    s3.anonymous = floe_server::Anonymous::Rejected;
    s3.policies.pop();
    rig.server.reload(&config).unwrap();
    assert!(is_denied(&unsigned().await));
}
