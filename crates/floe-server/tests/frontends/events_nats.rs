//! Notifications on a subject of NATS.

use std::sync::Arc;
use std::time::Duration;

use floe_device::Clock;
use floe_server::EventsConfig;
use serde_json::Value;

use crate::admin::metric_sum;
use crate::events::{LONG_SECONDS, RECORD, events_rig, until};
use crate::s3_tls::Identity;
use crate::support::nats::{Nats, SUBJECT};
use crate::support::{MemoryOrigin, Rig};

fn config(nats: &Nats) -> EventsConfig {
    EventsConfig {
        nats: format!("nats://{}", nats.address),
        nats_subject: SUBJECT.into(),
        ..EventsConfig::default()
    }
}

async fn subscribed(nats: &Nats, timeout_seconds: u64) -> Rig {
    events_rig(
        Arc::new(MemoryOrigin::default()),
        timeout_seconds,
        config(nats),
    )
    .await
}

/// A server that has got its first heartbeat back.
async fn heard(timeout_seconds: u64) -> (Arc<Nats>, Rig) {
    let nats = Nats::start(None).await;
    let rig = subscribed(&nats, timeout_seconds).await;
    until("its own heartbeat", || rig.cache.is_notified()).await;
    (nats, rig)
}

/// Delivers a message, and waits until it is processed.
async fn process(nats: &Nats, body: &str) {
    let pongs = nats.pongs();
    nats.deliver(body);
    nats.send(b"PING\r\n");
    until("the message is processed", || nats.pongs() > pongs).await;
}

async fn read(rig: &Rig) -> String {
    rig.get("/bucket/key", &[]).await.text().to_owned()
}

async fn failures(rig: &Rig, operation: &str) -> f64 {
    metric_sum(rig, "floe_events_nats_failures_total", operation).await
}

