//! Requests with the clients' own credentials, which the origin judges.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use floe::object::{Consistency, ObjectConfig};
use floe::origin::{
    Attributes, Backend, ForwardAnswer, ForwardBody, ForwardHead, GetRequest, ObjectKey,
    ObjectMeta, Origin, OriginError, OriginRead, RequestConfig, Signing,
};
use floe_device::Clock;
use floe_server::{AccessKey, Anonymous, S3Config, Server, ServerConfig, SignedBy};
use futures::StreamExt;
use http::header::{ETAG, IF_NONE_MATCH, LAST_MODIFIED, RANGE};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;

use crate::s3_access_log::Logged;
use crate::support::origin::forwarded_bytes;
use crate::support::signer::{Payload, Signer};
use crate::support::{
    ACCESS_KEY, MemoryOrigin, Reply, Rig, SECRET_KEY, loopback, pattern, rig_of, rig_with, send,
};

/// When every object of a [`MemoryOrigin`] was written.
const DATE: &str = "Sun, 13 Sep 2020 12:26:40 GMT";

/// An S3 service that knows one access key, and believes its name.
struct Judge {
    objects: Arc<MemoryOrigin>,
    seen: Mutex<Vec<(ForwardHead, Bytes)>>,
    allowed: Mutex<BTreeSet<String>>,
    /// Floe's own credentials read nothing.
    hides: bool,
}

impl Judge {
    fn accepts(&self, head: &ForwardHead) -> bool {
        let line = head.headers.get("authorization");
        let line = line.and_then(|line| line.to_str().ok());
        let query = head.query.as_deref().unwrap_or_default();
        let scope = line
            .and_then(|line| line.split_once("Credential="))
            .or(query.split_once("X-Amz-Credential="));
        let key = scope.map(|(_, rest)| rest.split(['/', '%']).next().unwrap_or_default());
        key.is_some_and(|key| self.allowed.lock().contains(key))
    }

    async fn read(&self, head: &ForwardHead) -> Result<OriginRead, OriginError> {
        let tag = head.headers.get(IF_NONE_MATCH);
        let range = head.headers.get(RANGE).and_then(|range| {
            let (first, last) = range
                .to_str()
                .ok()?
                .strip_prefix("bytes=")?
                .split_once('-')?;
            Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
        });
        let request = GetRequest {
            range,
            if_none_match: tag.map(|tag| tag.to_str().unwrap().to_owned()),
            ..GetRequest::default()
        };
        let (bucket, key) = (head.bucket.as_deref(), head.key.as_deref());
        let key = ObjectKey::new(bucket.unwrap_or_default(), key.unwrap_or_default());
        self.objects.get(&key, request).await
    }
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> ForwardAnswer {
    let body: Bytes = body.into();
    ForwardAnswer {
        status,
        headers: HeaderMap::from_iter([("x-own".parse().unwrap(), "1".parse().unwrap())]),
        body: futures::stream::once(async { Ok(body) }).boxed(),
    }
}

#[async_trait]
impl Backend for Judge {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        match self.hides {
            true => Err(OriginError::AccessDenied(key.to_string())),
            false => self.objects.get(key, request).await,
        }
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        self.objects.head(key, request).await
    }

    fn forwards(&self, _: Option<&str>) -> bool {
        true
    }

    fn signed_host(&self) -> Result<String, OriginError> {
        Ok("127.0.0.1".into())
    }

