//! Metrics, health and statistics over HTTP, for operators and their tools.

mod collect;
mod config;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use axum::{Extension, Router};
use floe::limit::Limit;
use floe::object::ObjectCache;
use floe_core::Tick;
use floe_device::Clock;
use floe_device::metered::Meters;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::memcached;
use crate::net::{self, Activity, HttpLimits, Pace, Shutdown};

use crate::metrics::{ConnectionCounters, FaceStatistics, Samples};
pub use config::AdminConfig;

/// Connections beyond the limit, on which large pages are not sent.
const HEALTH_CONNECTIONS: u32 = 4;

/// What scrapers that speak Prometheus' newer text format expect.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const HELP: &str = "Floe\n\n\
    /metrics  for Prometheus; with ?zones=1, each zone as well\n\
    /stats    the same as JSON\n\
    /health   200 while the process lives\n\
    /ready    200 while requests are taken, 503 during a shutdown\n\
    /version  the version that runs\n";

/// What the pages are made of.
pub(crate) struct Known {
    pub(crate) cache: ObjectCache,
    pub(crate) device: Option<Arc<Meters>>,
    pub(crate) faces: Vec<(&'static str, Arc<FaceStatistics>)>,
    pub(crate) memcached: Option<Arc<memcached::Face>>,
    pub(crate) clock: Clock,
    pub(crate) started: Tick,
    /// Cancelled when the other faces take no more requests.
    pub(crate) draining: CancellationToken,
}

impl Known {
    fn samples(&self, query: Option<&str>) -> Samples {
        let mut samples = Samples::default();
        collect::process(&mut samples);
        let uptime = self.clock.now().since(self.started).as_secs_f64();
        samples.gauge("floe_uptime_seconds", "Time since the start", &[], uptime);
        collect::cache(&mut samples, &self.cache);
        if let Some(meters) = &self.device {
            collect::device(&mut samples, meters);
        }
        for (name, statistics) in &self.faces {
            statistics.collect(&mut samples, name);
        }
        if let Some(face) = &self.memcached {
            face.collect(&mut samples);
        }
        if query.is_some_and(|query| query.split('&').any(|pair| pair == "zones=1")) {
            collect::zones(&mut samples, self.cache.store());
        }
        samples
    }
}

/// Serves until the shutdown.
pub(crate) async fn serve(
    config: AdminConfig,
    known: Arc<Known>,
    listener: TcpListener,
    shutdown: Shutdown,
) {
    let clock = known.clock.clone();
    let pages = Arc::new(Semaphore::new(config.max_connections as usize));
    let router = router(known, pages);
    let counters = Arc::new(ConnectionCounters::default());
    let connections = shutdown.clone();
    let connection_counters = Arc::clone(&counters);
    net::accept(
        listener,
        Limit::new(config.max_connections.saturating_add(HEALTH_CONNECTIONS) as usize),
        clock.clone(),
        shutdown,
        counters,
        move |stream, activity| {
            connection(
                stream,
                activity,
                router.clone(),
                clock.clone(),
                connections.clone(),
                Arc::clone(&connection_counters),
            )
        },
    )
    .await;
}

fn connection(
    stream: TcpStream,
    activity: Arc<Activity>,
    router: Router,
    clock: Clock,
    shutdown: Shutdown,
    counters: Arc<ConnectionCounters>,
) -> impl Future<Output = ()> + Send + 'static {
    let limits = HttpLimits {
        max_streams: 16,
        max_header_bytes: 16 << 10,
        idle_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(10),
    };
    let pace = Pace::new(clock, limits.stall_timeout);
    let service = TowerToHyperService::new(router);
    net::serve_http(stream, service, limits, pace, shutdown, counters, activity)
}

fn router(known: Arc<Known>, pages: Arc<Semaphore>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route_layer(middleware::from_fn_with_state(pages, limited))
        // Not limited: small, and what an operator asks first.
        .route("/", get(async || HELP))
        .route("/health", get(async || "ok\n"))
        .route("/ready", get(ready))
        .route("/version", get(version))
        .fallback(async || (StatusCode::NOT_FOUND, HELP))
        .with_state(known)
}

/// Refuses a page while as many connections as agreed are being sent pages, so
/// that the connections on top are idle or ask for the health.
async fn limited(
    State(pages): State<Arc<Semaphore>>,
    Extension(activity): Extension<Arc<Activity>>,
    request: Request,
    next: Next,
) -> Response {
    match pages.try_acquire_owned() {
        Ok(page) => {
            activity.keep(page);
            next.run(request).await
        }
        Err(_) => {
            let problem = "too many pages are being sent; raise admin.max_connections\n";
            (StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
        }
    }
}

async fn metrics(State(known): State<Arc<Known>>, uri: Uri) -> Response {
    match known.samples(uri.query()).into_text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn stats(State(known): State<Arc<Known>>, uri: Uri) -> Response {
    Json(known.samples(uri.query()).to_json()).into_response()
}

async fn ready(State(known): State<Arc<Known>>) -> Response {
    match known.draining.is_cancelled() {
        false => "ready\n".into_response(),
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response(),
    }
}

async fn version() -> Response {
    Json(json!({ "name": "floe", "version": env!("CARGO_PKG_VERSION") })).into_response()
}
