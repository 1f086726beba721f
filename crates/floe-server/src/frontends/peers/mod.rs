//! The other nodes of this cache: they ask each other for missing objects before they ask the
//! origin, so that a new node warms without it.
//!
//! A node answers with what it holds, and fetches nothing for another one. Why no answer of a
//! peer breaks the law says `floe::object::Peers`. Time, connections and questions are bounded.
//!
//! Must not depend on: other frontends.

mod client;
mod config;
mod group;
mod protocol;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use floe::object::{ObjectCache, ObjectKey, WantedBytes};
use floe_device::Clock;
use http::{HeaderValue, StatusCode, header};
use tokio::net::TcpListener;

use crate::frontend::{Bound, Frontend, Host, Serving, StartError};
use crate::metrics::{Collect, Counter, Samples};
use crate::net::{self, Pages, Service, bind_tcp};
use client::Client;
use group::{Group, Spread};
use protocol::{BYTES, HOLDS, Holds, Wanted, X_FLOE_FROM};

pub use config::PeersConfig;

/// The time for which a node may keep a connection without a question.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes of the longest question: names and entity tags have a few kilobytes at most.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// The frontend of other nodes.
pub(crate) struct PeersFrontend {
    router: Router,
    max_connections: u32,
    clock: Clock,
    group: Arc<Group>,
    client: Client,
    holder: Arc<Holder>,
}

/// Answers other nodes.
struct Holder {
    cache: ObjectCache,
    secret: String,
    /// This node's number in its own questions.
    identity: HeaderValue,
    served: Counter,
    lacked: Counter,
    refused: Counter,
}

impl Frontend for PeersFrontend {
    type Config = PeersConfig;
    type Listeners = TcpListener;
    const NAME: &'static str = "peers";

    async fn bind(config: &PeersConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let unprepared = |source| StartError::Prepare {
            frontend: Self::NAME,
            source,
        };
        let address = config
            .listen
            .ok_or_else(|| unprepared("peers.listen is off".into()))?;
        let listener = bind_tcp(Self::NAME, address).await?;
        let identity = format!("{:032x}", rand::random::<u128>());
        let identity =
            HeaderValue::from_str(&identity).map_err(|error| unprepared(error.into()))?;
        let spread = Spread {
            order: config.order,
            weight: config.weight,
        };
        let own = listener.local_addr().unwrap_or(address);
        let group = Group::new(&config.nodes, spread, own, &host.clock);
        let client = Client::new(config, Arc::clone(&group), &identity, &host.clock)
            .map_err(|error| unprepared(error.into()))?;
        if !config.nodes.is_empty() {
            // It looks their names up.
            group.peers();
            host.objects.ask_peers(Arc::new(client.clone()));
        }
        let holder = Arc::new(Holder::new(&host.objects, &config.secret, identity));
        let frontend = PeersFrontend {
            router: router(&holder),
            max_connections: config.max_connections,
            clock: host.clock.clone(),
            group,
            client,
            holder,
        };
        Ok(Bound::tcp(frontend, listener))
    }

    fn serve(self: Arc<Self>, listener: TcpListener, serving: Serving) -> Service {
        let pages = Pages {
            router: self.router.clone(),
            max_connections: self.max_connections,
            idle_timeout: IDLE_TIMEOUT,
            tls: None,
            clock: self.clock.clone(),
        };
        pages.serve(listener, serving.shutdown)
    }
}

fn router(holder: &Arc<Holder>) -> Router {
    Router::new()
        .route(HOLDS, post(holds))
        .route(BYTES, post(bytes))
        .layer(DefaultBodyLimit::max(QUESTION_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(holder), admit))
        .with_state(Arc::clone(holder))
}

impl Holder {
    fn new(cache: &ObjectCache, secret: &str, identity: HeaderValue) -> Self {
        Holder {
            cache: cache.clone(),
            secret: secret.to_owned(),
            identity,
            served: Counter::default(),
            lacked: Counter::default(),
            refused: Counter::default(),
        }
    }
}

impl Collect for PeersFrontend {
    fn collect(&self, samples: &mut Samples) {
        let (all, failing) = self.group.counts();
        for (state, nodes) in [("answering", all - failing), ("failing", failing)] {
            samples.gauge(
                "floe_peers_nodes",
                "Other nodes whose addresses are known, by how they answered last",
                &[("state", state)],
                nodes as f64,
            );
        }
        let asked = self.client.counts();
        for (result, count) in [
            ("held", &asked.held),
            ("lacked", &asked.lacked),
            ("failed", &asked.failed),
            ("skipped", &asked.skipped),
        ] {
            samples.counter(
                "floe_peers_asked",
                "Questions to other nodes, by the answer; skipped: too many reads were under way",
                &[("result", result)],
                count.get(),
            );
        }
        for (result, count) in [
            ("held", &self.holder.served),
            ("lacked", &self.holder.lacked),
            ("refused", &self.holder.refused),
        ] {
            samples.counter(
                "floe_peers_answered",
                "Questions of other nodes, by the answer",
                &[("result", result)],
                count.get(),
            );
        }
    }
}

/// Lets questions of other nodes pass.
async fn admit(State(holder): State<Arc<Holder>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let refusal = match headers.get(X_FLOE_FROM) {
        _ if !holder.secret.is_empty() && !net::has_secret(headers, &holder.secret) => Some((
            StatusCode::FORBIDDEN,
            "the secret is not that of peers.secret\n",
        )),
        Some(from) if *from == holder.identity => {
            Some((StatusCode::MISDIRECTED_REQUEST, "a question to itself\n"))
        }
        _ => None,
    };
    match refusal {
        Some((status, why)) => {
            holder.refused.add(1);
            (status, why).into_response()
        }
        None => next.run(request).await,
    }
}

async fn holds(State(holder): State<Arc<Holder>>, Json(asked): Json<Holds>) -> StatusCode {
    let key = ObjectKey::new(asked.bucket, asked.key);
    match holder.cache.holds(&key, asked.offset).await {
        true => {
            holder.served.add(1);
            StatusCode::NO_CONTENT
        }
        false => {
            holder.lacked.add(1);
            StatusCode::NOT_FOUND
        }
    }
}

async fn bytes(State(holder): State<Arc<Holder>>, Json(wanted): Json<Wanted>) -> Response {
    let (meta, range) = (wanted.meta(), wanted.range());
    let key = ObjectKey::new(wanted.bucket, wanted.key);
    let wanted = WantedBytes {
        key: &key,
        meta: &meta,
        range,
    };
    let Some(held) = holder.cache.held_bytes(wanted).await else {
        holder.lacked.add(1);
        return StatusCode::NOT_FOUND.into_response();
    };
    holder.served.add(1);
    let length = held.range.end - held.range.start;
    let headers = [(header::CONTENT_LENGTH, HeaderValue::from(length))];
    (headers, Body::from_stream(held.body)).into_response()
}
