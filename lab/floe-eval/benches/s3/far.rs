//! Floe in front of an S3 service that is 20 ms away: hits and misses over the origin's own
//! latency, requests to it, and the memory of many connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::AnyError;
use crate::origin::{FarOrigin, content};
use crate::peer::{NGINX_CACHES, Program, free_address, nginx_cache, serving, start};
use crate::relay::Relay;

/// The way to the origin and back.
const DISTANCE: Duration = Duration::from_millis(20);

const MODES: [&str; 4] = ["etag", "events", "ttl", "immutable"];

/// Whose hits ask the origin.
const ASKING: [&str; 2] = ["etag", "nginx, revalidating"];

const GIB: u64 = 1 << 30;

/// Misses: the figure, the size of the object, and what is read of it.
const MISSES: [(&str, u64, Part); 4] = [
    ("miss of 4 KiB", 4096, Part::Whole),
    ("miss of 4 KiB within 1 GiB", GIB, Part::First),
    ("miss of 4 KiB within 100 GiB", 100 * GIB, Part::First),
    (
        "miss of 4 KiB further in a known object",
        100 * GIB,
        Part::Further,
    ),
];

/// The same as the first one, of objects of their own.
const BUSY_MISS: [(&str, u64, Part); 1] = [("miss of 4 KiB", 4096, Part::Another)];

const IDLE_CONNECTIONS: usize = 10_000;
const ACTIVE_CONNECTIONS: usize = 1_000;

/// A connection that sends one request after the other.
struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self, AnyError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream: BufReader::with_capacity(1 << 10, stream),
            address,
        })
    }

    fn send(
        &mut self,
        method: &str,
        object: &str,
        range: Option<(u64, u64)>,
    ) -> Result<(), AnyError> {
        let range = range.map(|(from, to)| format!("Range: bytes={from}-{}\r\n", to - 1));
        let text = format!(
            "{method} /bucket/{object} HTTP/1.1\r\nHost: {}\r\n{}\r\n",
            self.address,
            range.unwrap_or_default()
        );
        Ok(self.stream.get_mut().write_all(text.as_bytes())?)
    }

    /// Reads the head of an answer; the length of its body.
    fn head(&mut self) -> Result<usize, AnyError> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 20") {
            return Err(format!("answered {line:?}").into());
        }
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            if line.trim_end().is_empty() {
                return Ok(length);
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse()?;
            }
        }
    }

    /// The time until the first byte of the body, and the body.
    fn get(
        &mut self,
        object: &str,
        range: Option<(u64, u64)>,
    ) -> Result<(Duration, Vec<u8>), AnyError> {
        let begun = Instant::now();
        self.send("GET", object, range)?;
        let mut body = vec![0; self.head()?];
        let (first, rest) = body.split_at_mut(1);
        self.stream.read_exact(first)?;
        let latency = begun.elapsed();
        self.stream.read_exact(rest)?;
        let from = range.map_or(0, |(from, _)| from);
        if body != content(from..from + body.len() as u64) {
            return Err(format!("other bytes of {object}").into());
        }
        Ok((latency, body))
    }

    fn head_latency(&mut self, object: &str) -> Result<Duration, AnyError> {
        let begun = Instant::now();
        self.send("HEAD", object, None)?;
        self.head()?;
        Ok(begun.elapsed())
    }
}

/// A server in front of the origin.
struct Floe {
    program: Program,
    s3: SocketAddr,
    events: SocketAddr,
}

impl Floe {
    fn start(floe: &Path, folder: &Path, origin: &FarOrigin, mode: &str) -> Result<Self, AnyError> {
        let (s3, events) = (free_address()?, free_address()?);
        let mut command = serving(floe, mode, s3);
        command
            .args(["--origin-kind", "s3", "--origin-allow-http=true"])
            .args(["--origin-anonymous=true", "--origin-endpoint"])
            .arg(format!("http://{}", origin.address))
            .args(["--s3-max-connections", "12000", "--data-dir"])
            .arg(folder.join(format!("far-{mode}")));
        if mode == "events" {
            command.args(["--events-listen", &events.to_string()]);
        }
        Ok(Floe {
            program: start(&mut command, s3)?,
            s3,
            events,
        })
    }

