//! The classic commands: every response, every error.

use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Client, Rig, rig, rig_on_flash};

fn both(test: impl Fn(&Rig)) {
    test(&rig());
    test(&rig_on_flash());
}

#[test]
fn storing_in_all_its_forms() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("set a 5 0 3\nabc\n", "STORED\n");
        rig.flush();
        client.expect("get a\n", "VALUE a 5 3\nabc\nEND\n");
        client.expect("add a 0 0 1\nx\n", "NOT_STORED\n");
        client.expect("add b 0 0 1\nx\n", "STORED\n");
        client.expect("replace c 0 0 1\ny\n", "NOT_STORED\n");
        client.expect("replace b 1 0 2\nyy\n", "STORED\n");
        client.expect("append a 9 0 3\ndef\n", "STORED\n");
        client.expect("prepend a 9 0 1\n>\n", "STORED\n");
        client.expect("append none 0 0 1\nx\n", "NOT_STORED\n");
        client.expect("prepend none 0 0 1\nx\n", "NOT_STORED\n");
        rig.flush();
        client.expect(
            "get a none b a\n",
            "VALUE a 5 7\n>abcdef\nVALUE b 1 2\nyy\nVALUE a 5 7\n>abcdef\nEND\n",
        );
        client.expect("set e 0 0 0\n\nget e\n", "STORED\nVALUE e 0 0\n\nEND\n");
        client.expect(
            "set f 4294967295 0 1\nx\nget f\n",
            "STORED\nVALUE f 4294967295 1\nx\nEND\n",
        );
        client.expect("bget a\n", "VALUE a 5 7\n>abcdef\nEND\n");
    });
}

#[test]
fn compare_and_swap() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("cas a 0 0 1 1\nx\n", "NOT_FOUND\n");
        client.expect("set a 0 0 1\nx\n", "STORED\n");
        let version = client.version("a");
        rig.flush();
        client.expect("gets a\n", &format!("VALUE a 0 1 {version}\nx\nEND\n"));
        client.expect(&format!("cas a 0 0 1 {}\ny\n", version + 1), "EXISTS\n");
        client.expect("cas a 0 0 1 0\ny\n", "EXISTS\n");
        client.expect(&format!("cas a 7 0 1 {version}\nz\n"), "STORED\n");
        client.expect(&format!("cas a 0 0 1 {version}\ny\n"), "EXISTS\n");
        client.expect("get a\n", "VALUE a 7 1\nz\nEND\n");
        assert!(client.version("a") > version);
        client.expect(
            "cas a 0 0 1 abc\n",
            "CLIENT_ERROR bad command line format\n",
        );
        client.expect("cas a 0 0 1\n", "ERROR\n");
    });
}

#[test]
fn counting() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("incr n 1\n", "NOT_FOUND\n");
        client.expect("decr n 1\n", "NOT_FOUND\n");
        client.expect("set n 3 0 2\n10\nincr n 5\n", "STORED\n15\n");
        rig.flush();
        client.expect("decr n 6\nget n\n", "9\nVALUE n 3 2\n9 \nEND\n");
        client.expect("decr n 100\n", "0\n");
        client.expect("incr n 18446744073709551615\n", "18446744073709551615\n");
        client.expect("incr n 3\n", "2\n");
        client.expect(
            "incr n -1\n",
            "CLIENT_ERROR invalid numeric delta argument\n",
        );
        client.expect(
            "incr n x\n",
            "CLIENT_ERROR invalid numeric delta argument\n",
        );
        client.expect("incr n\n", "ERROR\n");
        client.expect(
            "set w 0 0 3\nabc\nincr w 1\ndecr w 1\n",
            "STORED\nCLIENT_ERROR cannot increment or decrement non-numeric value\n\
             CLIENT_ERROR cannot increment or decrement non-numeric value\n",
        );
        client.expect(
            "set w 0 0 20\n99999999999999999999\nincr w 1\n",
            "STORED\nCLIENT_ERROR cannot increment or decrement non-numeric value\n",
        );
    });
}

