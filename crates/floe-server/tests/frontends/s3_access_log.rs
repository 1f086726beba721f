//! The access log, on both ways of a request.

use std::fs;
use std::path::PathBuf;

use floe::object::{Consistency, ObjectConfig};
use floe::origin::{OriginKind, Secret};
use floe::{Origin, OriginConfig};
use floe_device::Clock;
use floe_server::ServerConfig;
use serde_json::Value;

use crate::support::signer::{Payload, Signer};
use crate::support::{ACCESS_KEY, Rig, SECRET_KEY, rig_of, rig_with, send};

pub(crate) struct Logged {
    folder: tempfile::TempDir,
}

impl Logged {
    pub(crate) fn new() -> Self {
        Logged {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    pub(crate) fn give(&self, config: &mut ServerConfig) {
        let s3 = config.s3.as_mut().unwrap();
        s3.access_log = self.path();
        // Lines of several threads have no order.
        s3.threads = 1;
    }

    /// A server with this log, and one object.
    async fn rig(&self, key: &str) -> Rig {
        let rig = rig_with(|config| self.give(config)).await;
        rig.origin.store("bucket", key, "bytes");
        rig
    }

    /// The lines after the server has ended.
    pub(crate) async fn lines(&self, rig: Rig) -> Vec<Value> {
        rig.server.shutdown().await;
        let text = fs::read_to_string(self.path()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }
}

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or("-")
}

/// The same reads by a plain request, and by one that only the HTTP library serves.
#[tokio::test]
async fn reads_have_the_same_lines_on_both_ways() {
    let logged = Logged::new();
    let rig = logged.rig("a b").await;
    let host = rig.s3().to_string();
    let mut ids = Vec::new();
    for query in ["", "?response-content-type=a%2Fb"] {
        for (path, range) in [
            ("a%20b", "bytes=0-9"),
            ("a%20b", "bytes=1-2"),
            ("none", "bytes=0-9"),
        ] {
            let path = format!("/bucket/{path}{query}");
            let headers = [("range", range), ("user-agent", "tester/1")];
            let signed = Signer::known().sign("GET", &host, &path, &headers, b"", Payload::Signed);
            let read = send(rig.s3(), signed).await;
            ids.push(read.header("x-amz-request-id").to_owned());
            rig.stored().await;
        }
    }
    let lines = logged.lines(rig).await;
    let found: Vec<&str> = lines.iter().map(|line| text(line, "request_id")).collect();
    assert_eq!(found, ids);
    for (index, line) in lines.iter().enumerate() {
        let (key, status, sent, cache, error) = match index {
            0 => ("a b", 206, 5, "miss", "-"),
            3 => ("a b", 206, 5, "hit", "-"),
            1 | 4 => ("a b", 206, 2, "hit", "-"),
            _ => ("none", 404, 0, "none", "NoSuchKey"),
        };
        assert_eq!((text(line, "bucket"), text(line, "key")), ("bucket", key));
        assert_eq!(line["status"], status, "{line}");
        assert!(line["sent_bytes"] == sent || error != "-", "{line}");
        assert_eq!((text(line, "cache"), text(line, "error")), (cache, error));
        assert_eq!(text(line, "access_key"), ACCESS_KEY);
        assert_eq!(text(line, "user_agent"), "tester/1");
        assert!(text(line, "client").starts_with("127.0.0.1:"));
    }
}

#[tokio::test]
async fn writes_refusals_and_presigned_urls_have_lines() {
    let logged = Logged::new();
    let rig = logged.rig("k").await;
    let host = rig.s3().to_string();
    rig.send("PUT", "/bucket/new", &[], "12345").await;
    let url = Signer::known().presign("GET", &host, "/bucket/k", 60);
    assert_eq!(rig.get(&url, &[]).await.text(), "bytes");
    let forged = Signer::new(ACCESS_KEY, "another secret").sign(
        "GET",
        &host,
        "/bucket/k",
        &[],
        b"",
        Payload::Signed,
    );
    assert_eq!(send(rig.s3(), forged).await.status, 403);
    rig.send("POST", "/bucket/k?uploads", &[], "").await;
    rig.get("/bucket?prefix=x", &[]).await;
    let secrets = [SECRET_KEY, "X-Amz-Signature", "X-Amz-Credential"];
    let lines = logged.lines(rig).await;
    let [put, presigned, forged, upload, listing] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (text(put, "method"), &put["received_bytes"]),
        ("PUT", &5.into())
    );
    assert_eq!(put["access_key"], Value::Null);
    assert_eq!(text(presigned, "access_key"), ACCESS_KEY);
    assert!(text(presigned, "query").contains("X-Amz-Expires=60"));
    assert!(lines.iter().all(|line| {
        secrets
            .iter()
            .all(|secret| !line.to_string().contains(secret))
    }));
    // The log names no key whose signature is wrong.
    assert_eq!(
        (&forged["access_key"], text(forged, "error")),
        (&Value::Null, "SignatureDoesNotMatch")
    );
    assert_eq!(
        (&forged["status"], text(forged, "cache")),
        (&403.into(), "none")
    );
    assert_eq!(
        (text(upload, "query"), &upload["status"]),
        ("uploads", &200.into())
    );
    assert_eq!(
        (text(listing, "query"), &listing["key"]),
        ("prefix=x", &Value::Null)
    );
    assert!(listing["sent_bytes"].as_u64().unwrap() > 100);
}

/// A server in front of another one, whose log has the ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misses_name_the_request_of_the_s3_origin() {
    let (logged_by_origin, logged) = (Logged::new(), Logged::new());
    let origin = logged_by_origin.rig("plain").await;
    origin.origin.store("bucket", "full", "bytes");
    let config = OriginConfig {
        kind: OriginKind::S3,
        endpoint: Some(format!("http://{}", origin.s3())),
        allow_http: true,
        region: Some("us-east-1".into()),
        access_key: Some(ACCESS_KEY.into()),
        secret_key: Some(Secret::new(SECRET_KEY)),
        ..OriginConfig::default()
    };
    let clock = Clock::real();
    let guarded = Origin::open(&config, clock.clone()).unwrap();
    let immutable = ObjectConfig {
        consistency: Consistency::Immutable,
        ..ObjectConfig::default()
    };
    let give = |config: &mut ServerConfig| logged.give(config);
    let rig = rig_of(guarded, origin.origin.clone(), clock, immutable, give).await;
    let paths = [
        "plain",
        "plain",
        "full?x-id=GetObject",
        "full?x-id=GetObject",
        "none",
    ];
    for path in paths {
        rig.get(&format!("/bucket/{path}"), &[]).await;
        rig.stored().await;
    }
    let lines = logged.lines(rig).await;
    let of_origin = logged_by_origin.lines(origin).await;
    let id_of = |line: &Value| line["request_id"].clone();
    let found: Vec<_> = lines
        .iter()
        .map(|line| (text(line, "cache"), line["origin_request_id"].clone()))
        .collect();
    assert_eq!(
        found,
        [
            ("miss", id_of(&of_origin[0])),
            ("hit", Value::Null),
            ("miss", id_of(&of_origin[1])),
            ("hit", Value::Null),
            ("forwarded", Value::Null),
        ]
    );
    // The origin's own answer has its id.
    assert_eq!(id_of(&lines[4]), id_of(of_origin.last().unwrap()));
}
