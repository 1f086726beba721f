//! Clients that hold memory without using it, and a shutdown under load:
//! neither other clients nor the operator wait for them.

use std::io::Write as _;
use std::time::{Duration, Instant};

use floe_core::ByteSize;
use floe_server::Drained;

use crate::support::{Rig, metric, rig, rig_with};

/// A value that fills most of an item of 1 MiB.
const LONG: usize = 1_000_000;

fn long_value() -> String {
    "v".repeat(LONG)
}

#[test]
fn announced_values_take_memory_as_they_arrive() {
    let rig = rig();
    let announcing: Vec<_> = (0..140)
        .map(|number| {
            let mut client = rig.client();
            client.send(format!("set held{number} 0 0 {LONG}\r\nabc"));
            client
        })
        .collect();
    // Every client has been read once the server has counted its bytes.
    while metric(&rig, "floe_memcached_received_bytes_total") < 140 * 20 {}
    let mut other = rig.client();
    let value = long_value();
    for _ in 0..5 {
        other.expect(
            &format!("set a 0 0 {LONG}\n{value}\nget a\n"),
            &format!("STORED\nVALUE a 0 {LONG}\n{value}\nEND\n"),
        );
    }
    let held = metric(&rig, "floe_memcached_memory_bytes");
    assert!(held <= 140 * (16 << 10), "{held} bytes are held");
    drop(announcing);
}

#[test]
fn half_sent_values_are_dropped_when_memory_is_short() {
    let rig = rig_with(ByteSize::mib(64), |config| {
        config.memory = ByteSize::mib(8);
    });
    let value = long_value();
    let holding: Vec<_> = (0..16)
        .map(|number| {
            let mut client = rig.client();
            client.send(format!("set held{number} 0 0 {LONG}\r\n"));
            // The server may stop reading while it waits for memory.
            client.stream.set_nonblocking(true).unwrap();
            let _ = client.stream.write(&value.as_bytes()[..900_000]);
            client
        })
        .collect();
    let mut other = rig.patient_client();
    for _ in 0..5 {
        other.expect(
            &format!("set a 0 0 {LONG}\n{value}\nget a\n"),
            &format!("STORED\nVALUE a 0 {LONG}\n{value}\nEND\n"),
        );
    }
    drop(holding);
}

#[test]
fn readers_that_do_not_read_do_not_stop_gets_from_flash() {
    let rig = rig_on_flash_with_memory(ByteSize::mib(8));
    let value = long_value();
    let mut other = rig.patient_client();
    for key in 0..4 {
        let ask = format!("set k{key} 0 0 {LONG}\n{value}\n");
        other.expect(&ask, "STORED\n");
    }
    rig.flush();
    let idle: Vec<_> = (0..60)
        .map(|number| {
            let mut client = rig.client();
            client.send(format!("get k{}\r\n", number % 4).repeat(20));
            client
        })
        .collect();
    for key in 0..4 {
        other.expect(
            &format!("get k{key}\n"),
            &format!("VALUE k{key} 0 {LONG}\n{value}\nEND\n"),
        );
    }
    other.expect(&format!("set a 0 0 {LONG}\n{value}\n"), "STORED\n");
    drop(idle);
}

#[test]
fn values_and_responses_below_the_least_rate_end_their_connections() {
    let rig = rig_with(ByteSize::mib(64), |config| {
        config.min_rate = ByteSize::mib(1);
        config.min_rate_grace_seconds = 1;
    });
    let value = long_value();
    let mut reader = rig.client();
    reader.expect(&format!("set a 0 0 {LONG}\n{value}\n"), "STORED\n");
    reader.send("get a\r\n".repeat(100));
    // Never stalls, but would take hours.
    let mut writer = rig.client();
    writer.send(format!("set b 0 0 {LONG}\r\n"));
    while writer.stream.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let slow = "floe_connections_failed_total{frontend=\"memcached\",reason=\"slow\"}";
    while metric(&rig, slow) < 2 {}
    rig.client().expect("get b\n", "END\n");
}

