//! The handshake: every option, by table.

use super::support::{Client, SIZE, contexts, option_bytes, query, rig, rig_with, text};
use crate::frontends::nbd::config::TlsMode;
use crate::frontends::nbd::protocol::options::{flags, info, kind, number};
use crate::frontends::nbd::protocol::request::Command;

/// Options before, an option, its data, and the types of its replies.
type Case<'a> = (&'a [u32], u32, Vec<u8>, &'a [u32]);

#[test]
fn every_option_has_its_replies() {
    let structured: &[u32] = &[number::STRUCTURED_REPLY];
    let one_info: &[u32] = &[kind::INFO, kind::ACK];
    let all_infos = query(
        "disk",
        &[
            info::EXPORT,
            info::NAME,
            info::DESCRIPTION,
            info::BLOCK_SIZE,
            99,
        ],
    );
    let long = "n".repeat(4097);
    let many: Vec<&str> = vec!["base:"; 65];
    let too_long = [&(1u32 << 20).to_be_bytes(), &b"disk\0\0"[..]].concat();
    let cases: Vec<Case<'_>> = vec![
        (
            &[],
            number::LIST,
            vec![],
            &[kind::SERVER, kind::SERVER, kind::SERVER, kind::ACK],
        ),
        (&[], number::LIST, vec![0], &[kind::ERR_INVALID]),
        (&[], number::STARTTLS, vec![], &[kind::ERR_POLICY]),
        (&[], number::STARTTLS, vec![0], &[kind::ERR_INVALID]),
        (&[], number::STRUCTURED_REPLY, vec![], &[kind::ACK]),
        (&[], number::STRUCTURED_REPLY, vec![0], &[kind::ERR_INVALID]),
        (&[], number::INFO, query("disk", &[]), one_info),
        (&[], number::INFO, query("", &[]), one_info),
        (
            &[],
            number::INFO,
            all_infos,
            &[kind::INFO, kind::INFO, kind::INFO, kind::INFO, kind::ACK],
        ),
        (&[], number::INFO, query("none", &[]), &[kind::ERR_UNKNOWN]),
        (&[], number::INFO, query(&long, &[]), &[kind::ERR_TOO_BIG]),
        (&[], number::INFO, too_long, &[kind::ERR_INVALID]),
        (
            &[],
            number::INFO,
            b"\0\0\0\x04disk\0\x02\0\0".to_vec(),
            &[kind::ERR_INVALID],
        ),
        (
            &[],
            number::INFO,
            b"\0\0\0\x01\xff\0\0".to_vec(),
            &[kind::ERR_INVALID],
        ),
        (&[], number::INFO, vec![], &[kind::ERR_INVALID]),
        (&[], number::GO, query("none", &[]), &[kind::ERR_UNKNOWN]),
        (
            &[],
            number::LIST_META_CONTEXT,
            contexts("disk", &[]),
            &[kind::META_CONTEXT, kind::ACK],
        ),
        (
            &[],
            number::LIST_META_CONTEXT,
            contexts("disk", &["base:"]),
            &[kind::META_CONTEXT, kind::ACK],
        ),
        (
            &[],
            number::LIST_META_CONTEXT,
            contexts("disk", &["x-a:b"]),
            &[kind::ACK],
        ),
        (
            &[],
            number::LIST_META_CONTEXT,
            contexts("none", &[]),
            &[kind::ERR_UNKNOWN],
        ),
        (
            &[],
            number::SET_META_CONTEXT,
            contexts("disk", &["base:allocation"]),
            &[kind::ERR_INVALID],
        ),
        (
            structured,
            number::SET_META_CONTEXT,
            contexts("disk", &["base:allocation"]),
            &[kind::META_CONTEXT, kind::ACK],
        ),
        (
            structured,
            number::SET_META_CONTEXT,
            contexts("disk", &["base:", "qemu:x"]),
            &[kind::ACK],
        ),
        (
            structured,
            number::SET_META_CONTEXT,
            contexts("disk", &[]),
            &[kind::ACK],
        ),
        (
            structured,
            number::SET_META_CONTEXT,
            contexts("disk", &many),
            &[kind::ERR_TOO_BIG],
        ),
        (
            structured,
            number::SET_META_CONTEXT,
            contexts("none", &["base:allocation"]),
            &[kind::ERR_UNKNOWN],
        ),
        (
            structured,
            number::SET_META_CONTEXT,
            b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x09base:".to_vec(),
            &[kind::ERR_INVALID],
        ),
        (&[], 4, vec![], &[kind::ERR_UNSUP]),
        (&[], 11, vec![], &[kind::ERR_UNSUP]),
        (&[], u32::MAX, vec![1; 1000], &[kind::ERR_UNSUP]),
    ];
    let rig = rig();
    for (before, number, data, kinds) in cases {
        let mut client = rig.client();
        for number in before {
            client.expect(*number, b"", &[kind::ACK]);
        }
        client.expect(number, &data, kinds);
        // An error leaves the handshake usable.
        client.go("disk");
        assert_eq!(client.read_reply(0, 512).errno, 0);
    }
}

