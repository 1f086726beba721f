//! A connection to a server of NATS with one subscription.
//!
//! It is never opened again: when it ends, messages may be lost, and its owner must know.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::ConfigVerifierExt as _;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::NatsAddress;
use super::error::NatsError;
use super::login::Login;
use super::wire::{self, Frame, Info};

/// Bytes that a read has room for.
const READ_BYTES: usize = 64 << 10;

/// A subject of a server.
#[derive(Clone, Debug)]
pub(in crate::frontends::events) struct NatsSubject {
    pub(in crate::frontends::events) address: NatsAddress,
    pub(in crate::frontends::events) name: String,
    pub(in crate::frontends::events) login: Login,
    /// A PEM file with the authorities of the server; empty: those of the machine.
    pub(in crate::frontends::events) authorities: PathBuf,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// Bytes that are not decoded yet: at most a message and a read.
    buffer: BytesMut,
}

impl Connection {
    /// Connects and subscribes. The server delivers every message to the subject that it gets
    /// from now on, in order, until the connection ends.
    pub(super) async fn open(subject: &NatsSubject) -> Result<Self, NatsError> {
        let address = &subject.address;
        let stream = TcpStream::connect((&*address.host, address.port)).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection {
            stream: Box::new(stream),
            buffer: BytesMut::new(),
        };
        let Frame::Info(info) = connection.read().await? else {
            return Err(NatsError::Protocol("it does not begin with INFO"));
        };
        if address.needs_tls || info.tls_required {
            connection = connection.encrypt(subject).await?;
        }
        connection.subscribe(subject, &info).await?;
        Ok(connection)
    }

    async fn encrypt(self, subject: &NatsSubject) -> Result<Self, NatsError> {
        // They would be taken for a part of the encrypted messages.
        if !self.buffer.is_empty() {
            return Err(NatsError::Protocol("it sends more before TLS"));
        }
        let host = ServerName::try_from(subject.address.host.clone());
        let host = host.map_err(|_| NatsError::Protocol("its name is none for TLS"))?;
        let authorities = subject.authorities.clone();
        let config = tokio::task::spawn_blocking(move || tls(&authorities).map_err(other)).await;
        let config = config.map_err(std::io::Error::other)??;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Connection {
            stream: Box::new(connector.connect(host, self.stream).await?),
            buffer: self.buffer,
        })
    }

    async fn subscribe(&mut self, subject: &NatsSubject, info: &Info) -> Result<(), NatsError> {
        let mut options = subject.login.options(&info.nonce).await?;
        let common = json!({
            // Heartbeats must come back.
            "echo": true,
            "verbose": false,
            "pedantic": false,
            // The server drops the headers of messages.
            "headers": false,
            // It tells of a shutdown with another INFO.
            "protocol": 1,
            "tls_required": subject.address.needs_tls,
            "name": "floe",
            "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"),
        });
        if let (Some(options), serde_json::Value::Object(common)) =
            (options.as_object_mut(), common)
        {
            options.extend(common);
        }
        let subscription = [
            wire::connect(&options),
            wire::subscribe(&subject.name),
            wire::PING.to_vec(),
        ];
        self.write(&subscription.concat()).await?;
        loop {
            match self.read().await? {
                Frame::Pong => return Ok(()),
                Frame::Ping => self.write(wire::PONG).await?,
                // Nothing is trusted yet that a notification could be about.
                Frame::Message(_) | Frame::Info(_) => {}
            }
        }
    }

    /// The next message. A call that is dropped loses none.
    pub(super) async fn read(&mut self) -> Result<Frame, NatsError> {
        loop {
            if let Some(frame) = self.read_buffered()? {
                return Ok(frame);
            }
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(NatsError::Closed);
            }
        }
    }

    /// The next message, if all of it is in memory.
    pub(super) fn read_buffered(&mut self) -> Result<Option<Frame>, NatsError> {
        wire::decode(&mut self.buffer)
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), NatsError> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }
}

/// Checks a file of authorities, if there is one.
///
/// # Errors
/// It cannot be read, or has no certificate.
pub(in crate::frontends::events) fn check_authorities(file: &Path) -> Result<(), String> {
    match file.as_os_str().is_empty() {
        true => Ok(()),
        false => tls(file).map(drop).map_err(|error| error.to_string()),
    }
}

fn tls(authorities: &Path) -> Result<ClientConfig, Box<dyn Error + Send + Sync>> {
    if authorities.as_os_str().is_empty() {
        return Ok(ClientConfig::with_platform_verifier()?);
    }
    let found = CertificateDer::pem_file_iter(authorities)?.collect::<Result<Vec<_>, _>>()?;
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found).0 == 0 {
        return Err("it has no certificate".into());
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    Ok(builder.with_no_client_auth())
}

fn other(error: Box<dyn Error + Send + Sync>) -> std::io::Error {
    std::io::Error::other(error)
}
