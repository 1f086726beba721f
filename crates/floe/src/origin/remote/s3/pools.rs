//! Pools of connections to a service.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_platform_verifier::ConfigVerifierExt;
use tokio_rustls::rustls::ClientConfig;

use super::dial::Dial;
use crate::origin::config::OriginConfig;
use crate::origin::types::BoxError;
use crate::runtimes::Context;

/// The body of a request.
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A client of HTTP, with a pool of its own.
pub(super) type HttpClient = Client<HttpsConnector<Dial>, Body>;

/// Makes clients for one service.
pub(super) struct HttpClientBuilder {
    connector: HttpsConnector<Dial>,
    idle_max: usize,
}

impl HttpClientBuilder {
    /// For the service at `uri`, with the limits of an origin's settings.
    pub(super) fn new(config: &OriginConfig, uri: &Uri) -> Result<Self, String> {
        let requests = &config.requests;
        let dial = Dial::new(uri, requests.connect_timeout());
        let tls = ClientConfig::with_platform_verifier().map_err(|error| error.to_string())?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = match config.allow_http {
            true => connector.https_or_http(),
            false => connector.https_only(),
        };
        Ok(HttpClientBuilder {
            connector: connector.enable_http1().wrap_connector(dial),
            idle_max: requests.max_concurrent + requests.max_uploads,
        })
    }

    pub(super) fn build(&self) -> HttpClient {
        self.build_for(1)
    }

    /// One of `threads` that share the limit of idle connections.
    fn build_for(&self, threads: usize) -> HttpClient {
        Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(self.idle_max.div_ceil(threads))
            .build(self.connector.clone())
    }
}

thread_local! {
    /// The clients of a thread that has its own runtime, by the pools that they belong to.
    static CLIENTS: RefCell<HashMap<u64, HttpClient>> = RefCell::default();
}

/// A pool for each thread that has its own runtime, and one for all others: the tasks of a
/// connection run where it was opened.
pub(super) struct Pools {
    id: u64,
    builder: HttpClientBuilder,
    shared: HttpClient,
}

impl Pools {
    pub(super) fn new(builder: HttpClientBuilder) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Pools {
            id: NEXT_ID.fetch_add(1, Relaxed),
            shared: builder.build(),
            builder,
        }
    }

    pub(super) async fn request(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, ClientError> {
        match Context::of_this_thread() {
            Some(own) => own.run(self.of_this_thread().request(request)).await,
            None => self.shared.request(request).await,
        }
    }

    fn of_this_thread(&self) -> HttpClient {
        CLIENTS.with_borrow_mut(|clients| {
            let client = clients.entry(self.id);
            let threads = || std::thread::available_parallelism().map_or(1, usize::from);
            let client = client.or_insert_with(|| self.builder.build_for(threads()));
            client.clone()
        })
    }
}