#[test]
fn a_get_without_memory_is_an_error() {
    // Memory for one item besides the reserved one.
    let rig = rig_with(ByteSize(0), |config| {
        config.memory = ByteSize::mib(2);
        config.min_rate = ByteSize(0);
        config.stall_timeout_seconds = 1;
    });
    let value = long_value();
    let mut reader = rig.patient_client();
    reader.expect(&format!("set a 0 0 {LONG}\n{value}\n"), "STORED\n");
    rig.flush();
    let mut holder = rig.client();
    holder.send(format!("set b 0 0 {LONG}\r\n{}", &value[..500_000]));
    while metric(&rig, "floe_memcached_memory_bytes") < 900_000 {}
    // It is just fast enough not to stall.
    let trickle = std::thread::spawn(move || {
        for byte in value[..100].bytes() {
            if holder.stream.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        holder
    });
    reader.expect(
        "get none a\nmg a v\nget none\n",
        "SERVER_ERROR out of memory writing get response\n\
         SERVER_ERROR out of memory writing get response\nEND\n",
    );
    drop(trickle.join());
}

#[test]
fn a_connection_holds_no_more_than_its_share() {
    let rig = rig_on_flash_with_memory(ByteSize::mib(32));
    let value = long_value();
    let mut other = rig.patient_client();
    for key in 0..32 {
        other.expect(&format!("set k{key} 0 0 {LONG}\n{value}\n"), "STORED\n");
    }
    rig.flush();
    // The client reads none of this.
    let mut greedy = rig.client();
    let request: String = (0..32).map(|key| format!("get k{key}\r\n")).collect();
    greedy.send(request.repeat(4));
    while metric(
        &rig,
        "floe_memcached_keys_total{command=\"get\",result=\"hit_flash\"}",
    ) < 4
    {}
    let held = metric(&rig, "floe_memcached_memory_bytes");
    assert!(held <= 4 << 20, "{held} bytes are held by one connection");
    drop(greedy);
}

/// Unread responses keep values alive, even those in the RAM tier.
#[test]
fn values_from_memory_count_while_clients_do_not_read_them() {
    for ask in ["get", "mg"] {
        let rig = rig_with(ByteSize::mib(64), |config| {
            config.memory = ByteSize::mib(8);
        });
        let value = long_value();
        let mut other = rig.patient_client();
        for key in 0..4 {
            let ask = format!("set k{key} 0 0 {LONG}\n{value}\n");
            other.expect(&ask, "STORED\n");
        }
        let flags = if ask == "mg" { " v" } else { "" };
        let idle: Vec<_> = (0..60)
            .map(|number| {
                let mut client = rig.client();
                client.send(format!("{ask} k{}{flags}\r\n", number % 4).repeat(20));
                client
            })
            .collect();
        let mut held = 0;
        while held < 4 << 20 {
            held = metric(&rig, "floe_memcached_memory_bytes");
            assert!(held <= 8 << 20, "{ask}: {held} bytes are held");
        }
        for key in 0..4 {
            other.expect(
                &format!("get k{key}\n"),
                &format!("VALUE k{key} 0 {LONG}\n{value}\nEND\n"),
            );
        }
        drop(idle);
    }
}

/// Short values, which are copied into responses, count in steps.
#[test]
fn many_short_values_from_memory_count_as_well() {
    let rig = rig();
    let mut other = rig.client();
    let value = "v".repeat(1000);
    other.expect(&format!("set a 0 0 1000\n{value}\n"), "STORED\n");
    let idle: Vec<_> = (0..8)
        .map(|_| {
            let mut client = rig.client();
            client.stream.set_nonblocking(true).unwrap();
            let request = "get a\r\n".repeat(2000);
            while client.stream.write_all(request.as_bytes()).is_ok() {}
            client
        })
        .collect();
    while metric(&rig, "floe_memcached_memory_bytes") < 8 * (64 << 10) {}
    other.expect("get a\n", &format!("VALUE a 0 1000\n{value}\nEND\n"));
    drop(idle);
}

fn rig_on_flash_with_memory(memory: ByteSize) -> Rig {
    rig_with(ByteSize(0), |config| config.memory = memory)
}

#[test]
fn a_shutdown_does_not_wait_for_busy_clients() {
    let mut rig = rig();
    rig.client().expect("set a 0 0 1\nx\n", "STORED\n");
    // Requests arrive continuously, so that every read of the server finds some.
    let busy: Vec<_> = (0..50)
        .map(|number| {
            let mut reader = rig.patient_client();
            let mut writer = reader.stream.try_clone().unwrap();
            let request = match number % 2 {
                0 => b"get a\r\nget b\r\nset c 0 0 1\r\nx\r\n".repeat(200),
                _ => {
                    let mut set = b"set d 0 0 100000\r\n".to_vec();
                    set.extend([b'x'; 100_000]);
                    set.extend(b"\r\nget b\r\n");
                    set
                }
            };
            std::thread::spawn(move || while writer.write_all(&request).is_ok() {});
            std::thread::spawn(move || reader.rest().len())
        })
        .collect();
    let misses = "floe_memcached_keys_total{command=\"get\",result=\"miss\"}";
    while metric(&rig, misses) < 5000 {}
    let began = Instant::now();
    assert_eq!(rig.shut_down(), Drained::Completely);
    // One second, plus a margin for a loaded machine.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "the shutdown took {took:?}");
    for client in busy {
        assert!(client.join().unwrap() > 0, "a busy client got no answer");
    }
}

#[test]
fn a_shutdown_does_not_wait_for_half_a_value_or_an_unread_response() {
    let mut rig = rig();
    let value = long_value();
    let mut reader = rig.client();
    reader.expect(&format!("set a 0 0 {LONG}\n{value}\n"), "STORED\n");
    let mut writer = rig.client();
    writer.send(format!("set b 0 0 {LONG}\r\nabc"));
    reader.send("get a\r\n".repeat(100));
    while metric(&rig, "floe_memcached_sent_bytes_total") < LONG as u64 {}
    let began = Instant::now();
    rig.shut_down();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "the shutdown took {took:?}");
}
