//! The commands of `floe cache` over HTTP.
//!
//! They change or empty the cache, so that they need `admin.token`, wherever the request
//! comes from, and without one there are none. A browser never sends them: they are POSTs
//! of JSON, and one with an `Origin` is refused.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use bytes::Bytes;
use floe::object::Purge;
use floe_core::ByteSize;
use floe_device::Clock;
use futures::stream::{self, Stream, StreamExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::commands::{Failed, Objects, Selection, WarmedObject};
use crate::frontend::Host;
use crate::net::has_secret;
use crate::node::{Command, CommandError, Node};

/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The time that a client may take for a request.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Commands at once. A further one is refused.
const COMMANDS_MAX: usize = 8;

/// The content type of a line of JSON for each result.
const JSON_LINES: &str = "application/x-ndjson";

/// Carries the commands out.
pub(super) struct Commands {
    objects: Arc<Objects>,
    node: Arc<Node>,
    clock: Clock,
    token: String,
    draining: CancellationToken,
    places: Arc<Semaphore>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeRequest {
    sets: Vec<Purge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinRequest {
    bucket: String,
    #[serde(default)]
    prefix: String,
    cap: Option<ByteSize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnpinRequest {
    bucket: String,
    #[serde(default)]
    prefix: String,
}

/// A request without parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

impl Commands {
    pub(super) fn new(host: &Host, token: &str) -> Arc<Self> {
        Arc::new(Commands {
            objects: Arc::new(Objects::new(host.objects.clone(), host.clock.clone())),
            node: Arc::clone(&host.node),
            clock: host.clock.clone(),
            token: token.to_owned(),
            draining: host.draining.clone(),
            places: Arc::new(Semaphore::new(COMMANDS_MAX)),
        })
    }

    /// Refuses a request before a byte of its body is read.
    fn check(&self, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, Refusal> {
        let refused = |status, problem| Err(Refusal::new(status, problem));
        let media_type = headers.get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next());
        if self.token.is_empty() {
            return refused(StatusCode::FORBIDDEN, "commands are off: set admin.token");
        }
        if headers.contains_key(header::ORIGIN) {
            return refused(StatusCode::FORBIDDEN, "web pages may not send commands");
        }
        if !has_secret(headers, &self.token) {
            return refused(
                StatusCode::FORBIDDEN,
                "the token is not that of admin.token; it comes in `Authorization: Bearer …`",
            );
        }
        if media_type.map(str::trim) != Some("application/json") {
            return refused(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a command is JSON: send `Content-Type: application/json`",
            );
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.or_else(|_| {
            refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many commands at once; try again",
            )
        })
    }

    /// Takes a request whose body is a `T`.
    async fn take<T: DeserializeOwned>(
        &self,
        request: Request,
    ) -> Result<(T, OwnedSemaphorePermit), Refusal> {
        let place = self.check(request.headers())?;
        let body = to_bytes(request.into_body(), REQUEST_BYTES_MAX);
        let body = tokio::select! {
            biased;
            body = body => body,
            () = self.clock.sleep(REQUEST_TIME) => {
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not end"));
            }
        };
        let problem = "the request broke off, or is longer than 64 KiB";
        let body = body.map_err(|_| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, problem))?;
        match serde_json::from_slice(&body) {
            Ok(request) => Ok((request, place)),
            Err(error) => Err(Refusal::new(StatusCode::BAD_REQUEST, &error.to_string())),
        }
    }

    /// A line of JSON for each item of `pages`, until the client leaves. If the server stops
    /// first, the last line is an error.
    fn lines<T: Serialize + Send + 'static>(
        &self,
        pages: impl Stream<Item = Result<Vec<T>, Failed>> + Send + 'static,
        place: OwnedSemaphorePermit,
    ) -> Response {
        let draining = self.draining.clone();
        let texts = stream::unfold(Some(Box::pin(pages)), move |pages| {
            let draining = draining.clone();
            async move {
                let mut pages = pages?;
                tokio::select! {
                    biased;
                    // The last line, so that what was cut off does not look complete.
                    () = draining.cancelled() => {
                        Some((line(&json!({ "error": "the server is stopping" })), None))
                    }
                    page = pages.next() => {
                        let text = match page? {
                            Ok(items) => items.iter().map(line).collect(),
                            Err(failed) => line(&json!({ "error": failed.message })),
                        };
                        Some((text, Some(pages)))
                    }
                }
            }
        });
        let body = texts.map(move |text| {
            // Held until the last page was taken.
            let _ = &place;
            Ok::<_, std::convert::Infallible>(Bytes::from(text))
        });
        (
            [(header::CONTENT_TYPE, JSON_LINES)],
            Body::from_stream(body),
        )
            .into_response()
    }
}

/// The routes of the commands.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(commands: Arc<Commands>) -> Router<S> {
    Router::new()
        .route("/cache/purge", post(purge))
        .route("/cache/ls", post(ls))
        .route("/cache/warm", post(warm))
        .route("/cache/pin", post(pin))
        .route("/cache/unpin", post(unpin))
        .route("/cache/pins", post(pins))
        .route("/v1/node/join", post(join))
        .route("/v1/node/leave", post(leave))
        .route("/v1/node/confirm", post(confirm))
        .with_state(commands)
}

type Answer = Result<Response, Refusal>;

async fn purge(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    let (PurgeRequest { sets }, place) = commands.take(request).await?;
    let objects = Arc::clone(&commands.objects);
    let purged = to_its_end(place, async move { objects.purge(sets).await });
    Ok(Json(json!({ "purged": purged.await? })).into_response())
}

async fn pin(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    let (request, place) = commands.take(request).await?;
    let PinRequest {
        bucket,
        prefix,
        cap,
    } = request;
    let objects = Arc::clone(&commands.objects);
    let pin = async move { objects.pin(&bucket, &prefix, cap).await };
    Ok(Json(to_its_end(place, pin).await?).into_response())
}

async fn unpin(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    let (UnpinRequest { bucket, prefix }, place) = commands.take(request).await?;
    let objects = Arc::clone(&commands.objects);
    let unpinned = to_its_end(place, async move { objects.unpin(&bucket, &prefix).await });
    Ok(Json(json!({ "was_pinned": unpinned.await? })).into_response())
}

async fn pins(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    let (Empty {}, place) = commands.take(request).await?;
    let pins = commands.objects.pins();
    Ok(commands.lines(stream::iter([Ok(pins)]), place))
}

async fn ls(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    let (selection, place) = commands.take::<Selection>(request).await?;
    let pages = Arc::clone(&commands.objects).pages(selection);
    Ok(commands.lines(pages, place))
}

async fn warm(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    let (selection, place) = commands.take::<Selection>(request).await?;
    let warmed = Arc::clone(&commands.objects).warm_all(selection);
    Ok(commands.lines::<WarmedObject>(warmed, place))
}

async fn join(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    tell(&commands, request, Command::Join).await
}

async fn leave(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    tell(&commands, request, Command::Leave).await
}

async fn confirm(State(commands): State<Arc<Commands>>, request: Request) -> Answer {
    tell(&commands, request, Command::Confirm).await
}

async fn tell(commands: &Commands, request: Request, command: Command) -> Answer {
    let (Empty {}, place) = commands.take(request).await?;
    let node = Arc::clone(&commands.node);
    let told = to_its_end(place, async move {
        let told = node.command(command).await;
        told.map_err(|error| Failed {
            is_usage: matches!(error, CommandError::HasLease),
            message: error.to_string(),
        })?;
        Ok(node.status())
    });
    Ok(Json(told.await?).into_response())
}

/// Carries a change out even if the client leaves.
async fn to_its_end<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    change: impl Future<Output = Result<T, Failed>> + Send + 'static,
) -> Result<T, Refusal> {
    let change = tokio::spawn(async move {
        let done = change.await;
        drop(place);
        done
    });
    match change.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Failed { is_usage, message })) => Err(Refusal::new(
            match is_usage {
                true => StatusCode::BAD_REQUEST,
                false => StatusCode::SERVICE_UNAVAILABLE,
            },
            &message,
        )),
        Err(_) => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "stopped")),
    }
}

/// Why a command is not carried out.
struct Refusal(StatusCode, String);

impl Refusal {
    fn new(status: StatusCode, problem: &str) -> Self {
        Refusal(status, problem.to_owned())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(status, problem) = self;
        (status, Json(json!({ "error": problem }))).into_response()
    }
}

/// `value` as a line of JSON.
fn line(value: &impl Serialize) -> String {
    // These types have no map with other keys than texts.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
