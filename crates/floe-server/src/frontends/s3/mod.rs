//! The S3 frontend: serves any S3 client through the cache.
//!
//! The library `s3s` parses requests, verifies signatures and writes XML.
//! `read` serves reads of objects. An S3 origin answers everything else itself (`forward`);
//! for other origins `write`, `list`, `multipart` and `copy` translate it.

mod access_log;
mod answer;
mod attributes;
pub(crate) mod auth;
mod changes;
mod checksums;
mod chunked;
mod client;
mod condition;
mod config;
mod copy;
mod credentials;
mod date;
mod error;
mod fields;
mod forward;
mod head;
mod kept;
mod list;
mod multipart;
mod passable;
mod plain;
mod policy;
mod preflight;
mod query;
mod range;
mod read;
mod route;
mod service;
mod slowed;
mod target;
mod upload;
mod write;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use floe::limit::Limit;
use floe::origin::Client;
use floe::runtimes::Context;
use floe_device::Clock;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, SERVER, USER_AGENT,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use crate::config::{ServerConfigError, problem, thread_count};
use crate::frontend::{Bound, Frontend, Host, Serving, StartError};
use crate::metrics::{Collect, FrontendStatistics, RequestMeter, Samples};
use crate::net::{
    self, Activity, HttpLimits, Listeners, Pace, PacedBody, Peer, Places, SendKept, Service,
    Shutdown, ThreadListeners, TimedBody, Tls, UploadPace,
};
use crate::reload::{Reload, Reloadable};
use access_log::{AccessLog, Asked, Opened, Record, RecordedBody};
use auth::Keys;
use client::ClientRequests;
use error::{completed, error_response};
use forward::Forwarded;
use plain::{PlainReads, Rest};
use query::Query;
use route::WasRead;
use service::service;
use slowed::Slowed;
use target::Domains;

pub use condition::conditions;
pub use config::{AccessKey, S3Config, SignedBy};
pub use policy::{KeyAccess, KeyPolicy};
pub use range::requested_range;

const X_AMZ_REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The S3 frontend.
pub(crate) struct S3Frontend {
    service: S3Service,
    domains: Domains,
    keys: Keys,
    plain: PlainReads,
    /// If clients have their own credentials at the origin.
    clients: Option<ClientRequests>,
    /// An S3 service is the origin.
    has_s3: bool,
    tls: Option<Tls>,
    clock: Clock,
    home: Context,
    limits: Reloadable<Limits>,
    connections: Arc<Limit>,
    upload_limit_bytes: Arc<AtomicU64>,
    slowed: Arc<Slowed>,
    access_log: Arc<AccessLog>,
    statistics: FrontendStatistics,
    next_request_id: AtomicU64,
}

/// Limits of one client.
#[derive(Clone)]
struct Limits {
    http: HttpLimits,
    uploads: UploadPace,
}

impl Limits {
    fn new(config: &S3Config) -> Self {
        let header_bytes = config.max_header_size.bytes();
        let stall_timeout = seconds(config.stall_timeout_seconds);
        Limits {
            http: HttpLimits {
                max_streams: config.max_streams_per_connection,
                max_header_bytes: u32::try_from(header_bytes).unwrap_or(u32::MAX),
                idle_timeout: seconds(config.idle_timeout_seconds),
                stall_timeout,
            },
            uploads: UploadPace {
                stall_timeout,
                min_bytes_per_second: config.min_upload_rate.bytes(),
            },
        }
    }
}

type PacedResponse = Response<PacedBody<RecordedBody<Body>>>;

impl Frontend for S3Frontend {
    type Config = S3Config;
    type Listeners = Listeners;
    const NAME: &'static str = "s3";

    async fn bind(config: &S3Config, host: &Host) -> Result<Bound<Self>, StartError> {
        let threads = thread_count(config.threads);
        let listen = Some(config.listen);
        let listeners = Listeners::bind(Self::NAME, listen, Path::new(""), threads).await?;
        let tls = tls(config)?;
        let frontend = S3Frontend::new(config, tls, host)?;
        let started = frontend
            .access_log
            .switch_to(Opened::new(&config.access_log)?);
        started.map_err(|source| StartError::Thread {
            frontend: Self::NAME,
            source,
        })?;
        Ok(Bound {
            frontend,
            addresses: listeners.addresses(),
            listeners,
        })
    }