#[test]
fn deleting_touching_and_times_to_live() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("delete a\n", "NOT_FOUND\n");
        client.expect(
            "set a 0 0 1\nx\ndelete a\nget a\n",
            "STORED\nDELETED\nEND\n",
        );
        client.expect("set a 0 0 1\nx\ndelete a 0\n", "STORED\nDELETED\n");
        let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\n";
        client.expect("delete a 5\n", usage);
        client.expect("delete a 0 5\n", usage);
        client.expect("delete\ndelete a b c d\n", "ERROR\nERROR\n");
        client.expect("touch a 10\n", "NOT_FOUND\n");
        client.expect("set a 0 0 1\nx\ntouch a 100\n", "STORED\nTOUCHED\n");
        rig.flush();
        client.expect_left("mg a t\n", "HD t{left}\n", 100);
        client.expect("gat 0 a b\nmg a t\n", "VALUE a 0 1\nx\nEND\nHD t-1\n");
        let version = client.version("a");
        client.expect("gats 50 a\n", &format!("VALUE a 0 1 {version}\nx\nEND\n"));
        client.expect("gat x a\n", "CLIENT_ERROR invalid exptime argument\n");
        client.expect("gat 10\n", "END\n");
        client.expect("gat\n", "ERROR\n");
        client.expect("touch a x\n", "CLIENT_ERROR invalid exptime argument\n");
        client.expect("touch a -1\nget a\n", "TOUCHED\nEND\n");
        // Past times, in every form.
        for exptime in ["-1", "-100000", "2592001", "1000000000"] {
            let ask = format!("set a 0 {exptime} 1\nx\nget a\n");
            client.expect(&ask, "STORED\nEND\n");
        }
        for exptime in ["0", "1000", "2592000", "4000000000", "2000000000"] {
            let found = match exptime {
                // Negative as an int32.
                "4000000000" => "STORED\nEND\n",
                _ => "STORED\nVALUE a 0 1\nx\nEND\n",
            };
            client.expect(&format!("set a 0 {exptime} 1\nx\nget a\n"), found);
        }
    });
}

#[test]
fn flushing() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("set a 0 0 1\nx\nflush_all\nget a\n", "STORED\nOK\nEND\n");
        client.expect("set a 0 0 1\nx\nget a\n", "STORED\nVALUE a 0 1\nx\nEND\n");
        client.expect("flush_all 1000\nget a\n", "OK\nVALUE a 0 1\nx\nEND\n");
        client.expect("flush_all x\n", "CLIENT_ERROR invalid exptime argument\n");
        client.expect("flush_all 0 0 0\n", "ERROR\n");
        client.expect("flush_all noreply\nget a\n", "END\n");
        client.expect(
            "set a 0 0 1\nx\nflush_all 0 noreply\nget a\n",
            "STORED\nEND\n",
        );
        client.expect("set a 0 0 1\nx\nflush_all -1\nget a\n", "STORED\nOK\nEND\n");
    });
}