/// Waits until a connection could not be opened.
async fn until_refused(rig: &Rig) {
    let clock = Clock::real();
    for _ in 0..1_000 {
        if failures(rig, "connect").await > 0.0 {
            return;
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    panic!("a connection was opened");
}

#[tokio::test]
async fn messages_on_a_subject_take_the_place_of_requests() {
    let (nats, rig) = heard(LONG_SECONDS).await;
    assert_eq!(read(&rig).await, "first");
    rig.origin.store("bucket", "key", "second");
    assert_eq!(read(&rig).await, "first");
    process(&nats, RECORD).await;
    assert!(rig.cache.is_notified());
    assert_eq!(read(&rig).await, "second");

    // Other servers have heartbeats of their own on the subject.
    let of_another = r#"{"floe":"another","unix_seconds":1,"nanoseconds":1}"#;
    process(&nats, of_another).await;
    assert!(rig.cache.is_notified());
    assert_eq!(metric_sum(&rig, "floe_events_refused_total", "").await, 0.0);

    // One that cannot be understood may be about any object.
    rig.origin.store("bucket", "key", "third");
    process(&nats, "[]").await;
    assert!(!rig.cache.is_notified());
    assert_eq!(read(&rig).await, "third");
    // Neither a notification nor a copy of a heartbeat says that others arrive.
    process(&nats, RECORD).await;
    process(&nats, &nats.published()[0]).await;
    assert!(!rig.cache.is_notified());

    // More than are processed at once, and the last one counts like the first.
    nats.disconnect(false);
    until("another session", || rig.cache.is_notified()).await;
    assert_eq!(read(&rig).await, "third");
    rig.origin.store("bucket", "key", "fourth");
    let other = RECORD.replace("\"key\"}", "\"other\"}");
    for _ in 0..20 {
        nats.deliver(&other);
    }
    process(&nats, RECORD).await;
    assert_eq!(read(&rig).await, "fourth");
    assert!(rig.cache.is_notified());
    assert_eq!(failures(&rig, "connect").await, 0.0);
    assert_eq!(failures(&rig, "listen").await, 1.0);
}

#[tokio::test]
async fn only_heartbeats_that_come_back_in_time_count() {
    let nats = Nats::start(None).await;
    nats.withhold(true);
    let rig = subscribed(&nats, LONG_SECONDS).await;
    until("a heartbeat", || !nats.published().is_empty()).await;
    process(&nats, RECORD).await;
    assert!(!rig.cache.is_notified());
    let own = nats.published().remove(0);
    process(&nats, &own).await;
    assert!(rig.cache.is_notified());

    nats.disconnect(false);
    until("another session", || nats.published().len() == 2).await;
    let mut late: Value = serde_json::from_str(&nats.published()[1]).unwrap();
    let sent = late["unix_seconds"].as_u64().unwrap();
    late["unix_seconds"] = (sent - LONG_SECONDS - 60).into();
    process(&nats, &late.to_string()).await;
    assert!(!rig.cache.is_notified());
}

#[tokio::test]
async fn a_broken_connection_may_have_lost_messages() {
    let (nats, rig) = heard(LONG_SECONDS).await;
    assert_eq!(read(&rig).await, "first");
    nats.withhold(true);
    nats.disconnect(true);
    until("the end of the session", || !rig.cache.is_notified()).await;
    // Its notification is lost.
    rig.origin.store("bucket", "key", "second");
    assert_eq!(read(&rig).await, "second");
    rig.origin.store("bucket", "key", "third");

    nats.refuse(false);
    until("another session", || nats.published().len() == 2).await;
    let heartbeats = nats.published();
    // That of the earlier session was sent before this subscription.
    process(&nats, &heartbeats[0]).await;
    assert!(!rig.cache.is_notified());
    process(&nats, &heartbeats[1]).await;
    assert!(rig.cache.is_notified());
    assert_eq!(read(&rig).await, "third");
    assert_eq!(failures(&rig, "listen").await, 1.0);
}

#[tokio::test]
async fn heartbeats_that_do_not_come_back_end_the_session() {
    let (nats, rig) = heard(2).await;
    nats.withhold(true);
    until("the silence", || !rig.cache.is_notified()).await;
    until("another connection", || nats.logins().len() >= 2).await;
    nats.withhold(false);
    until("another session", || rig.cache.is_notified()).await;
}

/// Messages come in order, so one that overtakes another tells that this one is lost.
#[tokio::test]
async fn a_lost_heartbeat_ends_the_session() {
    let (nats, rig) = heard(8).await;
    nats.withhold(true);
    let sent = nats.published().len();
    until("a lost heartbeat", || nats.published().len() > sent).await;
    assert!(rig.cache.is_notified());
    nats.withhold(false);
    until("another connection", || nats.logins().len() == 2).await;
    until("another session", || rig.cache.is_notified()).await;
    assert_eq!(failures(&rig, "listen").await, 1.0);
}

#[tokio::test]
async fn signs_of_trouble_end_the_session() {
    let (nats, rig) = heard(LONG_SECONDS).await;
    for (count, bytes) in [
        "-ERR 'Slow Consumer'\r\n".to_owned(),
        "INFO {\"ldm\":true}\r\n".to_owned(),
        format!("MSG {SUBJECT} 1 {}\r\n", (1 << 20) + 1),
        "HTTP/1.1 400 Bad Request\r\n".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        nats.withhold(true);
        nats.send(bytes.as_bytes());
        until(bytes, || !rig.cache.is_notified()).await;
        let is_next = || nats.published().len() == count + 2;
        until("another session", is_next).await;
        process(&nats, &nats.published()[count + 1]).await;
        assert!(rig.cache.is_notified(), "{bytes}");
    }
    assert_eq!(failures(&rig, "listen").await, 4.0);
}

#[tokio::test]
async fn a_server_may_demand_tls_and_a_password() {
    let (identity, other) = (Identity::new(), Identity::new());
    let nats = Nats::start(Some(&identity)).await;
    let mut events = EventsConfig {
        nats_user: "me".into(),
        nats_password: "a word".into(),
        nats_tls_ca: other.path("certificate.pem"),
        ..config(&nats)
    };
    let rig = events_rig(Arc::default(), LONG_SECONDS, events.clone()).await;
    until_refused(&rig).await;
    assert!(nats.logins().is_empty());

    events.nats_tls_ca = identity.path("certificate.pem");
    let rig = events_rig(Arc::default(), LONG_SECONDS, events).await;
    until("its own heartbeat", || rig.cache.is_notified()).await;
    let login = &nats.logins()[0];
    assert_eq!(
        (&login["user"], &login["pass"]),
        (&"me".into(), &"a word".into())
    );
}

/// A server without TLS learns none.
#[tokio::test]
async fn secrets_are_sent_encrypted_if_the_url_says_so() {
    let nats = Nats::start(None).await;
    let events = EventsConfig {
        nats: format!("tls://{}", nats.address),
        nats_token: "a secret".into(),
        ..config(&nats)
    };
    assert!(!format!("{events:?}").contains("secret"));
    let rig = events_rig(Arc::default(), LONG_SECONDS, events).await;
    until_refused(&rig).await;
    assert!(nats.logins().is_empty());
}