    fn serve(self: Arc<Self>, listeners: Listeners, serving: Serving) -> Service {
        let places = Places::new(&self.connections, &self.clock);
        let shutdown = serving.shutdown;
        let of_threads = shutdown.clone();
        let accept = move |(): (), listeners: ThreadListeners, tasks: TaskTracker| async move {
            let shutdown = Shutdown {
                tasks,
                ..of_threads
            };
            let connections = shutdown.clone();
            let counters = Arc::clone(&self.statistics.connections);
            let serve = move |stream, client: SocketAddr, activity| {
                let connections = connections.clone();
                let connection =
                    Arc::clone(&self).connection(stream, client, connections, activity);
                Client::at(client.client()).scope(connection)
            };
            let listener = listeners.tcp().await;
            net::accept(listener, places, shutdown, counters, serve).await;
        };
        let threads = std::iter::repeat_n((), listeners.threads());
        listeners.serve(threads, &shutdown, accept)
    }

    /// Replaces keys and their policies for later requests, limits for later connections and
    /// requests, and the certificate for later connections. Turning TLS on or
    /// off requires a restart, as does the choice of whose credentials count.
    fn reload(self: Arc<Self>, config: &S3Config) -> Result<Reload, ServerConfigError> {
        if self.clients.is_some() != (config.credentials == SignedBy::Client) {
            return Err(problem(
                "s3.credentials",
                "it cannot change while the server runs, nor do keys and policies with it",
                "restart the server",
            ));
        }
        require_s3_behind(config, self.has_s3)?;
        let (config, new_tls) = (config.clone(), tls(config)?);
        let log = Opened::new(&config.access_log)?;
        Ok(Box::new(move || {
            self.keys.replace_with(&Keys::new(&config));
            let limits = Reloadable::new(Limits::new(&config));
            self.limits.replace_with(&limits);
            self.slowed.replace_limit(&config);
            self.connections.set(config.max_connections as usize);
            let upload_limit = config.max_upload_size.bytes();
            self.upload_limit_bytes.store(upload_limit, Relaxed);
            if let Err(error) = self.access_log.switch_to(log) {
                tracing::error!(%error, "the thread of s3.access_log cannot be started");
            }
            let mut taken = vec![
                "s3.access_log",
                "s3.keys",
                "s3.policies",
                "s3.max_connections",
                "s3.max_connections_per_client",
                "s3.max_streams_per_connection",
                "s3.max_header_size",
                "s3.idle_timeout_seconds",
                "s3.stall_timeout_seconds",
                "s3.min_upload_rate",
                "s3.max_upload_size",
            ];
            let settings = ["s3.tls_certificate", "s3.tls_key"];
            taken.extend(Tls::replace(self.tls.as_ref(), new_tls.as_ref(), settings));
            taken
        }))
    }
}

impl Collect for S3Frontend {
    fn collect(&self, samples: &mut Samples) {
        self.statistics.collect(samples, Self::NAME);
        samples.counter(
            "floe_s3_requests_denied",
            "Requests that no policy of their access key allows",
            &[],
            self.keys.denied(),
        );
        samples.counter(
            "floe_s3_requests_slowed",
            "Requests on connections beyond s3.max_connections_per_client, which got SlowDown",
            &[],
            self.slowed.count(),
        );
        samples.counter(
            "floe_s3_access_log_dropped",
            "Lines of s3.access_log that were not written",
            &[],
            self.access_log.dropped(),
        );
        if let Some(clients) = &self.clients {
            clients.collect(samples);
        }
    }
}

