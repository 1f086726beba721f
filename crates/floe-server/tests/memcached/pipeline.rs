//! Pipelined requests in pieces of any size, and invalid bytes.

use std::fmt::Write as _;

use crate::support::{rig, rig_on_flash, rig_with};
use floe_core::ByteSize;

const CONVERSATION: &str = "set a 1 0 5\r\nhello\r\nget a b\r\nincr a 1\r\nset n 0 0 1 noreply\r\n4\r\n\
    incr n 1\r\nms m 3 c q\r\nxyz\r\nmg m v k\r\ndelete a\r\nget a\r\nset bad 0 0 2\r\nabcd\r\n\
    touch n 0\r\ngat 0 n\r\nappend n 0 0 1\r\n7\r\nget n\r\n";

const ANSWERS: &str = "STORED\r\nVALUE a 1 5\r\nhello\r\nEND\r\n\
    CLIENT_ERROR cannot increment or decrement non-numeric value\r\n5\r\nVA 3 km\r\nxyz\r\n\
    DELETED\r\nEND\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nTOUCHED\r\nVALUE n 0 1\r\n5\r\nEND\r\n\
    STORED\r\nVALUE n 0 2\r\n57\r\nEND\r\n";

#[test]
fn requests_split_at_every_byte() {
    let rig = rig();
    for at in 0..=CONVERSATION.len() {
        let mut client = rig.client();
        let (first, second) = CONVERSATION.split_at(at);
        client.send(first);
        // Complete requests get responses before the rest arrives.
        std::thread::yield_now();
        let response = client.ask(second);
        assert_eq!(String::from_utf8_lossy(&response), ANSWERS, "split at {at}");
        client.expect("flush_all\n", "OK\n");
    }
}

#[test]
fn requests_byte_by_byte_over_both_sockets() {
    let rig = rig();
    let mut client = rig.client();
    for byte in CONVERSATION.bytes() {
        client.send([byte]);
    }
    assert_eq!(String::from_utf8_lossy(&client.ask("")), ANSWERS);
    let mut client = rig.local_client();
    client.expect("flush_all\n", "OK\n");
    for byte in CONVERSATION.bytes() {
        client.send([byte]);
    }
    assert_eq!(String::from_utf8_lossy(&client.ask("")), ANSWERS);
}

#[test]
fn a_connections_own_requests_are_carried_out_in_order() {
    for rig in [rig(), rig_on_flash()] {
        let mut client = rig.client();
        client.expect("set a 0 0 1\n0\nset b 0 0 1\n0\n", "STORED\nSTORED\n");
        rig.flush();
        let (mut request, mut expected) = (String::new(), String::new());
        for round in 0..200 {
            let _ = write!(request, "get a b\r\nset a 0 0 3\r\n{round:03}\r\nget a\r\n");
            let last = match round {
                0 => "VALUE a 0 1\r\n0".to_owned(),
                _ => format!("VALUE a 0 3\r\n{:03}", round - 1),
            };
            let _ = write!(
                expected,
                "{last}\r\nVALUE b 0 1\r\n0\r\nEND\r\nSTORED\r\nVALUE a 0 3\r\n{round:03}\r\nEND\r\n"
            );
        }
        assert_eq!(String::from_utf8(client.ask(request)).unwrap(), expected);
    }
}

#[test]
fn long_values_in_a_pipeline_come_back_whole_and_in_order() {
    for rig in [rig(), rig_on_flash()] {
        let mut client = rig.client();
        let mut expected = Vec::new();
        for number in 0..40usize {
            let value = vec![b'a' + (number % 26) as u8; number * 7919];
            let mut request = format!("set k{number} 0 0 {}\r\n", value.len()).into_bytes();
            request.extend(&value);
            request.extend(b"\r\n");
            assert_eq!(client.ask(request), b"STORED\r\n");
            expected.extend(format!("VALUE k{number} 0 {}\r\n", value.len()).into_bytes());
            expected.extend(&value);
            expected.extend(b"\r\nEND\r\n");
        }
        rig.flush();
        let request: String = (0..40).map(|number| format!("get k{number}\r\n")).collect();
        assert!(client.ask(request) == expected);
        let keys: String = (0..40).map(|number| format!(" k{number}")).collect();
        let response = client.ask(format!("get{keys}\r\n"));
        assert_eq!(response.len() + 39 * "END\r\n".len(), expected.len());
    }
}

