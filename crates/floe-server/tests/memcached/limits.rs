//! Requests that are too long, too many, too slow, or not allowed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use floe_core::ByteSize;
use floe_server::Drained;

use crate::support::{metric, metrics, rig, rig_on_flash, rig_with, try_rig_with};

#[test]
fn keys_have_at_most_250_bytes() {
    let rig = rig();
    let mut client = rig.client();
    let (longest, too_long) = ("k".repeat(250), "k".repeat(251));
    client.expect(
        &format!("set {longest} 0 0 1\nx\nget {longest}\n"),
        &format!("STORED\nVALUE {longest} 0 1\nx\nEND\n"),
    );
    let bad = "CLIENT_ERROR bad command line format\n";
    // The value is then parsed as a command, as in memcached.
    client.expect(
        &format!("set {too_long} 0 0 1\nx\n"),
        &format!("{bad}ERROR\n"),
    );
    for command in [
        "get KEY",
        "gets KEY",
        "gat 0 KEY",
        "delete KEY",
        "incr KEY 1",
        "touch KEY 0",
        "mg KEY v",
        "md KEY",
        "ma KEY",
        "me KEY",
        "get a KEY b",
    ] {
        client.expect(&format!("{}\n", command.replace("KEY", &too_long)), bad);
    }
    client.expect(&format!("ms {too_long} 1\n"), bad);
}

#[test]
fn values_too_large_are_skipped() {
    let rig = rig();
    let mut client = rig.client();
    let rejected = "SERVER_ERROR object too large for cache\n";
    client.expect("set a 0 0 1\nx\n", "STORED\n");
    let huge = "v".repeat(1 << 20);
    client.expect(
        &format!("set a 0 0 {}\n{huge}\nget a\n", huge.len()),
        &format!("{rejected}END\n"),
    );
    client.expect(&format!("add b 0 0 {}\n{huge}\n", huge.len()), rejected);
    client.expect(&format!("ms a {}\n{huge}\n", huge.len()), rejected);
    client.expect(
        &format!("set a 0 0 {} noreply\n{huge}\nget a\n", huge.len()),
        "END\n",
    );
    // The largest value that fits, and one byte more.
    let fits = (1 << 20) - 48 - 8 - 2 - 2;
    let largest = "v".repeat(fits);
    client.expect(
        &format!("set a 0 0 {fits}\n{largest}\nget a\n"),
        &format!("STORED\nVALUE a 0 {fits}\n{largest}\nEND\n"),
    );
    client.expect(&format!("set a 0 0 {}\n{largest}v\n", fits + 1), rejected);
    client.expect(&format!("set a 1 0 {fits}\n{largest}\n"), rejected);
    client.expect(
        &format!("set a 0 0 {}\n", i32::MAX),
        "CLIENT_ERROR bad command line format\n",
    );
    client.expect("set a 0 0 -1\n", "CLIENT_ERROR bad command line format\n");
    client.expect(
        &format!(
            "set c 0 0 600000\n{0}\nappend c 0 0 600000\n{0}\n",
            "v".repeat(600_000)
        ),
        "STORED\nNOT_STORED\n",
    );
}

/// A proxy takes an answer before the end of a request for that to another one.
#[test]
fn a_rejected_value_is_answered_after_its_bytes() {
    let rig = rig();
    for (line, answer) in [
        (
            "set a 0 0 2000000",
            "SERVER_ERROR object too large for cache",
        ),
        ("ms a 2000000", "SERVER_ERROR object too large for cache"),
        (
            "ms a 2000000 N",
            "CLIENT_ERROR bad token in command line format",
        ),
    ] {
        let mut stream = UnixStream::connect(&rig.path).unwrap();
        let wait = |stream: &UnixStream, millis| {
            let time = Some(Duration::from_millis(millis));
            stream.set_read_timeout(time).unwrap();
        };
        write!(stream, "get a\r\n{line}\r\n").unwrap();
        let half = vec![b'v'; 1_000_000];
        stream.write_all(&half).unwrap();
        let mut bytes = [0; 100];
        wait(&stream, 5000);
        let len = stream.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"END\r\n", "{line}");
        wait(&stream, 50);
        assert!(stream.read(&mut bytes).is_err(), "{line}");
        stream.write_all(&half).unwrap();
        stream.write_all(b"\r\n").unwrap();
        wait(&stream, 5000);
        let len = stream.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], format!("{answer}\r\n").as_bytes(), "{line}");
    }
}

