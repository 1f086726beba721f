//! TLS in front of the protocol, for TCP.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::config::ServerConfigError;
use crate::reload::Reloadable;

/// Makes connections private.
#[derive(Clone)]
pub(super) struct Acceptor(Reloadable<TlsAcceptor>);

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// Reads a chain of certificates and the key of the first; none if no
    /// certificate is named.
    pub(super) fn new(certificate: &Path, key: &Path) -> Result<Option<Self>, ServerConfigError> {
        if certificate.as_os_str().is_empty() {
            return Ok(None);
        }
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(|chain| chain.collect::<Result<Vec<_>, _>>())
            .map_err(|error| problem("memcached.tls_certificate", certificate, &error))?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| problem("memcached.tls_key", key, &error))?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| problem("memcached.tls_certificate", certificate, &error))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Some(Acceptor(Reloadable::new(acceptor))))
    }

    pub(super) fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + use<> {
        self.0.get().accept(stream)
    }

    /// Takes the certificate of `other`, for connections from now on.
    pub(super) fn replace_with(&self, other: &Self) {
        self.0.replace_with(&other.0);
    }
}

fn problem(setting: &str, path: &Path, error: &dyn fmt::Display) -> ServerConfigError {
    ServerConfigError {
        setting: setting.into(),
        problem: format!("`{}` cannot be used: {error}", path.display()),
        cure: "name a PEM file with a certificate chain, and one with its private key, that this user may read"
            .into(),
    }
}