#[test]
fn a_get_of_more_keys_than_any_buffer_holds() {
    let rig = rig_with(ByteSize::mib(8), |_| {});
    let mut client = rig.client();
    client.expect("set a 0 0 1\nx\nset b 0 0 1\ny\n", "STORED\nSTORED\n");
    let mut request = String::from("gets");
    for number in 0..20_000 {
        let _ = write!(request, " key-{number}");
        if number % 5000 == 0 {
            request.push_str(" a b");
        }
    }
    request.push_str("\r\n");
    let response = String::from_utf8(client.ask(request.replace("gets", "get"))).unwrap();
    let once = "VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\n";
    assert_eq!(response, format!("{}END\r\n", once.repeat(4)));
    let versions = (client.version("a"), client.version("b"));
    let once = format!(
        "VALUE a 0 1 {}\r\nx\r\nVALUE b 0 1 {}\r\ny\r\n",
        versions.0, versions.1
    );
    let response = String::from_utf8(client.ask(request)).unwrap();
    assert_eq!(response, format!("{}END\r\n", once.repeat(4)));
    // One word without an end.
    let long = format!("get {}\r\n", "k".repeat(100_000));
    client.expect(
        &long.replace("\r\n", "\n"),
        "CLIENT_ERROR bad command line format\n",
    );
}

#[test]
fn invalid_commands_end_only_their_connection() {
    let rig = rig();
    let mut other = rig.client();
    other.expect("set a 0 0 1\nx\n", "STORED\n");
    for junk in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[b'x'; 5000],
        &[0; 5000],
        &[0xff; 5000],
        &[b' '; 5000],
    ] {
        let mut client = rig.client();
        client.send(junk);
        assert_eq!(client.rest(), b"", "{:?}", &junk[..4]);
    }
    let mut client = rig.client();
    // A line ends at its first zero byte, as in memcached.
    assert_eq!(client.ask(b"get a\0b\r\n"), b"VALUE a 0 1\r\nx\r\nEND\r\n");
    assert_eq!(
        client.ask(b"\x80\x01\x02\r\n\xff\xfe\r\n"),
        b"ERROR\r\nERROR\r\n"
    );
    other.expect("get a\n", "VALUE a 0 1\nx\nEND\n");
}

#[test]
fn values_may_hold_anything() {
    for rig in [rig(), rig_on_flash()] {
        let mut client = rig.client();
        let value: Vec<u8> = (0..=255u8).cycle().take(3000).collect();
        let mut request = b"set a 0 0 3000\r\n".to_vec();
        request.extend(&value);
        request.extend(b"\r\n");
        assert_eq!(client.ask(request), b"STORED\r\n");
        rig.flush();
        let mut expected = b"VALUE a 0 3000\r\n".to_vec();
        expected.extend(&value);
        expected.extend(b"\r\nEND\r\n");
        assert!(client.ask("get a\r\n") == expected);
    }
}

#[test]
fn noreply_suppresses_errors_too() {
    let rig = rig();
    let mut client = rig.client();
    client.expect(
        "set a 0 0 1 noreply\nx\nadd a 0 0 1 noreply\ny\nincr a 1 noreply\nincr a x noreply\n\
         delete none noreply\ntouch none 0 noreply\ndelete a 5 noreply\ncas a 0 0 1 1 noreply\nz\n\
         set a 0 0 2 noreply\nabcd\nget a\n",
        "ERROR\nVALUE a 0 1\nx\nEND\n",
    );
}
