//! A client of S3 that signs its requests, and requests that must be refused.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::network::{Machine, NODES, PROXIES};
use super::programs::S3;
use crate::blackbox::http::{Connection, Response};
use crate::blackbox::signature::{ACCESS_KEY, SECRET_KEY, presign_v4, presign_v4_by, sign_v4};

/// The place of a request's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signing {
    /// The body is signed too.
    Headers,
    /// As in a presigned URL, so that the query of each request differs.
    Query,
}

impl Signing {
    /// By the number of a client, for clients of each proxy.
    pub(super) fn of_client(client: usize) -> Self {
        match client / PROXIES.len() % 2 {
            0 => Signing::Headers,
            _ => Signing::Query,
        }
    }
}

/// How long a presigned URL is good: longer than a node's clock is wrong.
const EXPIRES_S: u64 = 1800;

/// The pair that nodes know, as `s3.keys` takes it.
pub(super) fn keys() -> String {
    format!("{ACCESS_KEY}:{SECRET_KEY}")
}

type Headers = Vec<(&'static str, String)>;

/// A connection to a proxy whose requests are signed.
pub(super) struct ObjectClient {
    connection: Connection,
    proxy: SocketAddr,
    signing: Signing,
}

impl ObjectClient {
    pub(super) fn open(
        proxy: SocketAddr,
        signing: Signing,
        patience: Duration,
    ) -> io::Result<Self> {
        Ok(ObjectClient {
            connection: Connection::open_with_patience(proxy, patience)?,
            proxy,
            signing,
        })
    }

    /// Reads an object, or the range of it that a header names.
    pub(super) fn get(&mut self, path: &str, range: Option<String>) -> io::Result<Response> {
        let (path, mut headers) = self.signed("GET", path, b"");
        headers.extend(range.map(|range| ("range", range)));
        self.connection.request("GET", &path, &headers, b"")
    }

    /// Writes an object.
    pub(super) fn put(&mut self, path: &str, body: &[u8]) -> io::Result<Response> {
        let (path, headers) = self.signed("PUT", path, body);
        self.connection.request("PUT", &path, &headers, body)
    }

    /// The path and the headers of a request with its signature.
    fn signed(&self, method: &str, path: &str, body: &[u8]) -> (String, Headers) {
        match self.signing {
            Signing::Headers => {
                let headers = sign_v4(SECRET_KEY, method, self.proxy, path, body);
                (path.to_owned(), headers.to_vec())
            }
            Signing::Query => {
                let path = presign_v4(method, self.proxy, path, EXPIRES_S);
                (path, Headers::new())
            }
        }
    }
}

/// A node by what a proxy calls it: Envoy says its address.
pub(super) fn node_name(said: &str) -> &str {
    let at = |machine: &&Machine| said.starts_with(&format!("{}:", machine.address()));
    NODES.iter().find(at).map_or(said, |machine| machine.name)
}

/// Objects of requests that must be refused: enough that each node owns one.
const REFUSED: usize = 24;

/// The time in which a proxy finds its nodes.
const START_TIME: Duration = Duration::from_secs(10);

/// Every node refuses requests through every proxy that have no signature, a wrong one, or one for
/// another host; they have no effect.
///
/// # Errors
/// One was answered otherwise, or a node answered none.
pub(super) fn strangers_are_refused() -> Result<()> {
    for proxy in PROXIES {
        let proxy = SocketAddr::from((proxy.address(), S3));
        wait_for_nodes(proxy)?;
        let mut nodes = BTreeSet::new();
        for object in 0..REFUSED {
            let path = format!("/bucket/stranger-{object}");
            for method in ["GET", "PUT"] {
                let body: &[u8] = if method == "PUT" { b"stolen" } else { b"" };
                for (what, path, headers) in wrong_requests(method, proxy, &path, body) {
                    let mut connection = Connection::open(proxy)?;
                    let answer = connection.request(method, &path, &headers, body)?;
                    let status = answer.status;
                    ensure!(status == 403, "{method} with {what}: {status}");
                    let node = answer.header("x-floe-node").context("no node is named")?;
                    nodes.insert(node_name(node).to_owned());
                }
            }
            for signing in [Signing::Headers, Signing::Query] {
                let mut client = ObjectClient::open(proxy, signing, START_TIME)?;
                let status = client.get(&path, None)?.status;
                ensure!(status == 404, "a refused object, by {signing:?}: {status}");
            }
        }
        ensure!(nodes.len() == NODES.len(), "only {nodes:?} refused");
    }
    Ok(())
}

type WrongRequest = (&'static str, String, Headers);

/// Requests to refuse: what is wrong with each, its path, and its headers.
fn wrong_requests(method: &str, proxy: SocketAddr, path: &str, body: &[u8]) -> [WrongRequest; 5] {
    let guess = "a guess";
    let node = SocketAddr::from((NODES[0].address(), S3));
    let signed = |secret, host| sign_v4(secret, method, host, path, body).to_vec();
    let presigned = |secret, host| presign_v4_by(secret, method, host, path, EXPIRES_S);
    let path = path.to_owned();
    [
        ("no signature", path.clone(), Vec::new()),
        ("a wrong secret", path.clone(), signed(guess, proxy)),
        (
            "a wrong secret in the query",
            presigned(guess, proxy),
            Vec::new(),
        ),
        ("another host", path, signed(SECRET_KEY, node)),
        (
            "another host in the query",
            presigned(SECRET_KEY, node),
            Vec::new(),
        ),
    ]
}

/// Waits until a proxy has found out which nodes there are.
pub(super) fn wait_for_nodes(proxy: SocketAddr) -> Result<()> {
    let began = Instant::now();
    while Connection::open(proxy)?
        .request("GET", "/bucket/none", &[], b"")?
        .status
        == 503
    {
        ensure!(began.elapsed() < START_TIME, "{proxy} finds no node");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
