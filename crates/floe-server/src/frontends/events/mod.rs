//! Notifications of changes at the origin, for the consistency mode `events`.
//!
//! A sender posts a message about changed objects, or a heartbeat, to any path. The answer
//! is 200 once nothing from before the changes is served; a sender that gets another one
//! must send again. Or messages are read from a queue, and deleted from it then. Messages,
//! connections and time are bounded. Must not depend on: other frontends.

mod config;
mod heartbeat;
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
use queue::Consumer;
use receiver::Receiver;

/// The time that a sender may keep a connection without a message.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The frontend of notifications.
pub(crate) struct EventsFrontend {
    config: EventsConfig,
    tls: Option<Tls>,
    consumer: Option<Arc<Consumer>>,
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
            consumer: consumer(config, host)?,
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
        if let Some(consumer) = self.consumer.clone() {
            let (receiver, drain) = (Arc::clone(&self.state), serving.shutdown.drain.clone());
            serving.shutdown.tasks.spawn(async move {
                drain.run_until_cancelled(consumer.run(&receiver)).await;
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

/// The reader of the queue, if the settings name one.
fn consumer(config: &EventsConfig, host: &Host) -> Result<Option<Arc<Consumer>>, StartError> {
    if config.queue.is_empty() {
        return Ok(None);
    }
    let queue = host.objects.origin().queue(&config.queue);
    let queue = queue.map_err(|error| {
        let cure = "name a queue of the service whose buckets origin.kind = \"s3\" reads";
        problem("events.queue", &error.to_string(), cure)
    })?;
    let timeout = Duration::from_secs(host.objects.config().events_timeout_seconds);
    let consumer = Consumer::new(queue, host.clock.clone(), timeout);
    Ok(Some(Arc::new(consumer)))
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
        if let Some(consumer) = &self.consumer {
            for (operation, failures) in consumer.failures() {
                samples.counter(
                    "floe_events_queue_failures",
                    "Requests to the queue of notifications that failed",
                    &[("operation", operation)],
                    failures,
                );
            }
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