#[test]
fn long_values_are_changed_like_short_ones() {
    for rig in [rig(), rig_on_flash()] {
        let mut client = rig.client();
        for len in [65_535, 65_536, 262_144, 262_145, 700_000, 1_000_000] {
            let value = "v".repeat(len);
            let more = len + 3;
            client.expect(
                &format!(
                    "set a 7 0 {len}\n{value}\nget a\nappend a 0 0 1\nx\nprepend a 0 0 2\nyz\nget a\n"
                ),
                &format!(
                    "STORED\nVALUE a 7 {len}\n{value}\nEND\nSTORED\nSTORED\nVALUE a 7 {more}\nyz{value}x\nEND\n"
                ),
            );
            client.expect(
                "incr a 1\n",
                "CLIENT_ERROR cannot increment or decrement non-numeric value\n",
            );
            let before = client.version("a");
            client.expect(
                &format!("cas a 0 0 {len} {before}\n{value}\ncas a 0 0 1 {before}\nx\n"),
                "STORED\nEXISTS\n",
            );
            client.expect_left(
                "touch a 100\nmg a s t\n",
                &format!("TOUCHED\nHD s{len} t{{left}}\n"),
                100,
            );
            // A short value, a number, and a long value again.
            client.expect(
                "set a 0 0 2\n41\nincr a 1\nget a\n",
                "STORED\n42\nVALUE a 0 2\n42\nEND\n",
            );
            client.expect(
                &format!("ms a {len}\n{value}\nmg a s v\nmd a\nget a\n"),
                &format!("HD\nVA {len} s{len}\n{value}\nHD\nEND\n"),
            );
            client.expect(
                &format!("set a 0 -1 {len}\n{value}\nget a\n"),
                "STORED\nEND\n",
            );
        }
    }
}

#[test]
fn items_are_as_large_as_is_allowed() {
    let rig = rig_with(ByteSize::mib(64), |config| {
        config.max_item_size = ByteSize::mib(3);
    });
    let mut client = rig.client();
    let fits = (3 << 20) - 60;
    let value = "v".repeat(fits);
    client.expect(
        &format!(
            "set a 0 0 {fits}\n{value}\nget a\nset a 0 0 {}\n{value}v\nget a\n",
            fits + 1
        ),
        &format!(
            "STORED\nVALUE a 0 {fits}\n{value}\nEND\nSERVER_ERROR object too large for cache\nEND\n"
        ),
    );
    // A setting larger than a zone is rejected.
    let rejected = try_rig_with(ByteSize::mib(1), |config| {
        config.max_item_size = ByteSize::mib(16);
    });
    let text = rejected.err().expect("it does not fit").to_string();
    assert!(text.contains("at most"), "{text}");
}

#[test]
fn too_many_connections_get_an_error() {
    let rig = rig_with(ByteSize::mib(1), |config| config.max_connections = 2);
    let mut first = rig.client();
    let mut second = rig.client();
    first.expect("delete none\n", "NOT_FOUND\n");
    second.expect("delete none\n", "NOT_FOUND\n");
    let mut third = rig.client();
    assert_eq!(third.rest(), b"ERROR Too many open connections\r\n");
    first.send("quit\r\n");
    first.rest();
    // The server frees the place when it notices the end; retry until then.
    loop {
        let mut client = rig.client();
        client.stream.write_all(b"mn\r\n").unwrap();
        let mut response = [0; 4];
        if client.stream.read_exact(&mut response).is_ok() && response == *b"MN\r\n" {
            return;
        }
    }
}

