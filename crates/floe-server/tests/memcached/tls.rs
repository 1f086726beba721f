//! The protocol over TLS, with a generated certificate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use floe_core::ByteSize;
use floe_server::{Drained, MemcachedConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::{Client, Rig, metric, rig_with, try_rig_with, unix_client};

/// A self-signed certificate for `localhost`, as PEM files.
struct Identity {
    folder: tempfile::TempDir,
    certificate: CertificateDer<'static>,
}

impl Identity {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("certificate.pem"), made.cert.pem()).unwrap();
        let key = made.signing_key.serialize_pem();
        std::fs::write(folder.path().join("key.pem"), key).unwrap();
        Identity {
            folder,
            certificate: made.cert.der().clone(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn give(&self, config: &mut MemcachedConfig) {
        config.tls_certificate = self.path("certificate.pem");
        config.tls_key = self.path("key.pem");
    }

    /// A client that trusts only this certificate.
    fn client(&self, rig: &Rig) -> Client<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(rig.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Client {
            stream: StreamOwned::new(session, stream),
        }
    }
}

#[test]
fn everything_is_served_over_tls() {
    let identity = Identity::new();
    let rig = rig_with(ByteSize::mib(64), |config| identity.give(config));
    let mut client = identity.client(&rig);
    client.expect(
        "set a 1 0 5\nhello\nget a\nmg a v f\nincr a 1\n",
        "STORED\nVALUE a 1 5\nhello\nEND\nVA 5 f1\nhello\n\
         CLIENT_ERROR cannot increment or decrement non-numeric value\n",
    );
    // Larger than TLS's records, the socket's buffers and a chunk.
    let value = "v".repeat(1_000_000);
    client.expect(
        &format!("set long 0 0 {0}\n{value}\nget long long a\n", value.len()),
        &format!(
            "STORED\n{one}{one}VALUE a 1 5\nhello\nEND\n",
            one = format_args!("VALUE long 0 {}\n{value}\n", value.len())
        ),
    );
    let stats = String::from_utf8(client.ask("stats settings\r\n")).unwrap();
    assert!(stats.contains("STAT ssl_enabled yes\r\n"), "{stats}");
    // The server sends TLS's close notification: the stream is complete.
    client.send("quit\r\n");
    assert_eq!(client.rest(), b"");
    // The Unix socket does not use TLS.
    unix_client(&rig.path).expect("get a\n", "VALUE a 1 5\nhello\nEND\n");
}

#[test]
fn many_connections_and_requests_at_once_over_tls() {
    let identity = Identity::new();
    let rig = rig_with(ByteSize::mib(1), |config| identity.give(config));
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let mut client = identity.client(&rig);
            std::thread::spawn(move || {
                let value = format!("{number}").repeat(3000);
                let set: String = (0..50)
                    .map(|key| format!("set {number}-{key} 0 0 3000\n{value}\n"))
                    .collect();
                client.expect(&set, &"STORED\n".repeat(50));
                let get: String = (0..50).map(|key| format!("get {number}-{key}\n")).collect();
                let expected: String = (0..50)
                    .map(|key| format!("VALUE {number}-{key} 0 3000\n{value}\nEND\n"))
                    .collect();
                client.expect(&get, &expected);
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn plain_and_silent_tls_clients_are_disconnected() {
    let identity = Identity::new();
    let rig = rig_with(ByteSize::mib(1), |config| {
        identity.give(config);
        config.stall_timeout_seconds = 1;
    });
    let mut plain = rig.client();
    plain.send("get a\r\n");
    let response = plain.rest();
    assert!(!response.starts_with(b"END"), "answered in the clear");
    let mut silent = rig.client();
    silent.rest();
    // An incomplete handshake.
    let mut half = rig.client();
    half.stream.write_all(&[0x16, 3, 1, 1, 0]).unwrap();
    half.rest();
    let mut client = identity.client(&rig);
    client.expect("set a 0 0 1\nx\nget a\n", "STORED\nVALUE a 0 1\nx\nEND\n");
    let stalled = "floe_connections_failed_total{frontend=\"memcached\",reason=\"stalled\"}";
    assert_eq!(metric(&rig, stalled), 2);
}

#[test]
fn a_shutdown_does_not_wait_for_a_greeting() {
    let identity = Identity::new();
    let mut rig = rig_with(ByteSize::mib(1), |config| identity.give(config));
    let silent = rig.client();
    identity.client(&rig).expect("get a\n", "END\n");
    while metric(&rig, "floe_connections_total{frontend=\"memcached\"}") < 2 {}
    assert_eq!(rig.shut_down(), Drained::Completely);
    drop(silent);
}

#[test]
fn too_many_connections_over_tls_get_an_error() {
    let identity = Identity::new();
    let rig = rig_with(ByteSize::mib(1), |config| {
        identity.give(config);
        config.max_connections = 1;
    });
    let mut first = identity.client(&rig);
    first.expect("get a\n", "END\n");
    // A client whose handshake is too slow gets no response; it tries again.
    loop {
        let mut second = identity.client(&rig);
        let mut response = Vec::new();
        match second.stream.read_to_end(&mut response) {
            Ok(_) => {
                assert_eq!(response, b"ERROR Too many open connections\r\n");
                return;
            }
            Err(error) => eprintln!("again, after {error}"),
        }
    }
}

#[test]
fn clients_reject_an_untrusted_certificate() {
    let identity = Identity::new();
    let rig = rig_with(ByteSize::mib(1), |config| identity.give(config));
    let mut client = Identity::new().client(&rig);
    let sent = client.stream.write_all(b"get a\r\n");
    let read = sent.and_then(|()| client.stream.read(&mut [0; 16]));
    assert!(read.is_err(), "{read:?}");
    identity.client(&rig).expect("get a\n", "END\n");
}

#[test]
fn unusable_certificates_are_rejected_with_a_remedy() {
    let identity = Identity::new();
    std::fs::write(identity.path("junk.pem"), "junk").unwrap();
    let wrong = [
        ("absent.pem", "key.pem", "memcached.tls_certificate"),
        ("junk.pem", "key.pem", "memcached.tls_certificate"),
        ("certificate.pem", "absent.pem", "memcached.tls_key"),
        ("certificate.pem", "junk.pem", "memcached.tls_key"),
    ];
    for (certificate, key, setting) in wrong {
        let rejected = try_rig_with(ByteSize::mib(1), |config| {
            config.tls_certificate = identity.path(certificate);
            config.tls_key = identity.path(key);
        });
        let text = match rejected {
            Ok(_) => panic!("{certificate} with {key} was taken"),
            Err(error) => format!("{error}"),
        };
        assert!(text.contains(setting) && text.contains("PEM"), "{text}");
    }
    // The key of another certificate.
    let other = Identity::new();
    let rejected = try_rig_with(ByteSize::mib(1), |config| {
        config.tls_certificate = identity.path("certificate.pem");
        config.tls_key = other.path("key.pem");
    });
    assert!(
        rejected.is_err(),
        "a certificate with another's key was taken"
    );
    let half = MemcachedConfig {
        tls_certificate: identity.path("certificate.pem"),
        ..MemcachedConfig::default()
    };
    let rejected = try_rig_with(ByteSize::mib(1), |config| *config = half);
    assert!(rejected.is_err(), "a certificate without a key was taken");
}
