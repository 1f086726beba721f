//! TLS below a protocol, for any frontend over TCP.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floe_device::Clock;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfigError;
use crate::metrics::ConnectionCounters;
use crate::reload::{Reload, Reloadable};

/// Accepts TLS connections. A reload replaces its certificate.
#[derive(Clone, Debug)]
pub(crate) struct Tls(Reloadable<TlsAcceptor>);

impl Tls {
    /// Reads a certificate chain and its key, from the settings
    /// `tls_certificate` and `tls_key` of `section`; `None` if they are empty.
    pub(crate) fn new(
        section: &str,
        certificate: &Path,
        key: &Path,
    ) -> Result<Option<Self>, ServerConfigError> {
        Self::build(section, certificate, key, None, &[])
    }

    /// As [`new`](Self::new), for HTTP/1.1, and for HTTP/2 with clients that ask for nothing else.
    pub(crate) fn for_http(
        section: &str,
        certificate: &Path,
        key: &Path,
    ) -> Result<Option<Self>, ServerConfigError> {
        Self::build(section, certificate, key, None, &[b"http/1.1", b"h2"])
    }

    /// As [`new`](Self::new); clients must have a certificate of one of the
    /// `authorities`, the setting `tls_client_ca`, if there are any.
    pub(crate) fn with_clients(
        section: &str,
        certificate: &Path,
        key: &Path,
        authorities: Option<&Path>,
    ) -> Result<Option<Self>, ServerConfigError> {
        Self::build(section, certificate, key, authorities, &[])
    }

    fn build(
        section: &str,
        certificate: &Path,
        key: &Path,
        authorities: Option<&Path>,
        protocols: &[&[u8]],
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
        let builder = match authorities {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(path) => {
                let clients = clients_of(path);
                let clients =
                    clients.map_err(|error| problem(section, "tls_client_ca", path, &error))?;
                ServerConfig::builder().with_client_cert_verifier(clients)
            }
        };
        let mut config = builder
            .with_single_cert(chain, private)
            .map_err(|error| bad_certificate(&error))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Some(Tls(Reloadable::new(acceptor))))
    }

    /// Runs the handshake. The caller limits its time.
    pub(crate) fn accept<S>(
        &self,
        stream: S,
    ) -> impl Future<Output = io::Result<TlsStream<S>>> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        self.0.get().accept(stream)
    }

    /// The reload of an HTTP frontend that can change its certificate only: from files by
    /// `settings`, `SECTION.tls_certificate` and `SECTION.tls_key`.
    pub(crate) fn reload(
        own: &Option<Self>,
        (certificate, key): (&Path, &Path),
        settings: [&'static str; 2],
    ) -> Result<Reload, ServerConfigError> {
        let section = settings[0].split('.').next().unwrap_or_default();
        let (own, new) = (own.clone(), Self::for_http(section, certificate, key)?);
        Ok(Box::new(move || {
            Self::replace(own.as_ref(), new.as_ref(), settings).collect()
        }))
    }

    /// Replaces the certificate for later connections, of a frontend that has one before and
    /// after: turning TLS on or off requires a restart. Returns `settings` if it does.
    pub(crate) fn replace<const N: usize>(
        own: Option<&Self>,
        new: Option<&Self>,
        settings: [&'static str; N],
    ) -> impl Iterator<Item = &'static str> + use<N> {
        let both = own.zip(new);
        if let Some((own, new)) = both {
            own.0.replace_with(&new.0);
        }
        both.is_some().then_some(settings).into_iter().flatten()
    }
}

/// Accepts clients with a certificate of an authority in the file at `path`.
fn clients_of(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(path)? {
        roots.add(authority?)?;
    }
    Ok(WebPkiClientVerifier::builder(Arc::new(roots)).build()?)
}

/// The result of a handshake.
pub(crate) enum Greeting<S> {
    /// The connection is open.
    Done(S),
    /// The handshake took too long.
    Late,
    /// The client or the network failed.
    Failed(io::Error),
    /// A shutdown began before the client sent a request.
    Drained,
}

impl<S> Greeting<S> {
    /// The open connection. Counts a handshake that failed or took too long.
    pub(crate) fn counted(self, counters: &ConnectionCounters) -> Option<S> {
        match self {
            Greeting::Done(stream) => return Some(stream),
            Greeting::Drained => {}
            Greeting::Late => counters.stalled.add(1),
            Greeting::Failed(error) => {
                tracing::debug!(%error, "a TLS handshake failed");
                counters.broken.add(1);
            }
        }
        None
    }
}

/// Runs a handshake for at most `limit`.
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
