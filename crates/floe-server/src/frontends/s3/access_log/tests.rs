use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use floe_device::Clock;
use http::StatusCode;
use serde_json::Value;

use super::*;

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

fn asked<'a>(key: &'a str, query: Option<&'a str>) -> Asked<'a> {
    Asked {
        method: "GET",
        bucket: Some("bucket"),
        key: Some(key),
        query,
        user_agent: Some(b"agent"),
        access_key: None,
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn opened_in(folder: &Path) -> (PathBuf, Arc<AccessLog>) {
    let path = folder.join("log");
    let log = AccessLog::new();
    log.switch_to(Opened::new(&path).unwrap()).unwrap();
    (path, log)
}

#[test]
fn a_line_has_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = AccessLog::new();
    let begin = |asked: &Asked<'_>| Record::begin(&log, &Clock::real(), CLIENT, asked);
    assert!(begin(&asked("k", None)).is_none(), "it is off");
    log.switch_to(Opened::new(&path).unwrap()).unwrap();
    let mut record = begin(&asked("a\"\n\u{e9}", Some("x-id=GetObject"))).unwrap();
    record.verified().set("AK");
    record.received_bytes().fetch_add(7, Relaxed);
    record.answered(StatusCode::OK, "ID", Some("hit".into()));
    record.sent(2);
    record.sent(3);
    drop(record);
    begin(&asked("cancelled", None)).unwrap().cancel();
    drop(begin(&asked("broken off", None)));
    drop(log);
    let [line, broken_off] = &lines(&path)[..] else {
        panic!("two lines");
    };
    for (name, value) in [
        ("request_id", "ID"),
        ("client", "127.0.0.1:9"),
        ("access_key", "AK"),
        ("method", "GET"),
        ("bucket", "bucket"),
        ("key", "a\"\n\u{e9}"),
        ("query", "x-id=GetObject"),
        ("cache", "hit"),
        ("user_agent", "agent"),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
    assert_eq!(
        (&line["status"], &line["error"]),
        (&200.into(), &Value::Null)
    );
    assert_eq!(
        (&line["sent_bytes"], &line["received_bytes"]),
        (&5.into(), &7.into())
    );
    assert!(line["duration_us"].as_u64() >= line["first_byte_us"].as_u64());
    let time = line["time"].as_str().unwrap();
    assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    assert_eq!(
        (&broken_off["status"], &broken_off["cache"]),
        (&Value::Null, &"none".into())
    );
}

#[test]
fn secrets_and_long_texts_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = opened_in(folder.path());
    let query = "prefix=a&X-Amz-Credential=no&X-Amz-Signature=no&x%2Damz-security-token=no\
                 &continuation-token=t&AWSAccessKeyId=no&Signature=no\
                 &X-Amz-Server-Side-Encryption-Customer-Key=no&X-Amz-Date=d";
    let long = "é".repeat(2000);
    for query in [query, "X-Amz-Signature=no", &*long] {
        let asked = Asked {
            user_agent: Some(long.as_bytes()),
            ..asked(&long, Some(query))
        };
        drop(Record::begin(&log, &Clock::real(), CLIENT, &asked));
    }
    drop(log);
    let found = lines(&path);
    assert_eq!(
        found[0]["query"],
        "prefix=a&continuation-token=t&X-Amz-Date=d"
    );
    assert_eq!(found[1]["query"], Value::Null);
    for (name, bytes) in [("query", 1024), ("key", 1024), ("user_agent", 256)] {
        assert_eq!(found[2][name].as_str().unwrap().len(), bytes, "{name}");
    }
}

#[test]
fn a_switch_opens_the_path_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, rotated) = (folder.path().join("log"), folder.path().join("log.1"));
    let log = AccessLog::new();
    let write = |key: &str| {
        drop(Record::begin(
            &log,
            &Clock::real(),
            CLIENT,
            &asked(key, None),
        ))
    };
    let switch = |path: &Path| log.switch_to(Opened::new(path).unwrap()).unwrap();
    switch(&path);
    write("first");
    // The thread has it open.
    while lines(&path).is_empty() {
        std::thread::yield_now();
    }
    fs::rename(&path, &rotated).unwrap();
    write("second");
    while lines(&rotated).len() < 2 {
        std::thread::yield_now();
    }
    switch(&path);
    write("third");
    while lines(&path).is_empty() {
        std::thread::yield_now();
    }
    switch(Path::new(""));
    assert!(!log.is_on());
    write("fourth");
    drop(log);
    let keys = |path: &Path| {
        let found = lines(path).into_iter();
        found
            .map(|line| line["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (keys(&rotated), keys(&path)),
        (vec!["first".into(), "second".into()], vec!["third".into()])
    );
}

#[test]
fn a_full_queue_and_a_full_disk_drop_lines() {
    let log = AccessLog::new();
    let write = || {
        // As if the request had begun while the log was on.
        log.is_on.store(true, Relaxed);
        drop(Record::begin(
            &log,
            &Clock::real(),
            CLIENT,
            &asked("k", None),
        ));
    };
    let (queue, waiting) = sync_channel(2);
    let (end, ended) = sync_channel(0);
    let stuck = Thread {
        queue,
        ended: Mutex::new(ended),
    };
    assert!(log.thread.set(stuck).is_ok());
    for _ in 0..5 {
        write();
    }
    assert_eq!((log.dropped(), waiting.try_iter().count()), (3, 2));
    drop(end);

    let log = AccessLog::new();
    log.switch_to(Opened::new(Path::new("/dev/full")).unwrap())
        .unwrap();
    drop(Record::begin(
        &log,
        &Clock::real(),
        CLIENT,
        &asked("k", None),
    ));
    while log.dropped() == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("none/log")] {
        let error = Opened::new(&path).err().unwrap().to_string();
        let name = path.display().to_string();
        assert!(
            error.contains("s3.access_log") && error.contains(&name),
            "{error}"
        );
    }
}

/// A terminal obeys nothing of a line, and a signature in a path stays out of it.
#[test]
fn texts_of_clients_are_printable_and_keep_no_signature() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = opened_in(folder.path());
    for key in [
        "a\u{9b}31m\u{7f}\u{1b}[0m\u{e9}",
        "k?X-Amz-Signature=secret",
    ] {
        drop(Record::begin(&log, &Clock::real(), CLIENT, &asked(key, None)).unwrap());
    }
    drop(log);
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    let keys: Vec<Value> = lines(&path)
        .iter()
        .map(|line| line["key"].clone())
        .collect();
    assert_eq!(keys, ["a\u{9b}31m\u{7f}\u{1b}[0m\u{e9}", "k"]);
}