    async fn forward(
        &self,
        head: ForwardHead,
        body: Option<ForwardBody>,
    ) -> Result<ForwardAnswer, OriginError> {
        let is_accepted = self.accepts(&head);
        let bytes = forwarded_bytes(body).await?;
        self.seen.lock().push((head.clone(), bytes.clone()));
        if !is_accepted {
            return Ok(answer(
                StatusCode::FORBIDDEN,
                "<Code>SignatureDoesNotMatch</Code>",
            ));
        }
        if head.method == Method::PUT {
            let (bucket, key) = (head.bucket.unwrap(), head.key.unwrap());
            self.objects.store(&bucket, &key, bytes);
            return Ok(answer(StatusCode::OK, ""));
        }
        if head.method != Method::GET || head.key.is_none() {
            return Ok(answer(StatusCode::ACCEPTED, "its own"));
        }
        let (status, read) = match self.read(&head).await {
            Ok(read) if read.range.end - read.range.start < read.meta.size => (206, read),
            Ok(read) => (200, read),
            Err(OriginError::NotModified) => {
                let mut found = answer(StatusCode::NOT_MODIFIED, "");
                found.headers.insert(LAST_MODIFIED, DATE.parse().unwrap());
                return Ok(found);
            }
            Err(_) => return Ok(answer(StatusCode::NOT_FOUND, "<Code>NoSuchKey</Code>")),
        };
        let mut found = answer(StatusCode::from_u16(status).unwrap(), "");
        found.body = read.body;
        found
            .headers
            .insert(ETAG, read.meta.etag.unwrap().parse().unwrap());
        found.headers.insert(LAST_MODIFIED, DATE.parse().unwrap());
        Ok(found)
    }
}

struct Setup {
    rig: Rig,
    judge: Arc<Judge>,
}

fn with_clients(config: &mut ServerConfig) {
    let s3 = config.s3.as_mut().unwrap();
    s3.credentials = SignedBy::Client;
    s3.anonymous = Anonymous::Rejected;
    s3.keys.clear();
}

async fn setup_of(
    hides: bool,
    config: ObjectConfig,
    change: impl FnOnce(&mut ServerConfig),
) -> Setup {
    let judge = Arc::new(Judge {
        objects: Arc::default(),
        seen: Mutex::default(),
        allowed: Mutex::new(BTreeSet::from([ACCESS_KEY.to_owned()])),
        hides,
    });
    let backend: Arc<dyn Backend> = judge.clone();
    let clock = Clock::real();
    let origin = Origin::from_backend(backend, RequestConfig::default(), clock.clone()).unwrap();
    let objects = Arc::clone(&judge.objects);
    let rig = rig_of(origin, objects, clock, config, |config| {
        with_clients(config);
        change(config);
    });
    Setup {
        rig: rig.await,
        judge,
    }
}

async fn setup_with(change: impl FnOnce(&mut ServerConfig)) -> Setup {
    setup_of(false, ObjectConfig::default(), change).await
}

async fn setup() -> Setup {
    setup_with(|_| {}).await
}

impl Setup {
    fn host(&self) -> String {
        self.rig.s3().to_string()
    }

    async fn signed(&self, signer: &Signer, method: &str, path: &str, body: &[u8]) -> Reply {
        let request = signer.sign(method, &self.host(), path, &[], body, Payload::Signed);
        send(self.rig.s3(), request).await
    }

    async fn read(&self, path: &str) -> Reply {
        self.signed(&Signer::known(), "GET", path, b"").await
    }

    /// The requests that reached the origin since the last call.
    fn seen(&self) -> Vec<(ForwardHead, Bytes)> {
        std::mem::take(&mut *self.judge.seen.lock())
    }
}

fn outcome(reply: &Reply) -> (u16, &str) {
    (reply.status, reply.header("x-floe-cache"))
}

