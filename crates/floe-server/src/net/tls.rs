//! TLS in front of a protocol, for any frontend over TCP.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floe_device::Clock;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfigError;
use crate::reload::Reloadable;

/// Makes connections private. A reload replaces its certificate.
#[derive(Clone, Debug)]
pub(crate) struct Tls(Reloadable<TlsAcceptor>);

impl Tls {
    /// Reads a chain of certificates and the key of the first; none if no
    /// certificate is named. The files are the settings `tls_certificate` and
    /// `tls_key` of `section`.
    pub(crate) fn new(
        section: &str,
        certificate: &Path,
        key: &Path,
    ) -> Result<Option<Self>, ServerConfigError> {
        if certificate.as_os_str().is_empty() {
            return Ok(None);
        }
        let bad_certificate =
            |error: &dyn fmt::Display| problem(section, "tls_certificate", certificate, error);
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(|chain| chain.collect::<Result<Vec<_>, _>>())
            .map_err(|error| bad_certificate(&error))?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| problem(section, "tls_key", key, &error))?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| bad_certificate(&error))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Some(Tls(Reloadable::new(acceptor))))
    }

    /// Greets the client. The caller bounds the time that it may take.
    pub(crate) fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + use<> {
        self.0.get().accept(stream)
    }

    /// Takes the certificate of `other`, for connections from now on.
    pub(crate) fn replace_with(&self, other: &Self) {
        self.0.replace_with(&other.0);
    }
}

/// How the greeting of a connection ended.
pub(crate) enum Greeting<S> {
    /// The connection is open.
    Done(S),
    /// The client did not greet in time.
    Late,
    /// The client or the network failed.
    Failed(io::Error),
    /// The shutdown began: the client has asked for nothing yet.
    Drained,
}

/// Opens a connection, for `limit` at most.
pub(crate) async fn greet<S>(
    opening: impl Future<Output = io::Result<S>>,
    clock: &Clock,
    limit: Duration,
    draining: &CancellationToken,
) -> Greeting<S> {
    tokio::select! {
        biased;
        opened = opening => opened.map_or_else(Greeting::Failed, Greeting::Done),
        () = draining.cancelled() => Greeting::Drained,
        () = clock.sleep(limit) => Greeting::Late,
    }
}

fn problem(
    section: &str,
    setting: &str,
    path: &Path,
    error: &dyn fmt::Display,
) -> ServerConfigError {
    ServerConfigError {
        setting: format!("{section}.{setting}"),
        problem: format!("`{}` cannot be used: {error}", path.display()),
        cure: "name a PEM file with a certificate chain, and one with its private key, that this user may read"
            .into(),
    }
}
