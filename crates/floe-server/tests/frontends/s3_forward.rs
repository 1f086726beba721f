//! Requests that an origin of S3 answers itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use floe::object::{Consistency, ObjectConfig};
use floe::origin::{
    Backend, BucketInfo, ForwardAnswer, ForwardBody, ForwardHead, GetRequest, ObjectKey,
    ObjectMeta, Origin, OriginError, OriginKeys, OriginRead, PayloadHash, RequestConfig, Signing,
};
use floe_device::Clock;
use floe_server::{AccessKey, Anonymous, KeyAccess, KeyPolicy, S3Config, ServerConfig};
use futures::StreamExt;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use crate::s3_access_log::Logged;
use crate::support::origin::forwarded_bytes;
use crate::support::signer::{Payload, Signer};
use crate::support::{
    ACCESS_KEY, MemoryOrigin, Reply, Rig, pattern, request, rig_of, rig_on, send,
};

/// Records what is forwarded, and answers with its length.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) objects: Arc<MemoryOrigin>,
    pub(crate) seen: Mutex<Vec<(ForwardHead, Bytes)>>,
    has_map: bool,
}

#[async_trait]
impl Backend for Recorder {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        self.objects.get(key, request).await
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        self.objects.head(key, request).await
    }

    fn forwards(&self, bucket: Option<&str>) -> bool {
        bucket.is_some() || !self.has_map
    }

    async fn list_buckets(&self) -> Result<Vec<BucketInfo>, OriginError> {
        self.objects.list_buckets().await
    }

    async fn forward(
        &self,
        head: ForwardHead,
        body: Option<ForwardBody>,
    ) -> Result<ForwardAnswer, OriginError> {
        let bytes = forwarded_bytes(body).await?;
        let answer = bytes.len().to_string();
        self.seen.lock().push((head, bytes));
        let mut headers = HeaderMap::new();
        headers.insert("x-own", "1".parse().unwrap());
        headers.insert("server", "Origin".parse().unwrap());
        Ok(ForwardAnswer {
            status: StatusCode::ACCEPTED,
            headers,
            body: futures::stream::once(async { Ok(answer.into()) }).boxed(),
        })
    }
}

pub(crate) fn recorded_origin() -> (Origin, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let backend: Arc<dyn Backend> = recorder.clone();
    let origin = Origin::from_backend(backend, RequestConfig::default(), Clock::real());
    (origin.unwrap(), recorder)
}

struct Setup {
    rig: Rig,
    recorder: Arc<Recorder>,
}

async fn setup(has_map: bool) -> Setup {
    setup_with(has_map, |_| {}).await
}

async fn setup_with(has_map: bool, change: impl FnOnce(&mut ServerConfig)) -> Setup {
    let recorder = Arc::new(Recorder {
        has_map,
        ..Recorder::default()
    });
    let clock = Clock::real();
    let backend: Arc<dyn Backend> = recorder.clone();
    let origin = Origin::from_backend(backend, RequestConfig::default(), clock.clone()).unwrap();
    let rig = rig_on(origin, Arc::clone(&recorder.objects), clock, change).await;
    Setup { rig, recorder }
}

impl Setup {
    async fn signed(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        payload: Payload,
    ) -> Reply {
        let host = self.rig.s3().to_string();
        let signer = Signer::known();
        let request = signer.sign(method, &host, path, headers, body, payload);
        send(self.rig.s3(), request).await
    }

    fn last(&self) -> (ForwardHead, Bytes) {
        self.recorder.seen.lock().pop().unwrap()
    }

    fn has_seen(&self) -> bool {
        !self.recorder.seen.lock().is_empty()
    }
}

