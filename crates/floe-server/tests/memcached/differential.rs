//! Sends the same requests to the real memcached, if it is installed: every
//! byte of the responses must be equal, except for versions and elapsed
//! seconds.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Write as _, stderr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use floe_core::ByteSize;

use crate::support::{Client, Rig, rig, rig_on_flash, rig_with, unix_client};

/// The real memcached, killed on drop.
struct Memcached {
    child: Child,
    folder: tempfile::TempDir,
}

impl Memcached {
    /// `None`, with a message, if it is not installed.
    fn start(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memcached.sock");
        let child = Command::new("memcached")
            // Its maintainer refers to items at unpredictable times, which
            // affects whether counts are padded.
            .args(["-p", "0", "-U", "0", "-o"])
            // Disables features that Floe lacks.
            .arg("no_lru_maintainer,no_lru_crawler,no_slab_reassign")
            .args(options)
            .args(["-u", "nobody", "-a", "777", "-s"])
            .arg(&path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            // Written directly, because the test harness hides the output of passing tests.
            let _ = writeln!(
                stderr(),
                "skipped: memcached is not installed to compare with"
            );
            return None;
        };
        let memcached = Memcached { child, folder };
        // Any user may create a socket there.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(memcached.folder.path(), mode).unwrap();
        while UnixStream::connect(memcached.path()).is_err() {
            std::thread::yield_now();
        }
        Some(memcached)
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("memcached.sock")
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A small generator with the same numbers for a seed on every platform.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }

    fn key(&mut self) -> &'static str {
        self.one_of(&["a", "b", "c", "d", "n", "long-key-number-one"])
    }

    fn value(&mut self) -> String {
        match self.below(5) {
            0 => self.below(1 << 20).to_string(),
            1 => String::new(),
            // A value that follows a rejected line is parsed as a line, and
            // both servers close the connection on lines of more than 2048
            // bytes.
            2 => "v".repeat(self.below(1500) as usize),
            _ => format!("value{}", self.below(1000)),
        }
    }

    fn exptime(&mut self) -> &'static str {
        self.one_of(&["0", "0", "0", "5000", "-1", "2592001", "2000000000", "x"])
    }
}

