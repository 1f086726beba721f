//! One HTTP connection: HTTP/1.1 or, with prior knowledge, HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use floe::limit::Limit;
use floe::origin::Client;
use floe_device::Clock;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service as HyperService;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::accept::{Places, accept};
use super::tls::{Tls, greet};
use super::{Activity, Busy, Pace, Service, Shutdown, StallGuard};
use crate::metrics::ConnectionCounters;

/// The limits of one connection.
#[derive(Clone, Debug)]
pub(crate) struct HttpLimits {
    pub(crate) max_streams: u32,
    pub(crate) max_header_bytes: u32,
    pub(crate) idle_timeout: Duration,
    pub(crate) stall_timeout: Duration,
}

impl HttpLimits {
    /// The limits of a service with few clients and short heads.
    pub(crate) fn for_small_requests(idle_timeout: Duration) -> Self {
        HttpLimits {
            max_streams: 16,
            max_header_bytes: 16 << 10,
            idle_timeout,
            stall_timeout: Duration::from_secs(10),
        }
    }
}

/// Serves a connection until the client leaves, stalls or breaks a limit, or
/// until its pending requests have responses after a shutdown began.
pub(crate) async fn serve_http<T, S, B>(
    stream: T,
    service: S,
    limits: HttpLimits,
    pace: Arc<Pace>,
    shutdown: Shutdown,
    counters: Arc<ConnectionCounters>,
    activity: Arc<Activity>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HyperService<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let builder = builder(&limits);
    let guard = StallGuard::new(stream, pace.clock().clone(), limits.stall_timeout)
        .with_opening_limit(limits.idle_timeout)
        .with_activity(Arc::clone(&activity));
    let io = TokioIo::new(guard);
    // Boxed: a future that is moved into another one takes its place there twice.
    let mut connection = Box::pin(builder.serve_connection(io, Watched { service, activity }));
    let stalled = pace.stalled();
    tokio::pin!(stalled);
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    counters.broken.add(1);
                    tracing::debug!(error = &*error as &dyn std::error::Error, "a connection broke off");
                }
                return;
            }
            () = &mut stalled => {
                counters.stalled.add(1);
                tracing::debug!("a client received nothing of its response for too long; its connection is closed");
                return;
            }
            () = shutdown.drain.cancelled(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Pages over HTTP, for a few clients.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) router: Router,
    /// Most connections at a time.
    pub(crate) max_connections: u32,
    pub(crate) idle_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) clock: Clock,
}

impl Pages {
    /// Accepts connections and serves them.
    pub(crate) fn serve(self, listener: TcpListener, shutdown: Shutdown) -> Service {
        let counters = Arc::new(ConnectionCounters::default());
        let places = Limit::new(self.max_connections as usize);
        let places = Places::new(&places, &self.clock);
        let (ending, counted) = (shutdown.clone(), Arc::clone(&counters));
        let serve = move |stream, _, activity| {
            let (shutdown, counters) = (shutdown.clone(), Arc::clone(&counters));
            self.clone()
                .connection(stream, shutdown, counters, activity)
        };
        Service::shared(accept(listener, places, ending, counted, serve))
    }

    async fn connection(
        self,
        stream: TcpStream,
        shutdown: Shutdown,
        counters: Arc<ConnectionCounters>,
        activity: Arc<Activity>,
    ) {
        let limits = HttpLimits::for_small_requests(self.idle_timeout);
        let pace = Pace::new(self.clock.clone(), limits.stall_timeout);
        let service = TowerToHyperService::new(self.router);
        let Some(tls) = self.tls else {
            return serve_http(stream, service, limits, pace, shutdown, counters, activity).await;
        };
        let (opening, limit) = (tls.accept(stream), limits.stall_timeout);
        let greeting = greet(opening, &self.clock, limit, &shutdown.drain).await;
        if let Some(stream) = greeting.counted(&counters) {
            serve_http(stream, service, limits, pace, shutdown, counters, activity).await;
        }
    }
}

/// A service that counts requests as their connection's activity, and adds the
/// activity to their extensions.
struct Watched<S> {
    service: S,
    activity: Arc<Activity>,
}

impl<S, B> HyperService<Request<Incoming>> for Watched<S>
where
    S: HyperService<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<WatchedBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let busy = self.activity.begin();
        request.extensions_mut().insert(Arc::clone(&self.activity));
        let response = self.service.call(request);
        Box::pin(async move {
            let response = response.await?;
            Ok(response.map(|inner| WatchedBody { inner, _busy: busy }))
        })
    }
}

/// The body of a response in transfer.
struct WatchedBody<B> {
    inner: B,
    _busy: Busy,
}

impl<B: Body + Unpin> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Spawns the streams of a connection for its client.
#[derive(Clone)]
struct StreamExecutor(Client);

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(self.0.scope(stream));
    }
}

fn builder(limits: &HttpLimits) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor(Client::current()));
    builder
        .http1()
        .timer(TokioTimer::new())
        .keep_alive(true)
        .header_read_timeout(limits.idle_timeout)
        // hyper rejects a head that exceeds its buffer.
        .max_buf_size(limits.max_header_bytes as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(limits.idle_timeout)
        .max_concurrent_streams(limits.max_streams)
        .max_header_list_size(limits.max_header_bytes)
        .max_send_buf_size(256 << 10);
    builder
}
