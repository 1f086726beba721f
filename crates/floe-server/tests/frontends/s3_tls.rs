//! S3 over TLS, with generated certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use floe_server::{Drained, EventsConfig, S3Config, ServerConfig};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::aws::AmazonS3Builder;
use object_store::{Certificate, ClientOptions, ObjectStoreExt, PutPayload};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::robustness::wait_for;
use crate::support::{
    ACCESS_KEY, Reply, Rig, SECRET_KEY, loopback, pattern, reply, request, rig_with, send,
};

/// A self-signed certificate for `127.0.0.1`, as PEM files.
pub(crate) struct Identity {
    folder: tempfile::TempDir,
    pem: String,
    certificate: CertificateDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pem = made.cert.pem();
        std::fs::write(folder.path().join("certificate.pem"), &pem).unwrap();
        let key = made.signing_key.serialize_pem();
        std::fs::write(folder.path().join("key.pem"), key).unwrap();
        Identity {
            folder,
            pem,
            certificate: made.cert.der().clone(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn give(&self, config: &mut ServerConfig) {
        let s3 = config.s3.as_mut().unwrap();
        s3.tls_certificate = self.path("certificate.pem");
        s3.tls_key = self.path("key.pem");
    }

    /// A connection of a client that trusts only this certificate.
    async fn connect(&self, rig: &Rig) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_for(rig.s3(), &[]).await
    }

    /// The same, of a client that offers these protocols.
    async fn connect_for(
        &self,
        address: SocketAddr,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

async fn get(rig: &Rig, stream: TlsStream<TcpStream>, path: &str) -> Reply {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = request(rig.s3(), "GET", path, &[], "");
    reply(sender.send_request(request).await.unwrap()).await
}

#[tokio::test]
async fn http2_is_for_clients_that_ask_for_nothing_else() {
    let identity = Identity::new();
    let rig = rig_with(|config| identity.give(config)).await;
    rig.origin.store("bucket", "key", "bytes");
    for (offered, chosen) in [
        (&["h2"][..], Some("h2")),
        (&["h2", "http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let stream = identity.connect_for(rig.s3(), offered).await.unwrap();
        let negotiated = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(negotiated.as_deref(), chosen.map(str::as_bytes));
        if chosen == Some("h2") {
            let io = TokioIo::new(stream);
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            let mut request = request(rig.s3(), "GET", "/bucket/key", &[], "");
            *request.uri_mut() = format!("https://{}/bucket/key", rig.s3()).parse().unwrap();
            request.headers_mut().remove("host");
            let answer = reply(sender.send_request(request).await.unwrap()).await;
            assert_eq!(answer.text(), "bytes");
        } else {
            assert_eq!(get(&rig, stream, "/bucket/key").await.text(), "bytes");
        }
    }
    assert!(identity.connect_for(rig.s3(), &["smtp"]).await.is_err());
}

#[tokio::test]
async fn a_client_signs_reads_and_writes_over_tls() {
    let identity = Identity::new();
    let rig = rig_with(|config| identity.give(config)).await;
    rig.origin.store("bucket", "key", "makes the bucket");
    let root = Certificate::from_pem(identity.pem.as_bytes()).unwrap();
    let options = ClientOptions::new()
        .with_root_certificate(root)
        .with_no_system_certificates(true);
    let store = AmazonS3Builder::new()
        .with_client_options(options)
        .with_endpoint(format!("https://{}", rig.s3()))
        .with_region("us-east-1")
        .with_bucket_name("bucket")
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .build()
        .unwrap();
    // Larger than TLS's records and the sockets' buffers.
    let bytes = pattern(3, 5_000_000);
    let path = object_store::path::Path::from("a/b");
    let payload = PutPayload::from(bytes.clone());
    store.put(&path, payload).await.unwrap();
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == bytes);
    assert!(store.get_range(&path, 5..77).await.unwrap() == bytes[5..77]);
    // Other frontends do not use TLS.
    let health = request(rig.admin(), "GET", "/health", &[], "");
    assert_eq!(send(rig.admin(), health).await.status, 200);
}

#[tokio::test]
async fn plain_and_silent_clients_are_disconnected() {
    let identity = Identity::new();
    let rig = rig_with(|config| {
        identity.give(config);
        config.s3.as_mut().unwrap().idle_timeout_seconds = 1;
    })
    .await;
    rig.origin.store("bucket", "key", "bytes");
    let mut plain = TcpStream::connect(rig.s3()).await.unwrap();
    let head = b"GET /bucket/key HTTP/1.1\r\nhost: x\r\n\r\n";
    plain.write_all(head).await.unwrap();
    let mut response = Vec::new();
    let _ = plain.read_to_end(&mut response).await;
    assert!(!response.starts_with(b"HTTP"), "answered in the clear");
    let mut silent = TcpStream::connect(rig.s3()).await.unwrap();
    assert_eq!(silent.read(&mut [0; 16]).await.unwrap(), 0);
    wait_for(&rig, "floe_connections_failed_total", "s3", 2.0).await;
    let stream = identity.connect(&rig).await.unwrap();
    assert_eq!(get(&rig, stream, "/bucket/key").await.text(), "bytes");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_greeting() {
    let identity = Identity::new();
    let rig = rig_with(|config| identity.give(config)).await;
    let _silent = TcpStream::connect(rig.s3()).await.unwrap();
    wait_for(&rig, "floe_connections_total", "s3", 1.0).await;
    assert_eq!(rig.server.shutdown().await, Drained::Completely);
}

#[tokio::test]
async fn a_reload_applies_a_new_certificate() {
    let (first, second) = (Identity::new(), Identity::new());
    let mut config = ServerConfig::default();
    let rig = rig_with(|started| {
        first.give(started);
        config = started.clone();
    })
    .await;
    rig.origin.store("bucket", "key", "bytes");
    let early = first.connect(&rig).await.unwrap();

    second.give(&mut config);
    let taken = rig.server.reload(&config).unwrap();
    assert!(taken.contains(&"s3.tls_certificate") && taken.contains(&"s3.tls_key"));
    let stream = second.connect(&rig).await.unwrap();
    assert_eq!(get(&rig, stream, "/bucket/key").await.text(), "bytes");
    assert!(first.connect(&rig).await.is_err());
    assert_eq!(get(&rig, early, "/bucket/key").await.text(), "bytes");

    std::fs::write(second.path("key.pem"), "no key").unwrap();
    let error = rig.server.reload(&config).unwrap_err().to_string();
    assert!(error.contains("s3.tls_key"), "{error}");
    assert!(second.connect(&rig).await.is_ok());
}

/// An answer of a frontend at `address` to a client that trusts only `identity`.
async fn answer(identity: &Identity, address: SocketAddr, method: &str, path: &str) -> Reply {
    let stream = identity.connect_for(address, &[]).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = request(address, method, path, &[], "{}");
    reply(sender.send_request(request).await.unwrap()).await
}

#[tokio::test]
async fn pages_for_operators_and_for_senders_speak_tls() {
    let (first, second) = (Identity::new(), Identity::new());
    let mut config = ServerConfig::default();
    let give = |identity: &Identity, config: &mut ServerConfig| {
        let (certificate, key) = (identity.path("certificate.pem"), identity.path("key.pem"));
        let admin = config.admin.as_mut().unwrap();
        (admin.tls_certificate, admin.tls_key) = (certificate.clone(), key.clone());
        config.events = Some(EventsConfig {
            listen: Some(loopback()),
            tls_certificate: certificate,
            tls_key: key,
            ..EventsConfig::default()
        });
    };
    let rig = rig_with(|started| {
        give(&first, started);
        config = started.clone();
    })
    .await;
    let addresses = rig.server.addresses();
    let events = addresses.tcp("events").unwrap();
    assert_eq!(
        answer(&first, rig.admin(), "GET", "/health").await.text(),
        "ok\n"
    );
    assert_eq!(answer(&first, events, "POST", "/").await.status, 200);
    for address in [rig.admin(), events] {
        let mut plain = TcpStream::connect(address).await.unwrap();
        let head = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
        plain.write_all(head).await.unwrap();
        let mut response = Vec::new();
        let _ = plain.read_to_end(&mut response).await;
        assert!(!response.starts_with(b"HTTP"), "answered in the clear");
    }
    give(&second, &mut config);
    let taken = rig.server.reload(&config).unwrap();
    for setting in [
        "admin.tls_certificate",
        "admin.tls_key",
        "events.tls_certificate",
    ] {
        assert!(taken.contains(&setting), "{taken:?}");
    }
    assert_eq!(
        answer(&second, rig.admin(), "GET", "/health").await.text(),
        "ok\n"
    );
    assert_eq!(answer(&second, events, "POST", "/").await.status, 200);
}

#[test]
fn a_key_without_its_certificate_is_rejected() {
    let config = ServerConfig {
        s3: Some(S3Config {
            tls_key: "key.pem".into(),
            anonymous: floe_server::Anonymous::Served,
            ..S3Config::default()
        }),
        ..ServerConfig::default()
    };
    let error = config.validate().unwrap_err().to_string();
    assert!(error.contains("s3.tls_certificate"), "{error}");
}