    /// Says that notifications arrive.
    fn notify(&self) -> Result<(), AnyError> {
        let body = r#"{"Records":[]}"#;
        let mut stream = TcpStream::connect(self.events)?;
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.events,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.starts_with("HTTP/1.1 2") {
            true => Ok(()),
            false => Err(format!("the notification: {answer}").into()),
        }
    }

    /// Resident bytes.
    fn resident(&self) -> Result<u64, AnyError> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB");
        Ok(kib.parse::<u64>()? << 10)
    }
}

fn median(mut latencies: Vec<Duration>) -> f64 {
    latencies.sort_unstable();
    latencies[latencies.len() / 2].as_secs_f64() * 1e6
}

/// Measures all, and shows each row.
pub(crate) fn run(
    floe: &Path,
    folder: &Path,
    quick: bool,
    mut show: &dyn Fn(Value),
) -> Result<(), AnyError> {
    let origin = FarOrigin::start(DISTANCE)?;
    let near = FarOrigin::start(Duration::ZERO)?;
    let rounds = if quick { 10 } else { 200 };
    for mode in MODES {
        let server = Floe::start(floe, folder, &origin, mode)?;
        if mode == "events" {
            server.notify()?;
        }
        let mut measured = Measured::new(mode, server.s3, &origin, near.address, rounds)?;
        show(measured.hits()?);
        match mode {
            "etag" => {
                bursts(&server, &origin, rounds / 10, &mut show)?;
                measured.misses("", &MISSES)?.into_iter().for_each(show);
                measured.busy()?.into_iter().for_each(show);
            }
            "immutable" => connections(&server, quick, &mut show)?,
            _ => {}
        }
    }
    for (name, rule, status) in NGINX_CACHES {
        let probe = ("4096-probe".to_owned(), status);
        let started = nginx_cache(folder, (name, rule), origin.address, probe);
        let (_program, address) = match started {
            Ok(started) => started,
            Err(error) => {
                eprintln!("SKIPPED {name}: {error}");
                continue;
            }
        };
        let mut measured = Measured::new(name, address, &origin, near.address, rounds)?;
        show(measured.hits()?);
        let misses = measured.misses(name, &MISSES[..1])?;
        misses.into_iter().for_each(show);
        if ASKING.contains(&name) {
            measured.busy()?.into_iter().for_each(show);
        }
    }
    Ok(())
}

/// The servers that are asked in turns with each peer.
struct Peers {
    /// The service itself.
    direct: Client,
    /// One that answers at once.
    near: Client,
    /// Servers between that do hardly anything, see [`Relay`].
    forwarding: Client,
    validating: Client,
}

impl Peers {
    fn connect(origin: &FarOrigin, near: SocketAddr) -> Result<Self, AnyError> {
        Ok(Peers {
            direct: Client::connect(origin.address)?,
            near: Client::connect(near)?,
            forwarding: Client::connect(Relay::Forward.start(origin.address)?)?,
            validating: Client::connect(Relay::Validate.start(origin.address)?)?,
        })
    }
}

/// Clients of one server beside those that are measured, each of which asks again as soon as it
/// has its answer: for the objects that it is named, or each time for a new one.
struct Others {
    ends: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), AnyError>>>,
    begun: Instant,
}

impl Others {
    const CLIENTS: usize = 32;

    fn start(server: SocketAddr, are_misses: bool) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let requests = Arc::<AtomicU64>::default();
        let client = |number: usize| {
            let (ends, requests) = (Arc::clone(&ends), Arc::clone(&requests));
            std::thread::spawn(move || -> Result<(), AnyError> {
                let mut client = Client::connect(server)?;
                let mut count = 0;
                while !ends.load(Relaxed) {
                    let object = match are_misses {
                        true => format!("4096-{number}-{count}"),
                        false => format!("4096-{number}"),
                    };
                    client.get(&object, None)?;
                    count += 1;
                    requests.fetch_add(1, Relaxed);
                }
                Ok(())
            })
        };
        let threads = (0..Self::CLIENTS).map(client).collect();
        // They are all cached when the first answers are there.
        std::thread::sleep(Duration::from_millis(500));
        requests.store(0, Relaxed);
        Others {
            ends,
            requests,
            threads,
            begun: Instant::now(),
        }
    }

    /// Ends them; their requests a second.
    fn end(self) -> Result<f64, AnyError> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let requests = self.requests.load(Relaxed);
        self.ends.store(true, Relaxed);
        for thread in self.threads {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err("a client panicked".into()))?;
        }
        Ok(requests as f64 / seconds)
    }
}

