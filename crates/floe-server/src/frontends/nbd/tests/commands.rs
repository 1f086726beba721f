//! The transmission: every command and error, by table.

use floe_device::BlockDevice as _;

use super::support::{SIZE, request_bytes, rig, rig_with};
use crate::frontends::nbd::protocol::request::{Command, flag};
use floe_core::ByteSize;

const PERM: u32 = 1;
const INVAL: u32 = 22;
const NOSPC: u32 = 28;
const OVERFLOW: u32 = 75;
const NOTSUP: u32 = 95;

/// Flags, command, offset, length; error with simple and with structured replies.
type Case = (u16, Command, u64, u32, u32, u32);

#[test]
fn every_command_has_its_errors() {
    use Command::{BlockStatus, Cache, Flush, Read, Trim, Unknown, Write, WriteZeroes};
    let end = SIZE;
    let cases: &[Case] = &[
        (0, Read, 0, 512, 0, 0),
        (flag::FUA, Read, 0, 512, 0, 0),
        (flag::DF, Read, 0, 512, INVAL, 0),
        (0, Read, end - 512, 512, 0, 0),
        (0, Read, end, 512, INVAL, INVAL),
        (0, Read, end - 512, 1024, INVAL, INVAL),
        (0, Read, u64::MAX - 511, 512, INVAL, INVAL),
        (0, Read, 1, 512, INVAL, INVAL),
        (0, Read, 0, 511, INVAL, INVAL),
        (0, Read, 0, 0, INVAL, INVAL),
        (0, Read, 0, 2 << 20, INVAL, OVERFLOW),
        (0, Read, 0, u32::MAX, INVAL, OVERFLOW),
        (flag::FAST_ZERO, Read, 0, 512, INVAL, INVAL),
        (1 << 15, Read, 0, 512, INVAL, INVAL),
        (0, Write, 0, 512, 0, 0),
        (flag::FUA, Write, 512, 1024, 0, 0),
        (0, Write, end, 512, NOSPC, NOSPC),
        (0, Write, end - 512, 1024, NOSPC, NOSPC),
        (0, Write, 512, 100, INVAL, INVAL),
        (0, Write, 0, 0, INVAL, INVAL),
        (0, Write, 0, (1 << 20) + 512, INVAL, INVAL),
        (flag::NO_HOLE, Write, 0, 512, INVAL, INVAL),
        (0, Flush, 0, 0, 0, 0),
        (flag::FUA, Flush, 0, 0, 0, 0),
        (0, Flush, 512, 0, INVAL, INVAL),
        (0, Flush, 0, 512, INVAL, INVAL),
        (0, Trim, 0, 4096, 0, 0),
        (flag::FUA, Trim, 0, 4 << 20, 0, 0),
        (0, Trim, 0, 0, INVAL, INVAL),
        (0, Trim, end, 512, INVAL, INVAL),
        (0, Trim, 0, u32::MAX, INVAL, INVAL),
        (0, Cache, 0, 4 << 20, 0, 0),
        (0, Cache, end, 512, INVAL, INVAL),
        (flag::DF, Cache, 0, 512, INVAL, INVAL),
        (0, WriteZeroes, 0, 4 << 20, 0, 0),
        (flag::FUA | flag::NO_HOLE, WriteZeroes, 0, 512, 0, 0),
        (flag::FAST_ZERO, WriteZeroes, 0, 512, NOTSUP, NOTSUP),
        (0, WriteZeroes, end, 512, NOSPC, NOSPC),
        (0, WriteZeroes, 0, u32::MAX - 511, NOSPC, NOSPC),
        (0, WriteZeroes, 0, 0, INVAL, INVAL),
        (0, BlockStatus, 0, 512, INVAL, 0),
        (flag::REQ_ONE, BlockStatus, 0, 4 << 20, INVAL, 0),
        (flag::DF, BlockStatus, 0, 512, INVAL, INVAL),
        (0, BlockStatus, end, 512, INVAL, INVAL),
        (0, Unknown, 0, 512, INVAL, INVAL),
    ];
    let rig = rig_with(|config| config.max_request_size = ByteSize::mib(1));
    let mut simple = rig.client();
    simple.go("disk");
    let mut structured = rig.selecting();
    structured.go("disk");
    for (i, &(flags, command, at, len, simple_errno, structured_errno)) in cases.iter().enumerate()
    {
        let cookie = u64::MAX - i as u64;
        let case = format!("{command} of {len} bytes at {at} with flags {flags}");
        for (client, expected) in [
            (&mut simple, simple_errno),
            (&mut structured, structured_errno),
        ] {
            client.send(&request_bytes(flags, command as u16, cookie, at, len));
            if command == Write {
                client.send(&vec![1; len as usize]);
            }
            let reply = client.reply();
            assert_eq!((reply.cookie, reply.errno), (cookie, expected), "{case}");
        }
        if command == Read && simple_errno == 0 {
            let _data: [u8; 512] = simple.take();
        }
    }
    // The rejected requests have changed nothing, and the clients are in step.
    assert_eq!(simple.read(0, 512), structured.read(0, 512));
    let ended = |result| {
        let line = format!("floe_nbd_requests_total{{command=\"write\",result=\"{result}\"}}");
        rig.metric(&line)
    };
    assert_eq!(
        (ended("ok"), ended("enospc"), ended("einval")),
        (4.0, 4.0, 8.0)
    );
}

