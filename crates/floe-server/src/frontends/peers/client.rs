//! Asks the other nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use floe::object::{HeldBytes, ObjectKey, Peers, WantedBytes};
use floe::origin::{OriginBody, OriginError};
use floe_device::Clock;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::Response;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::PeersConfig;
use super::group::{Group, Peer};
use super::protocol::{BYTES, HOLDS, Holds, Wanted, X_FLOE_FROM};
use crate::metrics::Counter;

/// Reads of peers at once. A further one waits, as long as for an answer.
const READS_AT_ONCE: usize = 128;

/// A node that sends bytes more slowly is left in favour of the origin.
const BYTES_PER_SECOND_MIN: u64 = 8 << 20;

/// Asks the nodes that most likely hold an object. Cheap to clone.
#[derive(Clone)]
pub(super) struct Client(Arc<Asker>);

struct Asker {
    group: Arc<Group>,
    http: reqwest::Client,
    headers: HeaderMap,
    clock: Clock,
    asked: usize,
    timeout: Duration,
    reads: Arc<Semaphore>,
    counts: Counts,
}

/// Questions by their result.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) held: Counter,
    pub(super) lacked: Counter,
    pub(super) failed: Counter,
    /// Never asked: too many reads were under way.
    pub(super) skipped: Counter,
}

impl Client {
    pub(super) fn new(
        config: &PeersConfig,
        group: Arc<Group>,
        identity: &HeaderValue,
        clock: &Clock,
    ) -> Result<Self, reqwest::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(X_FLOE_FROM, identity.clone());
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(secret) = config.bearer() {
            headers.insert(header::AUTHORIZATION, secret);
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("floe/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.timeout())
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .build()?;
        Ok(Client(Arc::new(Asker {
            group,
            http,
            headers,
            clock: clock.clone(),
            asked: config.asked as usize,
            timeout: config.timeout(),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
            counts: Counts::default(),
        })))
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.0.counts
    }
}

impl Asker {
    /// The nodes to ask for an object, the likeliest holder first.
    fn holders(&self, key: &ObjectKey) -> Vec<Arc<Peer>> {
        let now = self.clock.now();
        let all = self.group.peers();
        let order = all.holders.of(key.bucket(), key.key());
        let others = order.filter_map(|index| all.peers[index].clone());
        // A node that failed has its place all the same: the next ones hardly hold its objects.
        let likeliest = others.filter(|peer| !peer.is_self()).take(self.asked);
        likeliest.filter(|peer| peer.may_be_asked(now)).collect()
    }

    /// A node's answer, if it holds what was asked for, and says so in time.
    async fn ask(&self, peer: &Peer, path: &str, question: &impl Serialize) -> Option<Response> {
        let body = serde_json::to_vec(question).ok()?;
        let request = self
            .http
            .post(format!("http://{}{path}", peer.address))
            .headers(self.headers.clone())
            .body(body);
        let answer = tokio::select! {
            biased;
            answer = request.send() => answer.map_err(|error| error.to_string()),
            () = self.clock.sleep(self.timeout) => Err(LATE.to_owned()),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.fails(peer, &error);
                return None;
            }
        };
        match answer.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => {
                self.counts.held.add(1);
                return Some(answer);
            }
            StatusCode::MISDIRECTED_REQUEST => peer.is_this_node(),
            // A question that it does not understand is not its failure.
            StatusCode::NOT_FOUND
            | StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => {
                self.counts.lacked.add(1);
                peer.answers();
            }
            status => self.fails(peer, &format!("it answered {status}")),
        }
        None
    }

    fn fails(&self, peer: &Peer, why: &str) {
        self.counts.failed.add(1);
        peer.fails(self.clock.now(), why);
    }

    /// Waits for a turn to read.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.reads).acquire_owned();
        let turn = tokio::select! {
            biased;
            turn = turn => turn.ok(),
            () = self.clock.sleep(self.timeout) => None,
        };
        if turn.is_none() {
            self.counts.skipped.add(1);
        }
        turn
    }
}

const LATE: &str = "no answer in time";

#[async_trait]
impl Peers for Client {
    async fn hold(&self, key: &ObjectKey, offset: u64) -> bool {
        let asker = &self.0;
        // Tasks, so that those whose answer is not waited for keep their connections.
        let asking = asker.holders(key).into_iter().map(|peer| {
            let (asker, question) = (Arc::clone(asker), Holds::new(key, offset));
            tokio::spawn(async move {
                let answer = asker.ask(&peer, HOLDS, &question).await;
                answer.inspect(|_| peer.answers()).is_some()
            })
        });
        let answers: FuturesUnordered<_> = asking.collect();
        answers.any(async |answer| answer.unwrap_or(false)).await
    }

    async fn read(&self, wanted: WantedBytes<'_>) -> Option<HeldBytes> {
        let asker = &self.0;
        let turn = asker.turn().await?;
        let question = Wanted::new(&wanted);
        let range = wanted.range;
        for peer in asker.holders(wanted.key) {
            let Some(answer) = asker.ask(&peer, BYTES, &question).await else {
                continue;
            };
            let held = answer.content_length().filter(|&bytes| bytes > 0);
            let end = held.and_then(|bytes| range.start.checked_add(bytes));
            let Some(end) = end.filter(|&end| end <= range.end) else {
                asker.fails(&peer, "its answer has not the length of what was asked for");
                continue;
            };
            let bytes = end - range.start;
            let slowest = Duration::from_millis(bytes.saturating_mul(1000) / BYTES_PER_SECOND_MIN);
            let answer = Answer {
                response: answer,
                asker: Arc::clone(asker),
                peer,
                time_left: asker.timeout + slowest,
                bytes_left: bytes,
                _turn: turn,
            };
            return Some(HeldBytes {
                range: range.start..end,
                body: answer.into_body(),
            });
        }
        None
    }
}

/// The bytes of a node as they arrive.
struct Answer {
    response: Response,
    asker: Arc<Asker>,
    peer: Arc<Peer>,
    time_left: Duration,
    bytes_left: u64,
    _turn: OwnedSemaphorePermit,
}

impl Answer {
    fn into_body(self) -> OriginBody {
        let pieces = futures::stream::try_unfold(self, |mut answer| async move {
            let piece = answer.next().await?;
            Ok(piece.map(|piece| (piece, answer)))
        });
        pieces.boxed()
    }

    /// The time in which a reader takes the pieces is not the node's.
    async fn next(&mut self) -> Result<Option<Bytes>, OriginError> {
        if self.bytes_left == 0 {
            return Ok(None);
        }
        let begun = self.asker.clock.now();
        let limit = self.asker.timeout.min(self.time_left);
        let piece = tokio::select! {
            biased;
            piece = self.response.chunk() => piece.map_err(|error| error.to_string()),
            () = self.asker.clock.sleep(limit) => Err(LATE.to_owned()),
        };
        let took = self.asker.clock.now().since(begun);
        self.time_left = self.time_left.saturating_sub(took);
        match piece {
            Ok(Some(piece)) => {
                self.bytes_left = self.bytes_left.saturating_sub(piece.len() as u64);
                if self.bytes_left == 0 {
                    self.peer.answers();
                }
                Ok(Some(piece))
            }
            // Its last byte was waited for above.
            Ok(None) => Err(self.fails("its answer broke off")),
            Err(error) => Err(self.fails(&error)),
        }
    }

    fn fails(&self, why: &str) -> OriginError {
        self.asker.fails(&self.peer, why);
        OriginError::Unreachable(why.to_owned())
    }
}