/// A request for both servers; `VERSION` stands for the last version returned.
fn request(random: &mut Random) -> String {
    let noreply = random.one_of(&["", "", "", " noreply"]);
    let key = random.key();
    match random.below(20) {
        0..5 => {
            let verb = random.one_of(&["set", "set", "add", "replace", "append", "prepend"]);
            let value = random.value();
            let len = match random.below(30) {
                // A longer value would wait for the next request's first byte.
                0 => value.len().saturating_sub(1),
                _ => value.len(),
            };
            let flags = random.one_of(&["0", "7", "4294967295", "-1", "x"]);
            let exptime = random.exptime();
            format!("{verb} {key} {flags} {exptime} {len}{noreply}\r\n{value}\r\n")
        }
        5 | 6 => {
            let version = random.one_of(&["VERSION", "VERSION", "1", "0", "x"]);
            let value = random.value();
            format!(
                "cas {key} 0 0 {} {version}{noreply}\r\n{value}\r\n",
                value.len()
            )
        }
        7 | 8 => format!(
            "{} {key} {}\r\n",
            random.one_of(&["get", "gets"]),
            random.key()
        ),
        9 => {
            let verb = random.one_of(&["gat", "gats"]);
            format!("{verb} {} {key} {}\r\n", random.exptime(), random.key())
        }
        10 => format!("touch {key} {}{noreply}\r\n", random.exptime()),
        11 | 12 => {
            let verb = random.one_of(&["incr", "decr"]);
            let delta = random.one_of(&["1", "18446744073709551615", "300", "-1", "x"]);
            format!("{verb} {key} {delta}{noreply}\r\n")
        }
        13 => format!(
            "delete {key}{}\r\n",
            random.one_of(&["", " 0", " 5", " noreply"])
        ),
        14 if random.below(4) == 0 => {
            let value = "w".repeat(random.below(200_000) as usize);
            format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())
        }
        // Up to slightly more than the largest item.
        14 if random.below(4) == 0 => {
            let verb = random.one_of(&["set", "add", "append", "prepend", "replace"]);
            let len = match random.below(3) {
                0 => (1 << 20) - 80 + random.below(40),
                _ => 200_000 + random.below(860_000),
            };
            let value = "l".repeat(len as usize);
            format!("{verb} {key} 0 0 {len}\r\n{value}\r\n")
        }
        14 => meta_set(random, key),
        15 | 16 => {
            let flags = flags(
                random,
                &[
                    "v", "t", "s", "f", "c", "k", "q", "u", "Oabc", "N100", "R2000", "T5000", "T0",
                    "v", "z", "Tx",
                ],
            );
            format!("mg {key}{flags}\r\n")
        }
        17 => format!(
            "md {key}{}\r\n",
            flags(
                random,
                &["q", "k", "O1", "I", "T300", "CVERSION", "C1", "z"]
            )
        ),
        18 => format!(
            "ma {key}{}\r\n",
            flags(
                random,
                &[
                    "v", "t", "c", "k", "N0", "N50", "J7", "D3", "MI", "MD", "M+", "MX", "T100",
                    "q", "Ofoo", "Dx", "C1"
                ]
            )
        ),
        _ => random
            .one_of(&[
                "verbosity 0\r\n",
                "bogus\r\n",
                "\r\n",
                "get\r\n",
                "set\r\n",
                "touch a\r\n",
                "mg\r\n",
                "ms a\r\n",
                "incr\r\n",
                "gat 1\r\n",
                "cas a 0 0 1\r\n",
                "flush_all\r\n",
                "mx\r\n",
                "delete a b c d\r\n",
                "stats bogus\r\n",
                "cas\r\n",
                "cas a\r\n",
                "mg\r\n",
                "md\r\n",
                "ma\r\n",
                "ms\r\n",
                "set a 0 99999999999999999999 1\r\n",
                "set a 0 0 99999999999999999999\r\n",
                "set a 4294967296 0 1\r\nx\r\n",
                "set a 0 0 4294967297\r\nx\r\n",
                "incr a 99999999999999999999\r\n",
                "touch a 99999999999999999999\r\n",
                "gat 99999999999999999999 a\r\n",
                "flush_all 99999999999999999999\r\n",
                "verbosity x\r\n",
                "verbosity 99999999999999999999\r\n",
                "cache_memlimit 99999999999999999999\r\n",
                "slabs automove 0\r\n",
                "slabs automove 2\r\n",
                "slabs automove 3\r\n",
                "slabs automove x\r\n",
                "slabs automove noreply\r\n",
                "slabs automove 1 noreply\r\n",
                "slabs automove ratio 0.5\r\n",
                "slabs automove ratio x\r\n",
                "slabs automove ratio\r\n",
                "slabs automove\r\n",
                "slabs reassign 1 2\r\n",
                "slabs reassign 1\r\n",
                "slabs\r\n",
                "lru_crawler disable\r\n",
                "lru_crawler sleep 100\r\n",
                "lru_crawler sleep 2000000\r\n",
                "lru_crawler sleep x\r\n",
                "lru_crawler tocrawl 5\r\n",
                "lru_crawler tocrawl x\r\n",
                "lru_crawler crawl all\r\n",
                "lru_crawler crawl\r\n",
                "lru_crawler metadump all\r\n",
                "lru_crawler mgdump all\r\n",
                "lru_crawler\r\n",
                "lru\r\n",
                "lru mode flat\r\n",
                "lru temp_ttl 10\r\n",
                "lru tune 10 20 0.1 0.2\r\n",
                "lru tune 10 20 1 2 noreply\r\n",
                "lru tune 50 40 0.1 0.2\r\n",
                "lru tune 10 20 0 0.2\r\n",
                "lru tune a b c d\r\n",
                "lru tune 10\r\n",
                "lru noreply\r\n",
                "extstore x\r\n",
                "stats detail\r\n",
                "stats detail x\r\n",
                "flush_all x\r\n",
                "gets\r\n",
                "  get  a  \r\n",
                "get a\n",
                "shutdown\r\n",
                "verbosity\r\n",
                "set a 0 0 -1\r\n",
                "me\r\n",
                "set a 0 0 2000000\r\n0\r\n",
            ])
            .replace(
                "2000000\r\n0",
                &format!("2000000\r\n{}", "0".repeat(2_000_000)),
            ),
    }
}

