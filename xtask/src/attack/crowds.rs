//! Many clients that hold on to what they get, and signals among busy ones.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::blackbox::http::Connection;
use crate::blackbox::memcached::Client;
use crate::blackbox::scenario::{Place, USAGE};
use crate::blackbox::server::Server;

/// How long a patient client waits beside a crowd.
const PATIENCE: Duration = Duration::from_secs(5);

fn connections(address: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    (0..count)
        .map(|_| TcpStream::connect(address).context("connecting"))
        .collect()
}

fn ready(server: &Server) -> Result<()> {
    let mut connection = Connection::open_with_patience(server.admin, PATIENCE)?;
    let response = connection.request("GET", "/ready", &[], b"")?;
    ensure!(response.status == 200, "/ready: {}", response.status);
    Ok(())
}

/// Health has a place of its own.
pub(super) fn idle_admin(place: &Place) -> Result<()> {
    let server = Server::start(&place.setup(Vec::new()))?;
    let crowd = connections(server.admin, 200)?;
    ready(&server).context("beside 200 idle connections")?;
    drop(crowd);
    server.stop()
}

/// Idle connections make room when the limit is reached.
pub(super) fn idle_s3(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.folder.join("origin/demo"))?;
    let server = Server::start(&place.setup(vec!["--s3-max-connections=64".to_owned()]))?;
    let crowd = connections(server.s3, 128)?;
    for _ in 0..10 {
        let mut connection = Connection::open_with_patience(server.s3, PATIENCE)?;
        let response = connection
            .request("GET", "/demo?list-type=2", &[], b"")
            .context("beside idle connections")?;
        ensure!(response.status == 200, "status {}", response.status);
    }
    drop(crowd);
    server.stop()
}

/// Memory is taken as bytes arrive, not as they are announced.
pub(super) fn announced_sets(place: &Place) -> Result<()> {
    let server = Server::start(&place.setup(Vec::new()))?;
    let mut crowd = connections(server.memcached, 200)?;
    for (number, stream) in crowd.iter_mut().enumerate() {
        stream.write_all(format!("set held-{number} 0 0 1000000\r\nabc").as_bytes())?;
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut client = Client::open(server.memcached)?;
    for number in 0..50 {
        let key = format!("key-{number}");
        let began = Instant::now();
        let answer = client.store("set", &key, &vec![b'v'; 10_000], None)?;
        ensure!(answer == "STORED", "a set beside the crowd: {answer}");
        ensure!(client.get(&key)?.is_some(), "what was set is not found");
        ensure!(
            began.elapsed() < PATIENCE,
            "a set and a get took {:?}",
            began.elapsed()
        );
    }
    drop(crowd);
    server.stop()
}

/// Those who do not read their answers keep nobody else from flash.
pub(super) fn silent_readers(place: &Place) -> Result<()> {
    const ITEMS: usize = 64;
    let server = Server::start(&place.setup(Vec::new()))?;
    let mut client = Client::open(server.memcached)?;
    let key = |number: usize| format!("key-{number}");
    for number in 0..ITEMS {
        let answer = client.store("set", &key(number), &vec![b'v'; 500_000], None)?;
        ensure!(answer == "STORED", "{answer}");
    }
    let request: String = (0..ITEMS)
        .map(|number| format!("get {}\r\n", key(number)))
        .collect();
    let mut crowd = connections(server.memcached, 300)?;
    for stream in &mut crowd {
        stream.write_all(request.as_bytes())?;
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut client = Client::open(server.memcached)?;
    for number in 0..ITEMS {
        let began = Instant::now();
        // An item may have been evicted; the answer must come all the same.
        client.get(&key(number)).context("a get beside the crowd")?;
        ensure!(
            began.elapsed() < PATIENCE,
            "a get took {:?}",
            began.elapsed()
        );
    }
    drop(crowd);
    server.stop()
}

/// Connections are closed between requests.
pub(super) fn busy_stop(place: &Place) -> Result<()> {
    const CLIENTS: usize = 50;
    const STOP_MAX: Duration = Duration::from_secs(5);
    let server = Server::start(&place.setup(Vec::new()))?;
    let address = server.memcached;
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let stopped = &stopped;
            scope.spawn(move || -> std::io::Result<()> {
                let mut client = Client::open(address)?;
                let key = format!("key-{number}");
                let burst: Vec<(&str, Vec<u8>)> = vec![(&key, vec![b'v'; 1_000]); 100];
                while !stopped.load(Ordering::Relaxed) {
                    client.set_all(&burst)?;
                    client.get_all(&[key.as_str(); 100])?;
                }
                Ok(())
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        let result = server.stop();
        stopped.store(true, Ordering::Relaxed);
        result?;
        ensure!(
            began.elapsed() < STOP_MAX,
            "it took {:?} to stop",
            began.elapsed()
        );
        Ok(())
    })
}

/// A signal to reload ends nothing.
pub(super) fn hang_up(place: &Place) -> Result<()> {
    let server = Server::start(&place.setup(Vec::new()))?;
    for _ in 0..3 {
        server.signal("HUP")?;
        std::thread::sleep(Duration::from_millis(100));
        ready(&server)?;
    }
    server.stop()
}

/// Without authentication, addresses of the network need to be allowed.
pub(super) fn open_to_the_network(place: &Place) -> Result<()> {
    let small = ["--device-size=64MiB", "--device-zone-size=4MiB"];
    for (flag, word) in [
        ("--memcached-listen=0.0.0.0:0", "memcached"),
        ("--admin-listen=0.0.0.0:0", "admin"),
    ] {
        let mut arguments = vec!["serve", flag];
        arguments.extend(small);
        place.refuses(&arguments, USAGE, &[word])?;
    }
    Ok(())
}