#[test]
fn idle_and_stalled_clients_are_disconnected() {
    let rig = rig_with(ByteSize::mib(64), |config| {
        config.idle_timeout_seconds = 1;
        config.stall_timeout_seconds = 1;
    });
    let mut idle = rig.client();
    idle.expect("delete none\n", "NOT_FOUND\n");
    assert_eq!(idle.rest(), b"");
    let mut announces = rig.client();
    announces.send("set a 0 0 100000\r\nabc");
    assert_eq!(announces.rest(), b"");
    // Requests far more than sockets buffer, and reads nothing.
    let mut greedy = rig.client();
    let value = "v".repeat(900_000);
    greedy.expect(
        &format!("set big 0 0 {}\n{value}\n", value.len()),
        "STORED\n",
    );
    let request = "get big\r\n".repeat(200);
    greedy.send(request);
    let ended = |reason| {
        let labels = format!("{{frontend=\"memcached\",reason=\"{reason}\"}}");
        metric(&rig, &format!("floe_connections_failed_total{labels}"))
    };
    while ended("stalled") < 2 || ended("idle") < 1 {}
}

#[test]
fn little_memory_serves_many_long_values() {
    let rig = rig_with(ByteSize(0), |config| {
        config.max_item_size = ByteSize::kib(256);
        config.memory = ByteSize::kib(512);
    });
    let value = "v".repeat(200_000);
    let handles: Vec<_> = (0..6)
        .map(|number| {
            let mut client = rig.client();
            let value = value.clone();
            std::thread::spawn(move || {
                for _ in 0..5 {
                    client.expect(&format!("set k{number} 0 0 200000\n{value}\n"), "STORED\n");
                    client.expect(
                        &format!("get k{number}\n"),
                        &format!("VALUE k{number} 0 200000\n{value}\nEND\n"),
                    );
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn clients_without_a_password_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "ann:secret\n").unwrap();
    let rig = rig_with(ByteSize::mib(1), |config| config.auth_file = users);
    let mut client = rig.client();
    client.send("get a\r\nset a 0 0 9\r\nann wrong\r\nset a 0 0 3\r\nann\r\nset a 0 0 1\r\nxyz");
    client.send("\r\nset x 0 0 10\r\nann secret\r\nmn\r\n");
    let response = String::from_utf8(client.until_noop()).unwrap();
    assert_eq!(
        response,
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\n\
         CLIENT_ERROR bad authentication token format\r\n\
         CLIENT_ERROR bad command line termination\r\nCLIENT_ERROR unauthenticated\r\nSTORED\r\n"
    );
    client.expect("get x\n", "END\n");
    // So long a password is invalid; the client gets an error before the connection closes.
    let mut client = rig.client();
    client.send("set x 0 0 100000\r\n");
    assert_eq!(client.rest(), b"CLIENT_ERROR auth token too long\r\n");
}

#[test]
fn flush_all_can_be_disabled() {
    let rig = rig_with(ByteSize::mib(1), |config| config.flush_all = false);
    let mut client = rig.client();
    client.expect(
        "set a 0 0 1\nx\nflush_all\nflush_all 10\nflush_all noreply\nget a\n",
        "STORED\nCLIENT_ERROR flush_all not allowed\nCLIENT_ERROR flush_all not allowed\n\
         VALUE a 0 1\nx\nEND\n",
    );
    let settings = String::from_utf8(client.ask("stats settings\r\n")).unwrap();
    assert!(settings.contains("STAT flush_enabled no\r\n"), "{settings}");
}

#[test]
fn a_shutdown_responds_to_received_requests() {
    let mut rig = rig();
    let mut client = rig.client();
    client.expect("set a 0 0 1\nx\n", "STORED\n");
    assert_eq!(rig.shut_down(), Drained::Completely);
    assert_eq!(client.rest(), b"");
    assert!(!rig.path.exists());
}

#[test]
fn every_operation_is_counted() {
    let rig = rig();
    let mut client = rig.client();
    client.expect("set a 0 0 1\nx\nget a b\n", "STORED\nVALUE a 0 1\nx\nEND\n");
    let metrics = metrics(&rig);
    for line in [
        "floe_memcached_keys_total{command=\"get\",result=\"hit_memory\"} 1",
        "floe_memcached_keys_total{command=\"get\",result=\"miss\"} 1",
        "floe_memcached_commands_total{command=\"store\"} 1",
        "floe_connections_open{frontend=\"memcached\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}