#[test]
fn a_read_only_export_rejects_changes() {
    let rig = rig();
    let mut client = rig.client();
    client.go("fixed");
    assert_eq!(client.ask(Command::Write, 0, 512, &[1; 512]).errno, PERM);
    assert_eq!(client.ask(Command::Trim, 0, 512, b"").errno, PERM);
    assert_eq!(client.ask(Command::WriteZeroes, 0, 512, b"").errno, PERM);
    assert_eq!(client.ask(Command::Flush, 0, 0, b"").errno, 0);
    assert_eq!(client.read(0, 512), [0; 512]);
}

#[test]
fn data_returns_as_written_whatever_its_length() {
    let rig = rig();
    let (mut structured, mut simple) = (rig.disk(), rig.client());
    simple.go("disk");
    // Around the lengths at which data gets a buffer of its own.
    for len in [512, 4096, 65024, 65536, 66048, 262144, 3 << 20] {
        let data: Vec<u8> = (0..len).map(|i| (i / 7 + len) as u8).collect();
        structured.write(512, &data);
        assert!(simple.read(512, len as u32) == data, "{len}");
        assert!(structured.read(512, len as u32) == data, "{len}");
    }
    assert_eq!(
        structured.ask(Command::WriteZeroes, 1024, 512, b"").errno,
        0
    );
    assert_eq!(structured.read(1024, 512), [0; 512]);
}

#[test]
fn a_durable_write_and_a_flush_reach_the_device() {
    let rig = rig();
    let mut client = rig.disk();
    let flushes = || rig.disk.counters().snapshot().flushes;
    client.write(0, &[1; 512]);
    assert_eq!(flushes(), 0);
    for (command, data) in [
        (Command::Write, &[1; 512][..]),
        (Command::Trim, b""),
        (Command::WriteZeroes, b""),
    ] {
        let before = flushes();
        client.send(&request_bytes(flag::FUA, command as u16, 1, 0, 512));
        client.send(data);
        assert_eq!(client.reply().errno, 0);
        assert_eq!(flushes(), before + 1, "{command}");
    }
    assert_eq!(client.ask(Command::Flush, 0, 0, b"").errno, 0);
    assert_eq!(flushes(), 4);
}

#[test]
fn a_null_export_reads_as_zeros_and_writes_zeros_quickly() {
    let rig = rig();
    let mut client = rig.client();
    client.go("null");
    client.write(1 << 39, &[7; 8192]);
    assert_eq!(client.read(1 << 39, 8192), [0; 8192]);
    client.send(&request_bytes(
        flag::FAST_ZERO,
        Command::WriteZeroes as u16,
        1,
        0,
        1 << 30,
    ));
    assert_eq!(client.reply().errno, 0);
}

#[test]
fn a_disconnect_has_no_reply_and_ends_the_connection() {
    let rig = rig();
    let mut client = rig.disk();
    client.send(&request_bytes(0, Command::Disconnect as u16, 1, 0, 0));
    assert!(client.is_closed());
    rig.reaches("floe_connections_open{frontend=\"nbd\"}", 0.0);
}