fn meta_set(random: &mut Random, key: &str) -> String {
    let value = random.value();
    let flags = flags(
        random,
        &[
            "c", "k", "q", "F9", "T5000", "T0", "T-1", "ME", "MA", "MP", "MR", "MS", "MX", "I",
            "CVERSION", "C1", "Oop", "Fx", "z",
        ],
    );
    format!("ms {key} {}{flags}\r\n{value}\r\n", value.len())
}

fn flags(random: &mut Random, all: &[&str]) -> String {
    let mut flags = String::new();
    for _ in 0..random.below(5) {
        let _ = write!(flags, " {}", random.one_of(all));
    }
    flags
}

/// One server: its requests, and versions in the order of their first occurrence.
struct Side {
    client: Client<UnixStream>,
    seen: HashMap<String, usize>,
    last: String,
}

impl Side {
    fn new(path: &Path) -> Self {
        Side {
            client: unix_client(path),
            seen: HashMap::new(),
            last: "1".into(),
        }
    }

    fn ask(&mut self, request: &str) -> String {
        let request = request.replace("VERSION", &self.last);
        let response = self.client.ask(request);
        let response = String::from_utf8_lossy(&response).into_owned();
        response.split('\n').map(|line| self.normal(line)).collect()
    }

    /// Replaces versions by their order and removes seconds.
    fn normal(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
        let is_meta = matches!(words[0], "HD" | "VA" | "EN" | "NF" | "EX" | "NS");
        let mut normal = String::new();
        for (place, word) in words.iter().enumerate() {
            let version = match words[0] {
                "VALUE" if place == 4 => Some(*word),
                _ if is_meta && place > 0 => word.strip_prefix('c'),
                _ => None,
            };
            let seconds = is_meta && word.len() > 2 && word.starts_with('t') && *word != "t-1";
            match version.filter(|version| *version != "0") {
                Some(version) => {
                    let next = self.seen.len();
                    let number = *self.seen.entry(version.to_owned()).or_insert(next);
                    self.last = version.to_owned();
                    let _ = write!(normal, " version-{number}");
                }
                None if seconds => normal.push_str(" seconds"),
                None => {
                    let _ = write!(normal, " {word}");
                }
            }
        }
        normal + "\n"
    }
}

fn compare(ours: &Path, theirs: &Path, seed: u64, requests: usize) {
    let mut random = Random(seed);
    let (mut ours, mut theirs) = (Side::new(ours), Side::new(theirs));
    assert_eq!(ours.ask("flush_all\r\n"), theirs.ask("flush_all\r\n"));
    let mut history = String::new();
    for number in 0..requests {
        let several: Vec<_> = (0..=random.below(4))
            .map(|_| request(&mut random))
            .collect();
        // Several requests in one batch. But memcached counts in place, with
        // padding, only if it is not sending the item.
        let counts = |request: &String| request.contains("cr ") || request.starts_with("ma ");
        // A long value is sent alone: earlier responses would block on this
        // client, which sends everything before it reads.
        let is_long = |request: &String| request.len() > 100_000;
        let alone = |request: &String| counts(request) || is_long(request);
        let batches = match several.iter().any(alone) {
            true => several,
            false => vec![several.concat()],
        };
        for batch in batches {
            let _ = writeln!(history, "{}", &batch[..batch.len().min(300)]);
            let (our, their) = (ours.ask(&batch), theirs.ask(&batch));
            let tail = history.len().saturating_sub(3000);
            let shown = history.get(tail..).unwrap_or(&history);
            assert!(
                our == their,
                "seed {seed}, request {number}:\nours:\n{our}\ntheirs:\n{their}\nafter:\n{shown}"
            );
        }
    }
}

