//! Notifications on a subject of NATS.
//!
//! NATS delivers a message at most once, to every subscriber, and in order over one connection.
//! So a session is one connection: messages are lost only together with it, and its end ends the
//! trust in what was validated before. The subscriber reads a message when it has processed those
//! before, and NATS closes the connection of a reader that is too slow. Heartbeats prove that
//! messages arrive. The subscriber publishes them to the subject, and one that comes back was
//! behind all notifications that NATS got before it. Each session has a random name, and only its
//! own heartbeats count; those of other servers are normal here. Must not depend on the settings.

mod address;
mod connection;
mod error;
mod login;
mod wire;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use floe_core::Tick;
use floe_device::Clock;
use futures::future::join_all;

use super::heartbeat::{HEARTBEATS_PER_TIMEOUT, Heartbeat, random_name};
use super::operation::{Backoff, Operation, within};
use super::receiver::Receiver;
use connection::Connection;
use error::NatsError;
use wire::Frame;

pub(super) use address::{NatsAddress, check_subject};
pub(super) use connection::{NatsSubject, check_authorities};
pub(super) use login::Login;

/// The setting that names the server.
const SETTING: &str = "events.nats";

/// The time until a connection has its subscription.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The time that the server may take for a message of the client.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Notifications that are processed at once.
const NOTIFICATIONS_AT_ONCE: usize = 8;

/// A subscriber to a subject.
pub(super) struct Subscriber {
    subject: NatsSubject,
    clock: Clock,
    /// The silence that ends the mode.
    timeout: Duration,
    connect: Operation,
    listen: Operation,
}

/// A connection, and its heartbeats.
struct Session {
    connection: Connection,
    /// Random, so that no other session of any server has the same.
    name: String,
    /// When the heartbeats were sent that have not come back, in nanoseconds.
    under_way: VecDeque<u64>,
    /// Notifications that are not processed.
    notifications: Vec<Bytes>,
}

impl Subscriber {
    pub(super) fn new(subject: NatsSubject, clock: Clock, timeout: Duration) -> Self {
        Subscriber {
            subject,
            clock,
            timeout,
            connect: Operation::new(SETTING, "connect"),
            listen: Operation::new(SETTING, "listen"),
        }
    }

    /// Failures by their kind.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [self.connect.failures(), self.listen.failures()].into_iter()
    }

    /// Listens until it is dropped; messages after that are lost.
    pub(super) async fn run(&self, receiver: &Receiver) {
        let mut backoff = Backoff::new();
        loop {
            let opened = Connection::open(&self.subject);
            let opened = within(&self.clock, CONNECT_LIMIT, NatsError::Timeout, opened).await;
            if let Some(connection) = self.connect.note(opened) {
                let mut session = Session::new(connection);
                let ended = self.listen(&mut session, receiver, &mut backoff).await;
                receiver.cache.miss_notification();
                self.listen.note(ended);
            }
            self.clock.sleep(backoff.next_pause()).await;
        }
    }

    /// Processes messages until a failure after which some may be lost.
    async fn listen(
        &self,
        session: &mut Session,
        receiver: &Receiver,
        backoff: &mut Backoff,
    ) -> Result<Infallible, NatsError> {
        let mut next_heartbeat = self.clock.now();
        loop {
            let frame = tokio::select! {
                biased;
                () = self.clock.sleep_until(next_heartbeat) => None,
                frame = session.connection.read() => Some(frame?),
            };
            if frame.is_none() {
                self.send_heartbeat(session).await?;
                next_heartbeat = self.clock.now() + self.timeout / HEARTBEATS_PER_TIMEOUT;
            }
            let mut next = frame;
            while let Some(frame) = next {
                if self.process(session, receiver, frame).await? {
                    self.listen.note(Ok::<_, NatsError>(()));
                    backoff.reset();
                }
                next = session.connection.read_buffered()?;
            }
            session.process_notifications(receiver).await;
        }
    }

    async fn send_heartbeat(&self, session: &mut Session) -> Result<(), NatsError> {
        let heartbeat = Heartbeat::new(&session.name, &self.clock);
        let sent = Tick(heartbeat.nanoseconds());
        let oldest = session.under_way.front();
        if oldest.is_some_and(|oldest| sent.since(Tick(*oldest)) > self.timeout) {
            return Err(NatsError::Silent(self.timeout));
        }
        session.under_way.push_back(sent.0);
        let message = wire::publish(&self.subject.name, &heartbeat.body());
        self.write(session, &message).await
    }

    async fn write(&self, session: &mut Session, bytes: &[u8]) -> Result<(), NatsError> {
        let written = session.connection.write(bytes);
        within(&self.clock, WRITE_LIMIT, NatsError::Timeout, written).await
    }

    /// Processes a message of the server; true for a heartbeat that counts.
    async fn process(
        &self,
        session: &mut Session,
        receiver: &Receiver,
        frame: Frame,
    ) -> Result<bool, NatsError> {
        if let Frame::Message(body) = frame {
            return match Heartbeat::read(&body) {
                Some(heartbeat) => self.hear(session, receiver, &heartbeat).await,
                None => {
                    session.add_notification(receiver, body).await;
                    Ok(false)
                }
            };
        }
        // The answer to a ping says that the messages before it are processed.
        session.process_notifications(receiver).await;
        match frame {
            Frame::Ping => self.write(session, wire::PONG).await?,
            Frame::Info(info) if info.shuts_down => return Err(NatsError::ShutsDown),
            Frame::Message(_) | Frame::Pong | Frame::Info(_) => {}
        }
        Ok(false)
    }

    async fn hear(
        &self,
        session: &mut Session,
        receiver: &Receiver,
        heartbeat: &Heartbeat,
    ) -> Result<bool, NatsError> {
        if !heartbeat.is_of(&session.name) {
            return Ok(false);
        }
        session.process_notifications(receiver).await;
        let is_first = session.take_heartbeat(heartbeat.nanoseconds())?;
        if is_first {
            heartbeat.count(receiver, &self.clock, self.timeout);
        }
        Ok(is_first)
    }
}

impl Session {
    fn new(connection: Connection) -> Self {
        Session {
            connection,
            name: random_name(),
            under_way: VecDeque::new(),
            notifications: Vec::with_capacity(NOTIFICATIONS_AT_ONCE),
        }
    }

    /// Takes a heartbeat that came back; false for a copy of one that did before.
    fn take_heartbeat(&mut self, nanoseconds: u64) -> Result<bool, NatsError> {
        match self.under_way.iter().position(|sent| *sent == nanoseconds) {
            None => Ok(false),
            Some(0) => {
                self.under_way.pop_front();
                Ok(true)
            }
            // Messages come in order.
            Some(_) => Err(NatsError::Lost),
        }
    }

    async fn add_notification(&mut self, receiver: &Receiver, body: Bytes) {
        self.notifications.push(body);
        if self.notifications.len() == NOTIFICATIONS_AT_ONCE {
            self.process_notifications(receiver).await;
        }
    }

    async fn process_notifications(&mut self, receiver: &Receiver) {
        let bodies = std::mem::take(&mut self.notifications);
        let take = async |body: &Bytes| {
            let taken = receiver.take(body, false).await;
            if receiver.counted(taken).0 == StatusCode::SERVICE_UNAVAILABLE {
                // It does not come again.
                receiver.cache.miss_notification();
            }
        };
        join_all(bodies.iter().map(take)).await;
    }
}