#[tokio::test]
async fn requests_arrive_without_the_clients_signature() {
    let setup = setup(false).await;
    let headers = [
        ("x-amz-acl", "private"),
        ("content-type", "text/x"),
        ("x-forwarded-for", "1.2.3.4"),
        ("cookie", "a=b"),
    ];
    let path = "/bucket/a/b%2Bc//?tagging&x-id=Put";
    let put = setup
        .signed("PUT", path, &headers, b"bytes", Payload::Signed)
        .await;
    assert_eq!((put.status, put.text()), (202, "5"), "{}", put.text());
    assert_eq!((put.header("x-own"), put.header("server")), ("1", "Origin"));
    let (head, body) = setup.last();
    assert_eq!(body, "bytes");
    assert_eq!(head.bucket.as_deref(), Some("bucket"));
    assert_eq!(head.key.as_deref(), Some("a/b+c//"));
    assert_eq!(head.query.as_deref(), Some("tagging&x-id=Put"));
    assert!(matches!(head.payload, PayloadHash::Sha256(hash) if hash.len() == 64));
    let mut names: Vec<&str> = head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "x-amz-acl"]);

    // Headers in a presigned URL are headers again.
    let host = setup.rig.s3().to_string();
    let url = Signer::known().presign("PUT", &host, "/bucket/k?x-amz-acl=private&y=1", 60);
    let put = setup.rig.send("PUT", &url, &[], "abc").await;
    assert_eq!(put.status, 202, "{}", put.text());
    let (head, body) = setup.last();
    assert_eq!(body, "abc");
    assert_eq!(head.query.as_deref(), Some("y=1"));
    assert_eq!(head.headers["x-amz-acl"], "private");
    assert_eq!(head.payload, PayloadHash::Unsigned);
}

#[tokio::test]
async fn preflights_need_no_credentials() {
    let change = |config: &mut ServerConfig| {
        config.s3.as_mut().unwrap().anonymous = Anonymous::Rejected;
    };
    let setup = setup_with(false, change).await;
    let host = setup.rig.s3().to_string();
    let url = Signer::known().presign("PUT", &host, "/bucket/k?y=1", 60);
    let origin = ("origin", "https://example.org");
    let method = ("access-control-request-method", "PUT");
    let reply = setup.rig.send("OPTIONS", &url, &[origin, method], "").await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let (head, body) = setup.last();
    assert_eq!((head.method.as_str(), body.len()), ("OPTIONS", 0));
    assert_eq!(head.key.as_deref(), Some("k"));
    assert_eq!(head.query.as_deref(), Some("y=1"));
    assert_eq!(head.headers["origin"], origin.1);
    // Others do, and a preflight has no body.
    for (headers, body) in [
        (&[origin][..], ""),
        (&[method], ""),
        (&[origin, method], "body"),
    ] {
        let reply = setup.rig.send("OPTIONS", "/bucket/k", headers, body).await;
        assert_eq!(reply.status, 403, "{}", reply.text());
    }
    let reply = setup
        .rig
        .send("GET", "/bucket/k", &[origin, method], "")
        .await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert!(!setup.has_seen());
}

#[tokio::test]
async fn a_signed_date_is_the_time_of_a_signature() {
    let setup = setup(false).await;
    let host = setup.rig.s3().to_string();
    let mut signer = Signer::known();
    for (age, zone, status) in [(0, "GMT", 202), (0, "-0000", 202), (3600, "GMT", 403)] {
        signer.time -= Duration::from_secs(age);
        let date = httpdate::fmt_http_date(signer.time).replace("GMT", zone);
        let headers = [("date", &*date)];
        let put = signer.sign(
            "PUT",
            &host,
            "/bucket/k",
            &headers,
            b"bytes",
            Payload::Signed,
        );
        let put = send(setup.rig.s3(), put).await;
        assert_eq!(put.status, status, "{}", put.text());
    }
}