#[test]
fn the_rest_of_the_commands() {
    let rig = rig();
    let mut client = rig.client();
    let version = format!("VERSION 1.6.18-floe-{}\n", env!("CARGO_PKG_VERSION"));
    client.expect("version\n", &version);
    client.expect(
        "verbosity 1\nverbosity 1 noreply\nverbosity\nverbosity x\n",
        "OK\nERROR\nCLIENT_ERROR bad command line format\n",
    );
    client.expect(
        "shutdown\nshutdown graceful\n",
        "ERROR: shutdown not enabled\nERROR: shutdown not enabled\n",
    );
    client.expect(
        "cache_memlimit 1\ncache_memlimit 64\ncache_memlimit x\n",
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\n\
         MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\nERROR\n",
    );
    client.expect(
        "slabs reassign 1 2\nlru_crawler crawl all\nlru_crawler enable\nwatch\nlru mode flat\nslabs x\n",
        "CLIENT_ERROR slab reassignment disabled\nCLIENT_ERROR lru crawler disabled\n\
         ERROR failed to start lru crawler thread\n\
         CLIENT_ERROR watch commands not allowed\nERROR\nERROR\n",
    );
    client.expect(
        "\n \nx\nmisbehave\nGET a\nget\nset a 0 0\nmx a\n",
        "ERROR\nERROR\nERROR\nERROR\nERROR\nERROR\nERROR\nERROR\n",
    );
    client.expect(
        "stats reset\nstats detail on\nstats detail\nstats nothing\nstats sizes\n",
        "RESET\nOK\nCLIENT_ERROR usage: stats detail on|off|dump\nERROR\n\
         STAT sizes_status disabled\nEND\n",
    );
    client.expect("set a 0 0 1\nx\nget a b\n", "STORED\nVALUE a 0 1\nx\nEND\n");
    let stats = String::from_utf8(client.ask("stats\r\n")).unwrap();
    for line in [
        "STAT cmd_get 2\r\n",
        "STAT cmd_set 1\r\n",
        "STAT get_hits 1\r\n",
        "STAT get_misses 1\r\n",
        "STAT curr_connections 1\r\n",
        "STAT threads 2\r\n",
    ] {
        assert!(stats.contains(line), "{line} is not in {stats}");
    }
    for section in ["settings", "items", "slabs", "conns"] {
        let response = client.ask(format!("stats {section}\r\n"));
        assert!(response.starts_with(b"STAT ") && response.ends_with(b"\r\nEND\r\n"));
    }
    client.send("get a\r\nquit\r\nget a\r\n");
    assert_eq!(client.rest(), b"VALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn connections_are_listed() {
    let rig = rig();
    let mut sends = rig.client();
    sends.send("set a 0 0 100000\r\nabc");
    let mut idle = rig.local_client();
    idle.expect("get a\n", "END\n");
    let mut asks = rig.client();
    let (client, server) = (asks.stream.local_addr().unwrap(), rig.address());
    loop {
        let lines = String::from_utf8(asks.ask("stats conns\r\n")).unwrap();
        let id = |value: &str| -> Option<String> {
            let line = lines.lines().find(|line| line.ends_with(value))?;
            let (id, _) = line.strip_prefix("STAT ")?.split_once(':')?;
            Some(id.to_owned())
        };
        // The server may not have read the sender's bytes yet.
        let Some(sending) = id(":state conn_nread") else {
            continue;
        };
        assert!(lines.contains(&format!("STAT {sending}:listen_addr tcp:{server}\r\n")));
        let own = id(&format!(":addr tcp:{client}")).expect("it lists itself");
        assert!(lines.contains(&format!("STAT {own}:state conn_parse_cmd\r\n")));
        assert!(lines.contains(&format!("STAT {own}:secs_since_last_cmd ")));
        let path = rig.path.display();
        assert!(lines.contains(&format!(":listen_addr unix:{path}\r\n")));
        assert_eq!(lines.matches(":state conn_listening\r\n").count(), 2);
        assert_eq!(lines.matches(":listen_addr ").count(), 3);
        return;
    }
}

#[test]
fn details_are_counted_by_prefix() {
    both(|rig| {
        let mut client = rig.client();
        client.expect("stats detail dump\nset a:1 0 0 1\nx\n", "END\nSTORED\n");
        rig.flush();
        client.expect(
            "stats detail on\nget a:1 a:2 plain\nset b:1 0 0 1\ny\ndelete b:2\ngat 0 a:1\n",
            "OK\nVALUE a:1 0 1\nx\nEND\nSTORED\nNOT_FOUND\nVALUE a:1 0 1\nx\nEND\n",
        );
        client.expect(
            "stats detail dump\nstats detail off\nget a:1\nstats detail dump\n",
            "PREFIX a get 3 hit 2 set 0 del 0\nPREFIX b get 0 hit 0 set 1 del 1\nEND\nOK\n\
             VALUE a:1 0 1\nx\nEND\n\
             PREFIX a get 3 hit 2 set 0 del 0\nPREFIX b get 0 hit 0 set 1 del 1\nEND\n",
        );
        client.expect("stats reset\nstats detail dump\n", "RESET\nEND\n");
    });
}

/// The value of a statistic.
fn statistic(client: &mut Client<TcpStream>, name: &str) -> u64 {
    let all = String::from_utf8(client.ask("stats\r\n")).unwrap();
    let line = all
        .lines()
        .find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap().parse().unwrap()
}

#[test]
fn items_that_are_held_or_have_ended_are_counted() {
    for rig in [rig(), rig_on_flash()] {
        let mut client = rig.client();
        client.expect("set z 0 0 1\nz\n", "STORED\n");
        let before = statistic(&mut client, "curr_items");
        client.expect(
            "set a 0 0 1\na\nset b 0 1 1\nb\nset a 0 0 1\nc\n",
            "STORED\nSTORED\nSTORED\n",
        );
        assert_eq!(statistic(&mut client, "curr_items"), before + 2);
        rig.flush();
        client.expect(
            "get a b\nget none\n",
            "VALUE a 0 1\nc\nVALUE b 0 1\nb\nEND\nEND\n",
        );
        assert_eq!(statistic(&mut client, "get_expired"), 0);
        std::thread::sleep(Duration::from_millis(2100));
        client.expect("get a b\n", "VALUE a 0 1\nc\nEND\n");
        assert_eq!(statistic(&mut client, "get_expired"), 1);
        assert_eq!(statistic(&mut client, "get_misses"), 2);
    }
}

#[test]
fn every_error_that_the_page_quotes_exists() {
    let page = include_str!("../../../../docs/memcached.md");
    let words = include_str!("../../src/frontends/memcached/words.rs");
    let quoted = page.split('`').skip(1).step_by(2);
    let errors: Vec<&str> = quoted
        .filter(|text| text.contains("ERROR ") || text.starts_with("MEMLIMIT"))
        .collect();
    assert!(errors.len() > 5, "{errors:?}");
    for error in errors {
        assert!(
            words.contains(&format!("\"{error}\"")),
            "no answer is {error}"
        );
    }
}
