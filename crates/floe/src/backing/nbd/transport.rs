//! Byte streams to a server: TCP, Unix sockets, and TLS over both.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::{NbdAddress, Place, TlsAddress};

/// A byte stream to a server.
pub trait NbdStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> NbdStream for S {}

pub(super) type Stream = Box<dyn NbdStream>;

/// Opens a stream to a server.
pub type NbdConnect = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn NbdStream>>> + Send + Sync;

/// A function that connects to the server of `address`.
pub(super) fn connect_to(address: &NbdAddress) -> Box<NbdConnect> {
    let place = address.place.clone();
    Box::new(move || {
        let place = place.clone();
        Box::pin(async move {
            let stream: Stream = match place {
                Place::Tcp { host, port } => {
                    let stream = TcpStream::connect((&*host, port)).await?;
                    stream.set_nodelay(true)?;
                    // A connection that is given up must not deliver its requests later.
                    stream.set_zero_linger()?;
                    Box::new(stream)
                }
                Place::Unix(path) => Box::new(UnixStream::connect(path).await?),
            };
            Ok(stream)
        })
    })
}

/// The client's side of TLS.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl Tls {
    /// Reads the certificates that `address` names.
    ///
    /// # Errors
    /// A file cannot be read, or has no certificate.
    pub(super) fn new(address: &TlsAddress) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let file = |name: &str| address.folder.join(name);
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_file_iter(file("ca-cert.pem"))? {
            roots.add(authority?)?;
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let certificate = file("client-cert.pem");
        let config = match certificate.exists() {
            false => builder.with_no_client_auth(),
            true => {
                let chain = certificates(&certificate)?;
                let key = PrivateKeyDer::from_pem_file(file("client-key.pem"))?;
                builder.with_client_auth_cert(chain, key)?
            }
        };
        Ok(Tls {
            connector: TlsConnector::from(Arc::new(config)),
            host: ServerName::try_from(address.host.clone())?,
        })
    }

    /// Encrypts `stream`.
    pub(super) async fn encrypt(&self, stream: Stream) -> io::Result<Stream> {
        let stream = self.connector.connect(self.host.clone(), stream).await?;
        Ok(Box::new(stream))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, rustls_pki_types::pem::Error> {
    CertificateDer::pem_file_iter(path)?.collect()
}