#[test]
fn an_abort_is_acknowledged_and_ends_the_connection() {
    let rig = rig();
    let mut client = rig.client();
    client.expect(number::ABORT, b"ignored", &[kind::ACK]);
    assert!(client.is_closed());
}

#[test]
fn an_export_is_described() {
    let rig = rig();
    let mut client = rig.client();
    client.expect(number::STRUCTURED_REPLY, b"", &[kind::ACK]);
    let infos = [info::NAME, info::BLOCK_SIZE];
    let replies = client.option(number::INFO, &query("", &infos));
    let [export, name, blocks, _ack] = &replies[..] else {
        panic!("{replies:?}");
    };
    let all = flags::HAS_FLAGS
        | flags::SEND_FLUSH
        | flags::SEND_FUA
        | flags::SEND_TRIM
        | flags::SEND_WRITE_ZEROES
        | flags::SEND_DF
        | flags::CAN_MULTI_CONN
        | flags::SEND_CACHE
        | flags::SEND_FAST_ZERO;
    let facts = [&[0, 0], &SIZE.to_be_bytes()[..], &all.to_be_bytes()].concat();
    assert_eq!(export.1, facts);
    assert_eq!(name.1, b"\0\x01disk");
    let sizes = [512u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!(blocks.1, [&[0, 3], &sizes[..]].concat());

    let mut client = rig.client();
    let replies = client.option(number::INFO, &query("fixed", &[]));
    let flags = u16::from_be_bytes(replies[0].1[10..].try_into().unwrap());
    assert_eq!(flags & flags::READ_ONLY, flags::READ_ONLY);
    // DF needs structured replies.
    assert_eq!(flags & flags::SEND_DF, 0);
}

#[test]
fn old_clients_begin_with_a_name_and_get_padding() {
    let rig = rig();
    for (client_flags, padding) in [(0, 124), (1, 124), (2, 0), (3, 0)] {
        let mut client = Client::greet(rig.stream(), client_flags);
        client.send(&option_bytes(number::EXPORT_NAME, b"disk"));
        assert_eq!(u64::from_be_bytes(client.take()), SIZE);
        let _flags: [u8; 2] = client.take();
        for _ in 0..padding {
            assert_eq!(client.take(), [0]);
        }
        assert_eq!(client.read(0, 512), [0; 512]);
    }
    // A name without an export has no error reply.
    let mut client = rig.client();
    client.send(&option_bytes(number::EXPORT_NAME, b"none"));
    assert!(client.is_closed());
    // Without fixed newstyle, no other option has replies.
    let mut client = Client::greet(rig.stream(), 0);
    client.send(&option_bytes(number::LIST, b""));
    assert!(client.is_closed());
    // An unknown flag of the client.
    let mut client = Client::greet(rig.stream(), 4);
    assert!(client.is_closed());
}

#[test]
fn the_default_export_is_configured() {
    let rig = rig_with(|config| config.default_export = "fixed".to_owned());
    let mut client = rig.client();
    client.go("");
    let reply = client.ask(Command::Trim, 0, 512, b"");
    assert_eq!(reply.errno, 1);
}

#[test]
fn the_allocation_belongs_to_the_export_that_was_selected() {
    let rig = rig();
    for (name, errno) in [("disk", 0), ("", 0), ("fixed", 22)] {
        let mut client = rig.selecting();
        client.go(name);
        let reply = client.ask(Command::BlockStatus, 4096, 8192, b"");
        assert_eq!(reply.errno, errno, "{name}");
        if errno == 0 {
            let status = [1u32, 8192, 0].map(u32::to_be_bytes).concat();
            assert_eq!(reply.data, status);
        }
    }
    // A later selection replaces the first, even if it fails.
    let mut client = rig.selecting();
    client.expect(
        number::SET_META_CONTEXT,
        &text("disk"),
        &[kind::ERR_INVALID],
    );
    client.go("disk");
    assert_eq!(client.ask(Command::BlockStatus, 0, 512, b"").errno, 22);
}

#[test]
fn a_server_that_requires_tls_tells_nothing_before_it() {
    let rig = rig_with(|config| config.tls = TlsMode::Required);
    for option in [
        number::LIST,
        number::INFO,
        number::GO,
        number::STRUCTURED_REPLY,
        99,
    ] {
        let mut client = rig.client();
        client.expect(option, b"", &[kind::ERR_TLS_REQD]);
        client.expect(number::ABORT, b"", &[kind::ACK]);
    }
    let mut client = rig.client();
    client.send(&option_bytes(number::EXPORT_NAME, b"disk"));
    assert!(client.is_closed());
}

#[test]
fn an_option_during_a_shutdown_learns_of_it() {
    let rig = rig();
    let (mut client, mut aborting) = (rig.client(), rig.client());
    client.expect(
        number::LIST,
        b"",
        &[kind::SERVER, kind::SERVER, kind::SERVER, kind::ACK],
    );
    rig.shutdown.drain.cancel();
    client.expect(number::GO, &query("disk", &[]), &[kind::ERR_SHUTDOWN]);
    aborting.expect(number::ABORT, b"", &[kind::ACK]);
}