#[tokio::test]
async fn what_is_forwarded_is_what_was_verified() {
    let setup = setup(false).await;
    let host = setup.rig.s3().to_string();
    // A body that another took away, or lengthened.
    for body in [&b""[..], b"bytesmore"] {
        let request =
            Signer::known().sign("PUT", &host, "/bucket/k", &[], b"bytes", Payload::Signed);
        let (mut head, _) = request.into_parts();
        head.headers.remove("content-length");
        let body = Bytes::copy_from_slice(body);
        let request = http::Request::from_parts(head, http_body_util::Full::new(body));
        let reply = send(setup.rig.s3(), request).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(!setup.has_seen());
    }
    // A body without frames whose client names their coding, as its own hash proves.
    let coded = [("content-encoding", "gzip, aws-chunked")];
    let request =
        Signer::known().sign("PUT", &host, "/bucket/k", &coded, b"bytes", Payload::Signed);
    let put = send(setup.rig.s3(), request).await;
    assert_eq!(put.status, 202, "{}", put.text());
    let (head, body) = setup.last();
    assert_eq!(body, "bytes");
    assert_eq!(head.headers["content-encoding"], "gzip");
    // Chunks signed with the client's key reach the origin as plain bytes, or not at all.
    let bytes = pattern(3, 200_000);
    let put = setup
        .signed("PUT", "/bucket/k", &[], &bytes, Payload::Streamed(64 << 10))
        .await;
    assert_eq!(put.status, 202, "{}", put.text());
    let (head, body) = setup.last();
    assert!(body == bytes && head.payload == PayloadHash::Unsigned);
    assert!(!head.headers.contains_key("content-encoding"));
    // A checksum that follows the bytes still follows them.
    let put = setup
        .signed(
            "PUT",
            "/bucket/k",
            &[],
            b"bytes",
            Payload::Trailer("AAAAAA=="),
        )
        .await;
    assert_eq!(put.status, 202, "{}", put.text());
    let (head, body) = setup.last();
    assert_eq!(
        body,
        "5\r\nbytes\r\n0\r\nx-amz-checksum-crc32c:AAAAAA==\r\n\r\n"
    );
    assert_eq!(head.payload, PayloadHash::UnsignedTrailer);
    assert_eq!(head.headers["content-encoding"], "aws-chunked");
    assert_eq!(head.headers["x-amz-decoded-content-length"], "5");
}

#[tokio::test]
async fn extensions_and_other_interfaces_of_servers_are_kept_from_clients() {
    let setup = setup(false).await;
    let none: &[(&str, &str)] = &[];
    for (method, path, headers, status) in [
        (
            "DELETE",
            "/bucket/k",
            &[("x-minio-force-delete", "true")][..],
            501,
        ),
        (
            "PUT",
            "/bucket/k",
            &[("x-amz-meta-snowball-auto-extract", "true")],
            501,
        ),
        ("POST", "/?Action=CreateUser", none, 405),
        ("POST", "/bucket/x?delete", none, 405),
        ("DELETE", "/bucket/.", none, 400),
        ("PUT", "/bucket/../other/k", none, 400),
        ("PUT", "/bucket/k", &[("connection", "x-amz-date")], 400),
        ("TRACE", "/bucket/k", none, 405),
        ("post", "/bucket?delete", none, 405),
    ] {
        let reply = setup
            .signed(method, path, headers, b"", Payload::Signed)
            .await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
        assert!(!setup.has_seen(), "{method} {path}");
    }
    let mapped = self::setup(true).await;
    for path in [
        "/bucket?logging",
        "/bucket/a/../hidden/k",
        "/bucket/k?restore",
    ] {
        let reply = mapped
            .signed("PUT", path, &[], b"<x/>", Payload::Signed)
            .await;
        assert_eq!(reply.status, 403, "{path}: {}", reply.text());
        assert!(!mapped.has_seen(), "{path}");
    }
}

