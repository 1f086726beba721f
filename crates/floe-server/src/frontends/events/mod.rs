//! Notifications of changes at the origin, for the consistency mode `events`.
//!
//! A sender posts a message about changed objects, or a heartbeat, to any path. The answer
//! is 200 once nothing from before the changes is served; a sender that gets another one
//! must send again. Or messages are read from a queue, and deleted from it then. Or they are
//! read from a subject of NATS, which sends them once. Messages, connections and time are
//! bounded. Must not depend on: other frontends.

mod config;
mod heartbeat;
mod nats;
mod notification;
mod operation;
mod queue;
mod receiver;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;

use crate::config::{ServerConfigError, problem};
use crate::frontend::{Address, Bound, Frontend, Host, Serving, StartError};
use crate::metrics::{Collect, Samples};
use crate::net::{Pages, Service, Tls, bind_tcp};
use crate::reload::Reload;

pub use config::EventsConfig;
use nats::{NatsSubject, Subscriber, check_authorities};
use queue::Consumer;
use receiver::Receiver;

/// The time that a sender may keep a connection without a message.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The frontend of notifications.
pub(crate) struct EventsFrontend {
    config: EventsConfig,
    tls: Option<Tls>,
    source: Option<Arc<Source>>,
    state: Arc<Receiver>,
}

impl Frontend for EventsFrontend {
    type Config = EventsConfig;
    type Listeners = Option<TcpListener>;
    const NAME: &'static str = "events";

    async fn bind(config: &EventsConfig, host: &Host) -> Result<Bound<Self>, StartError> {
        let listeners = match config.listen {
            Some(address) => Some(bind_tcp(Self::NAME, address).await?),
            None => None,
        };
        let frontend = EventsFrontend {
            config: config.clone(),
            tls: Tls::for_http(Self::NAME, &config.tls_certificate, &config.tls_key)?,
            source: source(config, host).await?.map(Arc::new),
            state: Arc::new(Receiver::new(
                host.objects.clone(),
                host.clock.clone(),
                config.token.clone(),
            )),
        };
        let address = listeners.as_ref().and_then(|one| one.local_addr().ok());
        Ok(Bound {
            frontend,
            addresses: address.map(Address::Tcp).into_iter().collect(),
            listeners,
        })
    }

    fn serve(self: Arc<Self>, listener: Option<TcpListener>, serving: Serving) -> Service {
        if let Some(source) = self.source.clone() {
            let (receiver, drain) = (Arc::clone(&self.state), serving.shutdown.drain.clone());
            serving.shutdown.tasks.spawn(async move {
                drain.run_until_cancelled(source.run(&receiver)).await;
                receiver.cache.miss_notification();
            });
        }
        let Some(listener) = listener else {
            return Service::shared(async {});
        };
        let router = Router::new()
            .fallback(post(receive))
            .with_state(Arc::clone(&self.state));
        let pages = Pages {
            router,
            max_connections: self.config.max_connections,
            idle_timeout: IDLE_TIMEOUT,
            tls: self.tls.clone(),
            clock: self.state.clock.clone(),
        };
        pages.serve(listener, serving.shutdown)
    }

    /// Replaces the certificate for later connections.
    fn reload(self: Arc<Self>, config: &EventsConfig) -> Result<Reload, ServerConfigError> {
        let files = (&*config.tls_certificate, &*config.tls_key);
        Tls::reload(
            &self.tls,
            files,
            ["events.tls_certificate", "events.tls_key"],
        )
    }
}

/// A service from which the server itself reads messages.
enum Source {
    Queue(Consumer),
    Nats(Subscriber),
}

impl Source {
    /// Reads until it is dropped.
    async fn run(&self, receiver: &Receiver) {
        match self {
            Source::Queue(consumer) => consumer.run(receiver).await,
            Source::Nats(subscriber) => subscriber.run(receiver).await,
        }
    }

    fn collect(&self, samples: &mut Samples) {
        let (name, help, failures): (_, _, Vec<_>) = match self {
            Source::Queue(consumer) => (
                "floe_events_queue_failures",
                "Requests to the queue of notifications that failed",
                consumer.failures().collect(),
            ),
            Source::Nats(subscriber) => (
                "floe_events_nats_failures",
                "Connections to NATS that could not be opened, or ended",
                subscriber.failures().collect(),
            ),
        };
        for (operation, failures) in failures {
            samples.counter(name, help, &[("operation", operation)], failures);
        }
    }
}

/// The service that the settings name, if they name one.
async fn source(config: &EventsConfig, host: &Host) -> Result<Option<Source>, StartError> {
    let timeout = Duration::from_secs(host.objects.config().events_timeout_seconds);
    if let Some(subject) = subject(config).await? {
        let subscriber = Subscriber::new(subject, host.clock.clone(), timeout);
        return Ok(Some(Source::Nats(subscriber)));
    }
    if config.queue.is_empty() {
        return Ok(None);
    }
    let queue = host.objects.origin().queue(&config.queue);
    let queue = queue.map_err(|error| {
        let cure = "name a queue of the service whose buckets origin.kind = \"s3\" reads";
        problem("events.queue", &error.to_string(), cure)
    })?;
    let consumer = Consumer::new(queue, host.clock.clone(), timeout);
    Ok(Some(Source::Queue(consumer)))
}

/// The subject of NATS that the settings name, whose files can be read.
async fn subject(config: &EventsConfig) -> Result<Option<NatsSubject>, ServerConfigError> {
    let Some(address) = config.nats_address()? else {
        return Ok(None);
    };
    let login = config.nats_login()?;
    login.check().await.map_err(|error| {
        let cure = "name the file that nsc writes for a user, with the suffix .creds";
        problem("events.nats_credentials", &error, cure)
    })?;
    check_authorities(&config.nats_tls_ca).map_err(|error| {
        problem(
            "events.nats_tls_ca",
            &error,
            "name a file with certificates in PEM",
        )
    })?;
    Ok(Some(NatsSubject {
        address,
        login,
        name: config.nats_subject.clone(),
        authorities: config.nats_tls_ca.clone(),
    }))
}

impl Collect for EventsFrontend {
    fn collect(&self, samples: &mut Samples) {
        let state = &self.state;
        for (name, help, count) in [
            (
                "floe_events_messages",
                "Notifications and heartbeats that were taken",
                &state.messages,
            ),
            (
                "floe_events_refused",
                "Notifications that were refused: a wrong token or message, or a failure",
                &state.refused,
            ),
            (
                "floe_events_objects",
                "Objects that notifications named and the cache may have",
                &state.objects,
            ),
        ] {
            samples.counter(name, help, &[], count.get());
        }
        if let Some(source) = &self.source {
            source.collect(samples);
        }
        samples.gauge(
            "floe_events_heard",
            "1 while notifications arrive, so that mode `events` needs no requests to the origin",
            &[],
            f64::from(u8::from(state.cache.is_notified())),
        );
    }
}

async fn receive(State(state): State<Arc<Receiver>>, request: Request) -> (StatusCode, String) {
    state.counted(state.receive(request).await)
}
