//! Metrics, health, statistics and commands over HTTP, for operators and their tools.

mod collect;
mod commands;
mod config;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use axum::{Extension, Router};
use floe_core::Tick;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::config::ServerConfigError;
use crate::frontend::{Bound, Frontend, Host, Serving, StartError};
use crate::metrics::{Collect, Samples, collect_volumes};
use crate::net::{Activity, Pages, Service, Tls, bind_tcp};
use crate::reload::Reload;

use commands::Commands;

pub use collect::resident_bytes;

pub use config::AdminConfig;

/// The time for which a client may keep a connection without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections beyond the limit, for small pages only.
const HEALTH_CONNECTIONS: u32 = 4;

/// The content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const HELP: &str = "Floe\n\n\
    /metrics  for Prometheus; with ?zones=1, each zone as well\n\
    /stats    the same as JSON\n\
    /health   200 while the process lives\n\
    /ready    200 while requests are taken, 404 during a shutdown\n\
    /ready/member  likewise, and 503 while this node answers with misses\n\
    /v1/node  this server as one of several nodes\n\
    /version  the version that runs\n\n\
    With admin.token, POST JSON to /cache/ls, warm, purge, pin, unpin or pins,\n\
    and {} to /v1/node/join, leave or confirm\n";

/// The frontend for operators.
pub(crate) struct AdminFrontend {
    config: AdminConfig,
    tls: Option<Tls>,
    host: Host,
    started: Tick,
}

impl Frontend for AdminFrontend {
    type Config = AdminConfig;
    type Listeners = TcpListener;
    const NAME: &'static str = "admin";
    const ENDS_LAST: bool = true;

    async fn bind(config: &AdminConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let listener = bind_tcp(Self::NAME, config.listen).await?;
        let frontend = AdminFrontend {
            config: config.clone(),
            tls: Tls::for_http(Self::NAME, &config.tls_certificate, &config.tls_key)?,
            host: host.clone(),
            started: host.clock.now(),
        };
        Ok(Bound::tcp(frontend, listener))
    }

    fn serve(self: Arc<Self>, listener: TcpListener, serving: Serving) -> Service {
        let Serving { shutdown, metrics } = serving;
        let connections = self.config.max_connections;
        let pages = Arc::new(Semaphore::new(connections as usize));
        let clock = self.host.clock.clone();
        let host = self.host.clone();
        let commands = Commands::new(&host, &self.config.token);
        let router = router(Arc::new(MetricsState { metrics, host }), pages, commands);
        let pages = Pages {
            router,
            max_connections: connections.saturating_add(HEALTH_CONNECTIONS),
            idle_timeout: IDLE_TIMEOUT,
            tls: self.tls.clone(),
            clock,
        };
        pages.serve(listener, shutdown)
    }

    /// Replaces the certificate for later connections.
    fn reload(self: Arc<Self>, config: &AdminConfig) -> Result<Reload, ServerConfigError> {
        let files = (&*config.tls_certificate, &*config.tls_key);
        Tls::reload(&self.tls, files, ["admin.tls_certificate", "admin.tls_key"])
    }
}

impl Collect for AdminFrontend {
    /// Adds the samples of the process, the cache and its device.
    fn collect(&self, samples: &mut Samples) {
        collect::process(samples);
        let uptime = self.host.clock.now().since(self.started).as_secs_f64();
        samples.gauge("floe_uptime_seconds", "Time since the start", &[], uptime);
        self.host.node.collect(samples);
        collect::cache(samples, &self.host.objects);
        if let Some(volumes) = &self.host.volumes {
            collect_volumes(samples, volumes);
        }
        if let Some(meters) = &self.host.device {
            collect::device(samples, meters);
        }
        if let Some(health) = &self.host.health {
            collect::health(samples, &health.latest(self.host.clock.now()));
        }
    }
}

/// The state that the pages show.
struct MetricsState {
    metrics: Arc<[Arc<dyn Collect>]>,
    host: Host,
}

impl MetricsState {
    fn samples(&self, query: Option<&str>) -> Samples {
        let mut samples = Samples::default();
        for frontend in self.metrics.iter() {
            frontend.collect(&mut samples);
        }
        if query.is_some_and(|query| query.split('&').any(|pair| pair == "zones=1")) {
            collect::zones(&mut samples, self.host.objects.store());
        }
        samples
    }
}

fn router(state: Arc<MetricsState>, pages: Arc<Semaphore>, commands: Arc<Commands>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route_layer(middleware::from_fn_with_state(pages, limited))
        // Small pages have no limit: operators need them first.
        .route("/", get(async || HELP))
        .route("/health", get(async || "ok\n"))
        .route("/ready", get(ready))
        .route("/ready/member", get(ready_member))
        .route("/v1/node", get(node))
        .route("/version", get(version))
        .merge(commands::routes(commands))
        .fallback(async || (StatusCode::NOT_FOUND, HELP))
        .with_state(state)
}

/// Rejects a page while `max_connections` pages are being sent, so that
/// connections for health checks stay free.
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

async fn metrics(State(state): State<Arc<MetricsState>>, uri: Uri) -> Response {
    match state.samples(uri.query()).into_text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn stats(State(state): State<Arc<MetricsState>>, uri: Uri) -> Response {
    Json(state.samples(uri.query()).to_json()).into_response()
}

async fn ready(State(state): State<Arc<MetricsState>>) -> Response {
    match state.host.leaving.is_cancelled() {
        false => "ready\n".into_response(),
        // With 503 a load balancer would end the transfers under way.
        true => (StatusCode::NOT_FOUND, "shutting down\n").into_response(),
    }
}

async fn ready_member(State(state): State<Arc<MetricsState>>) -> Response {
    match state.host.node.is_member() {
        true => ready(State(state)).await,
        false => (StatusCode::SERVICE_UNAVAILABLE, "not confirmed\n").into_response(),
    }
}

async fn node(State(state): State<Arc<MetricsState>>) -> Response {
    Json(state.host.node.status()).into_response()
}

async fn version() -> Response {
    Json(json!({ "name": "floe", "version": env!("CARGO_PKG_VERSION") })).into_response()
}