#[tokio::test]
async fn unsigned_requests_have_the_rights_of_nobody() {
    let setup = setup(false).await;
    for (method, path, headers) in [
        ("DELETE", "/bucket", ("accept", "*/*")),
        ("PUT", "/bucket", ("accept", "*/*")),
        ("DELETE", "/bucket/k?versionId=1", ("accept", "*/*")),
        ("GET", "/bucket?policy", ("accept", "*/*")),
        ("GET", "/bucket?versions", ("accept", "*/*")),
        (
            "GET",
            "/bucket/k?response-content-type=text/html",
            ("origin", "x"),
        ),
        ("PUT", "/bucket/k", ("x-amz-acl", "public-read")),
        ("PUT", "/bucket/k", ("x-amz-object-lock-mode", "COMPLIANCE")),
        (
            "DELETE",
            "/bucket/k",
            ("x-amz-bypass-governance-retention", "true"),
        ),
    ] {
        let reply = setup.rig.send(method, path, &[headers], "").await;
        let what = format!("{method} {path} {headers:?}: {}", reply.text());
        // The cache itself refuses the parameters of reads.
        assert!(matches!(reply.status, 400 | 403), "{what}");
        assert!(!setup.has_seen(), "{what}");
    }
    for (method, path) in [
        ("GET", "/bucket?list-type=2&prefix=a"),
        ("PUT", "/bucket/k"),
        ("POST", "/bucket/k?uploads"),
        ("DELETE", "/bucket/k"),
    ] {
        let reply = setup.rig.send(method, path, &[], "").await;
        assert_eq!(reply.status, 202, "{method} {path}: {}", reply.text());
        setup.last();
    }
}

/// In mode `etag`.
#[tokio::test]
async fn requests_to_the_origin_are_counted_by_reason() {
    let setup = setup(false).await;
    setup.recorder.objects.store("bucket", "k", "bytes");
    for (method, path) in [
        ("GET", "/bucket/k"),
        ("GET", "/bucket/k"),
        ("GET", "/bucket/k"),
        ("HEAD", "/bucket/k"),
        ("PUT", "/bucket/k"),
        ("GET", "/bucket?prefix=a"),
    ] {
        setup.rig.send(method, path, &[], "").await;
    }
    let page = request(setup.rig.admin(), "GET", "/metrics", &[], "");
    let page = send(setup.rig.admin(), page).await;
    let requests = |reason: &str| -> f64 {
        let lines = page.text().lines();
        let lines = lines.filter(|line| line.starts_with("floe_origin_requests_total{"));
        let own = lines.filter(|line| line.contains(&format!("reason=\"{reason}\"")));
        own.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    };
    let reasons = ["validation", "fetch", "forward", "write", "list"];
    assert_eq!(reasons.map(requests), [2.0, 1.0, 3.0, 0.0, 0.0]);
}

#[tokio::test]
async fn the_access_log_tells_answers_of_the_origin() {
    let logged = Logged::new();
    let setup = setup_with(false, |config| logged.give(config)).await;
    setup.recorder.objects.store("bucket", "k", "bytes");
    for (method, path) in [
        ("GET", "/bucket/k"),
        ("PUT", "/bucket/k"),
        ("GET", "/bucket/missing"),
    ] {
        setup.rig.send(method, path, &[], "").await;
    }
    let lines = logged.lines(setup.rig).await;
    let found: Vec<_> = lines.iter().map(|line| &line["cache"]).collect();
    assert_eq!(found, ["miss", "forwarded", "forwarded"], "{lines:?}");
}

/// Method, path, headers and body of a request, and the status of its answer.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, u16);

/// A key that writes below `in/` of `mixed`, and reads `open`.
fn restrict(config: &mut ServerConfig) {
    let s3 = config.s3.as_mut().unwrap();
    s3.keys
        .push(AccessKey::new("FREE", "a secret without policy"));
    let policy = |bucket: &str, prefixes: &[&str], access| KeyPolicy {
        key: ACCESS_KEY.into(),
        buckets: vec![bucket.into()],
        prefixes: prefixes.iter().map(|&prefix| prefix.into()).collect(),
        access,
    };
    s3.policies = vec![
        policy("mixed", &["in/"], KeyAccess::Write),
        policy("open", &[], KeyAccess::Read),
    ];
}

fn theirs(secret: &str) -> OriginKeys {
    OriginKeys {
        access_key: "THEIRS".into(),
        secret_key: secret.into(),
    }
}

