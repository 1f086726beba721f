//! Mode `events`: notifications over HTTP in place of requests to the origin.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use common::{Serving, floe, get, run};

const TOKEN: &str = "a secret of senders";

fn start(folder: &Path) -> Serving {
    Serving::spawn(
        floe(folder)
            .env("FLOE_OBJECT_CONSISTENCY", "events")
            .env("FLOE_EVENTS_LISTEN", "127.0.0.1:0")
            .env("FLOE_EVENTS_TOKEN", TOKEN),
    )
}

/// Posts a message, and returns the status.
fn post(server: &Serving, token: &str, message: &str) -> u16 {
    let address = server.announced["events"].as_str().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let length = message.len();
    write!(
        stream,
        "POST /floe HTTP/1.1\r\nHost: floe\r\nConnection: close\r\nAuthorization: {token}\r\nContent-Length: {length}\r\n\r\n{message}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn changed(key: &str) -> String {
    format!(r#"{{"Records":[{{"s3":{{"bucket":{{"name":"data"}},"object":{{"key":"{key}"}}}}}}]}}"#)
}

fn metric(server: &Serving, name: &str) -> f64 {
    let text = String::from_utf8(get(server.admin, "/metrics").1).unwrap();
    let line = text.lines().find(|line| line.starts_with(name));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn notifications_take_the_place_of_requests_to_the_origin() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("floe-data/origin/data/a b");
    fs::create_dir_all(object.parent().unwrap()).unwrap();
    fs::write(&object, "first").unwrap();
    let server = start(folder.path());
    let bearer = format!("Bearer {TOKEN}");
    let read = || String::from_utf8(get(server.s3, "/data/a%20b").1).unwrap();
    // Before anything is heard each read asks the origin.
    assert_eq!(read(), "first");
    fs::write(&object, "second").unwrap();
    assert_eq!(
        (read().as_str(), metric(&server, "floe_events_heard")),
        ("second", 0.0)
    );
    // A message with a wrong token is none, and one that is no message is refused.
    assert_eq!(post(&server, "Bearer wrong", "{}"), 403);
    assert_eq!(post(&server, &bearer, "{\"Records\":[{}]}"), 400);
    assert_eq!(post(&server, &bearer, "{\"records\":[]}"), 400);
    assert_eq!(metric(&server, "floe_events_heard"), 0.0);
    // Once it is heard, what is validated later counts until a notification of it.
    assert_eq!(post(&server, &bearer, "{}"), 200);
    assert_eq!(metric(&server, "floe_events_heard"), 1.0);
    assert_eq!(read(), "second");
    fs::write(&object, "the third").unwrap();
    assert_eq!(read(), "second");
    assert_eq!(post(&server, TOKEN, &changed("other")), 200);
    assert_eq!(read(), "second");
    assert_eq!(post(&server, TOKEN, &changed("a+b")), 200);
    assert_eq!(read(), "the third");
    let counts =
        ["messages", "refused"].map(|name| metric(&server, &format!("floe_events_{name}_total")));
    assert_eq!(counts, [3.0, 3.0]);
    // After a message that Floe cannot take, reads ask the origin, and the next message begins a session.
    fs::write(&object, "fourth").unwrap();
    assert_eq!(read(), "the third");
    assert_eq!(post(&server, TOKEN, "{\"records\":[]}"), 400);
    assert_eq!(metric(&server, "floe_events_heard"), 0.0);
    assert_eq!(post(&server, TOKEN, "{}"), 200);
    assert_eq!(read(), "fourth");
    assert_eq!(post(&server, TOKEN, &"x".repeat(2 << 20)), 413);
}

#[test]
fn an_address_for_others_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let exposed = ["serve", "--events-listen", "0.0.0.0:0"];
    run(folder.path(), &exposed).expect(2, &["events.token"]);
    let nothing = ["serve", "--object-consistency", "events"];
    run(folder.path(), &nothing).expect(2, &["set events.listen"]);
    let elsewhere = [
        "serve",
        "--events-queue",
        "https://sqs.eu-central-1.amazonaws.com/1/q",
    ];
    run(folder.path(), &elsewhere).expect(2, &["events.queue", "only an S3 service"]);
    let useless = ["serve", "--events-token", TOKEN];
    run(folder.path(), &useless).expect(2, &["events.listen"]);
    // They are refused before anything is opened.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn nats_is_an_only_source_with_one_identity() {
    let folder = tempfile::tempdir().unwrap();
    // Files are read once the frontends listen, which other tests on their addresses must not prevent.
    let ports = ["--s3-listen=127.0.0.1:0", "--memcached-listen=off"];
    let ports = [&ports[..], &["--admin-listen=127.0.0.1:0"]].concat();
    let serve = |settings: &[&str], causes: &[&str]| {
        run(folder.path(), &[&["serve"], &ports[..], settings].concat()).expect(2, causes);
    };
    let server = ["--events-nats", "nats://127.0.0.1:1"];
    let subject = ["--events-nats-subject", "floe.data"];
    let nats = [server, subject].concat();
    let with = |more: &[&'static str]| [&nats, more].concat();
    serve(&server, &["events.nats_subject", "wildcards"]);
    serve(&subject, &["events.nats"]);
    let listens = ["--events-listen", "127.0.0.1:0"];
    serve(&[&listens[..], &subject].concat(), &["`events.nats`"]);
    serve(
        &with(&listens),
        &["events.nats", "events.listen is set too"],
    );
    let queue = [
        "--events-queue",
        "https://sqs.eu-central-1.amazonaws.com/1/q",
    ];
    serve(&with(&queue), &["events.nats", "events.queue is set too"]);
    serve(
        &with(&["--events-nats-user", "me"]),
        &["events.nats_password"],
    );
    let file = ["--events-nats-credentials", "/nowhere"];
    serve(&with(&file), &["events.nats_credentials", "No such file"]);
    let both = [
        "--events-nats-token",
        "word",
        "--events-nats-credentials",
        "/nowhere",
    ];
    serve(&with(&both), &["different identities"]);
    serve(
        &with(&["--events-nats-tls-ca", "/nowhere"]),
        &["events.nats_tls_ca"],
    );
    let with_user = [
        "--events-nats",
        "nats://me:word@127.0.0.1",
        subject[0],
        subject[1],
    ];
    serve(&with_user, &["events.nats", "without a user"]);
}