impl S3Frontend {
    fn new(config: &S3Config, tls: Option<Tls>, host: &Host) -> Result<Self, ServerConfigError> {
        // A service may hide what has no bucket of the settings.
        let has_s3 = host.objects.origin().forwards(Some("any"));
        require_s3_behind(config, has_s3)?;
        let keys = Keys::new(config);
        let upload_limit_bytes = Arc::new(AtomicU64::new(config.max_upload_size.bytes()));
        let cache = host.objects.clone();
        let statistics = FrontendStatistics::default();
        let access_log = AccessLog::new();
        let slowed = Arc::new(Slowed::new(config));
        let plain = PlainReads::new(config, &keys, host, &statistics, &access_log, &slowed);
        Ok(S3Frontend {
            plain,
            clients: ClientRequests::open(config, host, &upload_limit_bytes)?,
            domains: Domains::new(&config.domains),
            service: service(config, cache, keys.clone(), Arc::clone(&upload_limit_bytes)),
            keys,
            has_s3,
            tls,
            limits: Reloadable::new(Limits::new(config)),
            connections: Limit::new(config.max_connections as usize),
            upload_limit_bytes,
            slowed,
            // Ids of different runs differ, so that logs can be distinguished.
            next_request_id: AtomicU64::new(host.clock.unix_seconds() << 32),
            clock: host.clock.clone(),
            home: Context::here(),
            access_log,
            statistics,
        })
    }

    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        shutdown: Shutdown,
        activity: Arc<Activity>,
    ) {
        let Some(tls) = &self.tls else {
            return self.requests(stream, client, shutdown, activity).await;
        };
        // In memory of its own: most connections have no such stream, which is large.
        let encrypted = async {
            let limit = self.limits.get().http.idle_timeout;
            let opening = tls.accept(stream);
            let greeting = net::greet(opening, &self.clock, limit, &shutdown.drain).await;
            if let Some(stream) = greeting.counted(&self.statistics.connections) {
                self.requests(stream, client, shutdown, activity).await;
            }
        };
        Box::pin(encrypted).await;
    }

    /// Serves the requests of an open connection.
    async fn requests<T>(
        self: &Arc<Self>,
        stream: T,
        client: SocketAddr,
        shutdown: Shutdown,
        activity: Arc<Activity>,
    ) where
        T: AsyncRead + SendKept + Unpin + Send + 'static,
    {
        if self.clients.is_some() {
            // The short way knows no origin that judges.
            return Box::pin(self.all_requests(stream, client, false, shutdown, activity)).await;
        }
        let limits = self.limits.get();
        let next_id = || self.request_id();
        let rest = self.plain.serve(
            stream,
            client,
            &limits.http,
            &shutdown.drain,
            &activity,
            &next_id,
        );
        if let Some(Rest { stream, was_read }) = rest.await {
            // In memory of its own: many connections never come here.
            Box::pin(self.all_requests(stream, client, was_read, shutdown, activity)).await;
        }
    }

    fn request_id(&self) -> String {
        format!("{:016X}", self.next_request_id.fetch_add(1, Relaxed))
    }

    /// Serves requests of every kind. The origin answers the first one if the cache has been
    /// asked for its object.
    fn all_requests<T>(
        self: &Arc<Self>,
        stream: T,
        client: SocketAddr,
        was_read: bool,
        shutdown: Shutdown,
        activity: Arc<Activity>,
    ) -> impl Future<Output = ()> + Send + 'static + use<T>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let counters = Arc::clone(&self.statistics.connections);
        let limits = self.limits.get().http.clone();
        let pace = Pace::new(self.clock.clone(), limits.stall_timeout);
        let service = Connection {
            frontend: Arc::clone(self),
            client,
            pace: Arc::clone(&pace),
            was_read: AtomicBool::new(was_read),
        };
        net::serve_http(stream, service, limits, pace, shutdown, counters, activity)
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: SocketAddr,
        pace: Arc<Pace>,
    ) -> PacedResponse {
        let is_head = request.method() == Method::HEAD;
        let uri = request.uri().clone();
        let host = request.headers().get(HOST).cloned();
        let condition = condition::sole(request.headers());
        let is_unasked = expects_without_body(&request);
        let version = request.version();
        let mut meter = RequestMeter::begin(
            Arc::clone(&self.statistics.requests),
            self.clock.clone(),
            request.method(),
        );
        let id = self.request_id();
        let mut record = self.record(&request, client);
        let activity = request.extensions().get::<Arc<Activity>>();
        let refusal = activity.and_then(|activity| self.slowed.refusal(activity));
        let mut response = match refusal {
            Some(error) if request.body().is_end_stream() => error_response(error),
            Some(error) => rejection(error, request.version()),
            None => {
                let answer = self.response(request, record.as_ref());
                Record::answering(record.as_ref(), answer).await
            }
        };
        if is_unasked {
            response = closing(response, version);
        }
        if !is_head {
            complete(&mut response, condition, || self.resource(&uri, host), &id);
        }
        let headers = response.headers_mut();
        // An answer of the origin has its own.
        let server = HeaderValue::from_static("Floe");
        headers.entry(SERVER).or_insert(server);
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.entry(X_AMZ_REQUEST_ID).or_insert(id);
        }
        let result = response.headers().get(read::X_FLOE_CACHE);
        let result = result.and_then(|value| value.to_str().ok());
        meter.answered(response.status(), result);
        tracing::debug!(request = %id, status = response.status().as_u16(), "responded");
        if let Some(record) = &mut record {
            let cache = match response.extensions().get::<Forwarded>() {
                Some(Forwarded) => Some("forwarded".into()),
                None => result.map(|result| result.to_ascii_lowercase().into()),
            };
            // That of the origin, if the answer is.
            let id = response.headers().get(X_AMZ_REQUEST_ID);
            let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
            record.answered(response.status(), id, cache);
        }
        let announced = announced_length(&response, is_head);
        let is_error = response.status().as_u16() >= 400;
        response.map(|body| {
            let body = RecordedBody::new(body, record, is_error);
            PacedBody::new(body, pace, announced, meter)
        })
    }

    /// The bucket and the key of a request, as errors name them.
    fn resource(&self, uri: &Uri, host: Option<HeaderValue>) -> String {
        let headers = host.map(|host| (HOST, host)).into_iter().collect();
        let target = self.domains.target(uri, &headers);
        let (bucket, key) = target.map_or((None, None), |target| (target.bucket, target.key));
        match (bucket, key) {
            (Some(bucket), Some(key)) => format!("/{bucket}/{key}"),
            (Some(bucket), None) => format!("/{bucket}"),
            (None, _) => "/".to_owned(),
        }
    }

    /// The line of a request, if the access log is on.
    fn record(&self, request: &Request<Incoming>, client: SocketAddr) -> Option<Record> {
        if !self.access_log.is_on() {
            return None;
        }
        let target = self.domains.target(request.uri(), request.headers());
        let (bucket, key) = target.map_or((None, None), |target| (target.bucket, target.key));
        let asked = Asked {
            method: request.method().as_str(),
            bucket: bucket.as_deref(),
            key: key.as_deref(),
            query: request.uri().query(),
            user_agent: request.headers().get(USER_AGENT).map(HeaderValue::as_bytes),
            access_key: None,
        };
        Record::begin(&self.access_log, &self.clock, client, &asked)
    }

    async fn response(
        &self,
        request: Request<Incoming>,
        record: Option<&Record>,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        if let Some(record) = record {
            head.extensions.insert(record.verified());
        }
        if self.clients.is_none() && body.is_end_stream() {
            preflight::mark(&mut head);
        }
        let named = || self.domains.require_bucket_name(&head.uri, &head.headers);
        match named().and_then(|()| head::admit(&head)) {
            Ok(credentials) => {
                credentials.date(&mut head.headers);
                head.extensions.insert(credentials)
            }
            Err(error) => return rejection(error, head.version),
        };
        let clock = self.clock.clone();
        let pace = self.limits.get().uploads;
        let received_bytes = record.map(Record::received_bytes);
        let version = head.version;
        let timed = |body| TimedBody::new(body, clock, pace).counted_in(received_bytes);
        let is_streamed = head.method != Method::POST || head::is_streaming(&head.headers);
        let mut arrived = None;
        let body = match body.is_end_stream() {
            true => Body::empty(),
            false if is_streamed => {
                let body = timed(body);
                arrived = Some(body.arrived());
                Body::http_body_unsync(body)
            }
            false => match document(&head, timed(body)).await {
                Ok(document) => Body::from(document),
                Err(error) => return rejection(error, head.version),
            },
        };
        let request = Request::from_parts(head, body);
        let response = match &self.clients {
            Some(clients) => Ok(self.home.run(clients.call(request)).await),
            None => self.home.run(self.service.call(request)).await,
        };
        match response {
            // The rest of the body is not read.
            Ok(response) if arrived.is_some_and(|arrived| !arrived.load(Relaxed)) => {
                closing(response, version)
            }
            Ok(response) => response,
            Err(error) => {
                let source: Box<dyn std::error::Error + Send + Sync> = error.into();
                tracing::error!(error = &*source, "a response could not be written");
                error_response(S3Error::with_message(
                    S3ErrorCode::InternalError,
                    source.to_string(),
                ))
            }
        }
    }
}