#[tokio::test]
async fn a_key_may_have_keys_of_its_own_at_the_origin() {
    let setup = setup_with(false, |config| {
        restrict(config);
        config.s3.as_mut().unwrap().keys[0].origin = Some(theirs("a secret at the origin"));
    })
    .await;
    let origin = setup.rig.s3().to_string();
    let free = Signer::new("FREE", "a secret without policy");
    for (signer, expected) in [(Signer::known(), Some("THEIRS")), (free, None)] {
        let request = signer.sign("PUT", &origin, "/mixed/in/k", &[], b"x", Payload::Signed);
        let put = send(setup.rig.s3(), request).await;
        assert_eq!(put.status, 202, "{}", put.text());
        let found = match setup.last().0.signing {
            Signing::Keys(keys) => Some(keys.access_key.clone()),
            Signing::Origin => None,
            Signing::Client(target) => panic!("{target:?}"),
        };
        assert_eq!(found.as_deref(), expected);
    }
    let mut config = ServerConfig {
        s3: Some(S3Config {
            keys: vec![AccessKey::new("KEY", "long enough")],
            ..S3Config::default()
        }),
        ..ServerConfig::default()
    };
    for (secret, problem) in [("", "half of its keys"), ("long enough", "no policy")] {
        config.s3.as_mut().unwrap().keys[0].origin = Some(theirs(secret));
        let refused = config.validate().unwrap_err().to_string();
        assert!(refused.contains(problem), "{refused}");
    }
}

#[tokio::test]
async fn policies_hold_for_requests_that_are_sent_on() {
    let setup = setup_with(false, restrict).await;
    for (bucket, key) in [
        ("mixed", "in/k"),
        ("mixed", "k"),
        ("open", "k"),
        ("other", "k"),
    ] {
        setup.recorder.objects.store(bucket, key, "bytes");
    }
    let document = |keys: &[&str]| {
        let objects = keys
            .iter()
            .map(|key| format!("<Object><Key>{key}</Key></Object>"));
        format!("<Delete>{}</Delete>", objects.collect::<String>())
    };
    let (all, some) = (document(&["in/a", "in/b"]), document(&["in/a", "b"]));
    let none: &[(&str, &str)] = &[];
    let cases: [Case<'_>; 24] = [
        ("GET", "/mixed/in/k", none, "", 200),
        ("GET", "/mixed/k", none, "", 403),
        ("GET", "/mixed/in/k?versionId=1", none, "", 202),
        ("GET", "/mixed/k?versionId=1", none, "", 403),
        ("HEAD", "/mixed/k", none, "", 403),
        ("GET", "/mixed/in/../k", none, "", 403),
        ("GET", "/open/../other/k", none, "", 403),
        ("PUT", "/mixed/in/k", none, "x", 202),
        ("PUT", "/mixed/k", none, "x", 403),
        ("PUT", "/open/k", none, "x", 403),
        ("PUT", "/mixed/in/k?tagging", none, "<x/>", 202),
        ("PUT", "/mixed/in/k?compose", none, "<x/>", 403),
        (
            "PUT",
            "/mixed/in/c",
            &[("x-amz-copy-source", "/open/k")],
            "",
            202,
        ),
        (
            "PUT",
            "/mixed/in/c",
            &[("x-amz-copy-source", "/other/k")],
            "",
            403,
        ),
        (
            "PUT",
            "/mixed/in/c",
            &[("x-amz-rename-source", "in/k")],
            "",
            202,
        ),
        (
            "PUT",
            "/mixed/in/c",
            &[("x-amz-rename-source", "k")],
            "",
            403,
        ),
        ("POST", "/mixed?delete", none, &all, 202),
        ("POST", "/mixed?delete", none, &some, 403),
        ("GET", "/mixed?prefix=in%2F", none, "", 202),
        ("GET", "/mixed?prefix=", none, "", 403),
        ("GET", "/mixed?acl", none, "", 403),
        ("PUT", "/mixed", none, "", 403),
        ("DELETE", "/open", none, "", 403),
        ("POST", "/mixed/k?uploadId=1", none, "<x/>", 403),
    ];
    for (method, path, headers, body, status) in cases {
        let body = body.as_bytes();
        let reply = setup
            .signed(method, path, headers, body, Payload::Signed)
            .await;
        assert_eq!(
            reply.status,
            status,
            "{method} {path} {headers:?}: {}",
            reply.text()
        );
        assert!(status != 403 || method == "HEAD" || reply.code() == "AccessDenied");
        assert_eq!(setup.has_seen(), status == 202, "{method} {path}");
        setup.recorder.seen.lock().clear();
    }
    // A header in the URL.
    let host = setup.rig.s3().to_string();
    for (source, status) in [("%2Fopen%2Fk", 202), ("%2Fother%2Fk", 403)] {
        let path = format!("/mixed/in/c?x-amz-copy-source={source}");
        let url = Signer::known().presign("PUT", &host, &path, 60);
        let copy = setup.rig.send("PUT", &url, &[], "").await;
        assert_eq!(copy.status, status, "{}", copy.text());
        assert_eq!(setup.has_seen(), status == 202, "{source}");
        setup.recorder.seen.lock().clear();
    }
    // The buckets are Floe's to list.
    let listed = setup.signed("GET", "/", none, b"", Payload::Signed).await;
    assert_eq!(listed.tags("Name"), ["mixed", "open"], "{}", listed.text());
    let signer = Signer::new("FREE", "a secret without policy");
    let request = signer.sign("GET", &host, "/", &[], b"", Payload::Signed);
    let listed = send(setup.rig.s3(), request).await;
    assert_eq!(listed.tags("Name"), ["mixed", "open", "other"]);
    assert!(!setup.has_seen());
}

