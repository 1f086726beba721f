//! A server of NATS in memory, which can lose, hold back and add messages.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::s3_tls::Identity;

pub(crate) const SUBJECT: &str = "floe.bucket";
pub(crate) const NONCE: &str = "a nonce";

pub(crate) struct Nats {
    pub(crate) address: SocketAddr,
    tls: Option<TlsAcceptor>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The options of all connections.
    logins: Vec<Value>,
    /// The bytes to the open connection.
    client: Option<UnboundedSender<Vec<u8>>>,
    pongs: u64,
    /// Messages of the client.
    published: Vec<String>,
    /// Such messages do not come back.
    withholds: bool,
    /// Connections are closed at once.
    refuses: bool,
}

impl Nats {
    pub(crate) async fn start(identity: Option<&Identity>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nats = Arc::new(Nats {
            address: listener.local_addr().unwrap(),
            tls: identity.map(acceptor),
            state: Mutex::default(),
        });
        let server = Arc::clone(&nats);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !server.state.lock().refuses {
                    tokio::spawn(Arc::clone(&server).welcome(stream));
                }
            }
        });
        nats
    }

    /// Holds back the messages of the client, or stops to.
    pub(crate) fn withhold(&self, withholds: bool) {
        self.state.lock().withholds = withholds;
    }

    /// Closes the connection; later ones are closed at once if it `refuses`.
    pub(crate) fn disconnect(&self, refuses: bool) {
        let mut state = self.state.lock();
        (state.refuses, state.client) = (refuses, None);
    }

    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.lock().refuses = refuses;
    }

    pub(crate) fn logins(&self) -> Vec<Value> {
        self.state.lock().logins.clone()
    }

    pub(crate) fn published(&self) -> Vec<String> {
        self.state.lock().published.clone()
    }

    pub(crate) fn pongs(&self) -> u64 {
        self.state.lock().pongs
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        let state = self.state.lock();
        let client = state.client.as_ref().expect("a connection");
        client.send(bytes.to_vec()).unwrap();
    }

    pub(crate) fn deliver(&self, body: &str) {
        self.send(message(body).as_bytes());
    }

    async fn welcome(self: Arc<Self>, mut stream: TcpStream) {
        let is_secret = self.tls.is_some();
        let info = format!(
            "INFO {{\"nonce\":\"{NONCE}\",\"ldm\":false,\"tls_required\":{is_secret}}}\r\n"
        );
        stream.write_all(info.as_bytes()).await.unwrap();
        match self.tls.clone() {
            None => self.serve(stream).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve(stream).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
        let (from, to) = tokio::io::split(stream);
        let (client, bytes) = unbounded_channel();
        let reader = self.read(BufReader::new(from), client);
        tokio::select! {
            biased;
            _ = reader => {}
            () = write(to, bytes) => {}
        }
    }

    async fn read(
        &self,
        mut from: BufReader<impl AsyncRead + Unpin>,
        client: UnboundedSender<Vec<u8>>,
    ) -> Option<()> {
        // Only the state holds the sender, so that a test can close the connection.
        let weak = client.downgrade();
        self.state.lock().client = Some(client);
        loop {
            let mut line = String::new();
            from.read_line(&mut line).await.ok()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let client = weak.upgrade()?;
            match words[..] {
                ["CONNECT", ..] => {
                    let options = line.strip_prefix("CONNECT ").unwrap();
                    let options = serde_json::from_str(options).unwrap();
                    self.state.lock().logins.push(options);
                }
                ["SUB", SUBJECT, "1"] => {}
                ["PING"] => client.send(b"PONG\r\n".to_vec()).unwrap(),
                ["PONG"] => self.state.lock().pongs += 1,
                ["PUB", SUBJECT, length] => {
                    let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
                    from.read_exact(&mut body).await.ok()?;
                    let body = String::from_utf8(body).unwrap();
                    let body = body.strip_suffix("\r\n").unwrap();
                    let mut state = self.state.lock();
                    state.published.push(body.to_owned());
                    if !state.withholds {
                        client.send(message(body).into_bytes()).unwrap();
                    }
                }
                [] => return None,
                _ => panic!("{line:?}"),
            }
        }
    }
}

fn message(body: &str) -> String {
    format!("MSG {SUBJECT} 1 {}\r\n{body}\r\n", body.len())
}

/// Writes until no sender is left, and closes the connection then.
async fn write(mut to: impl AsyncWrite + Unpin, mut bytes: UnboundedReceiver<Vec<u8>>) {
    while let Some(bytes) = bytes.recv().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

fn acceptor(identity: &Identity) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(identity.path("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(identity.path("key.pem")).unwrap();
    let builder = ServerConfig::builder().with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}
