//! Invalid, slow and many clients: none costs another its answer.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use floe_core::ByteSize;

use super::support::{Client, Rig, option_bytes, query, request_bytes, rig, rig_with, until};
use crate::frontends::nbd::protocol::options::number;
use crate::frontends::nbd::protocol::request::Command;

const FAILED: &str = "floe_connections_failed_total{frontend=\"nbd\",reason=";

#[track_caller]
fn is_well(rig: &Rig) {
    let mut client = rig.disk();
    client.write(0, &[9; 512]);
    assert_eq!(client.read(0, 512), [9; 512]);
}

/// A whole session, from the client's flags to its disconnect.
fn session() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(number::STRUCTURED_REPLY, b""));
    bytes.extend(option_bytes(number::GO, &query("disk", &[3])));
    bytes.extend(request_bytes(0, Command::Write as u16, 1, 0, 512));
    bytes.extend([9; 512]);
    bytes.extend(request_bytes(0, Command::Read as u16, 2, 0, 512));
    bytes.extend(request_bytes(0, Command::Disconnect as u16, 3, 0, 0));
    bytes
}

#[test]
fn a_session_that_breaks_off_at_any_byte_is_harmless() {
    let rig = rig();
    let session = session();
    for cut in 0..session.len() {
        let mut stream = rig.stream();
        stream.write_all(&session[..cut]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The server answers what it can, and closes.
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        assert!(answers.starts_with(b"NBDMAGIC"), "cut at {cut}");
    }
    is_well(&rig);
    rig.reaches("floe_connections_open{frontend=\"nbd\"}", 0.0);
}

#[test]
fn a_session_may_come_byte_by_byte_or_all_at_once() {
    let rig = rig();
    let session = session();
    let mut lengths = Vec::new();
    for step in [1, 7, session.len()] {
        let mut stream = rig.stream();
        for part in session.chunks(step) {
            stream.write_all(part).unwrap();
        }
        let mut answers = Vec::new();
        stream.read_to_end(&mut answers).unwrap();
        lengths.push(answers.len());
    }
    assert_eq!(lengths, [lengths[0]; 3]);
}

#[test]
fn junk_ends_a_connection_at_once() {
    let rig = rig();
    // Before the handshake, as an option, and as a request.
    for junk in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "\0\0\0\x03 no option at all ",
        "\x16\x03\x01\x02\0\x01\0",
    ] {
        let mut stream = rig.stream();
        stream.write_all(junk.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut client = rig.client();
    client.send(
        &[
            option_bytes(1, b"")[..12].to_vec(),
            u32::MAX.to_be_bytes().to_vec(),
        ]
        .concat(),
    );
    assert!(client.is_closed(), "an option of 4 GiB");
    let mut client = rig.client();
    for _ in 0..64 {
        client.option(99, b"");
    }
    assert!(client.is_closed(), "options without end");
    let mut client = rig.disk();
    client.send(&[0x25; 28]);
    assert!(client.is_closed());
    rig.reaches(&format!("{FAILED}\"broken\"}}"), 6.0);
    is_well(&rig);
}

#[test]
fn extreme_lengths_are_answered() {
    let rig = rig();
    for command in 0..10u16 {
        for len in [0, 1, u32::MAX] {
            if command == Command::Disconnect as u16 || (command, len) == (1, u32::MAX) {
                continue;
            }
            let mut client = rig.disk();
            client.send(&request_bytes(0, command, 1, u64::MAX, len));
            client.send(&vec![0; if command == 1 { len as usize } else { 0 }]);
            assert_ne!(client.reply().errno, 0, "{command} of {len}");
            is_well(&rig);
        }
    }
    // The error precedes the data, which is skipped without memory for it.
    let mut client = rig.disk();
    client.send(&request_bytes(0, Command::Write as u16, 1, 0, u32::MAX));
    assert_eq!(client.reply().errno, 22);
    assert_eq!(rig.metric("floe_nbd_memory_bytes"), 0.0);
}

#[test]
fn a_thousand_connections_cost_no_client_its_answer() {
    let rig = rig_with(|config| config.max_connections = 64);
    let mut good = rig.disk();
    let crowd: Vec<_> = (0..1000).map(|_| rig.stream()).collect();
    for i in 0..100 {
        good.write(512, &[i; 512]);
        assert_eq!(good.read(512, 512), [i; 512]);
    }
    rig.reaches("floe_connections_total{frontend=\"nbd\"}", 1001.0);
    assert_eq!(
        rig.metric("floe_connections_rejected_total{frontend=\"nbd\"}"),
        937.0
    );
    drop(crowd);
    rig.reaches("floe_connections_open{frontend=\"nbd\"}", 1.0);
    is_well(&rig);
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let rig = rig_with(|config| config.handshake_timeout_seconds = 1);
    let mut silent = rig.stream();
    let mut half = rig.client();
    half.send(&option_bytes(number::LIST, b"")[..7]);
    let mut greeting = [0; 18];
    silent.read_exact(&mut greeting).unwrap();
    assert!(Client::new(silent).is_closed());
    assert!(half.is_closed());
    rig.reaches(&format!("{FAILED}\"stalled\"}}"), 2.0);
}

#[test]
fn readers_that_do_not_read_and_writers_that_do_not_write_are_cut_off() {
    let rig = rig_with(|config| config.stall_timeout_seconds = 1);
    let mut reader = rig.disk();
    for cookie in 0..64 {
        reader.send(&request_bytes(0, Command::Read as u16, cookie, 0, 1 << 20));
    }
    let mut writer = rig.disk();
    writer.send(&request_bytes(0, Command::Write as u16, 1, 0, 1 << 20));
    writer.send(&[1; 1000]);
    let mut half = rig.disk();
    half.send(&request_bytes(0, Command::Read as u16, 1, 0, 512)[..20]);
    let mut idle = rig.disk();
    rig.reaches(&format!("{FAILED}\"stalled\"}}"), 3.0);
    assert!(writer.is_closed());
    assert!(half.is_closed());
    // A client without requests may be idle for as long as it likes.
    assert_eq!(idle.read(0, 512).len(), 512);
    rig.reaches("floe_nbd_memory_bytes", 0.0);
}

#[test]
fn slow_clients_lose_their_connections_while_memory_is_short() {
    let rig = rig_with(|config| {
        config.max_request_size = ByteSize::mib(1);
        config.memory = ByteSize::mib(2);
    });
    let hold = |command: Command| {
        let mut client = rig.disk();
        client.send(&request_bytes(0, command as u16, 1, 0, 1 << 20));
        client
    };
    let _writers = [hold(Command::Write), hold(Command::Write)];
    rig.reaches("floe_nbd_memory_bytes", (2 << 20) as f64);
    let mut good = rig.disk();
    assert_eq!(good.read(0, 1 << 20).len(), 1 << 20);
    // The memory is free a moment before the connection is counted.
    let slow = format!("{FAILED}\"slow\"}}");
    until(|| rig.metric(&slow) >= 1.0, &slow);
}