/// A peer, and what is asked in turns with it.
struct Measured<'a> {
    name: &'a str,
    client: Client,
    peers: Peers,
    origin: &'a FarOrigin,
    rounds: usize,
}

impl<'a> Measured<'a> {
    fn new(
        name: &'a str,
        address: SocketAddr,
        origin: &'a FarOrigin,
        near: SocketAddr,
        rounds: usize,
    ) -> Result<Self, AnyError> {
        Ok(Measured {
            name,
            client: Client::connect(address)?,
            peers: Peers::connect(origin, near)?,
            origin,
            rounds,
        })
    }

    /// Hits and misses of a server that others ask as well. One that is asked every 20 ms alone
    /// runs from memory, not from the caches of its processor.
    fn busy(&mut self) -> Result<Vec<Value>, AnyError> {
        let mut rows = Vec::new();
        for are_misses in [false, true] {
            let others = Others::start(self.client.address, are_misses);
            let measured = match are_misses {
                false => vec![self.hits()?],
                true => self.misses(self.name, &BUSY_MISS)?,
            };
            let rate = others.end()?.round();
            for mut row in measured {
                let figure = row["figure"].as_str().unwrap_or_default();
                row["figure"] = format!("{figure}, busy").into();
                row["others_per_second"] = rate.into();
                // Theirs are among the requests, and nothing else asks the relay.
                for column in ["origin_requests_each", "bare_server_over_origin_us"] {
                    row.as_object_mut().map(|row| row.remove(column));
                }
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Hits beside the origin's own HEADs, in turns, a bare server that answers at once, and where
    /// the origin is asked a relay that asks it.
    fn hits(&mut self) -> Result<Value, AnyError> {
        let Measured { client, peers, .. } = self;
        for _ in 0..2 {
            client.get("4096-hit", None)?;
        }
        // Metadata and bytes are stored behind the answer.
        std::thread::sleep(Duration::from_millis(200));
        let asks = ASKING.contains(&self.name);
        let (mut of_origin, mut of_floe, mut of_bare) = (Vec::new(), Vec::new(), Vec::new());
        let mut asked = 0;
        for _ in 0..self.rounds {
            of_origin.push(peers.direct.head_latency("4096-hit")?);
            let before = self.origin.requests();
            of_floe.push(client.get("4096-hit", None)?.0);
            asked += self.origin.requests() - before;
            let bare = match asks {
                true => &mut peers.validating,
                false => &mut peers.near,
            };
            of_bare.push(bare.get("4096-hit", None)?.0);
        }
        let [of_origin, of_floe, of_bare] = [of_origin, of_floe, of_bare].map(median);
        let reference = if asks { of_origin } else { 0.0 };
        Ok(json!({
            "figure": format!("hit of 4 KiB, {}", self.name),
            "p50_us": of_floe.round(),
            "origin_p50_us": of_origin.round(),
            "over_origin_us": (of_floe - reference).round(),
            "bare_server_over_origin_us": (of_bare - reference).round(),
            "origin_requests_each": asked as f64 / self.rounds as f64,
        }))
    }

    /// First bytes of misses beside those of the origin, and of a relay in front of it.
    fn misses(&mut self, peer: &str, cases: &[(&str, u64, Part)]) -> Result<Vec<Value>, AnyError> {
        let Measured { client, peers, .. } = self;
        let mut rows = Vec::new();
        for &(name, size, part) in cases {
            let (mut of_origin, mut of_floe, mut of_bare) = (Vec::new(), Vec::new(), Vec::new());
            if part == Part::Further {
                client.get(&format!("{size}-known"), Some((0, 4096)))?;
            }
            for round in 0..self.rounds as u64 {
                let (object, from) = match part {
                    Part::Further => (format!("{size}-known"), (round + 1) << 20),
                    Part::Another => (format!("{size}-another-{round}"), 0),
                    _ => (format!("{size}-{round}"), size / 3 + round * 8192),
                };
                let is_whole = matches!(part, Part::Whole | Part::Another);
                let range = (!is_whole).then_some((from, from + 4096));
                of_origin.push(peers.direct.get(&object, range)?.0);
                of_floe.push(client.get(&object, range)?.0);
                of_bare.push(peers.forwarding.get(&object, range)?.0);
            }
            let [of_origin, of_floe, of_bare] = [of_origin, of_floe, of_bare].map(median);
            let figure = [name, peer].join(", ");
            rows.push(json!({
                "figure": figure.trim_end_matches(", "),
                "p50_us": of_floe.round(),
                "origin_p50_us": of_origin.round(),
                "over_origin_us": (of_floe - of_origin).round(),
                "bare_server_over_origin_us": (of_bare - of_origin).round(),
            }));
        }
        Ok(rows)
    }
}

/// Readers of one cached object at once.
fn bursts(
    server: &Floe,
    origin: &FarOrigin,
    rounds: usize,
    show: &mut impl FnMut(Value),
) -> Result<(), AnyError> {
    const READERS: usize = 64;
    let barrier = Barrier::new(READERS);
    let before = origin.heads.load(Relaxed);
    let latencies: Vec<Duration> = std::thread::scope(|scope| {
        let reader = || -> Result<Vec<Duration>, AnyError> {
            let mut client = Client::connect(server.s3)?;
            let mut latencies = Vec::new();
            for _ in 0..rounds {
                barrier.wait();
                latencies.push(client.get("4096-hit", None)?.0);
                barrier.wait();
            }
            Ok(latencies)
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(reader)).collect();
        let joined = readers.into_iter().map(|reader| {
            let result = reader.join();
            result.unwrap_or_else(|_| Err("a reader panicked".into()))
        });
        let latencies: Vec<Vec<Duration>> = joined.collect::<Result<_, AnyError>>()?;
        Ok::<_, AnyError>(latencies.concat())
    })?;
    let heads = origin.heads.load(Relaxed) - before;
    show(json!({
        "figure": "64 hits of one object at once, etag",
        "p50_us": median(latencies).round(),
        "origin_requests_each": heads as f64 / (rounds * READERS) as f64,
        "origin_requests_per_burst": heads as f64 / rounds as f64,
    }));
    Ok(())
}

/// The bytes that a miss reads.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// A new object.
    Whole,
    /// A new object of another series.
    Another,
    /// A range of a new object.
    First,
    /// Another range of an object of which there were some.
    Further,
}

/// Resident memory with many connections.
fn connections(server: &Floe, quick: bool, show: &mut impl FnMut(Value)) -> Result<(), AnyError> {
    let parts = if quick { 10 } else { 1 };
    let mib = |bytes: u64| (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
    Client::connect(server.s3)?.get("65536-active", None)?;
    let before = server.resident()?;
    let mut idle = Vec::new();
    for _ in 0..IDLE_CONNECTIONS / parts {
        let mut client = Client::connect(server.s3)?;
        client.get("4096-hit", None)?;
        idle.push(client);
    }
    let with_idle = server.resident()?;
    let mut active = Vec::new();
    for _ in 0..ACTIVE_CONNECTIONS / parts {
        let mut client = Client::connect(server.s3)?;
        client.send("GET", "65536-active", None)?;
        active.push(client);
    }
    std::thread::sleep(Duration::from_millis(500));
    let with_active = server.resident()?;
    for client in &mut active {
        let mut body = vec![0; client.head()?];
        client.stream.read_exact(&mut body)?;
    }
    show(json!({
        "figure": format!("{} idle connections", idle.len()),
        "resident_mib_more": mib(with_idle.saturating_sub(before)),
    }));
    show(json!({
        "figure": format!("and {} with an answer of 64 KiB under way", active.len()),
        "resident_mib_more": mib(with_active.saturating_sub(before)),
    }));
    Ok(())
}