/// One connection's view of the frontend.
struct Connection {
    frontend: Arc<S3Frontend>,
    client: SocketAddr,
    pace: Arc<Pace>,
    /// The cache has been asked for the object of the first request.
    was_read: AtomicBool,
}

impl hyper::service::Service<Request<Incoming>> for Connection {
    type Response = PacedResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<PacedResponse, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if self.was_read.swap(false, Relaxed) {
            request.extensions_mut().insert(WasRead);
        }
        let frontend = Arc::clone(&self.frontend);
        let response = frontend.respond(request, self.client, Arc::clone(&self.pace));
        Box::pin(async move { Ok(response.await) })
    }
}

/// Keys of the origin need one that knows keys.
fn require_s3_behind(config: &S3Config, has_s3: bool) -> Result<(), ServerConfigError> {
    let index = config.keys.iter().position(|key| key.origin.is_some());
    match index.filter(|_| !has_s3) {
        None => Ok(()),
        Some(index) => Err(problem(
            &format!("s3.keys[{index}]"),
            "it has keys of the origin, which is no S3 service",
            "remove `origin` there, or set origin.kind = \"s3\"",
        )),
    }
}

fn tls(config: &S3Config) -> Result<Option<Tls>, ServerConfigError> {
    Tls::for_http(S3Frontend::NAME, &config.tls_certificate, &config.tls_key)
}