fn compare_all(rig: fn() -> Rig, seeds: std::ops::Range<u64>) {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let rig = rig();
    for seed in seeds {
        compare(&rig.path, &memcached.path(), seed, 400);
    }
}

#[test]
fn responses_equal_those_of_memcached() {
    compare_all(rig, 0..20);
}

#[test]
fn responses_from_flash_equal_those_of_memcached() {
    compare_all(rig_on_flash, 100..110);
}

/// Sends the same requests to both; the responses must be equal.
fn agree(ours: &Path, theirs: &Path, conversation: &[&str]) {
    let (mut ours, mut theirs) = (Side::new(ours), Side::new(theirs));
    for request in conversation {
        assert_eq!(ours.ask(request), theirs.ask(request), "{request}");
    }
}

#[test]
fn details_by_prefix_equal_those_of_memcached() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let conversation = [
        "stats detail dump\r\n",
        "stats detail on\r\n",
        "set foo:123 0 0 6\r\nfooval\r\nstats detail dump\r\n",
        "get foo:123\r\nget foo:124 plain\r\nstats detail dump\r\n",
        "gat 0 foo:123\r\ngat 0 foo:9\r\nstats detail dump\r\n",
        "delete foo:125\r\ndelete foo:123 noreply\r\nstats detail dump\r\n",
        "ms foo:1 1\r\nx\r\nmg foo:1\r\nmd foo:1\r\nincr foo:1 1\r\ntouch foo:1 1\r\nstats detail dump\r\n",
        "cas foo:1 0 0 1 7\r\nx\r\nadd foo:1 0 0 1\r\nx\r\nset foo:2 0 0 x\r\nstats detail dump\r\n",
        "stats reset\r\nstats detail dump\r\n",
        "stats detail off\r\nget foo:1\r\nstats detail dump\r\n",
    ];
    for rig in [rig(), rig_on_flash()] {
        agree(&rig.path, &memcached.path(), &conversation);
        unix_client(&memcached.path()).expect("flush_all\n", "OK\n");
    }
}

#[test]
fn rejected_flushes_equal_those_of_memcached() {
    let Some(memcached) = Memcached::start(&["-F"]) else {
        return;
    };
    let rig = rig_with(ByteSize::mib(1), |config| config.flush_all = false);
    let conversation =
        ["set a 0 0 1\r\nx\r\nflush_all\r\nflush_all 10\r\nflush_all noreply\r\nget a\r\n"];
    agree(&rig.path, &memcached.path(), &conversation);
}

/// The names of the statistics of `stats` and its sections.
fn names(path: &Path, request: &str) -> Vec<String> {
    let response = String::from_utf8(unix_client(path).ask(request)).unwrap();
    let lines = response
        .lines()
        .filter_map(|line| line.strip_prefix("STAT "));
    let name = |line: &str| line.split(' ').next().map(str::to_owned);
    lines.filter_map(name).collect()
}

#[test]
fn statistics_have_the_names_of_memcached() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let rig = rig();
    let own = [
        "bytes_ram",
        "curr_items_ram",
        "device_failures",
        "get_extstore",
        "idle_kicks",
    ];
    for request in ["stats\r\n", "stats settings\r\n"] {
        let theirs = names(&memcached.path(), request);
        for name in names(&rig.path, request) {
            assert!(
                theirs.contains(&name) || own.contains(&&*name),
                "{request}: {name}"
            );
        }
    }
    let ours = names(&rig.path, "stats\r\n");
    for name in [
        "get_expired",
        "get_flushed",
        "reclaimed",
        "listen_disabled_num",
        "conn_yields",
        "malloc_fails",
        "hash_bytes",
    ] {
        assert!(ours.contains(&name.to_owned()), "{name}");
    }
}