/// In a mode in which nothing but the change itself tells the cache.
#[tokio::test]
async fn forwarded_changes_are_read_at_once() {
    let recorder = Arc::new(Recorder::default());
    let clock = Clock::real();
    let backend: Arc<dyn Backend> = recorder.clone();
    let origin = Origin::from_backend(backend, RequestConfig::default(), clock.clone()).unwrap();
    let config = ObjectConfig {
        consistency: Consistency::Immutable,
        ..ObjectConfig::default()
    };
    let rig = rig_of(origin, Arc::clone(&recorder.objects), clock, config, |_| {}).await;
    let delete = "<Delete><Object><Key>k</Key></Object></Delete>";
    let part = "/bucket/k?partNumber=1&uploadId=u";
    let changes = [
        ("PUT", "/bucket/k", "x", true),
        ("PUT", "/bucket/k?uploads", "x", true),
        ("PUT", "/bucket//k", "x", true),
        ("PUT", "/bucket/a/../k", "x", true),
        ("PUT", "/bucket/%6b", "x", true),
        ("DELETE", "/bucket/k", "", true),
        ("POST", "/bucket/k?uploadId=u", "<x/>", true),
        ("POST", "/bucket?delete", delete, true),
        ("POST", "/bucket?x-id=1&%64elete", delete, true),
        ("PUT", part, "x", false),
        ("POST", "/bucket/k?uploads", "", false),
    ];
    for (index, (method, path, body, changes)) in changes.into_iter().enumerate() {
        recorder
            .objects
            .store("bucket", "k", format!("old {index}"));
        rig.send("PUT", "/bucket/k", &[], "reset").await;
        let old = rig.get("/bucket/k", &[]).await.text().to_owned();
        assert_eq!(old, format!("old {index}"));
        recorder
            .objects
            .store("bucket", "k", format!("new {index}"));
        assert_eq!(
            rig.get("/bucket/k", &[]).await.text(),
            old,
            "it is not cached"
        );
        let reply = rig.send(method, path, &[], body).await;
        assert_eq!(reply.status, 202, "{method} {path}: {}", reply.text());
        let read = rig.get("/bucket/k", &[]).await;
        let expected = if changes { format!("new {index}") } else { old };
        assert_eq!(read.text(), expected, "{method} {path}");
    }
}
