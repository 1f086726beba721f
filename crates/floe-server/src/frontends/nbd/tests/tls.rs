//! STARTTLS, with generated certificates.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::support::{Client, Rig, option_bytes, rig_with};
use crate::frontends::nbd::config::{NbdConfig, TlsMode};
use crate::frontends::nbd::protocol::options::{kind, number};

/// An authority, and certificates of it for the server and a client.
pub(super) struct Identities {
    folder: tempfile::TempDir,
    authority: CertificateDer<'static>,
    client: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

impl Identities {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let sign = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (server, server_key) = sign("localhost");
        let (client, client_key) = sign("client");
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write("ca-cert.pem", authority.pem());
        write("server.pem", server.pem());
        write("server-key.pem", server_key.serialize_pem());
        let key = PrivatePkcs8KeyDer::from(client_key.serialize_der());
        Identities {
            folder,
            authority: authority.der().clone(),
            client: (client.der().clone(), key.into()),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn rig(&self, mode: TlsMode, change: impl FnOnce(&mut NbdConfig)) -> Rig {
        rig_with(|config| {
            config.tls = mode;
            config.tls_certificate = self.path("server.pem");
            config.tls_key = self.path("server-key.pem");
            change(config);
        })
    }

    /// Encrypts a connection whose STARTTLS was acknowledged.
    fn encrypt(
        &self,
        stream: UnixStream,
        with_certificate: bool,
    ) -> Client<StreamOwned<ClientConnection, UnixStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match with_certificate {
            false => builder.with_no_client_auth(),
            true => {
                let (certificate, key) = &self.client;
                let chain = vec![certificate.clone()];
                builder
                    .with_client_auth_cert(chain, key.clone_key())
                    .unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        Client::new(StreamOwned::new(session, stream))
    }
}

fn starttls(rig: &Rig) -> UnixStream {
    let mut client = rig.client();
    client.expect(number::STARTTLS, b"", &[kind::ACK]);
    client.stream
}

#[test]
fn everything_is_served_over_tls() {
    let identities = Identities::new();
    for mode in [TlsMode::Optional, TlsMode::Required] {
        let rig = identities.rig(mode, |_| {});
        let mut client = identities.encrypt(starttls(&rig), false);
        client.expect(number::STARTTLS, b"", &[kind::ERR_INVALID]);
        client.expect(number::STRUCTURED_REPLY, b"", &[kind::ACK]);
        client.go("disk");
        let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 3) as u8).collect();
        client.write(4096, &data);
        assert!(client.read(4096, 1 << 20) == data);
        assert_eq!(client.read(0, 512), [0; 512]);
    }
}

#[test]
fn encryption_is_optional_or_required() {
    let identities = Identities::new();
    let optional = identities.rig(TlsMode::Optional, |_| {});
    optional.disk().write(0, &[1; 512]);
    let required = identities.rig(TlsMode::Required, |_| {});
    let mut client = required.client();
    client.expect(number::LIST, b"", &[kind::ERR_TLS_REQD]);
}

#[test]
fn what_was_negotiated_before_the_encryption_is_forgotten() {
    let identities = Identities::new();
    let rig = identities.rig(TlsMode::Optional, |_| {});
    let mut plain = rig.client();
    plain.expect(number::STRUCTURED_REPLY, b"", &[kind::ACK]);
    plain.expect(number::STARTTLS, b"", &[kind::ACK]);
    let mut client = identities.encrypt(plain.stream, false);
    client.go("disk");
    // The reply is simple: the client was created without structured replies.
    assert_eq!(client.read(0, 512), [0; 512]);
}

#[test]
fn bytes_sent_ahead_of_the_encryption_end_the_connection() {
    let identities = Identities::new();
    let rig = identities.rig(TlsMode::Optional, |_| {});
    let mut client = rig.client();
    let injected = option_bytes(number::LIST, b"");
    client.send(&[option_bytes(number::STARTTLS, b""), injected].concat());
    let mut answers = Vec::new();
    let _ = client.stream.read_to_end(&mut answers);
    // The acknowledgement, and perhaps an alert of TLS: the list was not sent.
    assert!(answers.len() < 2 * 20, "{answers:?}");
}

#[test]
fn clients_without_a_certificate_are_rejected() {
    let identities = Identities::new();
    let authority = identities.path("ca-cert.pem");
    let rig = identities.rig(TlsMode::Required, |config| config.tls_client_ca = authority);
    let mut known = identities.encrypt(starttls(&rig), true);
    known.go("disk");
    assert_eq!(known.read(0, 512), [0; 512]);
    let mut unknown = identities.encrypt(starttls(&rig), false);
    let asked = unknown.stream.write_all(&option_bytes(number::LIST, b""));
    assert!(asked.is_err() || unknown.stream.read_exact(&mut [0; 20]).is_err());
}