#[tokio::test]
async fn requests_reach_the_origin_as_their_clients_signed_them() {
    let setup = setup().await;
    let signer = Signer::known();
    let headers = [
        ("x-amz-acl", "private"),
        ("content-type", "text/x"),
        ("referer", "http://a.example"),
    ];
    let path = "/bucket/a/b%2Bc//d+e?tagging&x-id=Put";
    let bytes = pattern(3, 100_000);
    let streamed = Payload::Streamed(64 << 10);
    let request = signer.sign("PUT", &setup.host(), path, &headers, &bytes, streamed);
    let (sent, body) = request.into_parts();
    let framed = http_body_util::BodyExt::collect(body.clone())
        .await
        .unwrap()
        .to_bytes();
    let put = send(
        setup.rig.s3(),
        http::Request::from_parts(sent.clone(), body),
    )
    .await;
    assert_eq!(
        (put.status, put.header("x-own")),
        (200, "1"),
        "{}",
        put.text()
    );
    let (head, received) = setup.seen().pop().unwrap();
    assert!(
        received == framed,
        "the signed chunks are not those that were sent"
    );
    let Signing::Client(target) = &head.signing else {
        panic!("signed by another: {:?}", head.signing);
    };
    assert_eq!(
        (&*target.host, &*target.path_and_query),
        (&*setup.host(), path)
    );
    for name in sent.headers.keys().filter(|name| *name != "host") {
        assert_eq!(head.headers.get(name), sent.headers.get(name), "{name}");
    }
    let shown = format!("{head:?}");
    assert!(
        !shown.contains("Signature") && !shown.contains(ACCESS_KEY),
        "{shown}"
    );
    // The origin itself answers every request other than the read of an object.
    for (method, path) in [
        ("HEAD", "/bucket/k"),
        ("GET", "/"),
        ("GET", "/bucket?list-type=2"),
    ] {
        let reply = setup.signed(&signer, method, path, b"").await;
        assert_eq!(
            (reply.status, reply.header("x-own")),
            (202, "1"),
            "{method} {path}"
        );
        assert_eq!(setup.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_cached_object_goes_to_those_whom_the_origin_accepts() {
    let setup = setup().await;
    let bytes = pattern(1, 300_000);
    setup.judge.objects.store("bucket", "k", bytes.clone());
    let first = setup.read("/bucket/k").await;
    assert_eq!(outcome(&first), (200, "miss"));
    assert!(first.body == bytes);
    let (head, _) = setup.seen().pop().unwrap();
    assert!(!head.headers.contains_key(IF_NONE_MATCH));
    let mut signer = Signer::known();
    // Another time than that of the first read, even if a second has passed since.
    signer.time -= std::time::Duration::from_secs(100);
    setup.rig.stored().await;
    let again = setup.signed(&signer, "GET", "/bucket/k", b"").await;
    assert_eq!(outcome(&again), (200, "hit"));
    assert!(again.body == bytes);
    let (head, _) = setup.seen().pop().unwrap();
    assert!(head.headers.contains_key(IF_NONE_MATCH));
    // A range comes from the cache, too, and answers as a part.
    let headers = [("range", "bytes=100-199")];
    let host = setup.host();
    let part = signer.sign("GET", &host, "/bucket/k", &headers, b"", Payload::Signed);
    let part = send(setup.rig.s3(), part).await;
    assert_eq!(outcome(&part), (206, "hit"));
    assert!(part.body == bytes.slice(100..200));
    assert_eq!(part.header("content-range"), "bytes 100-199/300000");
    setup.seen();
    // One whom the origin does not know gets the origin's refusal.
    let stranger = Signer::new("STRANGER", SECRET_KEY);
    let refused = setup.signed(&stranger, "GET", "/bucket/k", b"").await;
    assert_eq!((refused.status, refused.header("x-own")), (403, "1"));
    let unsigned = setup.rig.get("/bucket/k", &[]).await;
    assert_eq!(unsigned.status, 403);
    assert_eq!(
        setup.seen().len(),
        1,
        "an unsigned request reached the origin"
    );
    // Nor does one whose rights have ended.
    setup.judge.allowed.lock().clear();
    signer.time -= std::time::Duration::from_secs(1);
    let refused = setup.signed(&signer, "GET", "/bucket/k", b"").await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn an_acceptance_is_for_one_request_and_one_version() {
    let setup = setup().await;
    setup.judge.objects.store("bucket", "k", "one");
    let url = Signer::known().presign("GET", &setup.host(), "/bucket/k", 60);
    for (seen, results) in [
        (1, ["miss"; 2]),
        (0, ["joined", "hit"]),
        (0, ["joined", "hit"]),
    ] {
        let reply = setup.rig.get(&url, &[]).await;
        assert_eq!((reply.status, reply.text()), (200, "one"));
        // The bytes may still be on their way into the cache.
        assert!(results.contains(&outcome(&reply).1));
        assert_eq!(setup.seen().len(), seen);
        setup.rig.stored().await;
    }
    // Another header is another request.
    let reply = setup.rig.get(&url, &[("referer", "x")]).await;
    assert_eq!((reply.text(), setup.seen().len()), ("one", 1));
    // A URL with another signature is another request.
    let reply = setup.rig.get(&format!("{url}0"), &[]).await;
    assert_ne!(reply.status, 200);
    setup.seen();
    // The object is another one, and the right to it has ended.
    setup.judge.allowed.lock().clear();
    setup.judge.objects.store("bucket", "k", "two");
    let reply = setup.rig.get(&url, &[]).await;
    assert_eq!(
        (reply.status, setup.seen().len()),
        (403, 1),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn an_acceptance_ends_with_the_signature_or_the_setting() {
    for (ttl, expires, age) in [(0, 60, 0), (60, 60, 61)] {
        let change = |config: &mut ServerConfig| {
            config.s3.as_mut().unwrap().client_credentials_ttl_seconds = ttl;
        };
        let setup = setup_with(change).await;
        setup.judge.objects.store("bucket", "k", "one");
        let mut signer = Signer::known();
        signer.time -= std::time::Duration::from_secs(age);
        let url = signer.presign("GET", &setup.host(), "/bucket/k", expires);
        for _ in 0..2 {
            assert_eq!(setup.rig.get(&url, &[]).await.text(), "one");
            assert_eq!(setup.seen().len(), 1, "ttl {ttl}, age {age}");
        }
    }
}

/// The right to decrypt is the origin's to judge, by an answer with the bytes.
#[tokio::test]
async fn objects_under_a_key_of_the_origins_are_not_confirmed_without_their_bytes() {
    let setup = setup().await;
    for (scheme, is_confirmed) in [("AES256", true), ("aws:kms", false)] {
        let attributes = Attributes {
            headers: vec![("x-amz-server-side-encryption".into(), scheme.into())],
            ..Attributes::default()
        };
        let objects = &setup.judge.objects;
        objects.store_with("bucket", scheme, "secret".into(), attributes);
        let mut signer = Signer::known();
        for _ in 0..2 {
            let path = format!("/bucket/{scheme}");
            let reply = setup.signed(&signer, "GET", &path, b"").await;
            assert_eq!((reply.status, reply.text()), (200, "secret"));
            signer.time -= std::time::Duration::from_secs(1);
        }
        let (head, _) = setup.seen().pop().unwrap();
        assert_eq!(
            head.headers.contains_key(IF_NONE_MATCH),
            is_confirmed,
            "{scheme}"
        );
    }
}

#[tokio::test]
async fn what_floe_itself_may_not_read_comes_from_the_origin() {
    let setup = setup_of(true, ObjectConfig::default(), |_| {}).await;
    setup.judge.objects.store("bucket", "k", "one");
    for _ in 0..2 {
        let reply = setup.read("/bucket/k").await;
        assert_eq!((outcome(&reply), reply.text()), ((200, ""), "one"));
        assert_eq!(setup.seen().len(), 1);
    }
    let missing = setup.read("/bucket/none").await;
    assert_eq!((missing.status, missing.header("x-own")), (404, "1"));
}

#[tokio::test]
async fn changes_are_read_at_once_whatever_the_mode() {
    let config = ObjectConfig {
        consistency: Consistency::Immutable,
        ..ObjectConfig::default()
    };
    let setup = setup_of(false, config, |_| {}).await;
    let signer = Signer::known();
    // A path with a plus sign, which some servers take for a space.
    setup.judge.objects.store("bucket", "a b", "old");
    let url = Signer::known().presign("GET", &setup.host(), "/bucket/a%20b", 60);
    for _ in 0..2 {
        assert_eq!(setup.rig.get(&url, &[]).await.text(), "old");
    }
    setup.signed(&signer, "PUT", "/bucket/a+b", b"new").await;
    setup.judge.objects.store("bucket", "a b", "new");
    assert_eq!(setup.rig.get(&url, &[]).await.text(), "new");
    // An escaped plus sign beside it stays one.
    setup.judge.objects.store("bucket", "a b+c", "old");
    let url = Signer::known().presign("GET", &setup.host(), "/bucket/a%20b%2Bc", 60);
    for _ in 0..2 {
        assert_eq!(setup.rig.get(&url, &[]).await.text(), "old");
    }
    setup
        .signed(&signer, "PUT", "/bucket/a+b%2Bc", b"new")
        .await;
    setup.judge.objects.store("bucket", "a b+c", "new");
    assert_eq!(setup.rig.get(&url, &[]).await.text(), "new");
    // Past the cache: the origin says so, in mode `immutable`, too.
    setup.judge.objects.store("bucket", "a b", "newer");
    let read = setup.read("/bucket/a%20b").await;
    assert_eq!((outcome(&read), read.text()), ((200, "miss"), "newer"));
    setup.seen();
    // A signature that has certainly expired changes nothing, and forgets nothing.
    let mut late = Signer::known();
    late.time -= std::time::Duration::from_secs(3600);
    let put = setup.signed(&late, "PUT", "/bucket/a%20b", b"late").await;
    assert_eq!((put.status, setup.seen().len()), (403, 0), "{}", put.text());
}

#[tokio::test]
async fn requests_with_two_meanings_are_refused() {
    let setup = setup().await;
    let (host, signer) = (setup.host(), Signer::known());
    let sign = |method: &str, path: &str, headers: &[(&str, &str)]| {
        signer.sign(method, &host, path, headers, b"", Payload::Signed)
    };
    let forwarded = [("x-forwarded-host", "other")];
    let form = [("content-type", "text/plain, Multipart/related")];
    let source = [("x-amz-rename-source", "/bucket/b")];
    let sign_for = |host: &str| signer.sign("GET", host, "/k", &[], b"", Payload::Signed);
    let snowball = "/bucket/k?X-Amz-Meta-Snowball-Auto-Extract=true";
    for (what, request) in [
        ("another host", sign_for("s3.example.com")),
        ("a host in upper case", sign_for("bucket.Floe.test")),
        ("a host with an odd port", sign_for("bucket.floe.test:")),
        (
            "a host for the server",
            sign("GET", "/bucket/k", &forwarded),
        ),
        ("a form", sign("POST", "/bucket", &form)),
        (
            "a header twice",
            sign("PUT", "/bucket/k?x-amz-rename-source=c", &source),
        ),
        (
            "an extension",
            sign("PUT", "/bucket/k", &[("x-minio-source-mtime", "1")]),
        ),
        ("one in the query", sign("PUT", snowball, &[])),
        (
            "a path out of the bucket",
            sign("PUT", "/bucket/../other/k", &[]),
        ),
        (
            "a query without an escape",
            sign("DELETE", "/bucket/k?uploadId=%zz", &[]),
        ),
        (
            "a query with two ends",
            sign("POST", "/bucket?delete;x=1", &[]),
        ),
        (
            "a document in chunks",
            signer.sign(
                "POST",
                &host,
                "/bucket?delete",
                &[],
                b"<a/>",
                Payload::Streamed(2),
            ),
        ),
        ("a signature taken away", {
            let mut request = sign("GET", "/bucket/k", &[]);
            let taken = "authorization".parse().unwrap();
            request.headers_mut().insert("connection", taken);
            request
        }),
    ] {
        let reply = send(setup.rig.s3(), request).await;
        let text = reply.text();
        assert!(matches!(reply.status, 400 | 501), "{what}: {text}");
        assert!(setup.seen().is_empty(), "{what}");
    }
    // Without a signature such a header only has no effect.
    let url = signer.presign("GET", &host, "/bucket?list-type=2", 60);
    let reply = setup.rig.get(&url, &forwarded).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let (head, _) = setup.seen().pop().unwrap();
    assert!(!head.headers.contains_key("x-forwarded-host"));
}

#[tokio::test]
async fn an_upload_refused_before_its_body_ends_the_connection() {
    let setup = setup().await;
    let head = "PUT /bucket/new HTTP/1.1\r\nhost: elsewhere\r\ncontent-length: 1000000\r\n\r\n";
    let answer = crate::robustness::raw(&setup.rig, head.as_bytes()).await;
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    assert!(answer.starts_with("http/1.1 4"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn the_access_log_names_accepted_keys_only() {
    let logged = Logged::new();
    let setup = setup_with(|config| logged.give(config)).await;
    setup.judge.objects.store("bucket", "k", "one");
    setup.read("/bucket/k").await;
    let stranger = Signer::new("STRANGER", SECRET_KEY);
    setup.signed(&stranger, "GET", "/bucket/k", b"").await;
    let lines = logged.lines(setup.rig).await;
    assert_eq!(lines[0]["access_key"], ACCESS_KEY);
    assert!(!lines[1].to_string().contains("STRANGER"), "{}", lines[1]);
}

#[tokio::test]
async fn settings_that_no_origin_can_serve_are_refused() {
    let mut base = S3Config {
        listen: loopback(),
        credentials: SignedBy::Client,
        ..S3Config::default()
    };
    base.keys.clear();
    let with_keys = S3Config {
        keys: vec![AccessKey::new("key", "long enough")],
        ..base.clone()
    };
    let too_long = S3Config {
        client_credentials_ttl_seconds: 901,
        ..base.clone()
    };
    let with_port = S3Config {
        client_hosts: vec!["a:1".into()],
        ..base.clone()
    };
    let of_keys = S3Config {
        credentials: SignedBy::Keys,
        anonymous: Anonymous::Served,
        client_hosts: vec!["a".into()],
        ..base.clone()
    };
    for (s3, part) in [
        (with_keys, "s3.keys: it has no meaning"),
        (too_long, "901"),
        (with_port, "`a:1` is not a host name"),
        (of_keys, "s3.client_hosts: it has no meaning"),
    ] {
        let error = start(s3, ObjectConfig::default()).await;
        assert!(error.contains(part), "{error}");
    }
    let below = S3Config {
        client_hosts: vec!["files.example.com".into()],
        domains: vec!["example.com".into()],
        ..base.clone()
    };
    let error = start(below, ObjectConfig::default()).await;
    assert!(
        error.contains("`files.example.com` is below `example.com`"),
        "{error}"
    );
    // An origin that is no S3 service verifies nothing.
    let rig = rig_with(|_| {}).await;
    let config = ServerConfig {
        s3: Some(base),
        ..ServerConfig::default()
    };
    let error = Server::start(config, rig.cache.clone().into(), Clock::real(), None).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("s3.credentials") && error.contains("[[s3.keys]]"),
        "{error}"
    );
}

/// The error of a start with these settings in front of a judge.
async fn start(s3: S3Config, objects: ObjectConfig) -> String {
    let setup = setup_of(false, objects, |_| {}).await;
    let config = ServerConfig {
        s3: Some(s3),
        ..ServerConfig::default()
    };
    let started = Server::start(config, setup.rig.cache.clone().into(), Clock::real(), None).await;
    started.unwrap_err().to_string()
}
