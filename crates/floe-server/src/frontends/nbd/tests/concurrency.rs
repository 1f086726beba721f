//! Requests in flight, dead connections, and shutdowns.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use floe_core::ByteSize;

use super::support::{Client, GATE, Rig, option_bytes, query, request_bytes, rig, rig_with, until};
use crate::frontends::nbd::protocol::options::number;
use crate::frontends::nbd::protocol::request::Command;

const READ: u16 = Command::Read as u16;
const WRITE: u16 = Command::Write as u16;

const IN_FLIGHT: &str = "floe_nbd_requests_in_flight";
const OPEN: &str = "floe_connections_open{frontend=\"nbd\"}";

fn begin(client: &mut Client<UnixStream>, command: u16, cookie: u64, at: u64, data: &[u8]) {
    client.send(&request_bytes(0, command, cookie, at, 512));
    client.send(data);
}

#[test]
fn a_slow_request_delays_no_other() {
    let rig = rig();
    let mut client = rig.disk();
    begin(&mut client, READ, 1, GATE, b"");
    begin(&mut client, WRITE, 2, GATE + 512, &[5; 512]);
    begin(&mut client, READ, 3, 0, b"");
    assert_eq!(client.reply().cookie, 3);
    assert_eq!(client.read(512, 512), [0; 512]);
    rig.reaches(IN_FLIGHT, 2.0);
    rig.disk.open();
    let mut cookies = [client.reply().cookie, client.reply().cookie];
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
    rig.reaches(IN_FLIGHT, 0.0);
}

#[test]
fn requests_beyond_the_limit_wait_in_the_socket() {
    let rig = rig_with(|config| config.max_requests = 4);
    let mut client = rig.disk();
    for cookie in 0..10 {
        begin(
            &mut client,
            WRITE,
            cookie,
            GATE + 512 * cookie,
            &[cookie as u8; 512],
        );
    }
    begin(&mut client, READ, 99, 0, b"");
    until(|| rig.disk.waiting() == 4, "four writes wait");
    assert_eq!(rig.metric(IN_FLIGHT), 4.0);
    let mut answered = 0;
    while answered < 11 {
        rig.disk.open();
        client.reply();
        answered += 1;
    }
}