/// Reads a request body that is a document, and checks its announced length and hashes.
async fn document(head: &Parts, body: TimedBody<Incoming>) -> Result<Bytes, S3Error> {
    let document = upload::collected(body).await?;
    // Checksums of other documents are the object's that they complete.
    if Query::of(&head.uri).has("delete") {
        upload::check_document(&head.headers, &document)?;
    }
    Ok(document)
}

/// Completes the document of an error that is no answer of the origin.
fn complete(
    response: &mut Response<Body>,
    condition: Option<&str>,
    resource: impl FnOnce() -> String,
    request_id: &str,
) {
    let is_own = response.extensions().get::<Forwarded>().is_none();
    if !is_own || response.status().as_u16() < 400 {
        return;
    }
    let document = response.body().bytes();
    let failed = (response.status(), condition);
    let completed = document.and_then(|body| completed(&body, failed, &resource(), request_id));
    if let Some(document) = completed {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(document);
    }
}

/// A response that does not wait for the body. Over HTTP/1 the connection must
/// close, because it has not read this request's body.
fn rejection(error: S3Error, version: Version) -> Response<Body> {
    closing(error_response(error), version)
}

/// The same response, after which a connection of HTTP/1 closes.
fn closing(mut response: Response<Body>, version: Version) -> Response<Body> {
    if version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// True for a request without a body whose client waits to be asked for it: it gets no 100
/// (Continue). botocore, in the AWS command line, takes such an answer for that of its next
/// request on the connection.
fn expects_without_body(request: &Request<Incoming>) -> bool {
    request.headers().contains_key(EXPECT) && request.body().is_end_stream()
}

/// The length that the body must have, if known.
fn announced_length(response: &Response<Body>, is_head: bool) -> Option<u64> {
    if is_head || response.status() == StatusCode::NOT_MODIFIED {
        return None;
    }
    match response.headers().get(CONTENT_LENGTH) {
        Some(value) => value.to_str().ok()?.parse().ok(),
        None => response.body().size_hint().exact(),
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