#[test]
fn requests_wait_for_memory_and_all_are_answered() {
    let rig = rig_with(|config| {
        config.max_request_size = ByteSize::mib(1);
        config.memory = ByteSize::mib(2);
    });
    // Each reads more than its share, and several at once more than all of it.
    let clients: Vec<_> = (0..6).map(|_| rig.disk()).collect();
    let threads = clients.into_iter().map(|mut client| {
        std::thread::spawn(move || {
            for cookie in 0..20 {
                client.send(&request_bytes(0, READ, cookie, 0, 1 << 20));
            }
            for _ in 0..20 {
                assert_eq!(client.reply().data.len(), 1 << 20);
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(rig.metric("floe_nbd_memory_waits_total") > 0.0);
    rig.reaches("floe_nbd_memory_bytes", 0.0);
}

/// A client that has begun `disk`, with its last reply unread.
fn eager(rig: &Rig) -> Client<UnixStream> {
    let mut client = rig.client();
    client.send(&option_bytes(number::GO, &query("disk", &[])));
    client
}

#[test]
fn no_write_of_a_dead_connection_lands_late() {
    let rig = rig_with(|config| config.max_requests = 1);
    let mut first = rig.disk();
    // The first write is started and waits; the second waits for its place.
    begin(&mut first, WRITE, 1, GATE, &[1; 512]);
    begin(&mut first, WRITE, 2, 0, &[2; 512]);
    until(|| rig.disk.waiting() == 1, "one write has started");
    drop(first);

    // The second connection begins only after the first has ended.
    let mut second = eager(&rig);
    begin(&mut second, READ, 3, 0, b"");
    second
        .stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut replies = [0; 20 + 2 + 8 + 2 + 20];
    std::io::Read::read_exact(&mut second.stream, &mut replies).unwrap();
    let early = std::io::Read::read(&mut second.stream, &mut [0]);
    assert!(
        early.is_err(),
        "the second connection was served: {early:?}"
    );
    assert_eq!(rig.metric(OPEN), 2.0);

    rig.disk.open();
    second
        .stream
        .set_read_timeout(Some(super::support::PATIENCE))
        .unwrap();
    assert_eq!(second.reply().cookie, 3);
    let data: [u8; 512] = second.take();
    assert_eq!(data, [0; 512], "a write that had not begun was begun");
    rig.reaches(OPEN, 1.0);
    // The write that had begun has ended before.
    begin(&mut second, READ, 4, GATE, b"");
    until(|| rig.disk.waiting() == 1, "the read waits");
    rig.disk.open();
    second.reply();
    let data: [u8; 512] = second.take();
    assert_eq!(data, [1; 512]);
}

#[test]
fn writes_that_arrived_before_a_client_died_do_not_begin_after_its_death() {
    let rig = rig_with(|config| config.max_requests = 2);
    for round in 0..20u8 {
        let mut client = rig.disk();
        begin(&mut client, WRITE, 1, GATE, &[round; 512]);
        begin(&mut client, WRITE, 2, GATE + 512, &[round; 512]);
        for i in 0..64 {
            begin(&mut client, WRITE, 3, 512 * i, &[round + 1; 512]);
        }
        until(|| rig.disk.waiting() == 2, "two writes have started");
        drop(client);
        rig.disk.open();
        let mut next = rig.disk();
        assert_eq!(next.read(0, 64 * 512), vec![0; 64 * 512]);
    }
}

#[test]
fn a_shutdown_answers_what_was_started_and_rejects_what_comes_later() {
    let rig = rig();
    let mut client = rig.disk();
    let mut idle = rig.disk();
    begin(&mut client, WRITE, 1, GATE, &[1; 512]);
    until(|| rig.disk.waiting() == 1, "the write has started");
    rig.shutdown.drain.cancel();
    assert!(idle.is_closed());
    begin(&mut client, WRITE, 2, 0, &[2; 512]);
    begin(&mut client, READ, 3, 0, b"");
    for cookie in [2, 3] {
        let reply = client.reply();
        assert_eq!((reply.cookie, reply.errno), (cookie, 108));
    }
    rig.disk.open();
    let reply = client.reply();
    assert_eq!((reply.cookie, reply.errno), (1, 0));
    assert!(client.is_closed());
    rig.reaches(OPEN, 0.0);
}

#[test]
fn the_deadline_of_a_shutdown_ends_everything() {
    let rig = rig();
    let mut client = rig.disk();
    begin(&mut client, WRITE, 1, GATE, &[1; 512]);
    until(|| rig.disk.waiting() == 1, "the write has started");
    rig.shutdown.drain.cancel();
    rig.shutdown.abort.cancel();
    assert!(client.is_closed());
    rig.reaches(
        "floe_connections_failed_total{frontend=\"nbd\",reason=\"aborted\"}",
        1.0,
    );
}

#[test]
fn clients_work_side_by_side_and_see_what_others_wrote() {
    let rig = rig();
    std::thread::scope(|scope| {
        for i in 0..8 {
            let client = rig.disk();
            scope.spawn(move || write_rounds(client, i));
        }
    });
    let mut reader = rig.disk();
    for i in 0..8u8 {
        assert_eq!(reader.read(u64::from(i) * (256 << 10), 512), [49 ^ i; 512]);
    }
}

/// Writes 16 blocks at once in each of 50 rounds, and reads them.
fn write_rounds(mut client: Client<UnixStream>, number: u8) {
    let base = u64::from(number) * (256 << 10);
    for round in 0..50u8 {
        let mut batch = Vec::new();
        for j in 0..16 {
            batch.extend(request_bytes(0, WRITE, j, base + j * 4096, 4096));
            batch.extend([round ^ number; 4096]);
        }
        client.send(&batch);
        for _ in 0..16 {
            assert_eq!(client.reply().errno, 0);
        }
        let read = client.read(base, 16 * 4096);
        assert!(read.iter().all(|byte| *byte == round ^ number));
    }
}
